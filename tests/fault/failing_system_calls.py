#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 40
"""Each system call of the setup is made to fail, one at a time.

Either carrel says so in one line with status 125 and the command never ran, or it ran exactly as
confined as ever. A first, undisturbed run tells which calls there are in which process; the command
itself is a probe, never disturbed, that writes down how confined it is. LONG in the environment takes
every call, otherwise those that make the boundary are taken.

INV-1: a command starts only after every stage has succeeded.
"""
import collections
import errno
import os
import re
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
        self.fail_call = self.compiled("fail_call.c", self.path("fail_call"))
        self.compiled("confined.c", f"{self.ws}{COMMAND}")
        self.marker, self.log = f"{self.ws}/marker", self.path("log")
        self.names = [arg for name in os.listdir("/proc/self/ns") if not name.endswith("_for_children")
                      for arg in ("--env", f"{name}={os.readlink(f'/proc/self/ns/{name}')}")]

    def compiled(self, source, program):
        path = os.path.join(os.environ["SRC"], "tests", "fault", source)
        subprocess.run(["cc", "-O1", "-Wall", "-static", "-o", program, path], check=True)
        return program

    def run_probe(self, process=-1, call=0, number=0, error=0):
        """With one failing call, or none, in a workspace that was never used."""
        if os.path.exists(self.marker):
            os.unlink(self.marker)
        for name in self.made():
            os.rmdir(f"{self.ws}/{name}")
        command = [self.fail_call, self.log, *map(str, (process, call, number, error)),
                   CARREL, "run", "--workspace", self.ws, *self.names, "--", COMMAND]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                                  check=False, cwd=self.dir)
        except subprocess.TimeoutExpired:  # and all that was traced is killed
            done = subprocess.CompletedProcess(command, "none: it hangs", "", "")
        if left := reap_until_alone():
            done.stderr += f"left running: {left}"
        return done

    def made(self):
        """Carrel's mount points in the workspace: all but our probe and what it wrote."""
        return set(os.listdir(self.ws)) - {os.path.basename(COMMAND), os.path.basename(self.marker)}

    def calls_of_setup(self):
        """How often each process calls each system call before it executes the command."""
        done = self.run_probe()
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return collections.Counter(tuple(map(int, line.split())) for line in read(self.log).splitlines())

    def judge(self, name, done, want):
        """What is wrong with the outcome of one disturbed run; None when nothing is."""
        ran = os.path.exists(self.marker) and without_more_covers(confinement(self.marker), want)
        line = re.fullmatch(r"carrel: [^\n]{12,}\n", done.stderr)
        if not ran:
            if done.returncode == 125 and line:
                return f"mount points stay: {sorted(self.made())}" if self.made() else None
            if name in ("execve", "execveat") and done.returncode in (126, 127) and line:
                return None
            return f"status {done.returncode}, stderr {done.stderr!r}"
        if done.returncode == 125 and line and want.startswith(ran):
            return None  # ended while it wrote down how confined it was
        if ran != want:
            return f"the command ran less confined:\n{difference(want, ran)}"
        # The command ran in full confinement, but telling its end may have failed.
        if (done.returncode == 0 and not done.stderr) or (done.returncode == 125 and line):
            return None
        return f"ran, then status {done.returncode}, stderr {done.stderr!r}"

    def test_no_failing_call_weakens_the_sandbox(self):
        table = dict(BOUNDARY, **(LONG if os.environ.get("LONG") else {}))
        counts, names = self.calls_of_setup(), names_of_calls()
        want = confinement(self.marker)
        for line in ("CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(line, want)
        self.assertNotIn("HOST", want)
        state, wrong, tried, failed, refused = host_state(), [], 0, 0, 0
        for process, call in sorted(counts):
            name = names[call]
            for number in numbers(counts[process, call]) if name in table else ():
                done = self.run_probe(process, call, number, getattr(errno, table[name]))
                tried += 1
                failed += "failed\n" in read(self.log)  # how often one polls is not the same in every run
                refused += done.returncode == 125
                if problem := self.judge(name, done, want):
                    wrong.append(f"process {process}, {name} number {number} = {table[name]}: {problem}")
        unknown = {names[call] for _, call in counts} - set(BOUNDARY) - set(LONG)
        print(f"{failed} calls of {tried} failed, {refused} refused; not disturbed: {sorted(unknown)}")
        self.unchanged(state)
        self.assertGreater(failed, 0.95 * tried, "the calls of one run are those of another")
        self.assertGreater(refused, 50, "the injection reaches the setup")
        self.assertEqual([], wrong, "\n" + "\n".join(wrong))


def names_of_calls():
    lines = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                           capture_output=True, text=True, check=True).stdout
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", lines)}


def numbers(count):
    """Which of so many calls to disturb. More than a hundred are a loop: not every turn of it is looked at."""
    every = range(1, count + 1)
    return every if count <= 100 or os.environ.get("LONG") else sorted({*every[::5], *every[-12:]})


def without_more_covers(ran, want):
    """A directory of /etc of which Carrel cannot say that everybody may read it is covered as a whole: more confined."""
    lines = want.splitlines()
    return "".join(line for line in ran.splitlines(keepends=True) if line.rstrip("\n") in lines or not line.lstrip().startswith("/empty /etc/"))


def difference(want, got):
    want, got = want.splitlines(), got.splitlines()
    return "\n".join([f"  - {line}" for line in want if line not in got][:10]
                     + [f"  + {line}" for line in got if line not in want][:10])


if __name__ == "__main__":
    unittest.main()
