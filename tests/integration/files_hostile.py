#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# TAKES: 50
"""Hostile trees, names, files and clients against the files API (attacks 39 and 48 to 58): typed errors, promptly, bounded
memory, old content intact, not one foreign byte."""
import base64
import concurrent.futures
import contextlib
import http.client
import io
import json
import os
import re
import select
import signal
import socket
import statistics
import subprocess
import tarfile
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE
from filestest import LONG, Files, FilesTest, bytes_of, content, field, processes_of, quoted, snapshot

RENAMES = 1000000 if LONG else 60000
DEPTH = 10000
SECRET = b"not for anybody inside"
ODD_NAMES = [b"new\nline", b"\xff", b"\xff\xfe\xfd", b"n" * 255, b"-rf", b"con", "\u202ertl".encode(), "\U0001f600".encode(),
             b"trailing ", b" leading", b".hidden", b"...", b"%2e%2e", b"%", b"a%2fb", b"back\\slash", b"\xc0\xae\xc0\xae",
             b"?query=1", b"#fragment", b"semi;colon", b"'\"`$(id)", b"\x01\x02\x7f", b"\r\n\r\n", b"a\tb", b"+", b"e\xcc\x81",
             "\u00e9".encode(), b"{a,b}", b"[a]", b"*", b"COM1:", b"\xed\xa0\x80"]


def spent(pid):
    """Ticks of the clock that a process has had."""
    return sum(int(word) for word in content(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[11:13])


def children_of(pid):
    """Also those of its threads."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += content(f"/proc/{pid}/task/{task}/children").split()
    return found


class HostileNames(FilesTest):
    @staticmethod
    def brief(entries):
        return [{key: value for key, value in one.items() if key in ("path", "path_b64", "type")} for one in entries]

    def test_a_brief_list_is_the_other_without_what_a_look_tells(self):
        self.inside("mkdir -p /usr2 /b/d/e/f /b/d-e /b/g/dev; cd /b; touch d/x d/e/y d-x; ln -s d l; ln -s nowhere d/l; mkfifo d/p; "
                    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'")
        for path, depth, limit in (("/", 1, 1000), ("/", 9, 1000), ("/", 9, 3), ("/b", 1, 1), ("/b", 9, 1), ("/b", 2, 4), ("/b", 9, 10000)):
            with self.subTest(path=path, depth=depth, limit=limit):
                full = self.files.entries(path, depth, limit)
                self.assertEqual(self.brief(full), self.files.entries(path, depth, limit, brief=True))
        kinds = {one["path"]: one["type"] for one in self.files.entries("/b", 9, brief=True)}
        self.assertEqual(["directory", "symlink", "fifo", "socket", "file"], [kinds["/b/" + name] for name in ("d", "l", "d/p", "s", "d/x")])
        names = {one["path"] for one in self.files.entries("/", brief=True)}
        self.assertLessEqual({"/b", "/usr2"}, names)
        self.assertFalse({"/usr", "/dev", "/proc"} & names)
        self.assertEqual(self.files.get("/b", "?list=1&depth=9&limit=4").json["next"],
                         self.files.get("/b", "?list=1&depth=9&limit=4&brief=1").json["next"])
        self.assertIn("size", self.files.get("/b", "?list=1&brief=0").json["entries"][0])
        self.fails(self.files.get("/b", "?list=1&brief=2"), 400, "invalid_request")
        self.fails(self.files.get("/b/d-x", "?list=1&brief=1"), 409, "not_a_directory")
        self.assertEqual(200, self.files.get("/b/d-x", "?brief=1").status, "alone it means nothing, as depth")

    def test_every_name_comes_back_byte_for_byte(self):
        """Attack 54."""
        for number, name in enumerate(ODD_NAMES):
            with self.subTest(name=name):
                data = b"of %d" % number
                self.assertEqual(201, self.files.put(b"/odd/" + name, data).status)
                self.assertEqual(data, self.files.get(b"/odd/" + name).bytes)
                self.assertEqual(b"/odd/" + name, bytes_of(self.files.stat(b"/odd/" + name).json, "path"))
        listed = self.files.entries("/odd", limit=5)
        self.assertEqual(sorted(b"/odd/" + name for name in ODD_NAMES), sorted(bytes_of(one, "path") for one in listed))
        self.assertEqual(self.brief(listed), self.files.entries("/odd", limit=5, brief=True))
        seen = self.python("import os; print([n.hex() for n in os.listdir(b'/odd')])")
        self.assertEqual(sorted(ODD_NAMES), sorted(bytes.fromhex(n) for n in json.loads(seen.replace("'", '"'))))
        globbed = self.files.act("glob", {"pattern": "*", "path": "/odd"}).json["matches"]
        self.assertLessEqual({b"/odd/" + name for name in ODD_NAMES if not name.startswith(b".")},
                             {bytes_of(one, "path") for one in globbed})
        read = self.files.act("read", {"paths": [field("path", b"/odd/" + name) for name in ODD_NAMES]}).json["results"]
        self.assertEqual([b"of %d" % n for n in range(len(ODD_NAMES))], [bytes_of(one, "content") for one in read])
        for name in ODD_NAMES:
            moved = field("from", b"/odd/" + name) | field("to", b"/moved/" + name)
            self.assertEqual(200, self.files.act("move", moved).status, name)
            copied = field("from", b"/moved/" + name) | field("to", b"/odd/" + name)
            self.assertEqual(200, self.files.act("copy", copied).status, name)
            self.assertEqual(204, self.files.delete(b"/moved/" + name).status, name)
        self.assertEqual(set(ODD_NAMES), snapshot(self.host + "/odd").keys())
        self.assertEqual({}, snapshot(self.host + "/moved"))

    def test_names_come_back_from_archives(self):
        for name in ODD_NAMES:
            self.assertEqual(201, self.files.put(b"/odd/" + name, name).status)
        packed = self.files.get("/odd", "?archive=tar")
        self.assertEqual(200, packed.status)
        names = {os.fsencode(member.name).split(b"/", 1)[-1] for member in
                 tarfile.open(fileobj=io.BytesIO(packed.bytes), errors="surrogateescape") if member.isfile()}
        self.assertEqual(set(ODD_NAMES), names)
        unpacked = self.files.request("POST", f"{self.files.url}-unpack?path=/again&format=tar", packed.bytes)
        self.assertEqual(200, unpacked.status, unpacked.bytes)
        found = {os.path.basename(path): data for path, (kind, _, data) in snapshot(self.host + "/again").items() if kind == "file"}
        self.assertEqual({name: name for name in ODD_NAMES}, found)

    def raw(self, path, method="GET"):
        """The path as it is, without any client's help."""
        return self.daemon.request(method, path)

    def test_tricks_of_encoding_lead_nowhere(self):
        """Attack 55."""
        self.files.put("/a/b", b"here")
        at = self.files.url
        for path in ("%2e%2e/etc/passwd", "%2e%2e", "..", ".", "a/..", "a/%2e%2e/a/b", "a/./b", "a//b", "//a/b", "a/%2e/b", "a%2f%2fb",
                     "%2f%2fa%2fb", "a%2F/b", "%2Fa%2F..%2Fb", "%2f..%2f..%2fetc%2fpasswd", "%2f%2e%2e", "a%2f.", "a%2F%00", "a%00b", "a/b%00", "%00", "a%", "a%z", "a%2", "a/..%2f..%2fetc", ".%2e/x", "%2e./x",
                     "n" * 256, "d/" * 3000 + "x", "a/" + "n" * 256 + "/b"):
            for method in ("GET", "PUT", "DELETE"):
                with self.subTest(path=path[:60], method=method):
                    answer = self.raw(f"{at}/{path}", method)
                    if path.startswith("n") and method != "PUT":
                        self.assertIn(answer.status, (400, 404))
                    else:
                        self.assertIn(answer.status, (400, 414), answer.bytes[:300])
        for path in ("%252e%252e/etc/passwd", "..%5c..%5cetc%5cpasswd", "%c0%ae%c0%ae/etc/passwd", "%c0%af", "%e0%80%ae", "%25%32%65",
                     "%ef%bc%8e%ef%bc%8e", "a%5c..%5cb", "a%252Fb", "%252Fa%252Fb"):
            with self.subTest(path=path):  # names like any other, of which there is no file
                self.fails(self.raw(f"{at}/{path}"), 404, "file_not_found")
        self.assertEqual(b"here", self.files.get("/a/b").bytes)
        for path in ("%61/%62", "a%2fb", "a%2Fb", "%2Fa%2Fb", "%2fa/b"):  # generated clients encode slashes, too
            self.assertEqual(b"here", self.raw(f"{at}/{path}").bytes, path)
        self.assertEqual(404, self.raw(at.replace("/workspaces/", "/workspaces%2F") + "/a/b").status)
        self.assertEqual(404, self.raw(at.replace(self.files.workspace, "x%2F" + self.files.workspace) + "/a/b").status)

    def test_the_longest_path_there_is_can_be_asked_for(self):
        path = "/".join(["\xe9" * 127] * 15) + "/" + "x" * 255  # 4095 bytes with the root, and every one of them encoded
        path = (path.encode("latin-1") + b"x" * 4095)[:4090]
        encoded = "".join("/" if byte == 47 else f"%{byte:02x}" for byte in path)
        self.fails(self.raw(f"{self.files.url}/{encoded}"), 404, "file_not_found")
        self.assertEqual(414, self.raw(f"{self.files.url}/{'%61' * 5000}").status)

    def test_paths_in_json_are_as_strict(self):
        self.files.put("/a/b", b"here")
        bad = ["", "a/b", "../a", "/..", "/a/..", "/a/../b", "/./a", "/a//b", "//a", "/a/b/", "/" + "d/" * 3000, 5, None, ["/a"], {}]
        fields = [{"path": one} for one in bad] + [{"path_b64": one} for one in (
            "!!", "L2E", base64.b64encode(b"/a\0b").decode(), base64.b64encode(b"/../x").decode(), "", 7)]
        fields += [{"path": "/a", "path_b64": "L2E="}, {}]
        for one in fields:
            for action, more in (("mkdir", {}), ("chmod", {"mode": "0644"}), ("edit", {"old": "h", "new": "i"}), ("repair", {}),
                                 ("symlink", {"target": "x"})):
                with self.subTest(action=action, path=str(one)[:60]):
                    if action == "repair" and not one:
                        continue
                    answer = self.files.act(action, one | more)
                    self.assertEqual(400, answer.status, answer.bytes[:300])
            with self.subTest(batch=str(one)[:60]):
                self.assertEqual(400, self.files.act("write", {"files": [one | {"content": "x"}]}).status)
                self.assertEqual(400, self.files.act("read", {"paths": [one]}).status)
        for query in ("path=..", "path=%2e%2e", "path=a", "path=/a/../b", "path=", "path=/a%00b"):
            with self.subTest(query=query):
                self.assertEqual(400, self.raw(f"{self.files.url}-watch?{query}").status)
                self.assertEqual(400, self.raw(f"{self.files.url}-unpack?{query}", "POST").status)
        nul = b'{"path":"/a\\u0000b"}'
        self.assertEqual(400, self.daemon.request("POST", f"{self.files.url}-mkdir", nul).status)
        self.assertEqual(b"here", self.files.get("/a/b").bytes)
        self.assertEqual({b"b"}, snapshot(self.host + "/a").keys())

    def test_what_carrel_provides_is_not_removed_moved_or_replaced(self):
        """Attack 48."""
        self.files.put("/mine", b"mine")
        self.files.act("mkdir", {"path": "/dir"})
        self.files.act("symlink", {"path": "/top", "target": "/"})
        before = self.inside("ls -ld /usr /bin /etc /dev /tmp; ls /usr | head -3")["stdout"]
        for name in ("/usr", "/bin", "/lib", "/etc", "/proc", "/dev", "/tmp", "/.cache", "/", "/top/usr", "/top/etc"):
            with self.subTest(name=name):
                for answer in (self.files.delete(name, True), self.files.delete(name),
                               self.files.act("move", {"from": name, "to": "/dir/there"}),
                               self.files.act("move", {"from": "/mine", "to": name}),
                               self.files.act("move", {"from": "/dir", "to": name}),
                               self.files.act("copy", {"from": "/mine", "to": name}),
                               self.files.act("symlink", {"path": name, "target": "/dir", "replace": True}),
                               self.files.act("chmod", {"path": name, "mode": "0777"})):
                    self.assertEqual((409, "reserved"), (answer.status, answer.code), answer.bytes)
                self.assertIn(self.files.put(name, b"x").status, (403, 409))
        for name in ("/usr/bin/env", "/etc/passwd", "/proc/version", "/dev/null", "/usr/new"):
            with self.subTest(below=name):
                self.assertIn(self.files.delete(name).status, (403, 404, 409), name)
                self.assertIn(self.files.put(name, b"x").status, (403, 404, 409), name)
        self.assertEqual(before, self.inside("ls -ld /usr /bin /etc /dev /tmp; ls /usr | head -3")["stdout"])
        self.assertEqual(b"mine", self.files.get("/mine").bytes)


class HostileLinks(FilesTest):
    def setUp(self):
        super().setUp()
        self.outside = self.path("outside")
        os.mkdir(self.outside, 0o777)
        os.chmod(self.outside, 0o777)
        with open(self.outside + "/secret", "wb") as file:
            file.write(SECRET)
        os.chmod(self.outside + "/secret", 0o666)

    def unharmed(self):
        self.assertEqual(SECRET, content(self.outside + "/secret"))
        self.assertEqual(["secret"], os.listdir(self.outside))

    def test_links_mean_what_they_mean_inside(self):
        """Attack 49."""
        inner = self.inside("cat /etc/passwd")["stdout"].encode()
        self.assertNotEqual(inner, content("/etc/passwd"))
        links = {"passwd": "/etc/passwd", "climb": "../" * 40 + "etc/passwd", "environ": "/proc/self/environ", "root": "/proc/self/root",
                 "one": "/proc/1/root", "fd": "/proc/self/fd", "secret": self.outside + "/secret", "up": "../" * 40 + self.outside[1:],
                 "cwd": "/proc/1/cwd", "exe": "/proc/1/exe", "thread": "/proc/thread-self/root", "mine": "/real", "away": "/gone"}
        self.files.put("/real", b"real")
        for name, target in links.items():
            self.assertEqual(201, self.files.act("symlink", {"path": f"/l/{name}", "target": target}).status)
        for name in ("passwd", "climb"):
            self.assertEqual(inner, self.files.get(f"/l/{name}").bytes)
        self.assertEqual(b"real", self.files.get("/l/mine").bytes)
        for name in links:
            for path in (f"/l/{name}", f"/l/{name}/secret", f"/l/{name}{self.outside}/secret", f"/l/{name}/etc/shadow"):
                with self.subTest(path=path):
                    answer = self.typed(self.files.get(path))
                    self.assertNotIn(SECRET, answer.bytes)
                    self.assertNotIn(b"CARREL", answer.bytes)
                    self.assertNotIn(b"root:*", answer.bytes)
                    self.typed(self.files.put(path, b"broken in")) if name not in ("mine", "away") else None
        for direct in ("/proc/self/environ", "/proc/1/environ", "/proc/self/root/etc/shadow", "/proc/1/root/etc/shadow", "/proc/self/mem",
                       "/proc/self/fd/3", "/proc/1/fd/0", "/proc/self/maps", self.outside + "/secret"):
            with self.subTest(path=direct):
                answer = self.typed(self.files.get(direct))
                self.assertGreaterEqual(answer.status, 400, answer.bytes[:200])
        listed = {one["path"]: one for one in self.files.entries("/l")}
        self.assertEqual(links["secret"], listed["/l/secret"]["target"])
        self.unharmed()

    def test_a_link_is_followed_by_a_write_as_a_shell_does(self):
        self.files.put("/dir/real", b"old")
        self.files.act("symlink", {"path": "/link", "target": "dir/real"})
        self.assertEqual(200, self.files.put("/link", b"new").status)
        self.assertEqual(b"new", self.files.get("/dir/real").bytes)
        self.assertEqual("symlink", self.files.stat("/link").json["type"])
        self.assertEqual(204, self.files.delete("/link").status)
        self.assertEqual(b"new", self.files.get("/dir/real").bytes)

    RACE = r"""
import ctypes, os, sys
outside, count = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None)
os.makedirs("/race/dir"); open("/race/dir/secret", "w").write("of ours"); open("/race/file", "w").write("of ours")
os.symlink(outside + "/secret", "/race/file2"); os.symlink(outside, "/race/dir2")
os.symlink("/proc/self/root" + outside, "/race/link3"); os.mkdir("/race/link4")
print("begun")
pairs = [(b"/race/file", b"/race/file2"), (b"/race/dir", b"/race/dir2"), (b"/race/link3", b"/race/link4")]
done = 0
while done < count:
    for a, b in pairs:
        libc.renameat2(-100, a, -100, b, 2)
        done += 1
print("ended", done)
"""

    def test_names_that_change_under_our_hands_lead_nowhere_else(self):
        """Attack 50."""
        one = self.begin(self.RACE, self.outside, str(RENAMES))
        counts, stop, wrong = {}, threading.Event(), []

        def attack(number):
            files = Files(self.daemon, self.space)
            asks = [lambda: files.get("/race/file"), lambda: files.get("/race/dir/secret"), lambda: files.get("/race/link3/secret"),
                    lambda: files.put("/race/file", b"of ours"), lambda: files.put("/race/dir/secret", b"of ours"),
                    lambda: files.put("/race/dir/new", b"of ours"), lambda: files.put("/race/file", b"", "?append=1"),
                    lambda: files.get("/race/dir", "?list=1&depth=3"), lambda: files.get("/race", "?archive=tar"),
                    lambda: files.get("/race/file", "?format=text"), lambda: files.act("grep", {"pattern": "anybody", "path": "/race"}),
                    lambda: files.act("copy", {"from": "/race/dir", "to": "/race/copy"}), lambda: files.delete("/race/dir/new"),
                    lambda: files.act("edit", {"path": "/race/file", "old": "ours", "new": "ours"}),
                    lambda: files.act("chmod", {"path": "/race/file", "mode": "0600"}),
                    lambda: files.act("chmod", {"path": "/race/dir", "mode": "0711", "recursive": True}),
                    lambda: files.act("inventory", {"path": "/race"}), lambda: files.delete("/race/copy", True)]
            n = number
            while not stop.is_set():
                try:
                    answer = asks[n % len(asks)]()
                except (OSError, http.client.HTTPException):  # cut off in the middle: told so
                    answer = None
                if answer and (SECRET in answer.bytes or answer.status >= 500):
                    wrong.append((n % len(asks), answer.status, answer.bytes[:300]))
                counts[answer and answer.status] = counts.get(answer and answer.status, 0) + 1
                n += 1
            files.close()
        threads = [threading.Thread(target=attack, args=(i * 5,)) for i in range(3)]
        for thread in threads:
            thread.start()
        try:
            self.until(lambda: b"ended" in self.output(one), "the race does not end", 600)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        print(f"{RENAMES} renames against {counts}")
        self.assertEqual([], wrong)
        self.unharmed()
        self.assertEqual(0o666, os.stat(self.outside + "/secret").st_mode & 0o777)
        self.assertEqual(0o777, os.stat(self.outside).st_mode & 0o777)
        self.no_litter()

    def test_a_write_leaves_other_names_of_the_file_alone(self):
        """Attack 57: also those in another workspace."""
        other = self.workspace()
        self.files.put("/a", b"both of them")
        self.inside("ln /a /b")
        Files(self.daemon, other).put("/x", b"")
        os.link(self.host + "/a", self.host_path(other) + "/c")
        self.assertEqual(200, self.files.put("/a", b"mine alone").status)
        self.assertEqual(b"both of them", self.files.get("/b").bytes)
        self.assertEqual(200, self.files.act("edit", {"path": "/b", "old": "both", "new": "one"}).status)
        self.assertEqual(b"both of them", content(self.host_path(other) + "/c"))


class HostileFiles(FilesTest):
    def tearDown(self):
        subprocess.run(["rm", "-rf", f"{self.host}/deep", f"{self.host}/deeper"], check=True)  # too deep for Python's own
        super().tearDown()

    def quick(self, ask, typical=20):
        """Its answer, when it has come promptly each time."""
        times = []
        for _ in range(typical):
            begun = time.monotonic()
            answer = ask()
            times.append(time.monotonic() - begun)
        self.assertLess(max(times), 5, "that is no prompt answer")
        return answer, statistics.median(times)

    def test_what_is_no_file_says_so_at_once(self):
        """Attack 51."""
        self.python("import os, socket; os.mkfifo('/fifo'); socket.socket(socket.AF_UNIX).bind('/sock'); os.mkdir('/dir')\n"
                    "open('/dir/f', 'w').write('x'); open('/file', 'w').write('x')")
        slowest = 0
        for name, get, put in (("/fifo", "not_a_file", "not_a_file"), ("/sock", "not_a_file", "not_a_file"),
                               ("/dir", "is_directory", "is_directory"), ("/dev/zero", "not_a_file", "not_a_file"),
                               ("/dev/null", "not_a_file", "not_a_file"), ("/dev/tty", "not_a_file", "not_a_file"),
                               ("/file/x", "not_a_directory", "not_a_directory")):
            asks = [(get, lambda n=name: self.files.get(n)), (get, lambda n=name: self.files.get(n, "?format=text")),
                    (put, lambda n=name: self.files.put(n, b"x")), (put, lambda n=name: self.files.put(n, b"x", "?append=1")),
                    (get, lambda n=name: self.files.act("edit", {"path": n, "old": "a", "new": "b"}))]
            for number, (code, ask) in enumerate(asks):
                with self.subTest(name=name, ask=number):
                    answer, took = self.quick(ask)
                    self.fails(answer, 409, code)
                    slowest = max(slowest, took)
            read = self.files.act("read", {"paths": [name]}).json["results"][0]
            self.assertEqual(get, read["error"]["code"], name)
        print(f"the slowest kind of refusal took {slowest * 1000:.1f} ms, the median of 20")
        kinds = {one["path"]: one["type"] for one in self.files.entries("/")}
        self.assertEqual(("fifo", "socket", "directory"), (kinds["/fifo"], kinds["/sock"], kinds["/dir"]))
        for ask in (lambda: self.files.act("grep", {"pattern": "x"  , "path": "/dir"}), lambda: self.files.get("/fifo", "?archive=tar"),
                    lambda: self.files.act("copy", {"from": "/fifo", "to": "/fifo2"}), lambda: self.files.stat("/fifo"),
                    lambda: self.files.act("inventory", {"path": "/dir"})):
            self.typed(self.quick(ask, 3)[0])

    def test_pipes_in_a_tree_hold_up_no_walk(self):
        self.python("import os\nfor i in range(50):\n os.makedirs(f'/t/{i}'); os.mkfifo(f'/t/{i}/p'); open(f'/t/{i}/f', 'w').write('needle')")
        found = self.quick(lambda: self.files.act("grep", {"pattern": "needle", "path": "/t"}), 2)[0].json
        self.assertEqual(50, len(found["matches"]))
        lines = self.quick(lambda: self.files.act("inventory", {"path": "/t"}), 2)[0].bytes.splitlines()
        self.assertEqual(50, json.loads(lines[-1])["summary"]["files"])
        self.assertEqual(200, self.quick(lambda: self.files.get("/t", "?archive=tar"), 2)[0].status)
        self.typed(self.quick(lambda: self.files.act("copy", {"from": "/t", "to": "/t2"}), 1)[0])
        self.assertEqual(200, self.quick(lambda: self.files.act("chmod", {"path": "/t", "mode": "0700", "recursive": True}), 1)[0].status)
        self.assertEqual(204, self.quick(lambda: self.files.delete("/t", True), 1)[0].status)

    LEASE = r"""
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open("/leased/f", os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held")
time.sleep(600)
"""

    def test_a_lease_holds_up_nobody(self):
        """Attack 52."""
        self.files.put("/leased/f", b"old")
        one = self.begin(self.LEASE)
        for ask in (lambda: self.files.get("/leased/f"), lambda: self.files.get("/leased/f", "?format=text"),
                    lambda: self.files.act("edit", {"path": "/leased/f", "old": "old", "new": "new"}),
                    lambda: self.files.act("copy", {"from": "/leased/f", "to": "/copy"})):
            self.fails(self.quick(ask, 3)[0], 423, "locked")
        self.assertEqual("locked", self.files.act("read", {"paths": ["/leased/f"]}).json["results"][0]["error"]["code"])
        for ask in (lambda: self.files.stat("/leased/f"), lambda: self.files.act("inventory", {"path": "/leased"})):
            self.assertEqual(200, self.quick(ask, 3)[0].status)
        with contextlib.closing(self.daemon.connect()) as grep:  # what searches may wait until the kernel ends the lease
            grep.request("POST", f"{self.files.url}-grep", json.dumps({"pattern": "o", "path": "/leased"}).encode())
            self.quick(lambda: self.files.stat("/leased/f"))
        with contextlib.suppress(http.client.HTTPException):  # cut off, or without that file
            self.quick(lambda: self.files.get("/leased", "?archive=tar"), 2)
        self.assertEqual(200, self.files.put("/leased/f", b"new").status)
        self.assertEqual(b"new", self.files.get("/leased/f").bytes)
        self.until(lambda: not [pid for pid in processes_of(self.daemon, "carrel-files") if children_of(pid)],
                   "a search goes on for a client that has left", 10)
        self.end(one)

    def test_a_file_that_shrinks_or_grows_while_it_is_read(self):
        """Attack 53."""
        one = self.begin("import os, time\nprint('begun')\nwhile True:\n f = os.open('/f', os.O_WRONLY | os.O_CREAT)\n"
                         " os.write(f, b'x' * (4 << 20)); os.ftruncate(f, 1000); os.close(f)")
        two = self.begin("import os\nf = os.open('/g', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\nprint('begun')\nn = 0\n"
                         "while n < (1 << 30):\n n += os.write(f, b'line of it\\n' * 1000)\n if n > 50 << 20: os.ftruncate(f, 0); n = 0")
        before = processes_of(self.daemon, "carrel-files")
        cut = 0
        for n in range(60):
            for path, query in (("/f", ""), ("/g", ""), ("/f", "?format=text"), ("/g", "?format=text&offset=100"), ("/g", "?archive=tar")):
                files = Files(self.daemon, self.space)
                try:
                    answer = files.get(path, query)
                    self.assertIn(self.typed(answer).status, (200, 416))
                    self.assertLess(len(answer.bytes), 64 << 20)
                except (http.client.HTTPException, OSError):
                    cut += 1
                files.close()
            if n % 10 == 0:
                self.files.act("grep", {"pattern": "absent", "path": "/g"})
                self.typed(self.files.act("copy", {"from": "/f", "to": "/h"}))
        print(f"{cut} of 300 were cut off")
        self.assertLessEqual(set(before), set(processes_of(self.daemon, "carrel-files")), "a file server died of it")
        self.end(one)
        self.end(two)

    def test_huge_holes_are_served_in_parts_and_cost_nothing(self):
        """Attack 39."""
        self.inside("truncate -s 9223372036854775807 /tmp/huge; truncate -s 16T /tera || truncate -s 8T /tera; printf end >> /tera")
        most = 9223372036854775807
        for query, headers, status, data in (
                ("", {"Range": "bytes=0-9"}, 206, bytes(10)), ("", {"Range": f"bytes={most - 2}-{most - 1}"}, 206, bytes(2)),
                ("", {"Range": f"bytes={most - 1}-"}, 206, bytes(1)), ("", {"Range": f"bytes={most}-"}, 416, None),
                ("", {"Range": "bytes=-3"}, 206, bytes(3)), ("", {"Range": f"bytes=1-{2**64}"}, 206, None),
                ("", {"Range": f"bytes={2**64}-{2**64 + 1}"}, 416, None), ("", {"Range": f"bytes={10**40}-"}, 416, None),
                ("", {"Range": f"bytes=-{10**40}"}, 206, None), ("", {"Range": "bytes=5-2"}, 200, None), ("", {"Range": "bytes=-"}, 200, None),
                ("", {"Range": "bytes=1-2,3-4"}, 200, None), ("", {"Range": "bytes=-0"}, 416, None)):
            with self.subTest(headers=headers):
                begun = self.prefix("/tmp/huge", headers, query)
                self.assertEqual(status, begun[0], begun[1][:200])
                if data is not None:
                    self.assertEqual(data, begun[1])
        self.assertEqual(most, self.files.stat("/tmp/huge").json["size"])
        size = self.files.stat("/tera").json["size"]
        self.assertEqual(b"\0end", self.files.get("/tera", Range=f"bytes={size - 4}-{size - 1}").bytes)
        for path in ("/tmp/huge", "/tera"):
            self.typed(self.quick(lambda p=path: self.files.get(p, "?format=text"), 1)[0])
            self.fails(self.files.act("edit", {"path": path, "old": "a", "new": "b"}), 413, "too_large")
            self.assertIn("error", self.files.act("read", {"paths": [path]}).json["results"][0])
            self.prefix(path, {})
            self.prefix(path, {}, "?archive=tar")
            self.prefix(path, {}, "?archive=zip")
        self.typed(self.quick(lambda: self.files.act("copy", {"from": "/tera", "to": "/tera2"}), 1)[0])
        for action, body in (("inventory", {"path": "/tera"}), ("grep", {"pattern": "absent", "path": "/tera"})):
            connection = self.daemon.connect(3)
            connection.request("POST", f"{self.files.url}-{action}", json.dumps(body).encode())
            with contextlib.suppress(OSError):  # it may take long, until the client leaves
                connection.getresponse().read(100)
            connection.close()
        self.calms_down()

    def prefix(self, path, headers, query=""):
        """The beginning of it, then the client leaves."""
        connection = self.daemon.connect()
        connection.request("GET", self.files.url + quoted(path) + query, headers=headers)
        response = connection.getresponse()
        self.assertIn(response.status, (200, 206, 413, 416))
        data = response.read(100000)
        connection.close()
        return response.status, data

    def calms_down(self):
        """Nobody goes on with work for clients that have left."""
        def ticks():
            return sum(spent(pid) for pid in processes_of(self.daemon, "carrel-files"))
        deadline = time.monotonic() + PATIENCE
        while True:
            before = ticks()
            time.sleep(0.5)
            if ticks() - before <= 10:
                return
            self.assertLess(time.monotonic(), deadline, "the file server works for nobody")

    def test_trees_ten_thousand_deep(self):
        """Attack 56."""
        self.python("import os, sys\nos.mkdir('/deep'); os.chdir('/deep')\nfor i in range(int(sys.argv[1])):\n os.mkdir('d'); os.chdir('d')\n"
                    "open('bottom', 'w').write('needle')", str(DEPTH))
        listed = self.files.entries("/deep", depth=4096, limit=10000)
        self.assertGreaterEqual(len(listed), 256)
        for action, body in (("glob", {"pattern": "**/bottom", "path": "/deep"}), ("grep", {"pattern": "needle", "path": "/deep"}),
                             ("inventory", {"path": "/deep"}), ("copy", {"from": "/deep", "to": "/deeper"}), ("repair", {"path": "/deep"}),
                             ("chmod", {"path": "/deep", "mode": "0700", "recursive": True})):
            with self.subTest(action=action):
                self.typed(self.files.act(action, body))
        for kind in ("tar", "zip"):
            with contextlib.suppress(http.client.HTTPException):
                self.typed(self.files.get("/deep", f"?archive={kind}"))
        for path in ("/deep", "/deeper"):
            if os.path.exists(self.host + path):
                self.assertEqual(204, self.files.delete(path, True).status)
        self.fails(self.files.stat("/deep"), 404, "file_not_found")
        self.assertFalse(os.path.exists(self.host + "/deep"))

    def test_what_its_owner_has_closed_is_removed_and_repaired(self):
        """Attack 58."""
        make = ("mkdir -p /shut/a/b/c /mend/a/b && echo x > /shut/a/b/c/f && echo y > /mend/a/b/f && chmod 000 /mend/a/b/f /shut/a/b/c/f && "
                "chmod 000 /shut/a/b/c && chmod 000 /shut/a/b /mend/a/b && chmod 000 /shut/a /shut /mend/a && chmod 0400 /mend")
        self.assertEqual(0, self.inside(make)["exit_code"])
        self.fails(self.files.get("/shut/a"), 403, "permission_denied")
        self.fails(self.files.get("/mend/a/b/f"), 403, "permission_denied")
        self.assertEqual(204, self.files.delete("/shut", True).status)
        self.assertFalse(os.path.lexists(self.host + "/shut"))
        repaired = self.files.act("repair", {"path": "/mend"})
        self.assertEqual((200, 4), (repaired.status, repaired.json["changed"]), repaired.bytes)
        self.assertEqual(b"y\n", self.files.get("/mend/a/b/f").bytes)
        self.assertEqual(204, self.files.delete("/mend", True).status)

    def test_a_directory_that_may_be_read_but_not_searched_has_names(self):
        make = "mkdir -p /ro/sub && echo x > /ro/f && ln -s f /ro/l && mkfifo /ro/p && chmod 0444 /ro; ls /ro"
        self.assertEqual("f\nl\np\nsub\n", self.inside(make)["stdout"])
        names = [("/ro/f", "file"), ("/ro/l", "symlink"), ("/ro/p", "fifo"), ("/ro/sub", "directory")]
        expected = [{"path": path, "type": kind, "error": "permission_denied"} for path, kind in names]
        self.assertEqual(expected, self.files.entries("/ro"))
        self.assertEqual(expected, self.files.entries("/ro", limit=1), "by pages")
        for limit in (1, 1000):
            self.assertEqual([{"path": path, "type": kind} for path, kind in names], self.files.entries("/ro", 9, limit, brief=True))
        below = [one for one in self.files.entries("/", depth=9) if one["path"].startswith("/ro/")]
        self.assertEqual(expected, below)
        self.fails(self.files.stat("/ro/f"), 403, "permission_denied")
        shown = subprocess.run([CARREL, "ls", "-l", f"{self.space}:/ro"], env={**os.environ, "CARREL_SOCKET": self.daemon.socket},
                               capture_output=True, text=True, timeout=PATIENCE).stdout
        self.assertEqual(["-?????????", "l?????????", "p?????????", "d?????????"], [line.split()[0] for line in shown.splitlines()])
        self.assertEqual(200, self.files.act("chmod", {"path": "/ro", "mode": "0755"}).status)
        self.assertEqual({2}, {one["size"] for one in self.files.entries("/ro") if one["path"] == "/ro/f"})

    def test_what_inner_root_leaves_is_removed_too(self):
        space = self.workspace(policy={"user": "root"})
        files = Files(self.daemon, space)
        result = self.daemon.execute(space, "mkdir -p /r/a && echo x > /r/a/f && chmod 000 /r/a/f /r/a && chown 7:7 /r/a; id -u")
        self.assertEqual("0\n", result["stdout"])
        self.assertEqual(204, files.delete("/r", True).status)
        self.assertEqual(201, files.put("/r/again", b"x").status)
        files.close()


class HostileTimes(FilesTest):
    """What goes on inside or at the other end of the wire, and what it must not hold up."""

    def stats(self, count=100, space=None):
        """So many quick calls, each prompt."""
        files = Files(self.daemon, space or self.space, timeout=10)
        times = []
        for _ in range(count):
            begun = time.monotonic()
            self.assertEqual(200, files.stat("/quick").status)
            times.append(time.monotonic() - begun)
        files.close()
        self.assertLess(statistics.median(times), 1)
        return statistics.median(times)

    def test_calls_that_hang_hold_up_nobody(self):
        self.files.put("/quick", b"x")
        self.files.put("/large", bytes(8 << 20))
        held = []
        for number in range(40):
            connection = self.daemon.connect()
            held.append(connection)
            if number % 4 == 0:  # takes nothing of a large answer
                connection.request("GET", self.files.url + "/large")
            elif number % 4 == 1:  # sends only the beginning
                connection.connect()
                connection.sock.sendall(f"PUT {self.files.url}/half{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode() +
                                        b"x" * 1000)
            elif number % 4 == 2:  # a watch lasts
                connection.request("GET", f"{self.files.url}-watch?path=/&recursive=0")
            else:
                connection.request("GET", f"{self.files.url}/large?archive=tar")
        time.sleep(0.3)
        print(f"beside 40 calls that hang a stat took {self.stats() * 1000:.2f} ms")
        for connection in held:
            connection.close()
        self.until(lambda: not [path for path in snapshot(self.host) if b"half" in path or b".carrel-" in path], "half a file is there")
        self.no_litter()

    def test_more_watches_than_there_are_threads_hold_up_nobody(self):
        self.files.put("/quick", b"x")
        held = []
        for _ in range(100):
            connection = self.daemon.connect()
            connection.request("GET", f"{self.files.url}-watch?path=/&recursive=0")
            held.append(connection)
        try:
            time.sleep(0.5)
            self.stats(20)
        finally:
            for connection in held:
                connection.close()
        self.until(lambda: self.files.stat("/quick").status == 200, "it does not recover")

    def joined(self):
        """The file servers in a sandbox; one that has joined has this bound, a spare one has not."""
        bound = re.compile(rb"Max data size +1073741824 +1073741824 ")
        return [pid for pid in processes_of(self.daemon, "carrel-files") if bound.search(content(f"/proc/{pid}/limits"))]

    def test_a_file_server_has_no_rights(self):
        """INV-11: it has dropped every right before it reads a call. What its names lead to: the tests above."""
        self.files.put("/one", b"1")
        for pid in self.joined():
            status = dict(line.split(b":\t", 1) for line in content(f"/proc/{pid}/status").splitlines() if b":\t" in line)
            self.assertEqual([b"0" * 16] * 4, [status[name] for name in (b"CapInh", b"CapPrm", b"CapEff", b"CapAmb")])
            self.assertEqual((b"1", b"2"), (status[b"NoNewPrivs"], status[b"Seccomp"]))
        self.assertEqual(1, len(self.joined()))

    def test_searches_at_once_take_bounded_memory(self):
        """None of it is counted to the sandbox."""
        if not os.path.exists("/usr/bin/rg"):
            self.skipTest("there is no ripgrep here")
        self.files.put("/long", b"a" * 40000000)
        servers = self.joined()
        self.assertEqual(1, len(servers))
        most = 0
        with contextlib.ExitStack() as stack:
            for _ in range(16):
                stream = self.daemon.stream("POST", f"{self.files.url}-grep", {"pattern": "(a|b)+c", "regex": True, "path": "/"}, wait=False)
                stack.callback(stream.close)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                most = max(most, len(children_of(servers[0])))
        self.assertIn(most, range(1, 8))  # four; some may end and begin while we look
        self.assertEqual(200, self.files.get("/long", "?stat=1").status)

    def test_a_body_of_very_many_values_is_refused_unread(self):
        """Parsed, 40 MB of "{}," would be 3 GB of the front's memory, and some seconds of everybody's time."""
        answer = self.daemon.post(f"{self.files.url}-write", b'{"files":[' + b"{}," * 13000000 + b"{}]}")
        self.assertEqual((413, "too_large"), (answer.status, answer.code))
        peak = re.search(rb"VmHWM:\s+(\d+)", content(f"/proc/{self.daemon.front_pid()}/status"))
        self.assertLess(int(peak.group(1)), 400000)
        commas = {"files": [{"path": "/commas", "content": '\\",[{' * 300000}]}
        self.assertEqual(200, self.daemon.post(f"{self.files.url}-write", commas).status)
        self.assertEqual(b'\\",[{' * 300000, self.files.get("/commas").bytes)

    def test_uploads_that_are_broken_off_change_nothing(self):
        self.files.put("/kept", b"old content")
        for head, body in ((b"Content-Length: 1000000", b"x" * 300000), (b"Transfer-Encoding: chunked", b"4000\r\n" + b"x" * 0x4000 + b"\r\n10"),
                           (b"Content-Length: 10", b""), (b"Transfer-Encoding: chunked", b"zzz\r\n")):
            for query in ("", "?append=1"):
                for path in ("/kept", "/new/one"):
                    with self.subTest(head=head, query=query, path=path):
                        with socket.socket(socket.AF_UNIX) as s:
                            s.settimeout(PATIENCE)
                            s.connect(self.daemon.socket)
                            s.sendall(f"PUT {self.files.url}{path}{query} HTTP/1.1\r\nHost: x\r\n".encode() + head + b"\r\n\r\n" + body)
                            time.sleep(0.02)
        time.sleep(0.2)
        self.assertEqual(b"old content", self.files.get("/kept").bytes)
        self.fails(self.files.get("/new/one"), 404, "file_not_found")
        self.no_litter()
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as tar:
            one = tarfile.TarInfo("kept")
            one.size = 500000
            tar.addfile(one, io.BytesIO(b"y" * 500000))
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.daemon.socket)
            s.sendall(f"POST {self.files.url}-unpack?path=/&format=tar HTTP/1.1\r\nHost: x\r\nContent-Length: {len(whole.getvalue())}\r\n\r\n"
                      .encode() + whole.getvalue()[:200000])
        time.sleep(0.2)
        self.assertEqual(b"old content", self.files.get("/kept").bytes)
        self.no_litter()

    def test_a_full_disk_in_mid_write_leaves_the_old_content(self):
        space = self.workspace(policy={"limits": {"tmp_size": "2M"}})
        files = Files(self.daemon, space)
        self.assertEqual(201, files.put("/tmp/f", b"old").status)
        for query in ("", "?append=1"):
            self.fails(files.put("/tmp/f", bytes(5 << 20), query), 507, "disk_full")
            self.assertEqual(b"old", files.get("/tmp/f").bytes)
        many = files.act("write", {"files": [{"path": "/tmp/f", "content": "x" * (3 << 20)}, {"path": "/tmp/g", "content": "fits"}]})
        codes = [one.get("error", {}).get("code") for one in many.json["results"]]
        self.assertEqual(["disk_full", None], codes)
        files.put("/big", bytes(3 << 20))
        self.fails(files.act("copy", {"from": "/big", "to": "/tmp/f"}), 507, "disk_full")
        self.fails(files.act("move", {"from": "/big", "to": "/tmp/f"}), 507, "disk_full")
        self.assertEqual(3 << 20, files.stat("/big").json["size"])
        self.assertEqual((b"old", b"fits"), (files.get("/tmp/f").bytes, files.get("/tmp/g").bytes))
        self.assertEqual({"/tmp/f", "/tmp/g"}, {one["path"] for one in files.entries("/tmp")})
        self.assertEqual(200, files.put("/tmp/f", b"new").status)
        files.close()

    def background(self, space, **what):
        """While a sandbox ends, another command has to wait for that."""
        self.until(lambda: self.daemon.post(f"/v1/workspaces/{space}/exec", {"background": True, **what}).status == 202, "it does not begin")

    def test_nothing_inside_ends_or_stops_a_file_call(self):
        space = self.workspace(policy={"limits": {"pids": 40}})
        files = Files(self.daemon, space)
        files.put("/quick", b"x")
        for kill in ("kill -9 -1", "kill -TERM -1; kill -KILL 1", "sleep 1000 & kill -STOP -1"):
            self.background(space, command=kill)
            self.stats(30, space)
            self.assertEqual(200, files.put("/quick", b"y").status)
        self.background(space, command="while :; do sleep 9 & done")
        self.stats(30, space)
        files.close()

    def test_who_runs_out_of_memory_inside_takes_no_file_call_with_him(self):
        space = self.workspace(policy={"limits": {"memory": "48M"}})
        files = Files(self.daemon, space)
        if files.put("/large", bytes(32 << 20)).status == 501:
            self.skipTest("limits on memory cannot be kept here")
        self.background(space, argv=["python3", "-c", "b = []\nwhile True:\n b.append(bytearray(b'x' * (1 << 20)))\n"])
        for _ in range(8):
            self.assertEqual(32 << 20, len(files.get("/large").bytes))
            self.assertIn(files.put("/large2", bytes(16 << 20)).status, (200, 201))
        files.close()

    def test_who_is_refused_hears_it_before_he_has_sent_all(self):
        """And costs nothing while he waits."""
        self.files.act("mkdir", {"path": "/dir"})
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.daemon.socket)
            s.sendall(f"PUT {self.files.url}/dir HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n".encode() + b"x" * 1000)
            self.assertIn(b"is_directory", s.recv(4096))
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.daemon.socket)
            s.sendall(f"PUT {self.files.url}/dir/new HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n".encode() + b"x" * 700000)
            front, before = self.daemon.front_pid(), None
            for _ in range(2):
                before, after = spent(front), before
                time.sleep(0.5)
            self.assertLess(before - after, 20, "the front works while it waits")

    def test_asleep_or_awake_it_is_the_same(self):
        self.files.put("/d/f", b"same")
        def seen():
            return [self.files.get("/d/f").bytes, self.files.stat("/d/f").bytes, self.files.get("/d", "?list=1").bytes,
                    self.files.get("/nope").bytes]
        awake = seen()
        for _ in range(3):
            self.daemon.post(f"/v1/workspaces/{self.space}/sleep")
            self.assertEqual(awake, seen())

    def test_bodies_that_nobody_takes_are_bounded_in_sum(self):
        """And of each owner by half of it: whose own workspace is stuck leaves the others their room."""
        urls = [self.files.url] + [f"/v1/workspaces/{self.workspace(owner=owner)}/files" for owner in ("ann", "bob")]
        for url in urls:
            self.assertEqual(201, self.daemon.request("PUT", f"{url}/kept", b"old").status)
        stopped = processes_of(self.daemon, "carrel-files")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        held = []
        # The first two are more than is kept of one owner; the first, the third and the last more than of all.
        for url, size, is_kept in ((urls[0], 40, True), (urls[0], 26, False), (urls[1], 62, True), (urls[2], 28, False)):
            body = json.dumps({"files": [{"path": "/kept", "content": "x" * (size << 20)}]}).encode()
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(PATIENCE)
            s.connect(self.daemon.socket)
            with contextlib.nullcontext() if is_kept else contextlib.suppress(BrokenPipeError):  # it may be refused half way
                s.sendall(f"POST {url}-write HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            held.append(s)
            if is_kept:
                self.assertEqual(([], [], []), select.select([s], [], [], 1), "it was answered")
                continue
            answer = s.recv(65536)
            self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
            self.assertIn(b"\r\nRetry-After: 1\r\n", answer)
            self.assertIn(b'"unavailable"', answer)
        for s in held:
            s.close()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(b"old", self.files.get("/kept").bytes)
        self.assertEqual(200, self.files.act("write", {"files": [{"path": "/kept", "content": "new"}]}).status)

    def test_edits_at_once_lose_nothing_and_keep_a_condition(self):
        self.files.put("/list", b"".join(b"<%d>\n" % number for number in range(64)))

        def edit(part):
            files = Files(self.daemon, self.space)
            for number in range(part, 64, 8):
                answer = files.act("edit", {"path": "/list", "old": f"<{number}>", "new": f"({number})"})
                self.assertEqual(200, answer.status, answer.bytes)
            files.close()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(edit, range(8)))
        self.assertEqual(b"".join(b"(%d)\n" % number for number in range(64)), self.files.get("/list").bytes)
        seen = self.files.stat("/list").json["etag"]
        change = {"path": "/list", "old": "(1)", "new": "one"}
        self.assertEqual(200, self.files.act("edit", change, If_Match=seen).status)
        self.fails(self.files.act("edit", {**change, "old": "(2)"}, If_Match=seen), 412, "precondition_failed")
        self.assertIn(b"\n(2)\n", self.files.get("/list").bytes)

    def test_conditions_are_kept_against_eight_at_once(self):
        """If-Match: of those who saw the same, one may write."""
        etag = self.files.put("/count", b"0").headers["ETag"]
        self.assertTrue(etag)
        self.fails(self.files.put("/count", b"x", If_None_Match="*"), 412, "precondition_failed")
        self.fails(self.files.put("/count", b"x", If_Match='"other"'), 412, "precondition_failed")
        self.fails(self.files.put("/absent", b"x", If_Match="*"), 412, "precondition_failed")
        won = []

        def count():
            files = Files(self.daemon, self.space)
            for _ in range(15):
                answer = files.get("/count")
                number = int(answer.bytes) + 1
                if files.put("/count", b"%d" % number, If_Match=answer.headers["ETag"]).status == 200:
                    won.append(number)
            files.close()
        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(won), list(range(1, len(won) + 1)), "two wrote over the same")
        self.assertEqual(b"%d" % len(won), self.files.get("/count").bytes)


class Waiting(FilesTest):
    options = ("--set", "files_wait=1s")

    def test_a_server_that_does_not_come_is_not_waited_for_for_ever(self):
        self.until(lambda: processes_of(self.daemon, "carrel-files"), "none is started ahead")
        os.kill(processes_of(self.daemon, "carrel-files")[0], signal.SIGSTOP)
        begun = time.monotonic()
        answer = self.files.put("/late", b"x")
        self.fails(answer, 503, "unavailable")
        self.assertIn("was not ready in time", answer.json["error"]["message"])
        self.assertEqual("1", answer.headers["Retry-After"])
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(201, self.files.put("/late", b"x").status, "the next one is served")


if __name__ == "__main__":
    unittest.main(verbosity=0)
