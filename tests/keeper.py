# SPDX-License-Identifier: Apache-2.0
"""Keeps one test: runs it as one identity, sees what it leaves behind, ends all of it.

Each test is kept by a process of its own, in a mount namespace of its own where root allows that, and in a cgroup of
its own where one can be made. Neither is needed to see every process: the keeper is the subreaper of its test, so that
whatever the test orphans becomes the keeper's child.
"""

import ctypes
import hashlib
import os
import shutil
import signal
import sys
import time
import traceback

SRC = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.path.realpath(os.environ.get("BUILD") or f"{SRC}/build")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_ID = 54321  # the ordinary user: owns nothing on any host, so nothing is allowed by accident
PASS, FAIL, SKIP = 0, 1, 77
SLOWER = int(os.environ.get("SLOWER", "1"))  # than a usual machine: in an emulated one all takes so many times as long
SETTLE_SECONDS = 5  # the killed may take a moment to be gone; who is there after this is left behind

# --- the few system calls that Python 3.11 lacks ---

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED, MNT_DETACH = 0x1000, 0x4000, 1 << 18, 1 << 20, 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)


def libc(name, *args):
    if getattr(LIBC, name)(*(a.encode() if isinstance(a, str) else a for a in args)) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def can_unshare(flags):
    """Tried in a child, because it cannot be taken back."""
    pid = os.fork()
    if pid == 0:
        os._exit(LIBC.unshare(flags) != 0)
    return os.waitpid(pid, 0)[1] == 0


def read(path, limit=-1):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(limit)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# --- what a test may leave behind ---


def mounts():
    return read("/proc/self/mountinfo").splitlines()


def cgroup_folders():
    """Our own folder in every hierarchy but cpuset, which takes nobody in before it is told its cpus."""
    own = {}
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= {controller: path for controller in controllers.split(",")}
    for line in mounts():
        left, right = line.split(" - ", 1)
        root, point = left.split()[3:5]
        fstype, _, options = right.split(" ", 2)
        if fstype not in ("cgroup", "cgroup2"):
            continue
        serves = {""} if fstype == "cgroup2" else set(options.split(",")) & set(own)
        path = own.get(min(serves, default=None), "")
        if "cpuset" not in serves and path.startswith(root):
            yield os.path.normpath(f"{point}/{path.removeprefix(root)}")


class Group:
    """The cgroup of one run, in every hierarchy where one can be made; perhaps in none."""

    def __init__(self, name):
        self.tops = []
        for parent in cgroup_folders():
            try:
                os.mkdir(f"{parent}/{name}")
                self.tops.append(f"{parent}/{name}")
            except OSError:
                pass  # not ours to write: the keeper sees every process anyway, see descendants()

    def folders(self):
        return [folder for top in self.tops for folder, _, _ in os.walk(top)]

    def enter(self):
        for top in self.tops:
            try:
                write(f"{top}/cgroup.procs", "0")
            except OSError:
                pass  # made, but not to be entered from where we are: as good as none

    def pids(self):
        return {int(line) for folder in self.folders() for line in read(f"{folder}/cgroup.procs").split()}

    def end(self):
        for top in self.tops:
            for order, text in (("cgroup.kill", "1"), ("pids.max", "0")):
                if os.path.exists(f"{top}/{order}"):
                    write(f"{top}/{order}", text)

    def remove(self):
        for folder in reversed(self.folders()):
            os.rmdir(folder)


def descendants():
    """Every live process below this one. A subreaper inherits whatever a test orphans, so that none is missed."""
    parents, live = {}, set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        parents[int(pid)] = int(parent)
        if state not in "ZX":
            live.add(int(pid))
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return (below & live) - {os.getpid()}


def describe(pid):
    try:
        return f"process {pid} ({read(f'/proc/{pid}/cmdline')!r}) in {os.readlink(f'/proc/{pid}/ns/net')}"
    except OSError:
        return f"process {pid}"


NET_SLAB = "/sys/kernel/slab/net_namespace"


def network_namespaces():
    """How many the kernel has; None where it does not tell us. Some kernels free what is left of one only when the
    next goes, so one is made and left each time, and has a moment to go; shrinking the kernel's cache makes the count
    exact."""
    can_unshare(CLONE_NEWNET)
    counts = []
    try:
        for _ in range(10):
            write(f"{NET_SLAB}/shrink", "1")
            counts.append(int(read(f"{NET_SLAB}/objects").split()[0]))
            time.sleep(0.03)
    except OSError:
        return None
    return min(counts)


def unaccounted_networks():
    """How many of them no process is in, holds open or has mounted: what a sandbox leaked, or has only just left."""
    seen = {line.split()[3] for line in mounts() if " - nsfs " in line and line.split()[3].startswith("net:")}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [f"/proc/{pid}/ns/net"] + [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        for link in links:
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("net:"):
                seen.add(target)
    count = network_namespaces()
    return 0 if count is None else max(0, count - len(seen))


def leaked_networks(before):
    """The kernel takes a network namespace apart a moment after its last process has gone; other programs of this
    machine may be making and leaving some all the time, so it is given long to come down to what it was."""
    deadline = time.monotonic() + 4 * SETTLE_SECONDS
    while (left := unaccounted_networks()) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    return max(0, left - before)


# What somebody who got out, or a careless test, would write to first.
HOSTS_OWN = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts", "/etc/profile", "/etc/ld.so.preload", "/etc/crontab", "/root/.bashrc")


def may_be_ours(entry):
    """Without a view of our own: other programs come and go in /tmp, and other people's Carrel."""
    try:
        return "carrel" in entry.name and entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except FileNotFoundError:
        return False


def traces(private):
    """Mounts and files. Cgroups that a test makes are below its own, see Group."""
    found = {f"mount {line}" for line in mounts()}
    for folder in filter(os.path.isdir, ("/tmp", "/dev/shm", "/run")):
        found |= {f"file {entry.path}" for entry in os.scandir(folder) if private or may_be_ours(entry)}
    for path in filter(os.path.exists, HOSTS_OWN):
        st = os.stat(path)
        found.add(f"change of {path}: inode {st.st_ino}, {st.st_size} bytes, {st.st_mtime_ns}")
    return found - {"file /run/carrel"}  # the leases of uid ranges stay, as documented


SUBIDS = 0x6FFE0000  # of the ordinary user, here alone


def write_subids(base):
    """The ordinary user is one of /etc/passwd, and has subordinate ids: for private views to show."""
    os.mkdir(f"{base}/etc", 0o755)
    for name, line in (("passwd", f"carreltest:x:{USER_ID}:{USER_ID}::/nonexistent:/bin/sh"),
                       ("subuid", f"carreltest:{SUBIDS}:65536"), ("subgid", f"carreltest:{SUBIDS}:65536")):
        if os.getuid() == 0 and os.path.exists(f"/etc/{name}"):
            write(f"{base}/etc/{name}", f"{read(f'/etc/{name}')}{line}\n")


def give_subids(base):
    for entry in os.scandir(f"{base}/etc"):
        libc("mount", entry.path, f"/etc/{entry.name}", None, MS_BIND, None)


def private_view(base):
    """A mount namespace for one test: what it mounts, or drops in /tmp, is surely its own and cannot reach the host.
    Inside, propagation is shared, as on most hosts, so that a mount of Carrel's that should be private shows."""
    libc("unshare", CLONE_NEWNS)
    libc("mount", None, "/", None, MS_REC | MS_PRIVATE, None)
    libc("mount", SRC, f"{base}/src", None, MS_BIND | MS_REC, None)
    if os.path.isdir(f"{base}/bases"):
        libc("mount", f"{BUILD}/bases", f"{base}/bases", None, MS_BIND, None)
    for folder in filter(os.path.isdir, ("/tmp", "/dev/shm")):
        libc("mount", "tmpfs", folder, "tmpfs", 0, "mode=1777")
    give_subids(base)
    libc("mount", None, "/", None, MS_REC | MS_SHARED, None)


def base_name(identity):
    """Another one when what makes it is another."""
    with open(f"{SRC}/provision/base_build.py", "rb") as file:
        return f"{identity}-{hashlib.sha256(file.read()).hexdigest()[:8]}"


def make_base(base, identity):
    """The small Debian that tests with systems of their own stand on; once, kept in the build directory."""
    state = f"{BUILD}/bases/{base_name(identity)}"
    if os.path.isdir(f"{state}/.carrel/bases/debian-12.1"):
        return True
    uid = USER_ID if identity == "user" and os.getuid() == 0 else os.getuid()
    os.makedirs(state, exist_ok=True)
    os.chown(state, uid, uid)
    pid = os.fork()
    if pid == 0:
        try:
            if can_unshare(CLONE_NEWNS) and os.getuid() == 0:
                private_view(base)
                state = f"{base}/bases/{base_name(identity)}"
            os.chdir("/")
            if uid != os.getuid():
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            carrel = f"{base}/bin/carrel"
            os.execve(carrel, [carrel, "base", "build", "--state", state, "debian-12"], {"PATH": PATH, "HOME": "/"})
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(126)
    return os.waitpid(pid, 0)[1] == 0


# --- one test as one identity, in a process that watches over it ---


class TimedOut(Exception):
    pass


def on_alarm(*_):
    raise TimedOut


def on_term(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
    sys.exit(FAIL)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Keeper:
    def __init__(self, test, identity, base, number, private):
        self.test, self.identity, self.base, self.private = test, identity, base, private
        self.src = f"{base}/src" if private else SRC
        self.tmp, self.log = f"{base}/t/{number}", f"{base}/log/{number}"
        self.bases = f"{base}/bases/{base_name(identity)}" if "BASE" in test.notes else ""
        self.uid = USER_ID if identity == "user" and os.getuid() == 0 else os.getuid()
        self.complaints = 0

    def complain(self, text):
        self.complaints += 1
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(f"tests/run: {text}\n")

    def run(self):
        libc("prctl", PR_SET_CHILD_SUBREAPER, 1)
        libc("prctl", PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.signal(signal.SIGALRM, on_alarm)
        signal.signal(signal.SIGTERM, on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run tells us to stop
        if self.private:
            private_view(self.base)
        if self.test.kind != "escape":
            status = self.once({})
        elif not self.test.control(self.identity):
            status = self.complain("states no CONTROL to leave out, so that nobody knows whether it can fail")
        else:
            status = self.once({"MODE": "real"})
            if status == PASS:
                self.must_fail_without(self.test.control(self.identity))
        return FAIL if self.complaints or status not in (PASS, SKIP) else status

    def must_fail_without(self, control):
        start = os.path.getsize(self.log)
        status = self.once({"MODE": "weak", "CARREL": f"{self.base}/bin/weak/carrel", "CARREL_WEAKEN": control})
        if status != FAIL or "ESCAPED:" not in read(self.log)[start:]:
            self.complain(f"cannot fail: with {control} left out it ended with {status}, not with an escape")

    def once(self, extra):
        os.mkdir(self.tmp, 0o700)
        os.chown(self.tmp, self.uid, -1 if self.uid == os.getuid() else self.uid)
        before, group = traces(self.private), Group(f"tests.{os.getpid()}")
        try:
            pid = os.fork()
            if pid == 0:
                self.become(group, extra)
            status = self.wait(pid)
            if status is None:
                self.end_all(group)
            self.look_around(before, group)
            return status
        finally:
            self.end_all(group)
            group.remove()
            self.remove_tmp()

    def become(self, group, extra):
        """The forked child turns into the test."""
        try:
            os.setsid()
            group.enter()
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            for number, fd in enumerate((os.open("/dev/null", os.O_RDONLY), log, log)):
                os.dup2(fd, number)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # of whoever started us
            for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGPIPE, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.umask(0o022)
            os.chdir(self.tmp)
            if self.uid != os.getuid():
                os.setgroups([])
                os.setresgid(self.uid, self.uid, self.uid)
                os.setresuid(self.uid, self.uid, self.uid)
            folder = f"{self.base}/bin/unit" if self.test.kind == "unit" else f"{self.src}/tests/{self.test.kind}"
            program = f"{folder}/{self.test.file}"
            os.execve(program, [program], self.environment() | extra)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(126)

    def environment(self):
        bins = f"{self.base}/bin"
        programs = {"CARREL": "carrel", "CARREL_WEAK": "weak/carrel", "CARREL_ASAN": "asan/carrel", "PROBES": "probes"}
        needed = self.test.notes.get("WITH", "LANG")
        return {name: f"{bins}/{path}" for name, path in programs.items()} | {needed: os.environ.get(needed, "")} | {
            "PATH": PATH, "HOME": self.tmp, "TMPDIR": self.tmp, "TMP": self.tmp, "LANG": "C.UTF-8",
            "BASE": f"{self.bases}/.carrel/bases/debian-12.1/root" if "BASE" in self.test.notes else "",
            "IDENT": self.identity, "SRC": self.src, "TESTLIB": f"{self.src}/tests/lib.sh", "SLOWER": str(SLOWER), "LONG": os.environ.get("LONG", ""),
        }  # fmt: skip

    def wait(self, pid):
        limit = self.test.patience * SLOWER
        signal.alarm(limit)
        try:
            while True:
                done, status = os.waitpid(-1, 0)
                if done == pid:
                    return os.waitstatus_to_exitcode(status)
        except TimedOut:
            self.complain(f"timed out after {limit} s, with {len(descendants())} processes running")
            return None
        finally:
            signal.alarm(0)

    def look_around(self, before, group):
        deadline = time.monotonic() + SETTLE_SECONDS
        while (left := descendants() | group.pids()) and time.monotonic() < deadline:
            reap()
            time.sleep(0.01)
        after = traces(self.private)
        left = [describe(pid) for pid in sorted(left)] + sorted(after - before)
        left += [f"cgroup {folder}" for folder in group.folders() if folder not in group.tops]
        for what in left:
            self.complain(f"left behind: {what}")
        for what in sorted(before - after):
            if what.startswith("mount"):
                self.complain(f"gone: {what}")

    def end_all(self, group):
        while left := descendants() | group.pids():
            group.end()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            reap()
            time.sleep(0.01)
        reap()

    def remove_tmp(self):
        """Never through a mount: one left there may be the host's own /usr."""
        for point in reversed([line.split()[4] for line in mounts()]):
            if f"{point}/".startswith(f"{self.tmp}/"):
                libc("umount2", point, MNT_DETACH)
        for folder, names, _ in os.walk(self.tmp):
            for path in (f"{folder}/{name}" for name in names):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
        shutil.rmtree(self.tmp)
