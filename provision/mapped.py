# SPDX-License-Identifier: Apache-2.0
"""A user namespace with the ids of bases, and programs in it: as root the range that nothing else has, otherwise the caller
himself as 1000 among his subuids (src/sandbox/identity.c maps the same way)."""
import ctypes
import os
import pwd
import subprocess

from words import Failure, say

FIRST, COUNT, USER = 0x7FFF0000, 65536, 1000  # IDENTITY_SYSTEM_FIRST
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWIPC = 0x20000, 0x10000000, 0x20000000, 0x8000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def call(what, *args):
    if getattr(libc, what)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def first_of(path, names):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.strip().split(":")
                if len(fields) == 3 and fields[0] in names and fields[2].isdigit() and int(fields[2]) >= COUNT:
                    return int(fields[1])
    except FileNotFoundError:
        pass
    raise Failure(f"a base needs {COUNT} user and group ids beside your own, and {path} gives {names[0]} none: have the "
                  f"administrator run usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {names[0]}")


class Ids:
    """The lines of both maps: (inside, outside, count)."""

    def __init__(self):
        self.root = os.geteuid() == 0
        if self.root:
            self.uids = self.gids = [(0, FIRST, COUNT)]
            return
        try:
            name = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            name = str(os.geteuid())
        names = [name, str(os.geteuid())]
        self.uids = self.around(first_of("/etc/subuid", names), os.geteuid())
        self.gids = self.around(first_of("/etc/subgid", names), os.getegid())

    @staticmethod
    def around(first, own):
        return [(0, first, USER), (USER, own, 1), (USER + 1, first + USER, COUNT - USER - 1)]

    def write(self, pid):
        for lines, name, helper in ((self.gids, "gid_map", "/usr/bin/newgidmap"), (self.uids, "uid_map", "/usr/bin/newuidmap")):
            if self.root:
                with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                    file.write("".join(f"{a} {b} {c}\n" for a, b, c in lines))
                continue
            numbers = [str(number) for line in lines for number in line]
            try:
                done = subprocess.run([helper, str(pid), *numbers], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      check=False)
            except FileNotFoundError:
                raise Failure(f"{helper} is missing (apt-get install uidmap)") from None
            if done.returncode:
                raise Failure(f"{helper} does not map the ids of /etc/subuid and /etc/subgid: {done.stderr.strip()}")


ids = Ids


def inside(ids_, work, shown=None, place=None):
    """Runs `work` in a child that is root there, in mount, pid and ipc namespaces of its own. Its exit status. The directory
    `shown` is seen at `place`, also where none of those ids could come to it by its name."""
    here, there = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC)
            os.write(here[1], b"x")
            if os.read(there[0], 1) != b"x":
                os._exit(1)
            call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
            if shown:  # we are who we were, and may do more in here
                call("mount", shown.encode(), place.encode(), None, MS_BIND, None)
            os.chdir("/")
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            status = in_pid_namespace(work)
        except (Failure, OSError) as failure:
            say(failure)
        finally:
            os._exit(status)
    os.close(here[1])
    os.close(there[0])
    try:
        if os.read(here[0], 1) == b"x":
            ids_.write(pid)
            os.write(there[1], b"x")
    finally:
        os.close(here[0])
        os.close(there[1])
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def in_pid_namespace(work):
    """What is left of it dies with its first process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call("mount", b"proc", b"/proc", b"proc", 0, None)
            work()
            status = 0
        except (Failure, OSError) as failure:
            say(failure)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255


def make_directory(ids_, path):
    """One that belongs to root of those ids."""
    os.mkdir(path, 0o755)
    if ids_.root:
        os.chown(path, FIRST, FIRST)
    elif inside(ids_, lambda: os.chown("/mnt", 0, 0), path, "/mnt") != 0:
        raise Failure(f"'{path}' cannot be given to the ids of bases")


def run(ids_, root, place, command, data, finish):
    """The command, with `root` seen at `place`; then `finish`."""
    def work():
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
        done = subprocess.run(command, stdin=data if data is not None else subprocess.DEVNULL, stdout=2, env=environment,
                              check=False)
        if done.returncode:
            raise Failure(f"{command[0]} failed ({done.returncode}); what it said is above")
        finish()
    if inside(ids_, work, root, place) != 0:
        raise Failure("no base was made")


def remove(ids_, path):
    """A directory of ours, and what those ids have put into its directories."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            inside(ids_, lambda: subprocess.run(["find", "/mnt", "-xdev", "-mindepth", "1", "-delete"], check=False,
                                                stderr=subprocess.DEVNULL), entry.path, "/mnt")
    subprocess.run(["rm", "-rf", "--one-file-system", path], check=False)
