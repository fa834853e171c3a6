#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Each system call of the setup is made to fail, one at a time.

Either carrel says so in one line with status 125 and the command never ran, or it ran exactly as
confined as ever. A first, undisturbed run under strace tells which calls there are; the command
itself is a probe that writes down how confined it is. LONG in the environment takes every call,
otherwise those that make the boundary are taken.
"""
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, PATIENCE, CarrelTest, confinement, host_state, read, reap_until_alone  # noqa: E402

# What makes the boundary, and an error the kernel might really answer.
BOUNDARY = {
    "clone": "EAGAIN", "clone3": "EAGAIN", "unshare": "EPERM", "fork": "EAGAIN", "vfork": "EAGAIN",
    "openat2": "EACCES", "open_tree": "EPERM", "move_mount": "EINVAL", "fsopen": "ENODEV", "fsconfig": "EINVAL",
    "fsmount": "EPERM", "mount_setattr": "EINVAL", "mount": "EPERM", "umount2": "EINVAL", "pivot_root": "EINVAL",
    "fchdir": "EACCES", "chdir": "EACCES", "mkdirat": "ENOSPC", "symlinkat": "ENOSPC", "setresuid": "EAGAIN",
    "setresgid": "EPERM", "setgroups": "EPERM", "capset": "EPERM", "prctl": "EPERM", "seccomp": "EINVAL",
    "prlimit64": "EPERM", "setrlimit": "EPERM", "close_range": "EMFILE", "keyctl": "EDQUOT", "sethostname": "EPERM",
    "setdomainname": "EPERM", "setns": "EPERM", "setsid": "EPERM", "landlock_create_ruleset": "ENOMEM",
    "landlock_add_rule": "EINVAL", "landlock_restrict_self": "EPERM", "socketpair": "EMFILE", "sendmsg": "ENOBUFS",
    "recvmsg": "EIO", "execve": "EACCES", "execveat": "EACCES", "memfd_create": "EMFILE", "statx": "EIO",
    "fstatfs": "EIO", "newfstatat": "EIO", "dup2": "EBADF", "dup3": "EBADF", "socket": "EMFILE", "ioctl": "ENODEV",
    "flock": "EIO", "signalfd4": "EMFILE", "capget": "EPERM",
    "mknodat": "ENOSPC", "getppid": "EPERM",
}
# Every other call a run makes. Some of their failures are harmless, and then must change nothing.
LONG = {
    "open": "EMFILE", "write": "EIO", "read": "EIO", "openat": "EMFILE", "fstat": "EIO", "mmap": "ENOMEM",
    "brk": "ENOMEM",
    "fcntl": "EBADF", "poll": "ENOMEM", "ppoll": "ENOMEM", "getdents64": "EIO", "readlinkat": "EIO", "readlink": "EIO",
    "pipe2": "EMFILE", "wait4": "ECHILD", "waitid": "ECHILD", "kill": "EPERM", "lseek": "EIO", "getcwd": "ENOENT",
    "fchown": "EPERM", "fchmod": "EPERM", "fsetxattr": "ENOSPC", "ftruncate": "EFBIG", "rt_sigprocmask": "EINVAL",
    "rt_sigaction": "EINVAL", "timerfd_create": "EMFILE", "timerfd_settime": "EINVAL", "epoll_create1": "EMFILE",
    "epoll_ctl": "ENOMEM", "epoll_wait": "EINTR", "pidfd_open": "EMFILE", "pidfd_send_signal": "ESRCH",
    "getuid": "EPERM",
    "munmap": "EINVAL", "close": "EIO", "mprotect": "ENOMEM", "access": "EACCES", "faccessat2": "EACCES",
    "clock_gettime": "EINVAL", "sched_getaffinity": "EINVAL", "umask": "EPERM", "unlinkat": "EIO", "mremap": "ENOMEM",
}
COMMAND = "/probe"


class FailingSystemCalls(CarrelTest):
    def setUp(self):
        super().setUp()
        source = os.path.join(os.environ["SRC"], "tests", "fault", "confined.c")
        subprocess.run(["cc", "-O1", "-Wall", "-static", "-o", f"{self.ws}/probe", source], check=True)
        self.marker = f"{self.ws}/marker"
        self.names = [arg for name in os.listdir("/proc/self/ns") if not name.endswith("_for_children")
                      for arg in ("--env", f"{name}={os.readlink(f'/proc/self/ns/{name}')}")]

    def run_probe(self, *strace):
        """Under strace, which is our child; its own messages go to the trace file."""
        if os.path.exists(self.marker):
            os.unlink(self.marker)
        command = ["strace", "-f", "-qq", *strace, CARREL, "run", "--workspace", self.ws, *self.names, "--", COMMAND]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                                  check=False, cwd=self.dir)
        except subprocess.TimeoutExpired:
            reap_until_alone(0)  # strace is gone, what it traced is not
            return subprocess.CompletedProcess(command, "none: it hangs", "", "")

    def calls_of_setup(self):
        """How often each process calls each system call before it executes the command, at most."""
        trace = self.path("trace")
        done = self.run_probe("-o", trace)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        counts, finished = {}, set()
        for line in read(trace).splitlines():
            match = re.match(r"(\d+) +(\w+)\(", line)
            if not match or match[1] in finished:
                continue
            pid, name = match.groups()
            if name in ("execve", "execveat") and f'"{COMMAND}"' in line:
                finished.add(pid)
                continue
            counts.setdefault(name, {}).setdefault(pid, 0)
            counts[name][pid] += 1
        return {name: max(by_pid.values()) for name, by_pid in counts.items()}

    def judge(self, name, when, done, want):
        """What is wrong with the outcome of one disturbed run; None when nothing is."""
        ran = os.path.exists(self.marker) and confinement(self.marker)
        if not ran and done.returncode == 128 + signal.SIGSYS:
            return None  # once the filter is in place, it refuses strace's trick itself: system call -1
        line = re.fullmatch(r"carrel: [^\n]{12,}\n", done.stderr)
        if not ran:
            if done.returncode == 125 and line:
                return None
            if name in ("execve", "execveat") and done.returncode in (126, 127) and line:
                return None
            return f"status {done.returncode}, stderr {done.stderr!r}"
        if ran != want:
            return f"the command ran less confined:\n{difference(want, ran)}"
        # The command ran in full confinement, but telling its end may have failed.
        if done.returncode == 0 or (done.returncode == 125 and line):
            return None
        return f"ran, then status {done.returncode}, stderr {done.stderr!r}"

    def test_no_failing_call_weakens_the_sandbox(self):
        table = dict(BOUNDARY, **(LONG if os.environ.get("LONG") else {}))
        counts = self.calls_of_setup()
        want = confinement(self.marker)
        for line in ("CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(line, want)
        self.assertNotIn("HOST", want)
        state, wrong, tried, refused = host_state(), [], 0, 0
        for name in sorted(set(table) & set(counts)):
            for when in numbers(counts[name]):
                done = self.run_probe(*quicker(name), "-o", "/dev/null", "-e", f"trace={name}",
                                      "-e", f"inject={name}:error={table[name]}:when={when}")
                problem = self.judge(name, when, done, want)
                tried += 1
                refused += done.returncode == 125
                if problem:
                    wrong.append(f"{name} number {when} = {table[name]}: {problem}")
        unknown = set(counts) - set(BOUNDARY) - set(LONG)
        print(f"{tried} failures injected, {refused} refused; not disturbed: {sorted(unknown)}")
        self.unchanged(state)
        self.assertGreater(refused, 50, "the injection reaches the setup")
        self.assertEqual([], wrong, "\n" + "\n".join(wrong))


def numbers(count):
    """Which of so many calls to disturb. More than a hundred are a loop: not every turn of it is looked at."""
    every = range(1, count + 1)
    return every if count <= 100 or os.environ.get("LONG") else sorted({*every[::3], *every[-12:]})


def quicker(name):
    """strace need not stop at every other call; but its way to do so sets no_new_privs, which may be our subject."""
    return [] if name == "prctl" else ["--seccomp-bpf"]


def difference(want, got):
    want, got = want.splitlines(), got.splitlines()
    return "\n".join([f"  - {line}" for line in want if line not in got][:10]
                     + [f"  + {line}" for line in got if line not in want][:10])


if __name__ == "__main__":
    unittest.main()
