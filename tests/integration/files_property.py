#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 2400
"""Random operations through the files API and by plain system calls in a twin directory: both trees, all answers agree.

Seeds that failed once are in files_property_seeds.txt and run first."""
import contextlib
import ctypes
import errno
import os
import random
import stat
import subprocess
import unittest

from carreltest import ROOT, libc
from filestest import CODES, KINDS, LONG, Files, FilesTest, bytes_of, content, field, open_up, snapshot

OPERATIONS = 100000 if LONG else 1500  # beside nobody, and again beside a busy writer
LOOK_EVERY = 250  # operations between two looks at the whole trees
MOST_ENTRIES = 60  # then more is deleted than made
LONGEST = 1200  # bytes of a path, before it is deleted
NOBODY = 54321  # who the twin belongs to, where we are root: nothing is allowed to him by accident
SEEDS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "files_property_seeds.txt")
NAMES = [b"a", b"b", b"c", b"d", b"two words", b"new\nline", b"\xff\xfe", b"n" * 255, b"-rf", "\U0001f600".encode(), b"trailing ",
         b".hidden", b"con", b"%2e%2e", b"back\\slash", b"\xc0\xae\xc0\xae", "\u202ertl".encode(), b"?q=1#f", b"'\"", b"\t\x01"]
TOO_LONG = b"x" * 256
FILE_MODES = (0o644, 0o600, 0o755, 0o444, 0o000, 0o200)
DIR_MODES = (0o755, 0o700, 0o555, 0o000, 0o711, 0o311)
RENAME_NOREPLACE = 1
BASE = b"/w/t"

CHURN = r"""
import os, random, sys
top, r = sys.argv[1], random.Random(1)
os.makedirs(top, exist_ok=True)
print("begun")
while True:
    a, b = (os.path.join(top, *(str(r.randrange(5)) for _ in range(r.choice((1, 1, 2))))) for _ in range(2))
    try:
        what = r.randrange(7)
        if what == 0: os.makedirs(a, exist_ok=True)
        elif what == 1: open(a, "wb").write(r.randbytes(r.randrange(5000)))
        elif what == 2: os.rename(a, b)
        elif what == 3: os.symlink(r.choice((b, "0", "1/2", top)), a)
        elif what == 4: os.unlink(a)
        elif what == 5: os.rmdir(a)
        else: os.chmod(a, r.choice((0o755, 0o700)))
    except OSError:
        pass
"""


class Refusal(Exception):
    """An error that no system call knows."""

    def __init__(self, status, code):
        super().__init__(code)
        self.outcome = (status, code)


def rename(old, new, flags=0):
    if libc.renameat2(-100, old, -100, new, flags) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")


@contextlib.contextmanager
def as_nobody():
    """The twin is worked on by one without privileges, as the workspace is."""
    if not ROOT:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


class Twin:
    """What each operation is, said in plain system calls. Paths are those of the workspace."""

    def __init__(self, top):
        self.top = os.fsencode(top)

    def at(self, path):
        return self.top + path

    def temp(self, path):
        return os.path.join(os.path.dirname(path), b".twin-temporary")

    # --- shared ---

    def parent(self, path, parents):
        """The directory above is there, or made."""
        if len(os.path.basename(path)) > 255:
            raise OSError(errno.ENAMETOOLONG, "name")
        above = os.path.dirname(self.at(path))
        try:
            return self.is_directory(above)
        except FileNotFoundError:
            if not parents:
                raise
        made = self.top
        for part in above[len(self.top) + 1:].split(b"/"):
            made = os.path.join(made, part)
            try:
                self.is_directory(made)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(made, 0o755)
                self.is_directory(made)
        return None

    def is_directory(self, path):
        os.close(os.open(path, os.O_PATH | os.O_DIRECTORY))

    def where_it_leads(self, path):
        """The end of the links under that name, though it may not be there."""
        for _ in range(40):
            if not os.path.islink(path):
                os.stat(os.path.dirname(path))
                return path
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        raise OSError(errno.ELOOP, "links")

    def put(self, path, data, mode=None):
        """A new file in the place of what is there."""
        at = self.at(path)
        try:
            old = os.stat(at)
        except FileNotFoundError:
            old = None
        at = self.where_it_leads(at)
        if old and stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, "directory")
        if old and not os.access(at, os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, "write")
        temp = self.temp(at)
        with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        os.chmod(temp, mode if mode is not None else old.st_mode & 0o777 if old else 0o644)
        os.rename(temp, at)
        return old is None

    def entry(self, path, st):
        kind = KINDS[stat.S_IFMT(st.st_mode)]
        target = os.readlink(self.at(path)) if kind == "symlink" else None
        if target is not None and target.startswith(self.top):
            target = target[len(self.top):]
        return (path, kind, 0 if kind == "symlink" else stat.S_IMODE(st.st_mode), st.st_size if kind == "file" else None, target)

    # --- the operations ---

    def write(self, path, data, mode, parents):
        self.parent(path, parents)
        return "made" if self.put(path, data, mode) else "replaced"

    def append(self, path, data, parents):
        self.parent(path, parents)
        with open(os.open(self.at(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), "wb") as file:
            file.write(data)

    def read(self, path):
        fd = os.open(self.at(path), os.O_RDONLY)
        with open(fd, "rb", closefd=True) if not stat.S_ISDIR(os.fstat(fd).st_mode) else self.directory(fd) as file:
            return file.read()

    def directory(self, fd):
        os.close(fd)
        raise IsADirectoryError(errno.EISDIR, "directory")

    def read_range(self, path, first, last):
        data = self.read(path)
        if first >= len(data):
            raise Refusal(416, "invalid_range")
        return data[first:last + 1]

    def stat(self, path, follow):
        return self.entry(path, os.stat(self.at(path), follow_symlinks=follow))

    def list(self, path, depth, _limit):
        found, todo = [], [(path, depth)]
        if not stat.S_ISDIR(os.stat(self.at(path)).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "list")
        os.listdir(self.at(path))
        while todo:
            above, left = todo.pop()
            try:
                names = os.listdir(self.at(above))
            except PermissionError:
                continue
            for name in names:
                below = os.path.join(above, name)
                entry = self.entry(below, os.lstat(self.at(below)))
                found.append(entry)
                if entry[1] == "directory" and left > 1:
                    todo.append((below, left - 1))
        return sorted(found)

    def mkdir(self, path, mode, parents):
        self.parent(path, parents)
        try:
            there = os.stat(self.at(path))
        except OSError:
            there = None  # or a link that leads nowhere, which mkdir finds in its way
        if there:
            if parents and stat.S_ISDIR(there.st_mode):
                return "there"
            raise FileExistsError(errno.EEXIST, "there")
        os.mkdir(self.at(path), 0o755)
        if mode is not None:
            os.chmod(self.at(path), mode)
        return "made"

    def chmod(self, path, mode, recursive):
        self.parent(path, False)
        at = self.at(path)
        os.chmod(at, mode)
        if recursive and os.path.isdir(at):
            self.chmod_below(at, mode)

    def chmod_below(self, top, mode):
        os.chmod(top, 0o700)
        for name in os.listdir(top):
            path = os.path.join(top, name)
            if os.path.isdir(path) and not os.path.islink(path):
                self.chmod_below(path, mode)
            elif not os.path.islink(path):
                os.chmod(path, mode)
        os.chmod(top, mode)

    def move(self, old, new, replace, parents):
        self.parent(old, False)
        os.lstat(self.at(old))
        self.parent(new, parents)
        rename(self.at(old), self.at(new), 0 if replace else RENAME_NOREPLACE)

    def copy(self, old, new, replace, parents, recursive):
        self.parent(old, False)
        from_ = os.lstat(self.at(old))
        self.parent(new, parents)
        if stat.S_ISDIR(from_.st_mode) and not recursive:
            raise IsADirectoryError(errno.EISDIR, "copy")
        if not replace and os.path.lexists(self.at(new)):
            raise FileExistsError(errno.EEXIST, "copy")
        temp = self.temp(self.at(new))
        try:
            self.copy_one(self.at(old), temp, temp)
            rename(temp, self.at(new), 0 if replace else RENAME_NOREPLACE)
        except OSError:
            if os.path.lexists(temp):
                self.remove(temp)
            raise
        if stat.S_ISDIR(from_.st_mode):
            os.chmod(self.at(new), from_.st_mode & 0o777)

    def copy_one(self, old, new, top):
        st = os.lstat(old)
        if stat.S_ISLNK(st.st_mode):
            os.symlink(os.readlink(old), new)
        elif stat.S_ISREG(st.st_mode):
            data = content(old)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            os.chmod(new, st.st_mode & 0o777)
        else:
            os.mkdir(new, 0o700)
            for name in os.listdir(old):
                if not os.path.samestat(os.lstat(os.path.join(old, name)), os.lstat(top)):  # it may go by another path
                    self.copy_one(os.path.join(old, name), os.path.join(new, name), top)
            if new != top:
                os.chmod(new, st.st_mode & 0o777)

    def symlink(self, path, target, replace, parents):
        self.parent(path, parents)
        target = self.at(target) if target.startswith(b"/") else target
        try:
            os.symlink(target, self.at(path))
        except FileExistsError:
            if not replace:
                raise
            temp = self.temp(self.at(path))
            os.symlink(target, temp)
            try:
                os.rename(temp, self.at(path))
            except OSError:
                os.unlink(temp)
                raise

    def delete(self, path, recursive):
        self.parent(path, False)
        if recursive:
            self.remove(self.at(path))
            return
        try:
            os.unlink(self.at(path))
        except IsADirectoryError:
            os.rmdir(self.at(path))

    def remove(self, path):
        """rm -rf that also goes into what its owner has closed."""
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        try:
            os.rmdir(path)
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            self.remove(os.path.join(path, name))
        os.rmdir(path)

    def edit(self, path, old, new, every):
        data = self.read(path)
        if b"\0" in data:
            raise Refusal(409, "not_a_text_file")
        count = data.count(old)
        if count == 0:
            raise Refusal(409, "string_not_found")
        if count > 1 and not every:
            raise Refusal(409, "multiple_occurrences")
        self.put(path, data.replace(old, new))
        return count

    def write_many(self, files):
        return [self.outcome(self.write, path, data, None, True) for path, data in files]

    def read_many(self, paths):
        return [self.outcome(self.read, path) for path in paths]

    def outcome(self, function, *arguments):
        """What came out, or the code of what went wrong."""
        try:
            return function(*arguments)
        except OSError as error:
            return CODES[error.errno]
        except Refusal as refusal:
            return refusal.outcome


class Served:
    """The same operations through the API, with the same answers."""

    def __init__(self, files):
        self.files = files

    def result(self, answer, good):
        if answer.status < 300:
            return good(answer) if good else None
        return (answer.status, answer.code)

    def entry(self, one):
        kind = one["type"]
        return (bytes_of(one, "path"), kind, 0 if kind == "symlink" else int(one["mode"], 8), one["size"] if kind == "file" else None,
                bytes_of(one, "target") if kind == "symlink" else None)

    def write(self, path, data, mode, parents):
        query = f"?parents={int(parents)}" + (f"&mode={mode:04o}" if mode is not None else "")
        return self.result(self.files.put(path, data, query), lambda answer: {201: "made", 200: "replaced"}[answer.status])

    def append(self, path, data, parents):
        return self.result(self.files.put(path, data, f"?append=1&parents={int(parents)}"), None)

    def read(self, path):
        return self.result(self.files.get(path), lambda answer: answer.bytes)

    def read_range(self, path, first, last):
        return self.result(self.files.get(path, Range=f"bytes={first}-{last}"), lambda answer: answer.bytes)

    def stat(self, path, follow):
        return self.result(self.files.stat(path, follow), lambda answer: self.entry(answer.json))

    def list(self, path, depth, limit):
        found = self.files.entries(path, depth, limit)
        return sorted(map(self.entry, found)) if isinstance(found, list) else self.result(found, None)

    def mkdir(self, path, mode, parents):
        body = field("path", path) | {"parents": parents} | ({"mode": f"{mode:04o}"} if mode is not None else {})
        return self.result(self.files.act("mkdir", body), lambda answer: {201: "made", 200: "there"}[answer.status])

    def chmod(self, path, mode, recursive):
        return self.result(self.files.act("chmod", field("path", path) | {"mode": f"{mode:o}", "recursive": recursive}), None)

    def move(self, old, new, replace, parents):
        body = field("from", old) | field("to", new) | {"replace": replace, "parents": parents}
        return self.result(self.files.act("move", body), None)

    def copy(self, old, new, replace, parents, recursive):
        body = field("from", old) | field("to", new) | {"replace": replace, "parents": parents, "recursive": recursive}
        return self.result(self.files.act("copy", body), None)

    def symlink(self, path, target, replace, parents):
        body = field("path", path) | field("target", target) | {"replace": replace, "parents": parents}
        return self.result(self.files.act("symlink", body), None)

    def delete(self, path, recursive):
        return self.result(self.files.delete(path, recursive), None)

    def edit(self, path, old, new, every):
        body = field("path", path) | field("old", old) | field("new", new) | {"all": every}
        return self.result(self.files.act("edit", body), lambda answer: answer.json["occurrences"])

    def item(self, one, good):
        return (None, one["error"]["code"]) if "error" in one else good(one)

    def write_many(self, files):
        body = {"files": [field("path", path) | field("content", data) for path, data in files]}
        return self.result(self.files.act("write", body),
                           lambda answer: [self.item(one, lambda _: "written") for one in answer.json["results"]])

    def read_many(self, paths):
        body = {"paths": [field("path", path) if b"path" not in path else path.decode() for path in paths]}
        return self.result(self.files.act("read", body), lambda answer: [
            self.item(one, lambda item: bytes_of(item, "content")) for one in answer.json["results"]])


class Dice:
    """What to do next: mostly with what is there."""

    def __init__(self, seed, twin):
        self.r, self.twin = random.Random(seed), twin
        self.there = []

    def look(self):
        """The paths that are there now, also below what is closed."""
        found, todo, closed = [], [BASE], []
        while todo:
            above = todo.pop()
            mode = open_up(self.twin.at(above))
            if mode is not None:
                closed.append((self.twin.at(above), mode))
            for name in sorted(os.listdir(self.twin.at(above))):
                path = os.path.join(above, name)
                found.append(path)
                if stat.S_ISDIR(os.lstat(self.twin.at(path)).st_mode):
                    todo.append(path)
        for path, mode in reversed(closed):
            os.chmod(path, mode)
        self.there = found

    def name(self):
        return TOO_LONG if self.r.random() < 0.01 else self.r.choice(NAMES)

    def old(self):
        return self.r.choice(self.there) if self.there and self.r.random() < 0.9 else self.new()

    def new(self):
        above = self.r.choice(self.there) if self.there and self.r.random() < 0.6 else BASE
        parts = [self.name() for _ in range(self.r.choice((1, 1, 1, 2)))]
        return b"/".join([above, *parts]) if above.count(b"/") < 7 else b"/".join([BASE, *parts])

    def either(self):
        return self.old() if self.r.random() < 0.6 else self.new()

    def data(self):
        size = self.r.choice((0, 1, 10, 100, 5000, 70000))
        text = self.r.random() < 0.7
        return (b"line one two\n" * (size // 13 + 1))[:size] if text else self.r.randbytes(size)

    def target(self):
        """What a link holds. None too long a name at its end: which error comes first is then of no matter."""
        target = self.r.choice((self.r.choice(NAMES), self.either(), self.r.choice(NAMES) + b"/" + self.r.choice(NAMES), b"nowhere"))
        return target.replace(TOO_LONG, b"a")[:1000]

    def flip(self, probability=0.5):
        return self.r.random() < probability

    def operation(self):
        r = self.r
        too_long = [path for path in self.there if len(path) > LONGEST]  # the twin's own are as long as the kernel takes
        if too_long:
            return ("delete", b"/".join(too_long[0].split(b"/")[:4]), True)
        if len(self.there) > MOST_ENTRIES:
            return ("delete", self.old(), True)
        kinds = {
            "write": lambda: (self.either(), self.data(), r.choice((None, None, *FILE_MODES)), self.flip(0.7)),
            "append": lambda: (self.either(), self.data(), self.flip(0.7)),
            "read": lambda: (self.old(),),
            "read_range": lambda: (self.old(), *sorted((r.randrange(6000), r.randrange(6000)))),
            "stat": lambda: (self.old(), self.flip()),
            "list": lambda: (r.choice((BASE, self.old())), r.choice((1, 1, 2, 5, 4096)), r.choice((1, 3, 1000))),
            "mkdir": lambda: (self.either(), r.choice((None, *DIR_MODES)), self.flip(0.7)),
            "chmod": lambda: (self.old(), r.choice(DIR_MODES + (0o755, 0o700) * 3), self.flip(0.2)),
            "move": lambda: (self.old(), self.either(), self.flip(), self.flip()),
            "copy": lambda: (self.old(), self.either(), self.flip(), self.flip(), self.flip(0.8)),
            "symlink": lambda: (self.either(), self.target(), self.flip(0.3), self.flip()),
            "delete": lambda: (self.old(), self.flip()),
            "edit": lambda: (self.old(), r.choice((b"line", b"one", b"two\nline", b"absent")), r.choice((b"1", b"", b"other\n")),
                             self.flip()),
            "write_many": lambda: ([(self.either(), self.data()) for _ in range(r.randrange(1, 6))],),
            "read_many": lambda: ([self.old() for _ in range(r.randrange(1, 6))],),
        }
        name = r.choice(list(kinds))
        return (name, *kinds[name]())


def alike(name, expected, got):
    """Batches tell the code of each, and not whether a file was there before."""
    if name in ("write_many", "read_many") and isinstance(got, list):
        expected = [(None, one[1]) if isinstance(one, tuple) else "written" if isinstance(one, str) else one for one in expected]
    return expected == got


class Property(FilesTest):
    def setUp(self):
        super().setUp()
        os.umask(0o022)

    def tearDown(self):
        subprocess.run(["chmod", "-R", "u+rwX", self.dir], stderr=subprocess.DEVNULL, check=False)  # what was closed can be removed
        super().tearDown()

    def seeds(self):
        with open(SEEDS, encoding="ascii") as file:
            kept = [int(line.split()[0]) for line in file if line.strip() and not line.startswith("#")]
        return [*((seed, 400) for seed in kept), (int.from_bytes(os.urandom(4)), OPERATIONS)]

    def twin_of(self, space):
        top = self.path(f"twin-{space}")
        os.makedirs(top + os.fsdecode(BASE))
        if ROOT:
            for path in (top, top + "/w", top + os.fsdecode(BASE)):
                os.chown(path, NOBODY, NOBODY)
        return Twin(top)

    def compare_trees(self, twin, space, words):
        mine = snapshot(twin.at(b"/w"))
        mine = {path: (kind, mode, data.removeprefix(twin.top) if kind == "symlink" else data)
                for path, (kind, mode, data) in mine.items()}
        theirs = snapshot(self.host_path(space) + "/w")
        self.assertEqual(mine.keys(), theirs.keys(), words)
        for path, one in mine.items():
            self.assertEqual(one[:2], theirs[path][:2], f"{path!r} {words}")
            self.assertTrue(one[2] == theirs[path][2], f"the contents of {path!r} {words}")

    def run_seed(self, seed, count, space, sleeps=False):
        twin = self.twin_of(space)
        files = Files(self.daemon, space)
        served, dice, done = Served(files), Dice(seed, twin), []
        self.assertEqual(201, files.act("mkdir", {"path": os.fsdecode(BASE)}).status)
        for number in range(count):
            with as_nobody():
                dice.look()
                name, *arguments = dice.operation()
                expected = twin.outcome(getattr(twin, name), *arguments)
            if sleeps and number % 3 == 0:
                self.daemon.post(f"/v1/workspaces/{space}/sleep")
            got = getattr(served, name)(*arguments)
            done = [*done[-7:], f"{name} {[a if not isinstance(a, bytes) else a[-80:] for a in arguments]!r:.300}"]
            words = (f"in operation {number} of seed {seed} (add it to {os.path.basename(SEEDS)}): {expected!r:.300} by system "
                     f"calls, {got!r:.300} by the API; the last ones were\n" + "\n".join(done))
            self.assertTrue(alike(name, expected, got), words)
            if number % LOOK_EVERY == LOOK_EVERY - 1 or number == count - 1:
                self.compare_trees(twin, space, words)
        files.close()

    def test_the_api_does_what_plain_system_calls_do(self):
        for seed, count in self.seeds():
            self.run_seed(seed, count, self.workspace())

    def test_the_same_in_a_workspace_that_sleeps_again_and_again(self):
        self.run_seed(int.from_bytes(os.urandom(4)), OPERATIONS // 5, self.workspace(), sleeps=True)

    def test_the_same_beside_a_writer_who_is_busy_elsewhere(self):
        one = self.begin(CHURN, "/churn")
        self.run_seed(int.from_bytes(os.urandom(4)), OPERATIONS // 2, self.space)
        self.end(one)

    def test_a_writer_busy_in_the_same_tree_upsets_nothing(self):
        """Anything may come out of each, but the end is the same to both, and nothing of ours is left."""
        one = self.begin(CHURN, os.fsdecode(BASE))
        dice = random.Random(7)
        served = Served(self.files)

        def path():
            return b"/".join([BASE, *(b"%d" % dice.randrange(5) for _ in range(dice.choice((1, 1, 2))))])
        for _ in range(OPERATIONS // 3):
            name, *arguments = dice.choice((
                ("write", path(), dice.randbytes(dice.randrange(3000)), None, True), ("append", path(), b"more", True),
                ("read", path()), ("stat", path(), dice.random() < 0.5), ("list", BASE, dice.choice((1, 9)), 1000),
                ("mkdir", path(), None, True), ("chmod", path(), 0o755, True), ("move", path(), path(), True, True),
                ("copy", path(), path(), True, True, True), ("symlink", path(), path(), True, True), ("delete", path(), True),
                ("edit", path(), b"a", b"b", True)))
            outcome = getattr(served, name)(*arguments)
            if isinstance(outcome, tuple) and isinstance(outcome[0], int):
                self.assertIn(outcome[0], (400, 403, 404, 409), f"{name} {arguments!r:.300}: {outcome}")
        self.end(one)
        self.no_litter()
        on_host = snapshot(self.host + os.fsdecode(BASE))
        by_api = {entry[0][len(BASE) + 1:]: entry for entry in served.list(BASE, 4096, 1000)}
        self.assertEqual(on_host.keys(), by_api.keys())
        for name, (kind, mode, data) in on_host.items():
            self.assertEqual((kind, mode), by_api[name][1:3], name)
            if kind == "file":
                self.assertTrue(data == served.read(os.path.join(BASE, name)), name)


if __name__ == "__main__":
    unittest.main(verbosity=0)
