#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
"""carrel-plan derive: real overlay layers, made by root's mounts and by those of a user namespace. What the plan says, done
to the base in memory, is what the merged view showed.

    SEED=17 plan_derived.py    one of the random ones, and what it did"""
import base64
import ctypes
import hashlib
import json
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import time
import unittest

WORKER = len(sys.argv) == 5 and sys.argv[1] == "--worker"
if not WORKER:
    from carreltest import CARREL, PATIENCE, ROOT, CarrelTest

    PLAN = os.path.join(os.path.dirname(CARREL), "carrel-plan")
    LONG = bool(os.environ.get("LONG"))
    COUNT = 1500 if LONG else 20
    FIRST = int(os.environ.get("FIRST_SEED", time.time_ns() // 10**9 % 10**6 * 10000 if LONG else 1))
OWNER = 54321  # of trees in tests with the daemon's privileges

# --- inside: changes in the merged view ---


def look(top):
    """Everything below it, by path: (type, mode, content or target, user.* attributes, the file it is)."""
    found = {}
    todo = [b""]
    while todo:
        above = todo.pop()
        for name in os.listdir(os.path.join(top, above) if above else top):
            path = os.path.join(above, name) if above else name
            whole = os.path.join(top, path)
            st = os.lstat(whole)
            kind, mode, held, notes = stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode) & 0o777, b"", []
            if stat.S_ISDIR(kind):
                todo.append(path)
            elif stat.S_ISLNK(kind):
                held, mode = os.readlink(whole), 0o777
            elif stat.S_ISREG(kind):
                if mode & 0o400 == 0:
                    os.chmod(whole, 0o600)
                with open(whole, "rb") as file:
                    held = file.read()
                notes = sorted((n, os.getxattr(whole, n).hex()) for n in os.listxattr(whole) if n.startswith("user.") and "overlay" not in n)
                if mode & 0o400 == 0:
                    os.chmod(whole, mode)
            found[path] = [kind, mode, held.hex(), notes, f"{st.st_dev}:{st.st_ino}"]
    return found


class Changes:
    """A random walk over what is there. What the kernel refuses is left."""

    def __init__(self, seed, top):
        self.r, self.top, self.log = random.Random(seed), top, []

    def pick(self, kinds):
        there = [p for p, e in sorted(look(self.top).items()) if e[0] in kinds]
        return os.path.join(self.top, self.r.choice(there)) if there else None

    def place(self):
        """A name in a directory, taken or not."""
        above = self.pick({stat.S_IFDIR}) if self.r.random() < 0.7 else None
        return os.path.join(above or self.top, self.r.choice([b"a", b"b", b"c", b"d", b"two words", b"new\nline", b"\xff\xfe", b"e.txt"]))

    def content(self):
        return self.r.choice([b"", b"same", b"same", os.urandom(3), b"x" * 5000])

    def create(self):
        with open(self.place(), "wb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666)) as file:
            file.write(self.content())

    def append(self):
        path = self.pick({stat.S_IFREG})
        if path:
            with open(path, "ab") as file:
                file.write(self.content())

    def rewrite(self):
        path = self.pick({stat.S_IFREG})
        if path:
            with open(path + b".new", "wb") as file:
                file.write(self.content())
            os.rename(path + b".new", path)

    def touch(self):
        path = self.pick({stat.S_IFREG})
        if path:
            os.utime(path)
            with open(path, "ab"):
                pass

    def chmod(self):
        path = self.pick({stat.S_IFREG, stat.S_IFDIR})
        if path:
            os.chmod(path, self.r.choice([0o600, 0o644, 0o755, 0o400]) | (0o700 if os.path.isdir(path) else 0))

    def mkdir(self):
        os.mkdir(self.place())

    def remove(self):
        path = self.pick({stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR})
        if path and os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif path:
            os.unlink(path)

    def move(self):
        source = self.pick({stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR})
        place = self.place()
        if source and not (place + b"/").startswith(source + b"/"):
            if self.r.random() < 0.6:
                os.rename(source, place)
            elif not os.path.lexists(place):
                subprocess.run(["mv", "-T", source, place], check=True)

    def swap(self):
        one, other = self.pick({stat.S_IFREG, stat.S_IFDIR}), self.pick({stat.S_IFREG, stat.S_IFDIR})
        if one and other and not (one + b"/").startswith(other + b"/") and not (other + b"/").startswith(one + b"/"):
            aside = os.path.join(self.top, b"aside")
            os.rename(one, aside)
            try:
                os.rename(other, one)
            except OSError:
                os.rename(aside, one)
                raise
            os.rename(aside, other)

    def symlink(self):
        os.symlink(self.r.choice([b"a", b"../b", b"/nonexistent/target", b"\xff"]), self.place())

    def link(self):
        source = self.pick({stat.S_IFREG})
        if source:
            os.link(source, self.place())

    def replace(self):
        path = self.pick({stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR})
        if not path:
            return
        was_dir = os.path.isdir(path) and not os.path.islink(path)
        shutil.rmtree(path) if was_dir else os.unlink(path)
        kind = self.r.randrange(3)
        if kind == 0:
            os.mkdir(path)
            with open(os.path.join(path, b"a"), "wb") as file:
                file.write(b"same")
        elif kind == 1:
            with open(path, "wb") as file:
                file.write(self.content())
        else:
            os.symlink(b"a", path)

    def note(self):
        path = self.pick({stat.S_IFREG})
        if path:
            os.setxattr(path, b"user.note", self.content()[:100])

    def step(self, kinds=None):
        what = self.r.choice(kinds or [self.create, self.append, self.rewrite, self.touch, self.chmod, self.mkdir, self.remove, self.move,
                                       self.move, self.move, self.swap, self.symlink, self.link, self.replace, self.note])
        try:
            what()
            self.log.append(what.__name__)
        except (OSError, subprocess.CalledProcessError, shutil.Error) as why:
            self.log.append(f"{what.__name__}: {why}")


def work(kind, area, job):
    """Mounts area/tree under area/plan's layer, does the job there, and prints what is seen then."""
    options = f"lowerdir={area}/tree,upperdir={area}/plan/upper,workdir={area}/plan/work,"
    options += "redirect_dir=on,metacopy=on,index=on,xino=off" if kind == "root" else "userxattr"
    libc = ctypes.CDLL(None, use_errno=True)  # the program would leave /run/mount behind
    if libc.mount(b"overlay", f"{area}/merged".encode(), b"overlay", 0, options.encode()) < 0:
        raise OSError(ctypes.get_errno(), "mount an overlay")
    top = os.fsencode(f"{area}/merged")
    job = json.loads(job)
    log = []
    if job.get("owner"):
        os.setresgid(job["owner"], job["owner"], job["owner"])
        os.setresuid(job["owner"], job["owner"], job["owner"])
    if "seed" in job:
        changes = Changes(job["seed"], top)
        for _ in range(job["steps"]):
            changes.step()
        log = changes.log
    else:
        os.chdir(top)
        exec(job["code"], {"os": os, "shutil": shutil, "subprocess": subprocess})
    os.sync()
    seen = {} if job.get("blind") else look(top)
    print(json.dumps({"log": log, "seen": [[p.hex(), *e] for p, e in seen.items()]}))


# --- outside: plans, and what they say ---


def bytes_of(line, key):
    if key in line:
        return line[key].encode()
    return base64.b64decode(line[key + "_b64"]) if key + "_b64" in line else None


def read_plan(path):
    with open(path, encoding="utf-8") as file:
        head, *lines = [json.loads(line) for line in file]
    operations = []
    for line in lines[head["flaws"]:]:
        line.update({key: bytes_of(line, key) for key in ("path", "from", "target", "link")})
        operations.append(line)
    assert head["operations"] == len(operations)
    return operations, lines[:head["flaws"]]


class Simulation:
    """The plan's words, taken literally: every base object named by an operation follows it, all others their parent."""

    def __init__(self, base, operations, upper):
        self.base, self.upper, self.final, self.fresh = base, upper, {}, 0
        self.named = {}
        for o in operations:
            if "base" in o:
                path = o["from"] or o["path"]
                assert path not in self.named, f"two operations take {path}"
                self.named[path] = o
        self.where = {b"": b""}
        for path in sorted(base, key=lambda p: p.count(b"/")):
            self.settle(path)
        for o in operations:
            if "base" not in o and o["op"] != "delete":
                assert o["path"] not in self.final, f"{o['path']} is taken"
                self.final[o["path"]] = self.made(o)
        for o in operations:
            if o["link"] is not None:
                self.final[o["path"]][1:] = self.final[o["link"]][1:]
        for o in operations:  # the mode is the file's, whichever of its names was said
            if ROOT and o["op"] in ("chmod", "move") and o["type"] == "file" and "sha256" not in o:
                for entry in self.final.values():
                    if entry[4] == self.final[o["path"]][4]:
                        entry[1] = int(o["mode"], 8)
        for path in self.final:
            above = os.path.dirname(path)
            assert not above or stat.S_ISDIR(self.final[above][0]), f"{path} lies in nothing"

    def settle(self, path):
        o, above = self.named.get(path), self.where[os.path.dirname(path)]
        if o is None:
            if path not in self.base or above is None:
                self.where[path] = None
                return
            at, entry = os.path.join(above, os.path.basename(path)), list(self.base[path])
        elif o["op"] == "delete":
            self.where[path] = None
            return
        else:
            at, entry = o["path"], list(self.base[path])
            if o["op"] != "symlink" and not stat.S_ISLNK(entry[0]):
                entry[1] = int(o["mode"], 8)
            if o["op"] == "symlink":
                entry[2] = o["target"].hex()
            if "sha256" in o and o["link"] is None:
                entry = self.made(o)
        self.where[path] = at
        assert at not in self.final, f"{at} is taken twice"
        self.final[at] = entry

    def made(self, o):
        self.fresh += 1
        kind = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK}[o["type"]]
        held, notes = o["target"] or b"", []
        if "sha256" in o and o["link"] is None:
            whole = os.path.join(self.upper, o["path"])
            with open(whole, "rb") as file:
                held = file.read()
            assert hashlib.sha256(held).hexdigest() == o["sha256"] and len(held) == o["size"], f"staged {o['path']}"
            notes = sorted((n, base64.b64decode(v).hex()) for n, v in o.get("attributes", {}).items())
            assert not [n for n in os.listxattr(whole) if "overlay" in n], f"marks on {o['path']}"
        return [kind, int(o["mode"], 8), held.hex(), [list(n) for n in notes], f"new:{self.fresh}"]


def plain(entries, links):
    """As it can be compared: names of one file told by the first of them."""
    first, result = {}, {}
    for path in sorted(entries):
        kind, mode, held, notes, file = entries[path]
        leader = first.setdefault(file, path) if links and stat.S_ISREG(kind) else None
        result[path] = (kind, mode, held, [tuple(n) for n in notes], leader)
    return result


if not WORKER:

    class Layered(CarrelTest):
        def setUp(self):
            super().setUp()
            self.area = self.path("area")
            self.begin()

        def begin(self):
            if os.path.exists(self.area):
                subprocess.run(["chmod", "-R", "u+rwX", self.area], check=True)
                shutil.rmtree(self.area)
            for name in ("tree", "plan/upper", "plan/work", "merged"):
                os.makedirs(f"{self.area}/{name}")

        def tearDown(self):
            subprocess.run(["chmod", "-R", "u+rwX", self.area], check=True)
            super().tearDown()

        def inside(self, **job):
            kind = "root" if ROOT else "user"
            command = ["unshare", "-m" if ROOT else "-rm", sys.executable, "-B", os.path.realpath(__file__), "--worker", kind, self.area, json.dumps(job)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            answer = json.loads(done.stdout)
            return {bytes.fromhex(path): entry for path, *entry in answer["seen"]}, answer["log"]

        def derive(self, mode="close", prefix=(), **job):
            tree, plan = os.open(f"{self.area}/tree", os.O_PATH | os.O_DIRECTORY), os.open(f"{self.area}/plan", os.O_RDONLY)

            def arrange():
                for fd, to in ((tree, 53), (plan, 54), (53, 3), (54, 4)):
                    os.dup2(fd, to)
                os.closerange(5, 64)

            done = subprocess.run([*prefix, PLAN, "derive"], input=json.dumps({"mode": mode, "privileged": ROOT, **job}), capture_output=True,
                                  text=True, preexec_fn=arrange, close_fds=False, timeout=PATIENCE, check=False)
            os.close(tree)
            os.close(plan)
            self.assertEqual(done.stderr, "")
            return json.loads(done.stdout)

        def write(self, path, content="", mode=0o644):
            whole = os.path.join(self.area, "tree", path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            with open(whole, "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(whole, mode)

        def plan_of(self, code, **job):
            """(kind, path, from) of the operations that this code is, and they are checked."""
            base = look(os.fsencode(f"{self.area}/tree"))
            seen, _ = self.inside(code=code, owner=job.pop("owner", 0))
            look_first = self.derive("look", **job)
            answer = self.derive(**job)
            self.assertNotIn("error", answer)
            self.assertEqual(look_first["hash"], answer["hash"], "looking says what closing says")
            operations, flaws = read_plan(f"{self.area}/plan/manifest")
            with open(f"{self.area}/plan/manifest", "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), answer["hash"])
            if not flaws:
                self.compare(base, operations, seen)
            return [(o["op"], os.fsdecode(o["path"]), os.fsdecode(o["from"] or b"")) for o in operations], answer

        def compare(self, base, operations, seen):
            done = Simulation(base, operations, os.fsencode(f"{self.area}/plan/upper"))
            want, got = plain(seen, ROOT), plain(done.final, ROOT)
            differing = [p for p in sorted(want.keys() | got.keys()) if want.get(p) != got.get(p)]
            self.assertFalse(differing, "\n".join(f"{p}: seen {want.get(p)}, plan {got.get(p)}" for p in differing[:5]))

    class WhatIsRead(Layered):
        def test_nothing_done_is_an_empty_plan(self):
            self.write("a", "1")
            operations, answer = self.plan_of("os.listdir('.'); open('a').read()")
            self.assertEqual((operations, answer["operations"], answer["bytes"]), ([], 0, 0))

        def test_what_only_has_another_time_is_no_change(self):
            self.write("d/a", "1")
            self.assertEqual(self.plan_of("os.utime('d/a', (1, 1)); open('d/a', 'a').close(); open('d/a', 'r+').write('1'); os.utime('d')")[0], [])

        def test_moves_are_moves(self):
            self.write("f", "file")
            self.write("d/x", "in d")
            self.write("d/sub/y", "deep")
            operations, answer = self.plan_of("os.rename('f', 'g'); os.mkdir('n'); subprocess.run(['mv', 'd', 'n/e'], check=True)")
            self.assertEqual(operations, [("move", "g", "f"), ("mkdir", "n", ""), ("move", "n/e", "d")])
            self.assertEqual(answer["copied_bytes"], 0 if ROOT else 4, "a directory moved whole brings nothing along")

        def test_a_file_moved_by_root_costs_no_data(self):
            if not ROOT:
                self.skipTest("rootless moves are copies")
            with open(f"{self.area}/tree/big", "wb") as file:
                file.truncate(1 << 40)  # to read it would take longer than anybody waits
            self.inside(code="os.rename('big', 'bigger')", blind=True)
            answer = self.derive()
            self.assertEqual((answer["counts"]["move"], answer["operations"], answer["bytes"], answer["flaw_count"]), (1, 1, 0, 0))

        def test_names_are_exchanged_and_passed_on(self):
            for name in "abcd":
                self.write(f"{name}/{name}", name)
            self.write("f", "f")
            self.write("g", "g")
            operations, _ = self.plan_of("""
def move(one, other):
    subprocess.run(['mv', '-T', one, other], check=True)
move('a', 't'); move('b', 'a'); move('t', 'b')
move('d', 'e'); move('c', 'd')
move('f', 't'); move('g', 'f'); move('t', 'g')
""")
            if ROOT:
                self.assertEqual(operations, [("move", "a", "b"), ("move", "b", "a"), ("move", "d", "c"), ("move", "e", "d"),
                                              ("move", "f", "g"), ("move", "g", "f")])

        def test_changes_inside_a_moved_directory(self):
            for name in ("keep", "edit", "mode", "gone", "out"):
                self.write(f"d/{name}", name * 3)
            operations, _ = self.plan_of("""
subprocess.run(['mv', 'd', 'e'], check=True)
open('e/edit', 'a').write('more'); os.chmod('e/mode', 0o600); os.unlink('e/gone'); os.rename('e/out', 'out'); open('e/new', 'w').write('n')
""")
            if ROOT:
                self.assertEqual(operations, [("delete", "d/gone", ""), ("move", "e", "d"), ("write", "e/edit", "d/edit"), ("chmod", "e/mode", "d/mode"),
                                              ("create", "e/new", ""), ("move", "out", "d/out")])

        def test_a_directory_replaced_or_emptied(self):
            self.write("d/x", "1")
            self.write("e/y", "2")
            self.write("f", "3")
            operations, _ = self.plan_of("""
shutil.rmtree('d'); os.mkdir('d'); open('d/z', 'w').write('zz'); shutil.rmtree('e'); open('e', 'w').write('now a file')
os.unlink('f'); os.mkdir('f')
""")
            self.assertEqual(operations, [("mkdir", "d", ""), ("delete", "d", ""), ("create", "d/z", ""), ("create", "e", ""), ("delete", "e", ""),
                                          ("mkdir", "f", ""), ("delete", "f", "")])

        def test_a_deleted_directory_is_one_operation_that_knows_what_is_in_it(self):
            for i in range(50):
                self.write(f"d/{i % 5}/{i}", "x" * i)
            operations, _ = self.plan_of("shutil.rmtree('d')")
            self.assertEqual(operations, [("delete", "d", "")])
            deleted = read_plan(f"{self.area}/plan/manifest")[0][0]
            self.assertEqual((deleted["entries"], deleted["bytes"]), (55, sum(range(50))))

        def test_new_names_of_a_file_are_links(self):
            self.write("a", "content")
            operations, answer = self.plan_of("os.link('a', 'b'); open('n', 'w').write('new'); os.link('n', 'm'); os.link('n', 'o')")
            self.assertEqual(operations, [("create", "b", ""), ("create", "m", ""), ("create", "n", ""), ("create", "o", "")])
            found = {o["path"]: o for o in read_plan(f"{self.area}/plan/manifest")[0]}
            self.assertEqual((found[b"b"]["link"], found[b"n"]["link"], found[b"o"]["link"], found[b"m"]["link"]), (b"a", b"m", b"m", None))
            self.assertEqual(answer["bytes"], 3, "what the base has is not carried, what is new once")

        def test_all_names_of_a_file_are_written(self):
            if not ROOT:
                self.skipTest("without root the kernel parts the names")
            self.write("a", "content")
            self.write("d/keep", "1")
            os.link(f"{self.area}/tree/a", f"{self.area}/tree/b")
            os.link(f"{self.area}/tree/a", f"{self.area}/tree/d/c")
            operations, _ = self.plan_of("open('b', 'a').write('more'); os.rename('d', 'e')")
            self.assertEqual(operations, [("write", "a", ""), ("write", "b", ""), ("move", "e", "d"), ("write", "e/c", "d/c")])

        def test_a_name_moved_over_a_file_with_the_same_content_takes_the_other_names_along(self):
            if not ROOT:
                self.skipTest("without root the kernel parts the names")
            for content in ("same", "other"):
                self.write("b", content)
                self.write("c", "same")
                os.link(f"{self.area}/tree/c", f"{self.area}/tree/d")
                self.plan_of(f"open('c', 'r+').write({content!r}); os.truncate('c', {len(content)}); os.rename('c', 'b')")
                self.begin()

        def test_attributes_alone_are_a_write(self):
            self.write("a", "content")
            self.write("b", "content b")
            try:
                os.setxattr(f"{self.area}/tree/b", "user.old", b"1")
            except OSError:
                self.skipTest("no attributes here")
            operations, _ = self.plan_of("os.setxattr('a', 'user.note', b'1'); os.chmod('b', 0o600)")
            self.assertEqual(operations, [("write", "a", ""), ("chmod", "b", "")])

        def test_attributes_are_in_the_plan_also_of_new_directories(self):
            self.inside(code="os.mkdir('d'); os.setxattr('d', 'user.b', b'2'); os.setxattr('d', 'user.a', b'\\0\\xff'); open('f', 'w').write('1');"
                        "os.setxattr('f', b'user.\\xff', b''); os.setxattr('f', 'user.\"', b'q'); os.setxattr('f', 'user.large', b'x' * 3000);"
                        "os.mkdir('closed'); os.setxattr('closed', 'user.c', b'3'); os.chmod('closed', 0)")
            look = self.derive("look")
            self.assertEqual(look["hash"], self.derive()["hash"])
            noted = {o["path"]: o.get("attributes") for o in read_plan(f"{self.area}/plan/manifest")[0]}
            self.assertEqual({b"d": {"user.a": "AP8=", "user.b": "Mg=="}, b"closed": {"user.c": "Mw=="},
                              b"f": {"base64:dXNlci4i": "cQ==", "user.large": "eHh4" * 1000, "base64:dXNlci7/": ""}}, noted)

        def test_other_attributes_of_a_directory_of_the_base_are_told(self):
            os.mkdir(f"{self.area}/tree/d")
            os.mkdir(f"{self.area}/tree/same")
            os.setxattr(f"{self.area}/tree/same", "user.note", b"1")
            self.inside(code="os.setxattr('d', 'user.note', b'1'); open('same/f', 'w')")
            answer = self.derive()
            self.assertEqual([("attributes", "d")], [(f["flaw"], f["path"]) for f in answer["flaws"]])

        def test_names_are_bytes(self):
            operations, _ = self.plan_of(r"open(b'\xff\xfe', 'w').write('1'); open('new\nline', 'w'); os.mkdir('n' * 255)")
            self.assertEqual([o[1] for o in operations], ["new\nline", "n" * 255, "\udcff\udcfe"])

        def test_a_closed_directory_is_read_and_stays_closed(self):
            self.inside(code="os.makedirs('d/e'); open('d/e/secret', 'w').write('s'); os.chmod('d/e/secret', 0); os.chmod('d/e', 0o300); os.chmod('d', 0)")
            self.derive("look")
            answer = self.derive()
            self.assertEqual((answer["flaw_count"], answer["operations"], answer["bytes"]), (0, 3, 1))
            self.assertEqual([(o["path"], o["mode"]) for o in read_plan(f"{self.area}/plan/manifest")[0]],
                             [(b"d", "0000"), (b"d/e", "0300"), (b"d/e/secret", "0000")])
            os.chmod(f"{self.area}/plan/upper/d", os.lstat(f"{self.area}/plan/upper/d").st_mode | 0o700)
            self.assertEqual(os.lstat(f"{self.area}/plan/upper/d/e").st_mode & 0o777, 0o300)
            self.assertEqual(os.lstat(f"{self.area}/plan/upper/d/e/secret").st_mode & 0o777, 0)

    class WhatIsRefused(Layered):
        def flaws_of(self, code, **job):
            _, answer = self.plan_of(code, **job)
            return [(f["flaw"], f["path"]) for f in answer["flaws"]]

        def test_things_that_no_plan_carries_are_flaws(self):
            self.write("was", "a file")
            self.assertEqual(self.flaws_of("""
import socket
os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('sock'); os.unlink('was'); os.mkfifo('was')
open('suid', 'w').write('x'); os.chmod('suid', 0o4755)
""".replace("import socket\n", "socket = __import__('socket')\n")),
                             [("fifo", "pipe"), ("socket", "sock"), ("setid", "suid"), ("fifo", "was")])
            operations, flaws = read_plan(f"{self.area}/plan/manifest")
            self.assertEqual([(o["op"], o["path"], o["mode"]) for o in operations], [("create", b"suid", "0755"), ("delete", b"was", "0644")])
            self.assertEqual(len(flaws), 4)

        def test_names_to_mount_on_are_left_out_while_they_are_empty(self):
            self.inside(code="os.mkdir('usr'); os.mkdir('proc')")
            answer = self.derive()
            self.assertEqual((answer["operations"], answer["flaw_count"]), (0, 0))
            self.begin()
            self.assertEqual(self.flaws_of("os.makedirs('tmp/x'); open('etc', 'w'); os.makedirs('.venv.carrel-next/bin')"),
                             [("reserved", ".venv.carrel-next"), ("reserved", "etc"), ("reserved", "tmp")])

        def test_mount_points_named_in_the_job_are_left_out(self):
            seen, _ = self.inside(code="os.makedirs('data/in'); open('data/file', 'w'); os.mkdir('data/used'); open('data/used/x', 'w').write('x')")
            self.assertIn(b"data/in", seen)
            self.derive(mount_points=["data", "data/in", "data/file", "data/used"])
            self.assertEqual([o["path"] for o in read_plan(f"{self.area}/plan/manifest")[0]], [b"data", b"data/used", b"data/used/x"])

        def test_forged_marks_mean_nothing(self):
            self.write("d/x", "1")
            self.write("victim", "2")
            operations, _ = self.plan_of("""
os.mkdir('new'); open('f', 'w').write('mine')
for path in ('new', 'f'):
    for name in ('opaque', 'redirect', 'metacopy', 'whiteout'):
        try:
            os.setxattr(path, 'user.overlay.' + name, b'/victim')
        except OSError:
            pass
""")
            self.assertEqual([o[:2] for o in operations], [("create", "f"), ("mkdir", "new")])
            self.assertFalse([n for n in os.listxattr(f"{self.area}/plan/upper/f") if "overlay" in n])

        def test_a_base_that_changed_under_a_move_is_told(self):
            if not ROOT:
                self.skipTest("rootless moves are copies")
            self.write("a", "1")
            self.inside(code="os.rename('a', 'b')")
            os.unlink(f"{self.area}/tree/a")
            self.assertEqual([(f["flaw"], f["path"]) for f in self.derive()["flaws"]], [("lost", "b")])

        def test_changed_through_a_name_that_is_gone_is_told(self):
            if not ROOT:
                self.skipTest("rootless layers do not keep names together")
            self.write("a", "1")
            os.link(f"{self.area}/tree/a", f"{self.area}/tree/b")
            self.inside(code="open('a', 'w').write('2'); os.unlink('a')")
            flaw, = self.derive()["flaws"]
            self.assertEqual(("other_name", "b"), (flaw["flaw"], flaw["path"]))
            self.assertIn("through another name", flaw["message"])

        def test_the_other_names_of_what_was_moved_over_a_file(self):
            if not ROOT:
                self.skipTest("rootless layers do not keep names together")
            self.write("a", "1")
            self.write("c", "3")
            os.link(f"{self.area}/tree/a", f"{self.area}/tree/b")
            operations, _ = self.plan_of("open('a', 'w').write('2'); os.rename('a', 'c')")
            self.assertEqual({("delete", "a"), ("write", "b"), ("write", "c")}, {o[:2] for o in operations})

        def test_closed_nothing_of_the_kernels_is_left_and_closing_again_tells_the_same(self):
            self.write("a", "1")
            os.link(f"{self.area}/tree/a", f"{self.area}/tree/b")
            self.inside(code="open('a', 'w').write('2')")
            answer = self.derive()
            self.assertFalse(os.path.exists(f"{self.area}/plan/work/index"))
            self.assertEqual(1, os.stat(f"{self.area}/plan/upper/a").st_nlink)
            self.assertEqual(answer, self.derive())

        def test_moved_into_a_new_directory_of_the_same_name(self):
            if not ROOT:
                self.skipTest("rootless moves are copies")
            self.write("d/x", "1")
            operations, _ = self.plan_of("os.rename('d/x', 't'); os.rmdir('d'); os.mkdir('d'); os.rename('t', 'd/x')")
            self.assertEqual([("delete", "d"), ("mkdir", "d"), ("move", "d/x")], sorted(o[:2] for o in operations))

        def test_a_sparse_giant_is_not_read(self):
            self.inside(code="f = open('giant', 'w'); f.truncate(1 << 40)", blind=True)
            self.assertEqual([(f["flaw"], f["path"]) for f in self.derive()["flaws"]], [("too_large", "giant")])

        def test_a_job_with_an_unknown_key_is_refused(self):
            self.assertEqual(self.derive(colour="red")["error"]["code"], "plan_invalid")
            self.assertEqual(self.derive("glance")["error"]["code"], "plan_invalid")

    class WhatItCosts(Layered):
        def cost(self, files):
            self.begin()
            for i in range(files):
                self.write(f"d{i % 100}/f{i}", str(i))
            self.inside(code="os.rename('d1', 'moved'); open('d2/f2', 'a').write('x'); os.unlink('d3/f3'); open('new', 'w')")
            best = 1e9
            for _ in range(3):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                self.assertGreater(self.derive("look")["operations"], 3)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            return best

        def test_it_follows_what_changed_and_not_the_tree(self):
            if not ROOT:
                self.skipTest("a directory moved by copying is a change of its size")
            small, large = self.cost(100), self.cost(20000)
            self.assertLess(large, 3 * small + 0.02, "to look at each of 20,000 files takes longer")

    class ByTheDaemon(Layered):
        def test_the_owner_with_two_capabilities_is_enough(self):
            if not ROOT or not shutil.which("setpriv"):
                self.skipTest("only root has these to give")
            self.write("d/x", "1", 0o400)
            self.write("f", "2", 0)
            os.chmod(self.area, 0o755)
            os.chmod(os.path.dirname(self.area), 0o755)
            os.chmod(os.environ["TMP"], 0o755)
            for where, dirs, files in os.walk(self.area):
                for name in [".", *dirs, *files]:
                    os.lchown(os.path.join(where, name), OWNER, OWNER)
            caps = "+sys_admin,+dac_read_search"
            prefix = ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups", "--inh-caps", caps, "--ambient-caps", caps,
                      "--bounding-set", "-all," + caps]
            operations, _ = self.plan_of("""
os.rename('d', 'e'); os.rename('f', 'g'); os.chmod('e/x', 0o600); open('e/x', 'a').write('more'); os.chmod('e/x', 0o444)
os.mkdir('closed'); open('closed/in', 'w').write('i'); os.chmod('closed/in', 0); os.chmod('closed', 0o700)
""", owner=OWNER, prefix=prefix)
            self.assertEqual(operations, [("mkdir", "closed", ""), ("create", "closed/in", ""), ("move", "e", "d"), ("write", "e/x", "d/x"),
                                          ("move", "g", "f")])

    class AtRandom(Layered):
        def one(self, seed):
            self.begin()
            r = random.Random(seed)
            base = Changes(seed + 1, os.fsencode(f"{self.area}/tree"))
            for _ in range(r.randrange(5, 30)):
                base.step([base.create, base.create, base.mkdir, base.symlink, base.link, base.chmod, base.note])
            before = look(os.fsencode(f"{self.area}/tree"))
            log = []
            for run in range(r.randrange(1, 3)):  # a plan that goes on
                seen, done = self.inside(seed=seed + 2 + run, steps=r.randrange(1, 25))
                log += done
            layer = self.layer()
            answer = self.derive()
            try:
                self.assertNotIn("error", answer)
                # Changed through one name of a file, which was deleted then: it is told, and never lost in silence.
                several = len({e[4] for e in before.values()}) < len(before)
                self.assertFalse([f for f in answer["flaws"] if not (ROOT and several and f["flaw"] == "other_name")])
                if answer["flaws"]:
                    return
                self.compare(before, read_plan(f"{self.area}/plan/manifest")[0], seen)
            except AssertionError:
                print(f"seed {seed}: {log}", *layer, *[f"base {p} {e[0]:o} {e[1]:o} {len(e[2]) // 2} bytes {e[4]}" for p, e in sorted(before.items())], sep="\n")
                raise

        def layer(self):
            """What lies in it, for whoever has to find out why."""
            lines = []
            for where, dirs, files in os.walk(os.fsencode(f"{self.area}/plan/upper")):
                for name in sorted(dirs + files):
                    path = os.path.join(where, name)
                    st = os.lstat(path)
                    marks = {n: os.getxattr(path, n, follow_symlinks=False) for n in os.listxattr(path, follow_symlinks=False) if "origin" not in n}
                    lines.append(f"{path[len(self.area) + 12:]} {st.st_mode:o} size {st.st_size} ino {st.st_ino} nlink {st.st_nlink} {marks}")
            return lines

        def test_the_plan_is_what_was_seen(self):
            if "SEED" in os.environ:
                self.one(int(os.environ["SEED"]))
                return
            for seed in [34, 512, 525, 606, 913, *range(FIRST, FIRST + COUNT)]:  # those that failed once come first
                with self.subTest(seed=seed):
                    self.one(seed)


if __name__ == "__main__":
    if WORKER:
        work(*sys.argv[2:])
    else:
        unittest.main()
