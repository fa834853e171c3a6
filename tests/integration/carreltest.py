# SPDX-License-Identifier: Apache-2.0
"""What the tests share: starting carrel, a workspace per test, and seeing that nothing is left.

A test file is a set of unittest cases whose names are sentences. Every test makes this process a
"subreaper": whatever carrel leaves running becomes our child, and is found when the test ends.
"""
import ctypes
import errno
import json
import linecache  # noqa: F401  with tracemalloc: what shows a warning imports them, and must not in the middle of an
import os  # import, where the collector may find something to warn of (Python 3.11 loses its lock then)
import re
import signal
import stat
import subprocess
import tempfile
import time
import tracemalloc  # noqa: F401
import unittest

CARREL = os.environ["CARREL"]
TMP = os.environ["TMP"]
ROOT = os.environ["IDENT"] == "root"
PYTHON = "/usr/bin/python3"

# Nothing here takes this long. A hang is a failure, and must be told from a slow machine.
PATIENCE = 30 * int(os.environ.get("SLOWER", "1"))

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36


def check(result, what):
    """A libc call that failed, as an OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def carrel(*args, **kwargs):
    """Runs carrel and returns the finished process; text unless text=False."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               "text": True, "timeout": PATIENCE, "cwd": TMP}
    options.update(kwargs)
    if "input" in options:
        del options["stdin"]
    binary = options.pop("binary", CARREL)
    return subprocess.run([binary, *map(str, args)], check=False, **options)


def children():
    """Process ids of our children, living or dead, that nobody has waited for."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


def describe(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            stat = file.read()
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return f"{stat.split(' ')[0:3]} {file.read().split(chr(0))[:6]}"
    except OSError:
        return f"{pid} (gone)"


def reap_until_alone(seconds=20):
    """Waits until every process below us has ended. Returns those that would not, and ends them."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        left = children()
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    told = [describe(pid) for pid in left]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    for pid in left:
        os.waitpid(pid, 0)
    return told


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def write(path, data=""):
    with open(path, "w", encoding="utf-8") as file:
        file.write(data)
    return path


def confinement(marker):
    """What tests/fault/confined.c wrote, without the ids of this run's lease, and whether pid 1 had a child before."""
    return re.sub(r"\bpid ([23]) session \1\b", "pid FIRST session FIRST", re.sub(r"\b(uid|gid)=\d{4,}", r"\1=LEASED", read(marker)))


def tree(top):
    """Everything below a directory and the directory itself, in enough detail to see any change that stays.

    The times of directories are left out: what was made and taken away again has touched them."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in [".", *dirs, *files]:
            path = os.path.normpath(os.path.join(where, name))
            try:
                st = os.lstat(path)
            except FileNotFoundError:
                continue
            found[path] = (st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_size,
                           0 if stat.S_ISDIR(st.st_mode) else st.st_mtime_ns)
    return found


def v1(controller):
    """Whether it is bound to a v1 hierarchy."""
    return any(controller in line.split(":")[1].split(",") for line in read("/proc/self/cgroup").splitlines())


def cgroup_dirs():
    """Control groups below ours; where we were given none of our own, those with Carrel's name."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        ours = {line.rstrip("\n").split(":", 2)[2] for line in file} - {"/"}
    found = set()
    for where, dirs, _ in os.walk("/sys/fs/cgroup"):
        paths = [os.path.join(where, name) for name in dirs]
        found.update(path for path in paths
                     if (any(own + "/" in path for own in ours) if ours else "carrel" in path))
    return found


def host_state():
    """What a run could leave behind, apart from processes and things in its own workspace: mounts, control groups,
    files with Carrel's name. (A network namespace needs a process or a mount to live on.)"""
    files = {os.path.join(top, name) for top in ("/tmp", "/run", "/dev/shm") if os.path.isdir(top)
             for name in os.listdir(top) if "carrel" in name}
    return set(read("/proc/self/mountinfo").splitlines()) | cgroup_dirs() | files - {"/run/carrel"}


CALLS = {"clone": 56, "pivot_root": 155, "mount": 165, "keyctl": 250, "unshare": 272, "process_vm_readv": 310, "seccomp": 317,
         "memfd_create": 319, "execveat": 322, "pidfd_send_signal": 424, "open_tree": 428,
         "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "pidfd_open": 434,
         "clone3": 435, "close_range": 436, "openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442,
         "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446}

BPF_LD, BPF_JEQ, BPF_JSET, BPF_RET = 0x20, 0x15, 0x45, 0x06
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000


def deny(error, *names):
    """A preexec_fn: the named system calls fail with that error from here on.

    This is the kernel that lacks them. Carrel and all it starts inherit the filter.
    """
    program = [(BPF_LD, 0, 0, 0)]
    for name in names:
        program += [(BPF_JEQ, 0, 1, CALLS[name]),
                    (BPF_RET, 0, 0, RET_ERRNO | getattr(errno, error))]
    return lambda: seccomp([*program, (BPF_RET, 0, 0, RET_ALLOW)])


def deny_user_namespaces():
    """A preexec_fn: a host whose policy forbids user namespaces (EPERM), as seen by every way in.

    clone3 has its flags in memory where a filter cannot see them, so it goes altogether.
    """
    CLONE_ARG_FLAGS = 16  # offset of the first argument in struct seccomp_data
    return lambda: seccomp([
        (BPF_LD, 0, 0, 0),
        (BPF_JEQ, 0, 1, CALLS["clone3"]), (BPF_RET, 0, 0, RET_ERRNO | errno.ENOSYS),
        (BPF_JEQ, 1, 0, CALLS["clone"]), (BPF_JEQ, 0, 3, CALLS["unshare"]),
        (BPF_LD, 0, 0, CLONE_ARG_FLAGS),
        (BPF_JSET, 0, 1, CLONE_NEWUSER), (BPF_RET, 0, 0, RET_ERRNO | errno.EPERM),
        (BPF_RET, 0, 0, RET_ALLOW)])


def deny_clone(flags, error):
    """A preexec_fn: clone with exactly these flags fails with that error."""
    return lambda: seccomp([
        (BPF_LD, 0, 0, 0), (BPF_JEQ, 0, 3, CALLS["clone"]), (BPF_LD, 0, 0, 16), (BPF_JEQ, 0, 1, flags),
        (BPF_RET, 0, 0, RET_ERRNO | getattr(errno, error)), (BPF_RET, 0, 0, RET_ALLOW)])


class Insn(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte),
                ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Insn))]


def seccomp(instructions):
    """Installs a filter on this process, which must be about to execute something."""
    PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
    array = (Insn * len(instructions))(*(Insn(*i) for i in instructions))
    program = Program(len(instructions), array)
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "seccomp")


CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC_PRIVATE = (1 << 18) | (1 << 14)


def own_users():
    """For a preexec_fn: an ordinary user's own user namespace, in which he stays who he is."""
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(CLONE_NEWUSER), "unshare")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{uid} {uid} 1")
    write("/proc/self/gid_map", f"{gid} {gid} 1")


def private_mounts():
    """For a preexec_fn: from here on, what we mount is ours alone, and goes when we go.

    An ordinary user needs a user namespace for that; he stays who he is in it, and has lost its
    capabilities again by the time carrel is executed.
    """
    if not ROOT:
        own_users()
    check(libc.unshare(CLONE_NEWNS), "unshare")
    check(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None), "make private")


def mount(source, target, kind, options=""):
    check(libc.mount(source.encode(), target.encode(), kind.encode(), 0, options.encode()),
          f"mount {kind} on {target}")


def umount(target, lazily=False):
    """Not by the program, which leaves /run/mount behind."""
    check(libc.umount2(target.encode(), 2 if lazily else 0), f"umount {target}")


class CarrelTest(unittest.TestCase):
    """One test: its own directory, an empty workspace in it, and nothing left at the end."""

    maxDiff = 4000

    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=TMP)
        os.chmod(self.dir, 0o755)
        self.ws = os.path.join(self.dir, "ws")
        os.mkdir(self.ws)

    def tearDown(self):
        left = reap_until_alone()
        subprocess.run(["rm", "-rf", self.dir], check=False)  # which does not mind how deep it is
        self.assertEqual([], left, "processes left running")

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def run_in(self, *args, **kwargs):
        """carrel run --workspace WS ARGS…"""
        return carrel("run", "--workspace", self.ws, *args, **kwargs)

    def ok(self, *args, **kwargs):
        """The standard output of a run in the workspace that must succeed."""
        return self.succeeded(self.run_in(*args, **kwargs))

    def succeeded(self, done):
        if done.returncode or done.stderr:
            self.fail(f"status {done.returncode} of {done.args[1:]}: {done.stderr!r}, printed {done.stdout!r}")
        return done.stdout

    def json(self, *args, **kwargs):
        """The result object of a run in the workspace with --json, and the finished process."""
        done = self.run_in("--json", *args, **kwargs)
        return self.object(done.stdout), done

    def object(self, text):
        """The one JSON object that the text must be, without duplicate keys."""
        def unique(pairs):
            names = [name for name, _ in pairs]
            self.assertEqual(len(names), len(set(names)), f"duplicate keys in {names}")
            return dict(pairs)
        try:
            value = json.loads(text, object_pairs_hook=unique)
        except json.JSONDecodeError as error:
            self.fail(f"not one JSON object ({error}): {text!r}")
        self.assertIsInstance(value, dict)
        return value

    def one_line(self, done, *words, code=125):
        """Carrel's own failure: the exit status, and one line for a person that names the trouble."""
        self.assertEqual(code, done.returncode, f"of {done.args}, stderr: {done.stderr!r}")
        self.assertRegex(done.stderr, r"\Acarrel: [^\n]{12,}\n\Z", f"of {done.args}")
        for word in words:
            self.assertIn(word, done.stderr, f"of {done.args}")
        self.assertNotRegex(done.stderr, r"[^\x20-\x7e\n\x80-\U0010ffff]", "control bytes in an error")

    def refused(self, *args, words=(), code=125, **kwargs):
        """A run that must not happen: one line, nothing on stdout, and the world as it was.

        The arguments are those after `carrel run`, up to the command, which is added here.
        """
        before, state = tree(self.dir), host_state()
        done = carrel("run", *args, "--", "/bin/touch", "/tmp/started", **kwargs)
        self.one_line(done, *words, code=code)
        self.assertEqual("", done.stdout or "")
        self.assertEqual(before, tree(self.dir), f"{done.args} changed files")
        self.unchanged(state)
        return done

    def unchanged(self, before):
        """Nothing has come to the host since, or it goes within a moment."""
        deadline = time.monotonic() + 10
        while (more := host_state() - before) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(set(), more, "left behind")
        self.assertEqual([], reap_until_alone(), "processes left running")
