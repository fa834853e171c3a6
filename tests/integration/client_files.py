#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""carrel ls, cat, put, get, edit, rm, mv, cp, mkdir, stat, grep, glob, watch, tree and doctor WS, as a person uses them."""
import fcntl
import hashlib
import io
import json
import os
import pty
import random
import select
import signal
import struct
import subprocess
import tarfile
import termios
import time
import unittest

from carreltest import CARREL, PATIENCE, carrel, tree, write
from daemontest import DaemonTest

ODD = b"odd \xff\x1b[2Jname\n\xe2\x80\xaex"


def contents(top):
    """What is below a directory: names, kinds, bytes, and whether it can be executed."""
    found = {}
    for where, dirs, files in os.walk(os.fsencode(top)):
        for name in dirs + files:
            path = os.path.join(where, name)
            below = os.path.relpath(path, os.fsencode(top))
            if os.path.islink(path):
                found[below] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[below] = ("directory",)
            else:
                with open(path, "rb") as file:
                    found[below] = ("file", file.read(), os.stat(path).st_mode & 0o111)
    return found


class Files(DaemonTest):
    def setUp(self):
        super().setUp()
        self.env = {**os.environ, "CARREL_SOCKET": self.daemon.socket, "TERM": "xterm", "HOME": self.dir}
        self.here = self.path("here")
        os.mkdir(self.here)
        self.says("ws", "create", "desk")

    def carrel(self, *args, **kwargs):
        return carrel(*args, **{"env": self.env, "cwd": self.here, **kwargs})

    def says(self, *args, **kwargs):
        """What it prints; it must succeed, and have nothing to complain about."""
        return self.succeeded(self.carrel(*args, **kwargs))

    def local(self, name, text):
        path = os.path.join(self.here, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return write(path, text)

    def some_tree(self):
        """A directory with what trees have."""
        self.local("d/x.py", "def f():  # TODO\n    pass\n")
        self.local("d/sub/y.txt", "a\nb\nneedle\nc\nd\nneedle two\ne\n")
        os.chmod(os.path.join(self.here, "d/x.py"), 0o755)
        os.symlink("/etc/passwd", os.path.join(self.here, "d/out"))
        os.symlink("x.py", os.path.join(self.here, "d/in"))
        os.mkdir(os.path.join(self.here, "d/empty"))
        with open(os.path.join(os.fsencode(self.here), b"d", ODD), "wb") as file:
            file.write(b"odd")
        return os.path.join(self.here, "d")

    def on_terminal(self, *args):
        """What it writes on a terminal, and its exit status."""
        master, slave = pty.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        with subprocess.Popen([CARREL, *args], stdin=slave, stdout=slave, stderr=slave, env=self.env, cwd=self.here) as process:
            os.close(slave)
            seen = b""
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                try:
                    if select.select([master], [], [], 0.1)[0]:
                        seen += os.read(master, 65536)
                except OSError:
                    break
            os.close(master)
            return seen, process.wait(PATIENCE)

    def test_a_file_goes_there_and_comes_back(self):
        data = random.Random(1).randbytes(3_000_001)
        with open(os.path.join(self.here, "a.bin"), "wb") as file:
            file.write(data)
        self.assertEqual("", self.says("put", "a.bin", "desk:/dir/"))
        done = self.carrel("cat", "desk:/dir/a.bin", text=False)
        self.assertEqual(hashlib.sha256(data).digest(), hashlib.sha256(done.stdout).digest(), done.stderr)
        self.assertEqual("", self.says("get", "desk:/dir/a.bin", "b.bin"))
        with open(os.path.join(self.here, "b.bin"), "rb") as file:
            self.assertEqual(data, file.read())
        self.assertEqual("1\n", self.says("exec", "desk", "-c", "ls /dir | wc -l"))
        self.local("run.sh", "#!/bin/sh\necho ran\n")
        os.chmod(os.path.join(self.here, "run.sh"), 0o755)
        self.says("put", "run.sh", "desk:/")
        self.assertEqual("ran\n", self.says("exec", "desk", "--", "/run.sh"))
        os.unlink(os.path.join(self.here, "run.sh"))
        self.says("get", "desk:/run.sh")
        self.assertTrue(os.access(os.path.join(self.here, "run.sh"), os.X_OK))
        entry = self.object(self.says("put", "--json", "--mode", "0600", "run.sh", "desk:/private"))
        self.assertEqual(("/private", "0600"), (entry["path"], entry["mode"]))
        self.says("put", "-", "desk:/typed.txt", input="typed\n")
        self.assertEqual("typed\n", self.says("get", "desk:/typed.txt", "-"))
        self.says("put", "a.bin", "run.sh", "desk:/both/")
        self.assertEqual("a.bin\nrun.sh\n", self.says("ls", "desk:/both"))
        os.mkdir(os.path.join(self.here, "into"))
        self.says("get", "desk:/both/a.bin", "desk:/both/run.sh", "into")
        self.assertEqual(["a.bin", "run.sh"], sorted(os.listdir(os.path.join(self.here, "into"))))
        self.local("with:colon", "colon\n")
        self.says("put", "./with:colon", "desk:/c:d")
        self.assertEqual("colon\n", self.says("cat", "desk:/c:d"))

    def test_trees_go_there_and_come_back(self):
        top = self.some_tree()
        self.assertEqual("", self.says("put", "-r", "d", "desk:/new"))
        self.assertEqual("", self.says("get", "-r", "desk:/new", "back"))
        self.assertEqual(contents(top), contents(os.path.join(self.here, "back")))
        self.says("put", "-r", "d", "desk:/new")  # there is one now: into it
        self.assertEqual("directory", self.object(self.says("stat", "--json", "desk:/new/d"))["type"])
        self.says("put", "-r", "d/.", "desk:/flat/")
        self.assertEqual(contents(top).keys(), {os.fsencode(name) for name in contents(self.here + "/back")})
        self.assertEqual("x.py", self.object(self.says("stat", "--json", "desk:/flat/in"))["target"])
        counted = self.object(self.says("put", "-r", "--json", "d", "desk:/counted"))
        self.assertEqual((3, 2), (counted["files"], counted["links"]))
        self.says("get", "-r", "desk:/flat")
        self.assertEqual(contents(top), contents(os.path.join(self.here, "flat")))
        self.one_line(self.carrel("put", "d", "desk:/x"), "-r")
        self.one_line(self.carrel("get", "desk:/flat", "x"), "-r")
        self.assertFalse(os.path.exists(os.path.join(self.here, "x")))

    def test_nothing_is_written_outside_and_nothing_half_is_left(self):
        outside = self.local("outside/file", "mine\n")
        os.mkdir(os.path.join(self.here, "target"))
        os.symlink("../outside", os.path.join(self.here, "target/way"))
        self.says("exec", "desk", "-c", "mkdir -p /t/way && echo theirs >/t/way/file && echo more >/t/way/other")
        before = tree(os.path.dirname(outside))
        self.carrel("get", "-r", "desk:/t/.", "target/")  # t/way would go through the link
        self.carrel("get", "-r", "desk:/t", "target")
        self.says("exec", "desk", "-c", "ln -s /etc /t/etc")
        self.carrel("get", "-r", "desk:/t", "again")
        self.assertEqual(before, tree(os.path.dirname(outside)))
        for root, _, files in os.walk(self.here):
            self.assertEqual([], [name for name in files if name.startswith(".carrel")], root)
        self.says("exec", "desk", "-c", "truncate -s 300M /big")
        old = self.local("big", "old\n")
        process = subprocess.Popen([CARREL, "get", "desk:/big", "big"], env=self.env, cwd=self.here, stderr=subprocess.PIPE)
        time.sleep(0.15)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        names = {"outside", "target", "again", "big"}
        while set(os.listdir(self.here)) - names and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(set(), set(os.listdir(self.here)) - names)
        if process.returncode:  # else it was quicker
            with open(old, encoding="ascii") as file:
                self.assertEqual("old\n", file.read())

    def test_listing(self):
        self.some_tree()
        self.says("put", "-r", "d", "desk:/d")
        done = self.carrel("ls", "desk:/d", text=False)
        self.assertEqual(sorted([b"empty", b"in", ODD, b"out", b"sub", b"x.py"]), sorted(self.lines_with(ODD, done.stdout)))
        self.assertRegex(self.says("ls", "-l", "desk:/d/sub"), r"^-rw-r--r-- +\d+ +\d+s ago +y\.txt\n$")
        self.assertIn("sub/y.txt\n", self.carrel("ls", "-R", "desk:/d", text=False).stdout.decode(errors="replace"))
        self.assertEqual("/d/x.py\n", self.says("ls", "desk:/d/x.py"))
        self.assertEqual("y.txt\n", self.says("ls", "-p", "desk:/d/sub"))
        self.assertIn(b"\nsub/\nsub/y.txt\nx.py\n", self.carrel("ls", "-p", "-R", "desk:/d", text=False).stdout)
        entries = self.object(self.says("ls", "--json", "desk:/d"))["entries"]
        self.assertEqual(6, len(entries))
        self.assertTrue(any("path_b64" in entry for entry in entries))
        self.assertRegex(self.says("stat", "desk:/d/out"), r"(?m)^target +/etc/passwd$")
        self.assertEqual("file", self.object(self.says("stat", "-L", "--json", "desk:/d/in"))["type"])
        self.says("rm", "desk:/d/" + os.fsdecode(ODD))
        self.assertEqual("desk:/d\n├── empty\n├── in -> x.py\n├── out -> /etc/passwd\n├── sub\n│   └── y.txt\n└── x.py\n"
                         "\n2 directories, 4 files\n", self.says("tree", "desk:/d"))
        self.assertNotIn("y.txt", self.says("tree", "--depth", "1", "desk:/d"))
        self.assertEqual("/d/sub/y.txt\n/d/x.py\n", self.says("glob", "**/*.{py,txt}", "desk:/d"))
        self.says("exec", "desk", "-c", "mkdir /many && cd /many && seq 1 12000 | xargs touch")
        self.assertEqual(12000, len(self.says("ls", "desk:/many").splitlines()))

    def test_patterns_are_as_the_manual_says(self):
        for name in ("a.txt", "d/b.txt", "d/name", "name/f", ".dot.txt", ".hid/e.txt", "[a", "{a", "{b}"):
            self.local("g/" + name, "needle\n")
        os.symlink("a.txt", self.here + "/g/link.txt")
        os.symlink("d", self.here + "/g/dlink")
        self.says("put", "-r", "g", "desk:/g")
        top = os.path.realpath(self.here) + "/g"
        for pattern, found in (("*.txt", "a.txt d/b.txt"), ("/*.txt", "a.txt"), ("d/*.txt", "d/b.txt"), ("name", "d/name"),
                               ("name/", "name/f"), ("d", ""), ("dlink/*", ""), (".*", ".dot.txt"), (".*/*", ".hid/e.txt"),
                               ("[a", "[a"), ("{a", "{a"), ("{b}", "{b}"), ("\\[a", "[a"), ("?dot.txt", "")):
            with self.subTest(pattern=pattern):
                self.assertEqual([f"/g/{name}" for name in found.split()], self.says("glob", pattern, "desk:/g").splitlines())
                self.assertEqual([f"{top}/{name}" for name in found.split()], self.says("glob", pattern, "g").splitlines())
        for glob, found in (("*.txt", {".dot.txt", ".hid/e.txt", "a.txt", "d/b.txt"}), ("!name/", {".dot.txt", ".hid/e.txt", "a.txt",
                            "d/b.txt", "[a", "{a", "{b}"})):
            lines = self.says("grep", "--glob", glob, "needle", "desk:/g").splitlines()
            self.assertEqual({f"/g/{name}:1:needle" for name in found}, set(lines), glob)

    @staticmethod
    def lines_with(odd, text):
        """Lines, but one name that has a newline in it."""
        assert odd + b"\n" in text, text
        return text.replace(odd + b"\n", b"").splitlines() + [odd]

    def test_searching_and_editing(self):
        self.some_tree()
        self.says("put", "-r", "d", "desk:/d")
        self.assertEqual("/d/sub/y.txt:3:needle\n/d/sub/y.txt:6:needle two\n", self.says("grep", "needle", "desk:/d"))
        self.assertEqual("/d/sub/y.txt-2-b\n/d/sub/y.txt:3:needle\n/d/sub/y.txt-4-c\n/d/sub/y.txt-5-d\n"
                         "/d/sub/y.txt:6:needle two\n/d/sub/y.txt-7-e\n", self.says("grep", "-C", "1", "needle", "desk:/d"))
        self.assertEqual("/d/x.py:1:def f():  # TODO\n", self.says("grep", "-i", "-E", "todo|nope", "--glob", "*.py", "desk:/d"))
        done = self.carrel("grep", "nowhere", "desk:/d")
        self.assertEqual((1, "", ""), (done.returncode, done.stdout, done.stderr))
        self.assertEqual(2, len(self.object(self.says("grep", "--json", "needle", "desk:/d"))["matches"]))
        self.assertEqual("1\n", self.says("edit", "desk:/d/x.py", "--old", "TODO", "--new", "done"))
        self.assertIn("# done", self.says("cat", "desk:/d/x.py"))
        self.one_line(self.carrel("edit", "desk:/d/sub/y.txt", "--old", "needle", "--new", "x"), "--all")
        self.assertEqual("2\n", self.says("edit", "desk:/d/sub/y.txt", "--old", "needle", "--new", "pin", "--all"))
        self.one_line(self.carrel("edit", "desk:/d/sub/y.txt", "--old", "needle", "--new", "x"), "string_not_found")
        for place in ("desk:/d/sub/y.txt", "./d/x.py"):
            seen = self.object(self.says("stat", "--json", place))["etag"]
            text = "pin two" if place.startswith("desk") else "def f"
            self.assertEqual("1\n", self.says("edit", place, "--old", text, "--new", "changed", "--if-match", seen))
            self.one_line(self.carrel("edit", place, "--old", "changed", "--new", "x", "--if-match", seen), "read it again")
            self.assertIn("changed", self.says("cat", place))
            self.one_line(self.carrel("edit", place, "--old", "changed", "--new", "x", "--if-match", "a\nb"), "--if-match")
        self.one_line(self.carrel("put", "-", "desk:/d/x.py", "--if-match", seen, input="lost\n"), "read it again")
        seen = self.object(self.says("stat", "--json", "desk:/d/x.py"))["etag"]
        self.says("put", "-", "desk:/d/x.py", "--if-match", seen, input="written\n")
        self.assertEqual("written\n", self.says("cat", "desk:/d/x.py"))
        self.one_line(self.carrel("put", "-r", "d", "desk:/d", "--if-match", seen), "one file")
        done = self.carrel("cat", "--offset", "1", "--limit", "2", "desk:/d/sub/y.txt")
        self.assertEqual((0, "b\npin\n"), (done.returncode, done.stdout))
        self.assertEqual("carrel: /d/sub/y.txt: there are more lines; --offset 3 goes on\n", done.stderr)
        self.assertEqual("d\nchanged\ne\n", self.says("cat", "--offset", "4", "--limit", "3", "desk:/d/sub/y.txt"))
        self.says("put", "-", "desk:/long", input="a\n" + "x" * 600_000)
        self.assertIn("was cut", self.carrel("cat", "--offset", "1", "desk:/long").stderr)
        page = self.object(self.says("cat", "--json", "desk:/d/sub/y.txt"))
        self.assertEqual((7, "utf-8"), (page["total_lines"], page["encoding"]))

    def test_moving_copying_and_removing(self):
        self.says("mkdir", "desk:/a/b/c")
        self.says("put", "-", "desk:/a/one", input="one\n")
        self.says("cp", "desk:/a/one", "desk:/a/two")
        self.says("mv", "desk:/a/one", "desk:/a/two", "desk:/a/b/")
        self.assertEqual("c\none\ntwo\n", self.says("ls", "desk:/a/b"))
        self.one_line(self.carrel("cp", "desk:/a", "desk:/e"), "-r")
        self.says("cp", "-r", "desk:/a", "desk:/e")
        self.assertEqual("one\n", self.says("cat", "desk:/e/b/one"))
        self.says("put", "-", "desk:/e/b/two", input="other\n")
        self.one_line(self.carrel("mv", "-n", "desk:/e/b/one", "desk:/e/b/two"), "already_exists")
        self.assertEqual("other\n", self.says("cat", "desk:/e/b/two"))
        self.one_line(self.carrel("rm", "desk:/e"), "not_empty")
        self.says("rm", "-r", "desk:/e", "desk:/a")
        self.one_line(self.carrel("ls", "desk:/e"), "desk:/e")
        records = {record.get("operation") for record in self.daemon.audit()}
        self.assertLessEqual({"file.write", "file.move", "file.copy", "file.delete", "file.mkdir"}, records)

    def test_dots_are_not_removed(self):
        nobody = {**self.env, "CARREL_SOCKET": self.path("none.sock")}
        self.local("in/x/kept", "kept\n")
        self.local("in/x/.hidden", "hidden\n")
        before = tree(self.here)
        for word in (".", "..", "./", "..//", "x/.", "x/..", "x/../", "./..", "../in/.", self.here + "/in/."):
            for options in ([], ["-r"]):
                with self.subTest(word=word, options=options):
                    self.one_line(self.carrel("rm", *options, word, env=nobody, cwd=self.here + "/in"), "'.' and '..' are refused")
        self.assertEqual(before, tree(self.here))
        self.says("put", "-r", "in", "desk:/in")
        for word in ("desk:/in/.", "desk:/in/./", "desk:/in/x/..", "desk:/.", "desk:.", "desk:.."):
            with self.subTest(word=word):
                self.one_line(self.carrel("rm", "-r", word), "'..'")
        self.assertEqual("kept\n", self.says("cat", "desk:/in/x/kept"))
        # The others are, as without it; and names are no dots because they begin or end with some.
        for name in ("...", ".a", "a.", "a:."):
            self.local("in/x/" + name, "")
        done = self.carrel("rm", "./x/...", "x/.a", ".", "x/a.", "./x/a:.", env=nobody, cwd=self.here + "/in")
        self.one_line(done, "'.' and '..' are refused")
        self.assertEqual(before, tree(self.here))

    def test_a_link_with_a_slash_behind_it_is_not_what_it_leads_to(self):
        nobody = {**self.env, "CARREL_SOCKET": self.path("none.sock")}
        self.local("far/kept", "kept\n")
        self.local("in/x", "")
        os.symlink("../far", self.here + "/in/link")
        before = tree(self.here)
        for word in ("link/", "link//", "./link/", self.here + "/in/link/"):
            self.one_line(self.carrel("rm", "-r", word, env=nobody, cwd=self.here + "/in"), "without")
        self.assertEqual(before, tree(self.here))
        self.carrel("rm", "link", env=nobody, cwd=self.here + "/in")
        self.assertFalse(os.path.lexists(self.here + "/in/link"))
        self.assertTrue(os.path.exists(self.here + "/far/kept"))

    def test_the_same_verbs_here_without_a_daemon(self):
        self.some_tree()
        os.unlink(os.path.join(os.fsencode(self.here), b"d", ODD))
        nobody = {**self.env, "CARREL_SOCKET": self.path("none.sock")}
        where = os.path.realpath(self.here)
        self.assertEqual("empty\nin\nout\nsub\nx.py\n", self.says("ls", "d", env=nobody))
        self.assertEqual("empty/\nin\nout\nsub/\nsub/y.txt\nx.py\n", self.says("ls", "-p", "-R", "d", env=nobody))
        self.assertEqual("y.txt\n", self.says("ls", "sub", env=nobody, cwd=self.here + "/d"))
        self.assertEqual(self.says("ls", "d", env=nobody), self.says("ls", "..", env=nobody, cwd=self.here + "/d/sub"))
        self.assertRegex(self.says("tree", "d", env=nobody), r"└── x\.py\n\n2 directories, 4 files\n$")
        self.assertEqual(f"{where}/d/x.py\n", self.says("glob", "**/*.py", ".", env=nobody))
        self.assertEqual(f"{where}/d/sub/y.txt:3:needle\n{where}/d/sub/y.txt:6:needle two\n",
                         self.says("grep", "needle", "d", env=nobody))
        self.assertIn("needle two", self.says("cat", "d/sub/y.txt", env=nobody))
        self.assertEqual("symlink", self.object(self.says("stat", "--json", "d/out", env=nobody))["type"])
        self.assertEqual("1\n", self.says("edit", "d/x.py", "--old", "TODO", "--new", "done", env=nobody))
        self.says("mkdir", "new/er", env=nobody)
        self.says("cp", "d/x.py", "new/er/", env=nobody)
        self.says("mv", "new/er", "old", env=nobody)
        self.assertEqual("x.py\n", self.says("ls", "old", env=nobody))
        self.says("rm", "-r", "old", env=nobody)
        self.assertFalse(os.path.exists(os.path.join(self.here, "old")))
        self.one_line(self.carrel("ls", "desk", env=nobody), "WS:/path")
        self.one_line(self.carrel("put", "d/x.py", "elsewhere", env=nobody), "WS:/path")
        self.one_line(self.carrel("get", "d/x.py", env=nobody), "WS:/path")
        self.one_line(self.carrel("cp", "d/x.py", "desk:/x", env=self.env), "carrel put")
        self.one_line(self.carrel("ls", "desk:/", env=nobody), "none.sock")

    def test_watching(self):
        self.says("mkdir", "desk:/w")
        for place, change in (("desk:/w", lambda: (self.says("put", "-", "desk:/w/f", input="x"), self.says("rm", "desk:/w/f"))),
                              (".", lambda: (self.local("f", "x"), os.unlink(os.path.join(self.here, "f"))))):
            with subprocess.Popen([CARREL, "watch", "--json", place], stdout=subprocess.PIPE, env=self.env, cwd=self.here) as process:
                self.assertEqual("ready", json.loads(process.stdout.readline())["event"])
                change()
                seen = []
                while "delete" not in seen:
                    seen.append(json.loads(process.stdout.readline())["event"])
                self.assertIn("create", seen)
                process.terminate()

    def test_a_terminal_sees_nothing_that_drives_it_and_a_bar(self):
        self.some_tree()
        self.says("put", "-r", "d", "desk:/d")
        self.says("put", "-", "desk:/evil", input="\x1b]52;c;cm0gLXJm\x07safe\ttext\n")
        for args in (["ls", "desk:/d"], ["ls", "-l", "desk:/d"], ["tree", "desk:/d"], ["glob", "*", "desk:/d"],
                     ["ls", "--json", "desk:/d"], ["ls", "d"], ["grep", "safe", "desk:/evil"], ["cat", "desk:/evil"]):
            with self.subTest(args=args):
                seen, status = self.on_terminal(*args)
                self.assertEqual(0, status, seen)
                plain = seen.replace(b"\x1b[1;34m", b"").replace(b"\x1b[0m", b"")
                self.assertNotRegex(plain, rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xff]")
                self.assertNotIn("\u202e".encode(), seen)
        self.assertIn(b"safe\ttext", self.on_terminal("cat", "desk:/evil")[0])
        with open(os.path.join(self.here, "big"), "wb") as file:
            file.truncate(150_000_000)
        for args in (["put", "big", "desk:/big"], ["get", "desk:/big", "back"]):
            seen, status = self.on_terminal(*args)
            self.assertEqual(0, status, seen)
            self.assertRegex(seen, rb"\rbig  \[=*> *\] +\d+%  \d+[KM]  \d+[KMG](\.\d)?/s|\rbig  \[=+.*/s")
            self.assertTrue(seen.endswith(b"\r\x1b[K"), seen[-80:])

    def test_the_doctor_of_a_workspace(self):
        text = self.says("doctor", "desk")
        self.assertRegex(text, r"(?m)^ok  workspace +of admin")
        self.assertRegex(text, r"(?m)^ok  writing ")
        self.assertRegex(text, r"(?m)^ok  room +/ has ")
        self.assertRegex(text, r"(?m)^-   read-only .* /usr\b")
        self.assertTrue(text.endswith("desk: all is well\n"), text)
        self.assertEqual(".bashrc\n", self.says("ls", "desk:/"), "it left something there")
        done = self.carrel("doctor", "desk:/usr/x")
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"NO  writing +.*read_only")
        self.says("put", "-", "desk:/file", input="x")
        done = self.carrel("doctor", "--json", "desk:/file/below")
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertFalse(self.object(done.stdout)["works"])
        self.assertIn("is there: a file of 1 bytes", self.says("doctor", "desk:/file"))
        self.assertIn("nearest that is: /", self.says("doctor", "desk:/not/yet"))
        self.says("exec", "desk", "-c", "mkdir /shut && chmod 500 /shut")
        done = self.carrel("doctor", "desk:/shut/new")
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn("permission_denied", done.stdout)
        done = self.carrel("doctor", "nobodys")
        self.assertEqual(1, done.returncode)
        self.assertIn("carrel ws ls", done.stdout)
        for nobody, remedy in (({"CARREL_SOCKET": self.path("none.sock")}, "start one with: carrel serve"),
                               ({"CARREL_URL": "http://127.0.0.1:1"}, "check CARREL_URL")):
            done = self.carrel("doctor", "desk", env={**self.env, **nobody})
            self.assertEqual(1, done.returncode)
            self.assertRegex(done.stdout, rf"NO  daemon +.*{remedy}")
            self.assertNotIn("carrel ws ls", done.stdout)
        self.says("exec", "desk", "-c", "head -c 600M /dev/zero >/tmp/full 2>/dev/null; true")
        self.assertRegex(self.carrel("doctor", "desk").stdout, r"NO  room +/tmp has ")

    def test_a_lying_archive_in_the_answer_is_cut_at_the_directory(self):
        """Our own unpacking, fed by hand: what a daemon could send to a client."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name in ("../escaped", "/abs", "in/../../escaped", "good"):
                info = tarfile.TarInfo(name)
                info.size = 4
                tar.addfile(info, io.BytesIO(b"evil"))
        body = archive.getvalue()
        with subprocess.Popen(["python3", "-c", LIAR, self.path("liar.sock"), "x"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as liar:
            liar.stdin.write(body)
            liar.stdin.close()
            liar.stdout.readline()
            os.makedirs(os.path.join(self.here, "deep/er"))
            self.carrel("get", "-r", "desk:/x", "deep/er/in", env={**self.env, "CARREL_SOCKET": self.path("liar.sock")})
            liar.kill()
        self.assertEqual(["er"], os.listdir(os.path.join(self.here, "deep")))
        self.assertEqual(["in"], os.listdir(os.path.join(self.here, "deep/er")))
        self.assertEqual(["good"], [n for n in os.listdir(os.path.join(self.here, "deep/er/in")) if n != "abs"])
        self.assertFalse(os.path.exists("/abs"))

    def test_what_makes_no_sense_is_said_in_one_line(self):
        self.local("file", "x")
        for args in (["ls"], ["cat"], ["put", "file"], ["get"], ["edit", "desk:/x"], ["rm"], ["mv", "desk:/x"], ["cp"], ["mkdir"],
                     ["stat"], ["grep", "x"], ["glob", "x"], ["watch"], ["tree"], ["ls", "--nope", "desk:/"],
                     ["ls", "desk:/../x"], ["ls", "desk:/nope"], ["cat", "desk:/"], ["cat", "desk:/nope"], ["ls", "nobodys:/"],
                     ["put", "nope", "desk:/"], ["put", "file", "desk:/usr/x"], ["put", "file", "file", "desk:/one"],
                     ["put", "--mode", "9", "file", "desk:/x"], ["put", "-", "desk:/"], ["get", "desk:/nope"],
                     ["ls", "--depth", "0", "desk:/"], ["grep", "-C", "x", "a", "desk:/"], ["grep", "-E", "(", "desk:/"],
                     ["ls", ""], ["ls", "desk:/" + "x" * 300], ["ls", "desk:/" + "x/" * 3000],
                     ["doctor", "./x"], ["doctor", "a", "b"], ["rm", "desk:/usr"], ["mkdir", "--mode", "7777", "desk:/x"],
                     ["watch", "desk:/nope"], ["edit", "desk:/x", "--old", "", "--new", "x"]):
            with self.subTest(args=args):
                done = self.carrel(*args)
                self.one_line(done)
                self.assertEqual("", done.stdout)
        for verb in "ls cat put get edit rm mv cp mkdir stat grep glob watch tree doctor".split():
            text = self.says(verb, "--help")
            self.assertRegex(text, rf"^usage: carrel {verb} ")
            self.assertRegex(text, r"(?m)^examples?:")
            self.assertLessEqual(max(map(len, text.splitlines())), 88)
        with open("/dev/full", "wb") as full:
            self.one_line(self.carrel("ls", "desk:/", stdout=full), "No space")


# A daemon that answers every stat with a directory, and everything else with the archive it was given.
LIAR = """
import os, socket, sys, threading
body = sys.stdin.buffer.read()
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen(8)
print("ready", flush=True)
def serve(c):
    while True:
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            more = c.recv(1)
            if not more:
                return
            head += more
        stat = b"stat=1" in head.split(b"\\r\\n")[0]
        out = b'{"path":"/x","type":"directory","mode":"0755","size":0}' if stat else body
        c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/octet-stream\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(out) + out)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""

if __name__ == "__main__":
    unittest.main(verbosity=0)
