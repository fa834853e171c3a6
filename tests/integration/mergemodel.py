# SPDX-License-Identifier: Apache-2.0
"""A second description of what a merge of two trees is, to hold the first against: pictures of trees in, a picture out.

A picture is {path: (kind, content, mode)}: "d" with None, "l" with the target and mode 0, "f" with bytes. All lines of a file are its own, so
that two versions of a text have exactly those lines in common that are in both."""
import os
import random
import stat

MODES = (0o644, 0o600, 0o755, 0o640)


def picture(top, skip=()):
    found = {}
    for where, dirs, files in os.walk(top):
        if where == top:
            dirs[:] = [name for name in dirs if name not in skip]
        for name in dirs + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            short = os.path.relpath(path, top)
            if stat.S_ISLNK(st.st_mode):
                found[short] = ("l", os.readlink(path), 0)
            elif stat.S_ISDIR(st.st_mode):
                found[short] = ("d", None, st.st_mode & 0o777)
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as file:
                    found[short] = ("f", file.read(), st.st_mode & 0o777)
    return found


def lines_of(data):
    return data.splitlines(keepends=True)


def merge_lines(base, ours, theirs):
    """None: both have changed neighbouring lines, in different ways."""
    if any(b"\0" in text for text in (base, ours, theirs)):
        return None
    a, b, c = map(lines_of, (base, ours, theirs))
    common = set(a) & set(b) & set(c)
    made, at = [], [0, 0, 0]
    while True:
        ends = [next((i for i in range(start, len(text)) if text[i] in common), len(text)) for start, text in zip(at, (a, b, c))]
        pieces = [text[start:end] for start, end, text in zip(at, ends, (a, b, c))]
        if pieces[2] == pieces[0]:
            made += pieces[1]
        elif pieces[1] in (pieces[0], pieces[2]):
            made += pieces[2]
        else:
            return None
        if ends[0] == len(a):
            return b"".join(made)
        made.append(a[ends[0]])
        at = [end + 1 for end in ends]


class Merge:
    """What becomes of `ours`; conflicts are decided for `prefer`."""

    def __init__(self, base, ours, theirs, prefer):
        self.base, self.ours, self.theirs, self.prefer = base, ours, theirs, prefer
        self.conflicts = set()
        self.result = {}
        for path in sorted(set(base) | set(ours) | set(theirs)):
            entry = self.one(path, base.get(path), ours.get(path), theirs.get(path))
            if entry:
                self.result[path] = entry
        deepest = max((path.count("/") for path in {**ours, **theirs}), default=0)
        for depth in range(deepest, 0, -1):  # a directory that is kept has one above it, too
            for path in sorted(path for path in self.result if path.count("/") == depth):
                if path in self.result:
                    self.keep_above(os.path.dirname(path))

    def decide(self, path, ours, theirs):
        self.conflicts.add(path)
        return ours if self.prefer == "ours" else theirs

    def one(self, path, base, ours, theirs):
        if ours and theirs and ours[0] == theirs[0] == "d":
            if not base or base[0] != "d":
                return ours
            return ("d", None, self.mode(path, base, ours, theirs)) if self.mode(path, base, ours, theirs) is not None else self.decide(path, ours, theirs)
        if base and ours and theirs and base[0] == ours[0] == theirs[0] == "f":
            mode = self.mode(path, base, ours, theirs)
            text = ours[1] if theirs[1] in (base[1], ours[1]) else theirs[1] if ours[1] == base[1] else merge_lines(base[1], ours[1], theirs[1])
            return self.decide(path, ours, theirs) if mode is None or text is None else ("f", text, mode)
        if theirs in (base, ours):
            return ours
        return theirs if ours == base else self.decide(path, ours, theirs)

    @staticmethod
    def mode(_path, base, ours, theirs):
        if theirs[2] in (base[2], ours[2]):
            return ours[2]
        return theirs[2] if ours[2] == base[2] else None

    def keep_above(self, above):
        if not above or self.result.get(above, ("",))[0] == "d":
            return
        ours, theirs = self.ours.get(above), self.theirs.get(above)
        if above not in self.result:
            self.result[above] = ours if ours and ours[0] == "d" else theirs
            return
        self.result[above] = self.decide(above, ours, theirs)
        if self.result[above][0] != "d":
            for path in [path for path in self.result if path.startswith(above + "/")]:
                del self.result[path]


class Edits:
    """Random changes, as a list for EDITOR, and what they make of a picture."""

    def __init__(self, seed, tree):
        self.random = random.Random(seed)
        self.seed = seed
        self.tree = dict(tree)
        self.steps = []
        self.serial = 0

    def fresh(self):
        self.serial += 1
        return f"{self.seed}.{self.serial} {self.random.getrandbits(32):08x}"

    def text(self, lines=None):
        lines = self.random.randrange(40) if lines is None else lines
        return "".join(self.fresh() + "\n" for _ in range(lines)).encode()

    def of(self, kinds):
        return sorted(path for path, entry in self.tree.items() if entry[0] in kinds)

    def place(self):
        above = self.random.choice(["", *self.of("d")])
        name = f"{self.random.choice('abcdefgh')}{self.random.randrange(4)}"
        return f"{above}/{name}" if above else name

    def step(self, *words):
        self.steps.append(list(words))

    def remove(self, path):
        self.step("remove", path)
        for one in [one for one in self.tree if one == path or one.startswith(path + "/")]:
            del self.tree[one]

    def create(self):
        path = self.place()
        if self.tree.get(path, ("",))[0] == "d" and self.random.random() < 0.7:
            return
        if path in self.tree:
            self.remove(path)
        kind = self.random.choice("ffffddl")
        if kind == "f":
            data = self.text() if self.random.random() < 0.9 else b"\0" + self.text(3)
            mode = self.random.choice(MODES)
            self.step("write", path, data.hex(), mode)
            self.tree[path] = ("f", data, mode)
        elif kind == "d":
            self.step("mkdir", path, 0o755)
            self.tree[path] = ("d", None, 0o755)
        else:
            target = self.fresh()
            self.step("symlink", path, target)
            self.tree[path] = ("l", target, 0)

    def edit(self):
        paths = self.of("f")
        if not paths:
            return
        path = self.random.choice(paths)
        lines = lines_of(self.tree[path][1])
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(len(lines) + 1)
            action = self.random.choice(["insert", "replace", "drop"])
            if action == "insert" or at == len(lines):
                lines.insert(at, (self.fresh() + "\n").encode())
            elif action == "replace":
                lines[at] = (self.fresh() + "\n").encode()
            else:
                del lines[at]
        data = b"".join(lines)
        self.step("write", path, data.hex(), self.tree[path][2])
        self.tree[path] = ("f", data, self.tree[path][2])

    def delete(self):
        if self.tree:
            self.remove(self.random.choice(sorted(self.tree)))

    def rename(self):
        if not self.tree:
            return
        path, to = self.random.choice(sorted(self.tree)), self.place()
        if to == path or to.startswith(path + "/") or path.startswith(to + "/"):
            return
        if to in self.tree:
            self.remove(to)
        self.step("rename", path, to)
        for one in [one for one in self.tree if one == path or one.startswith(path + "/")]:
            self.tree[to + one[len(path):]] = self.tree.pop(one)

    def chmod(self):
        paths = self.of("fd")
        if paths:
            path = self.random.choice(paths)
            mode = self.random.choice(MODES) if self.tree[path][0] == "f" else self.random.choice((0o755, 0o700, 0o750))
            self.step("chmod", path, mode)
            self.tree[path] = (*self.tree[path][:2], mode)

    def retype(self):
        """A directory becomes a file, or a file a directory with something in it."""
        paths = self.of("fd")
        if not paths:
            return
        path = self.random.choice(paths)
        was = self.tree[path][0]
        self.remove(path)
        if was == "d":
            data = self.text(5)
            self.step("write", path, data.hex(), 0o644)
            self.tree[path] = ("f", data, 0o644)
        else:
            data = self.text(5)
            self.step("mkdir", path, 0o755)
            self.step("write", path + "/in", data.hex(), 0o644)
            self.tree[path] = ("d", None, 0o755)
            self.tree[path + "/in"] = ("f", data, 0o644)

    def make(self, count):
        for _ in range(count):
            self.random.choice([self.create, self.create, self.edit, self.edit, self.edit, self.delete, self.rename, self.chmod, self.retype])()
        return self

    def grow(self, count):
        for _ in range(count):
            self.create()
        return self


EDITOR = """import json, os, shutil, sys
for what, path, *more in json.load(sys.stdin):
    if what == 'remove':
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    elif what == 'write':
        with open(path, 'wb') as file:
            file.write(bytes.fromhex(more[0]))
        os.chmod(path, more[1])
    elif what == 'mkdir':
        os.mkdir(path)
        os.chmod(path, more[0])
    elif what == 'symlink':
        os.symlink(more[0], path)
    elif what == 'rename':
        shutil.move(path, more[0])
    elif what == 'chmod':
        os.chmod(path, more[0])
"""
