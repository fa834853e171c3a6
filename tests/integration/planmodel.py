# SPDX-License-Identifier: Apache-2.0
"""Plans made by hand for the applier's tests: a tree in memory whose objects know where they came from, random changes of
it, the plan that these changes are, and carrel-plan run on a tree and a plan directory."""
import base64
import hashlib
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import time

from carreltest import CARREL, PATIENCE

PLAN = os.path.join(os.path.dirname(CARREL), "carrel-plan")
KINDS = ["mkdir", "create", "write", "symlink", "move", "delete", "chmod"]
TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def order(path):
    return path.replace(b"/", b"\0")


class Unplannable(Exception):
    """What no plan can say."""


class Data:
    """What one inode holds: names that share it are hard links."""

    def __init__(self, content, base=False):
        self.content, self.base = content, base


class Node:
    def __init__(self, kind, mode=0o644, base=None, data=None, target=None):
        self.kind, self.mode, self.base, self.data, self.target = kind, mode, base, data, target
        self.old_mode, self.old_target = mode, target
        self.old_data = data if base is not None else None
        self.children = {}


class Model:
    """A base tree on disk, and its objects in memory, to be changed there only."""

    def __init__(self, tree):
        self.tree = os.fsencode(tree)
        self.root = Node("directory", 0o755, base=b"")
        self.base = {b"": self.root}  # by base path
        datas = {}
        for path, st in sorted(walk(self.tree), key=lambda item: order(item[0])):
            kind, whole = TYPES[stat.S_IFMT(st.st_mode)], os.path.join(self.tree, path)
            node = Node(kind, stat.S_IMODE(st.st_mode), base=path)
            if kind == "file":
                if st.st_ino not in datas:
                    datas[st.st_ino] = Data(read_hidden(whole), base=True)
                node.data = node.old_data = datas[st.st_ino]
            if kind == "symlink":
                node.target = node.old_target = os.readlink(whole)
            self.base[path] = node
            parent, _, name = path.rpartition(b"/")
            self.base[parent].children[name] = node

    def all(self):
        """(path, node, parent) of everything now, the top left out."""
        todo = [(b"", self.root)]
        while todo:
            above, node = todo.pop()
            for name, child in sorted(node.children.items()):
                path = above + b"/" + name if above else name
                yield path, child, node
                todo.append((path, child))

    def content(self):
        """As plantest.content sees a tree."""
        found, names = {}, {}
        for path, node, _ in self.all():
            what = {"file": lambda n=node: hashlib.sha256(n.data.content).hexdigest(),
                    "symlink": lambda n=node: n.target, "directory": lambda: None}[node.kind]()
            found[path] = (node.kind, 0 if node.kind == "symlink" else node.mode, what)
            if node.kind == "file":
                names.setdefault(id(node.data), []).append(path)
        found[b"/links"] = sorted(tuple(sorted(group)) for group in names.values() if len(group) > 1)
        return found

    # --- the plan ---

    def adopt(self):
        """A further name of a file whose old names have all gone is one of these, moved."""
        there = {node.base for _, node, _ in self.all() if node.base is not None}
        alive = {id(node.data) for _, node, _ in self.all() if node.kind == "file" and node.base is not None and node.data is node.old_data}
        for _, node, _ in sorted(self.all(), key=lambda item: order(item[0])):
            if node.kind != "file" or node.base is not None or not node.data.base or id(node.data) in alive:
                continue
            old = next((n for path, n in sorted(self.base.items()) if path not in there and n.old_data is node.data), None)
            if not old:  # every old name is there, with other content
                raise Unplannable
            node.base, node.old_mode, node.old_data = old.base, old.old_mode, node.data
            there.add(old.base)
            alive.add(id(node.data))

    def operations(self):
        try:
            self.adopt()
            found = self.found()
        except Unplannable:
            return []
        return [] if any(o.get("from") == o["path"] for o in found) else found

    def found(self):
        made, kept, contents = [], set(), {}
        for path, node, parent in sorted(self.all(), key=lambda item: order(item[0])):
            if node.base is not None:
                kept.add(node.base)
            if operation := self.operation(path, node, parent, contents):
                made.append(operation)
        for path, node in self.base.items():
            parent = path.rpartition(b"/")[0]
            if path and path not in kept and (parent in kept or parent == b""):
                made.append({"op": "delete", "path": path, "type": node.kind, "mode": node.old_mode, "base": path})
        return sorted(made, key=lambda o: (order(o["path"]), KINDS.index(o["op"])))

    def operation(self, path, node, parent, contents):
        o = {"path": path, "type": node.kind, "mode": 0o777 if node.kind == "symlink" else node.mode}
        if node.base is not None:
            if node.base != path:
                o["from"] = node.base
            o["base"] = node.base
            name = path.rpartition(b"/")[2]
            same_place = parent.base is not None and node.base == (parent.base + b"/" + name if parent.base else name)
            if node.kind == "file" and node.data is not node.old_data:
                return o | {"op": "write"} | self.carried(path, node, contents)
            if node.kind == "symlink" and node.target != node.old_target:
                return o | {"op": "symlink", "target": node.target, "mtime_ns": 1700000000 * 10**9}
            if not same_place:
                return o | {"op": "move", "from": node.base} | ({"target": node.target} if node.kind == "symlink" else {})
            return o | {"op": "chmod"} if node.mode != node.old_mode else None
        if node.kind == "directory":
            return o | {"op": "mkdir", "mtime_ns": 1600000000 * 10**9 + 5}
        if node.kind == "symlink":
            return o | {"op": "symlink", "target": node.target, "mtime_ns": 1700000000 * 10**9}
        return o | {"op": "create"} | self.carried(path, node, contents)

    def carried(self, path, node, contents):
        """Its content, or the other name under which that is."""
        if node.data.base:
            names = sorted((p for p, n, _ in self.all() if n.kind == "file" and n.base is not None and n.data is node.data and n.data is n.old_data), key=order)
            return {"link": names[0]}
        if id(node.data) in contents:
            return {"link": contents[id(node.data)]} | self.hashed(node)
        contents[id(node.data)] = path
        return self.hashed(node)

    def hashed(self, node):
        return {"size": len(node.data.content), "mtime_ns": 1650000000 * 10**9,
                "sha256": hashlib.sha256(node.data.content).hexdigest()}

    def write_plan(self, directory):
        """The plan's directory, as derive leaves it; returns (hash, operations)."""
        operations = self.operations()
        nodes = {path: node for path, node, _ in self.all()}
        upper = os.path.join(os.fsencode(directory), b"upper")
        os.makedirs(upper, exist_ok=True)
        for o in operations:
            if "sha256" in o and "link" not in o:
                whole = os.path.join(upper, o["path"])
                os.makedirs(os.path.dirname(whole), exist_ok=True)
                with open(whole, "wb") as file:
                    file.write(nodes[o["path"]].data.content)
                os.utime(whole, ns=(1650000000 * 10**9,) * 2)
                os.setxattr(whole, "user.overlay.origin", b"mark")
                os.setxattr(whole, "user.keep", b"me")
        return save_manifest(directory, self.tree, operations), operations


def save_manifest(directory, tree, operations):
    taken = {o["base"] for o in operations if "base" in o}
    size = sum(o["size"] for o in operations if "size" in o and "link" not in o)
    lines = [json_line([("plan", 1), ("operations", len(operations)), ("flaws", 0), ("bytes", size)])]
    lines += [operation_line(tree, o, taken) for o in operations]
    text = b"".join(lines)
    with open(os.path.join(directory, "manifest"), "wb") as file:
        file.write(text)
    return hashlib.sha256(text).hexdigest()


def named(key, value):
    try:
        value.decode()
        return key, value
    except UnicodeDecodeError:
        return key + "_b64", base64.b64encode(value)


def quoted(value):
    out = '"'
    for c in value.decode():
        out += "\\n" if c == "\n" else f"\\u{ord(c):04x}" if c < " " or c in '"\\\x7f' else c
    return out + '"'


def json_value(value):
    if isinstance(value, bytes):
        return quoted(value)
    if isinstance(value, list):
        return "{" + ",".join(f'"{k}":{json_value(v)}' for k, v in value) + "}"
    return json.dumps(value)


def json_line(pairs):
    return (json_value(pairs) + "\n").encode()


def operation_line(tree, o, taken):
    pairs = [("op", o["op"])] + [named(key, o[key]) for key in ("path", "from", "target", "link") if key in o]
    pairs += [("type", o["type"]), ("mode", f"{o['mode']:04o}")]
    pairs += [(key, o[key]) for key in ("size", "mtime_ns", "sha256") if key in o and (key != "size" or "sha256" in o)]
    if "attributes" in o or ("sha256" in o and "link" not in o):
        pairs.append(("attributes", o.get("attributes", [("user.keep", "bWU=")])))  # as write_plan leaves them
    if "base" in o:
        st = os.lstat(os.path.join(tree, o["base"]))
        pairs.append(("base", [("dev", str(st.st_dev)), ("ino", str(st.st_ino)), ("type", TYPES[stat.S_IFMT(st.st_mode)]),
                               ("mode", f"{stat.S_IMODE(st.st_mode):04o}"), ("size", st.st_size),
                               ("mtime_ns", st.st_mtime_ns), ("ctime_ns", st.st_ctime_ns)]))
    if o["op"] == "delete" and o["type"] == "directory":
        entries, size, below = tree_digest(tree, o["path"], taken)
        pairs += [("entries", entries), ("bytes", size), ("below", below)]
    return json_line(pairs)


def tree_digest(tree, top, taken):
    """As src/plan/core/tree_digest.c: everything below, but what operations name and what lies below that."""
    entries, size, digest = 0, 0, hashlib.sha256()
    for path, st in sorted(walk(os.path.join(tree, top)), key=lambda item: order(item[0])):
        parts = path.split(b"/")
        if any(top + b"/" + b"/".join(parts[: n + 1]) in taken for n in range(len(parts))):
            continue
        is_dir = stat.S_ISDIR(st.st_mode)
        facts = [st.st_ino, stat.S_IFMT(st.st_mode) if is_dir else st.st_mode]
        facts += [0, 0, 0] if is_dir else [st.st_size, st.st_mtime_ns, 0 if st.st_nlink > 1 else st.st_ctime_ns]
        digest.update(path + b"\0" + struct.pack("=5Q", *facts))
        entries += 1
        size += st.st_size if stat.S_ISREG(st.st_mode) else 0
    return entries, size, digest.hexdigest()


def walk(top):
    top, todo = os.fsencode(top), [b""]
    while todo:
        above = todo.pop()
        for name in listed(os.path.join(top, above) if above else top):
            path = os.path.join(above, name) if above else name
            st = os.lstat(os.path.join(top, path))
            yield path, st
            if stat.S_ISDIR(st.st_mode):
                todo.append(path)


def listed(path):
    """Also of a directory that its owner may not read; its mode is put back."""
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & 0o500 == 0o500:
        return os.listdir(path)
    os.chmod(path, mode | 0o700)
    names = os.listdir(path)
    os.chmod(path, mode)
    return names


def read_hidden(path):
    with open(path, "rb") as file:
        return file.read()


def content(top, times=False):
    """Every object as it can be told from another; with `times` also when, and which inode."""
    found, names, top = {}, {}, os.fsencode(top)
    for path, st in walk(top):
        kind, whole = TYPES[stat.S_IFMT(st.st_mode)], os.path.join(top, path)
        what = None
        if kind == "file":
            what = hashlib.sha256(read_hidden(whole)).hexdigest()
        if kind == "symlink":
            what = os.readlink(whole)
        found[path] = (kind, 0 if kind == "symlink" else stat.S_IMODE(st.st_mode), what)
        if times:
            attributes = sorted(os.listxattr(whole)) if kind == "file" else []
            found[path] += (st.st_mtime_ns, st.st_ino, st.st_nlink, attributes)
        if kind == "file" and st.st_nlink > 1:
            names.setdefault(st.st_ino, []).append(path)
    found[b"/links"] = sorted(tuple(sorted(group)) for group in names.values() if len(group) > 1)
    if times:
        found[b"/"] = os.stat(top).st_mtime_ns
    return found


def difference(expected, seen):
    lines = [f"{key!r}: expected {expected.get(key)!r}, is {seen.get(key)!r}"
             for key in sorted(set(expected) | set(seen)) if expected.get(key) != seen.get(key)]
    return "\n".join(lines[:20])


# --- random trees and changes ---


def make_tree(r, tree, files=30):
    """Directories, some of them locked, files, symlinks and hard links; names are any bytes."""
    tree = os.fsencode(tree)
    os.makedirs(tree)
    dirs, made = [b""], []
    for number in range(files):
        above = r.choice(dirs)
        path = os.path.join(above, r.choice([b"f", b"x y", b"\xc3\xa9", b"\xff", b'q"'] ) + b"%d" % number)
        kind = r.random()
        if kind < 0.3 and path.count(b"/") < 4:
            os.mkdir(os.path.join(tree, path))
            dirs.append(path)
        elif kind < 0.4:
            os.symlink(r.choice([b"../x", b"/etc/passwd", b"f1"]), os.path.join(tree, path))
        elif kind < 0.5 and made:
            os.link(os.path.join(tree, r.choice(made)), os.path.join(tree, path))
        else:
            with open(os.path.join(tree, path), "wb") as file:
                file.write(r.randbytes(r.choice([0, 1, 100, 5000])))
            os.chmod(os.path.join(tree, path), r.choice([0o644, 0o600, 0o755, 0o444]))
            os.utime(os.path.join(tree, path), ns=(10**18 + number,) * 2)
            made.append(path)
    for path in dirs[1:]:
        if r.random() < 0.2:
            os.chmod(os.path.join(tree, path), 0o555)
    for path in dirs:
        os.utime(os.path.join(tree, path), ns=(10**18 + 7,) * 2)


def is_inside(node, other):
    return node is other or any(is_inside(child, other) for child in node.children.values())


class Changes:
    """Random changes of a model, such as a command makes them."""

    def __init__(self, r, model):
        self.r, self.model, self.number = r, model, 0

    def pick(self, *kinds):
        found = [item for item in self.model.all() if not kinds or item[1].kind in kinds]
        return self.r.choice(found) if found else None

    def free_place(self):
        dirs = [self.model.root] + [node for _, node, _ in self.model.all() if node.kind == "directory"]
        parent = self.r.choice(dirs)
        self.number += 1
        return parent, self.r.choice([b"n", b"new name", b"\xfe"]) + b"%d" % self.number

    def random(self, count):
        for _ in range(count):
            getattr(self, self.r.choice(["create", "mkdir", "symlink", "write", "move", "move", "move_over", "remove", "chmod", "link",
                                         "swap", "replace_dir", "resymlink"]))()

    def create(self):
        parent, name = self.free_place()
        parent.children[name] = Node("file", self.r.choice([0o644, 0o700, 0o400]), data=Data(self.r.randbytes(self.r.choice([0, 10, 3000]))))

    def mkdir(self):
        parent, name = self.free_place()
        parent.children[name] = Node("directory", self.r.choice([0o755, 0o700, 0o555]))

    def symlink(self):
        parent, name = self.free_place()
        parent.children[name] = Node("symlink", 0o777, target=b"somewhere/else")

    def resymlink(self):
        if item := self.pick("symlink"):
            item[1].target = b"changed%d" % self.r.randrange(100)

    def write(self):
        if item := self.pick("file"):
            item[1].data = Data(self.r.randbytes(50))

    def chmod(self):
        if item := self.pick("file", "directory"):
            node, mode = item[1], self.r.choice([0o755, 0o700, 0o744])
            for _, other, _ in list(self.model.all()):  # all names of one file have one mode
                if other is node or (node.kind == "file" and other.data is node.data):
                    other.mode = mode

    def link(self):
        if item := self.pick("file"):
            parent, name = self.free_place()
            parent.children[name] = Node("file", item[1].mode, data=item[1].data)

    def take(self, path, parent):
        return parent.children.pop(path.rpartition(b"/")[2])

    def move(self):
        if item := self.pick():
            path, node, parent = item
            new, name = self.free_place()
            if not is_inside(node, new):
                new.children[name] = self.take(path, parent)

    def move_over(self):
        """Onto something that is there, of whatever kind."""
        one, two = self.pick(), self.pick()
        if not one or one[1] is two[1] or is_inside(one[1], two[2]) or is_inside(two[1], one[2]):
            return
        if one[1].kind == "file" and two[1].kind == "file" and one[1].data is two[1].data:
            return
        node = self.take(one[0], one[2])
        two[2].children[two[0].rpartition(b"/")[2]] = node

    def swap(self):
        one, two = self.pick(), self.pick()
        if not one or is_inside(one[1], two[1]) or is_inside(two[1], one[1]):
            return
        if one[1].kind == "file" and two[1].kind == "file" and one[1].data is two[1].data:
            return
        one[2].children[one[0].rpartition(b"/")[2]], two[2].children[two[0].rpartition(b"/")[2]] = two[1], one[1]

    def replace_dir(self):
        """Another one in its place, with one thing of the old."""
        if item := self.pick("directory"):
            path, node, parent = item
            new = Node("directory", 0o755)
            if node.children:
                name = self.r.choice(sorted(node.children))
                new.children[name] = node.children[name]
            parent.children[path.rpartition(b"/")[2]] = new

    def remove(self):
        if item := self.pick():
            self.take(item[0], item[2])


# --- carrel-plan ---


class Answer:
    def __init__(self, done):
        self.status, self.stderr, self.signal = done.returncode, done.stderr, -min(0, done.returncode)
        text = done.stdout.decode(errors="replace")
        self.text = text
        self.json = json.loads(text) if text.strip() else {}

    @property
    def message(self):
        return self.json.get("error", {}).get("message", "")

    @property
    def code(self):
        return self.json.get("error", {}).get("code", "")


def start(verb, tree, directory, job, prefix=(), steps=None):
    tree_fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def place():  # not by pass_fds, which wants these numbers to be open before
        for number, fd in ((63, tree_fd), (64, dir_fd), (65, steps)):  # beyond the pipes of Popen
            if fd is not None:
                os.dup2(fd, number, inheritable=False)
        for number in (3, 4, 5)[: 3 if steps is not None else 2]:
            os.dup2(number + 60, number)

    process = subprocess.Popen([*prefix, PLAN, verb], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=place, close_fds=False)
    os.close(tree_fd)
    os.close(dir_fd)
    process.stdin.write(json.dumps(job).encode())
    process.stdin.close()
    process.stdin = None
    return process


def carrel_plan(verb, tree, directory, job=None, prefix=(), steps=None):
    process = start(verb, tree, directory, job or {}, prefix, steps)
    out, err = process.communicate(timeout=20 * PATIENCE)
    return Answer(subprocess.CompletedProcess([], process.returncode, out, err.decode(errors="replace")))


def leftovers(directory):
    """What is in the slots."""
    slots = os.path.join(directory, "slots")
    return sorted(os.listdir(slots)) if os.path.isdir(slots) else []


def unlock(top):
    subprocess.run(["chmod", "-R", "u+rwX", "--", top], check=False, stderr=subprocess.DEVNULL)


def remove(top):
    if os.path.lexists(top):
        unlock(top)
        shutil.rmtree(top)


def later():
    """Times of the kernel are of its last tick: what is written now differs from what was."""
    time.sleep(0.012)


__all__ = ["Answer", "Changes", "Data", "Model", "Node", "carrel_plan", "content", "difference", "later", "leftovers", "make_tree",
           "random", "remove", "save_manifest", "start", "unlock", "walk"]
