# SPDX-License-Identifier: Apache-2.0
"""What the tests of plans share: trees as they can be compared, and plans of a plain directory or of the daemon's."""
import hashlib
import json
import os
import re
import stat
import subprocess

from carreltest import PATIENCE, TMP, CarrelTest, carrel
from daemontest import Daemon

LONG = bool(os.environ.get("LONG"))
# Mount points, which belong to the sandbox and not to the tree: src/base/names.h.
RESERVED = {b"usr", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"etc", b"proc", b"dev", b"tmp", b".cache"}
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
LONG_PATIENCE = 20 * PATIENCE


def walk(top):
    """(path below top, stat) of everything, mount points left out."""
    top = os.fsencode(top)
    todo = [b""]
    while todo:
        above = todo.pop()
        for name in os.listdir(os.path.join(top, above) if above else top):
            if not above and name in RESERVED:
                continue
            path = os.path.join(above, name) if above else name
            st = os.lstat(os.path.join(top, path))
            yield path, st
            if stat.S_ISDIR(st.st_mode):
                todo.append(path)


def xattrs(path):
    return tuple(sorted((name, os.getxattr(path, name, follow_symlinks=False))
                        for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")))


def digest(path):
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            hasher.update(piece)
    return hasher.hexdigest()


def content(top, times=False, links=True):
    """Every object as it can be told from another: type, mode, content or target, user.* attributes, which names are one
    file; with `times` when files were written."""
    top = os.fsencode(top)
    found, names = {}, {}
    for path, st in walk(top):
        whole = os.path.join(top, path)
        kind = KINDS.get(stat.S_IFMT(st.st_mode), "other")
        what = {"file": lambda w=whole: (digest(w), xattrs(w)), "symlink": lambda w=whole: os.readlink(w)}.get(kind, lambda: None)()
        found[path] = (kind, 0 if kind == "symlink" else stat.S_IMODE(st.st_mode), what, st.st_mtime_ns if times and kind == "file" else 0)
        if kind == "file" and st.st_nlink > 1:
            names.setdefault(st.st_ino, []).append(path)
    if links:
        found[b"/links"] = sorted(tuple(sorted(group)) for group in names.values() if len(group) > 1)
    return found


def identity(top):
    """As above, by what the kernel knows: sees also what was written and put back."""
    return {path: (st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_nlink, st.st_mtime_ns,
                   0 if stat.S_ISDIR(st.st_mode) else st.st_ctime_ns) for path, st in walk(top)}


def difference(expected, seen, most=12):
    """In words, or "" when there is none."""
    lines = [f"{key!r}: expected {expected.get(key)!r}, is {seen.get(key)!r}"
             for key in sorted(set(expected) | set(seen)) if expected.get(key) != seen.get(key)]
    return "\n".join(lines[:most] + ([f"... and {len(lines) - most} more"] if len(lines) > most else []))


def copy_tree(source, target):
    """Everything, with hard links, holes, attributes and times."""
    subprocess.run(["cp", "-a", "--sparse=always", "--", source, target], check=True, timeout=LONG_PATIENCE)


def give(top, uid, gid):
    for path, _ in walk(top):
        os.lchown(os.path.join(os.fsencode(top), path), uid, gid)


class PlanTest(CarrelTest):
    """Plans of a plain directory, without a daemon."""

    def setUp(self):
        super().setUp()
        self.tree, self.twin = self.path("tree"), self.path("twin")

    def tearDown(self):
        subprocess.run(["chmod", "-R", "u+rwX", self.dir], check=False, stderr=subprocess.DEVNULL)
        super().tearDown()

    def same(self, expected, seen, what):
        text = difference(expected, seen)
        if text:
            self.fail(f"{what}\n{text}")

    def plan(self, *args, code=0, **kwargs):
        """carrel plan ... of this directory; its standard output."""
        done = carrel("plan", args[0], "--dir", self.tree, *args[1:], timeout=LONG_PATIENCE, **kwargs)
        self.assertEqual(code, done.returncode, f"{done.args[1:]}: {done.stdout[-2000:]!r} {done.stderr[-2000:]!r}")
        return done.stdout

    def plan_json(self, *args, **kwargs):
        return json.loads(self.plan(*args, "--json", **kwargs))

    def plain_run(self, tree, *command):
        done = carrel("run", "--workspace", tree, "--", *command, timeout=LONG_PATIENCE)
        self.assertEqual(0, done.returncode, f"{done.stdout[-1000:]!r} {done.stderr[-2000:]!r}")
        return done.stdout

    def plan_run(self, *command, options=()):
        """Runs it in plan mode; returns what it printed, and the plan as the result tells it."""
        done = carrel("run", "--plan", "--json", "--workspace", self.tree, *options, "--", *command, timeout=LONG_PATIENCE)
        self.assertEqual(0, done.returncode, f"{done.stdout[-1000:]!r} {done.stderr[-2000:]!r}")
        result = json.loads(done.stdout)
        self.said = result["stderr"]
        return result["stdout"], result["plan"]


class DaemonPlanTest(PlanTest):
    """The same through a daemon. `approver` is another key of the owner's, which may approve."""

    def setUp(self):
        super().setUp()
        for above in (TMP, self.dir):
            os.chmod(above, 0o711)  # as root the front is somebody else
        self.daemon = Daemon(self.path("s"))
        self.env = {"CARREL_SOCKET": self.daemon.socket, "PATH": os.environ["PATH"]}
        self.ws = "desk"
        policy = {"plan": {"approval": "required"}}
        answer = self.daemon.post("/v1/workspaces", {"id": self.ws, "owner": "ann", "policy": policy})
        self.assertEqual(201, answer.status, answer.bytes)
        self.tree = self.path("s", "main", "threads", self.ws)
        self.user, self.approver = self.daemon.key("ann"), self.daemon.key("ann", ("approve",))

    def tearDown(self):
        self.daemon.stop()
        super().tearDown()

    def plan(self, *args, code=0, key=None, **kwargs):
        env = {**self.env, "CARREL_KEY": key or self.user}
        done = carrel("plan", args[0], self.ws, *args[1:], timeout=LONG_PATIENCE, env=env, **kwargs)
        self.assertEqual(code, done.returncode, f"{done.args[1:]}: {done.stdout[-2000:]!r} {done.stderr[-2000:]!r}")
        return done.stdout

    def plan_run(self, *command, options=()):
        """Streams, as a person sees it."""
        env = {**self.env, "CARREL_KEY": self.user}
        done = carrel("plan", "run", *options, self.ws, "--", *command, timeout=LONG_PATIENCE, env=env)
        self.assertEqual(0, done.returncode, f"{done.stdout[-1000:]!r} {done.stderr[-2000:]!r}")
        told = re.search(r"plan (\S+): ([\d,]+) changes.*hash ([0-9a-f]{64})", done.stderr)
        self.assertTrue(told, done.stderr)
        return done.stdout, {"id": told[1], "operations": int(told[2].replace(",", "")), "hash": told[3]}
