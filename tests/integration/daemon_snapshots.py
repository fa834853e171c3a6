#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 1200
"""Snapshots: what they hold, that they are of one instant while commands write, what they share, and what is refused."""
import os
import stat
import threading
import time
import unittest

from carreltest import PATIENCE
from daemontest import DaemonTest, events_of

LONG = bool(os.environ.get("LONG"))
FILES = 100000 if LONG else 2000
# Each round writes a, then b, then adds a file: at one instant a is b or one ahead, and no file is missing below the newest.
WRITER = ("import os\n"
          "os.makedirs('/w', exist_ok=True)\n"
          "n = 0\n"
          "while True:\n"
          "    n += 1\n"
          "    for name in 'ab':\n"
          "        with open('/w/.' + name, 'w') as f: f.write('%09d' % n)\n"
          "        os.replace('/w/.' + name, '/w/' + name)\n"
          "    if n <= 20000:\n"
          "        with open('/w/f%05d' % n, 'w') as f: f.write(str(n))\n")


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


def picture(top):
    """Everything that a snapshot has to keep, by path."""
    found, names = {}, {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            at = os.lstat(path)
            short = os.path.relpath(path, top)
            kind = stat.S_IFMT(at.st_mode)
            content = os.readlink(path) if kind == stat.S_IFLNK else content_of(path) if kind == stat.S_IFREG else None
            found[short] = (kind, content, at.st_mode if kind != stat.S_IFLNK else 0, at.st_mtime_ns if kind != stat.S_IFDIR else 0, at.st_uid)
            if kind == stat.S_IFREG:
                names.setdefault(at.st_ino, set()).add(short)
    return found, sorted(map(sorted, names.values()))


class Snapshots(DaemonTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="desk")
        self.here = f"{self.daemon.state}/main/threads/desk"
        self.kept = f"{self.daemon.state}/main/.carrel/workspaces/desk/snapshots"

    def snapshot(self, expect=201, ws="desk", **body):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/snapshots", body)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def tree(self, made):
        return f"{self.kept}/{made['id']}/tree"

    def run_in(self, command):
        result = self.daemon.execute("desk", command)
        self.assertEqual(0, result["exit_code"], result)
        return result

    def test_it_keeps_what_a_tree_has(self):
        self.run_in("mkdir -p d/deep 'a b' shut; echo one >d/one; ln d/one d/other; ln -s d/one link; ln -s /nowhere dead; "
                    "chmod 640 d/one; touch -d @1000000000.5 d/deep; echo >'a b/\\xff'; mkfifo pipe; "
                    "truncate -s 8M sparse; printf end >>sparse; chmod 0500 shut; "
                    "python3 -c \"import os; os.setxattr('d/one', 'user.colour', b'blue')\" 2>/dev/null || true")
        made = self.snapshot(name="first")
        want, links = picture(self.here)
        got, got_links = picture(self.tree(made))
        for name in ("usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32", "etc", "proc", "dev", "tmp", ".cache", "pipe"):
            want.pop(name, None)
        self.assertEqual(want, got)
        self.assertEqual(links, got_links)
        self.assertEqual((1, ["pipe"]), (made["left_out_count"], made["left_out"]))
        self.assertLess(os.stat(self.tree(made) + "/sparse").st_blocks * 512, 1 << 20)
        try:
            self.assertEqual(os.getxattr(self.here + "/d/one", "user.colour"), os.getxattr(self.tree(made) + "/d/one", "user.colour"))
        except OSError:
            pass  # no such attributes on this file system
        self.assertNotEqual(os.stat(self.here + "/d/one").st_ino, os.stat(self.tree(made) + "/d/one").st_ino)

    def test_a_second_one_follows_what_changed(self):
        self.run_in("mkdir d; for i in $(seq 500); do echo $i >d/$i; done")
        first = self.snapshot()
        self.run_in("echo changed >d/7; mv d e; rm e/9; echo new >new; ln e/1 e/again")
        second = self.snapshot()
        self.assertGreaterEqual(first["copied"], 500)
        self.assertLessEqual(second["copied"], 4, second)  # 7, new, and 1, whose link is a change
        self.assertLess(second["own_bytes"], first["own_bytes"] / 10)
        want, _ = picture(self.here)
        got, _ = picture(self.tree(second))
        self.assertEqual({k: v for k, v in want.items() if k == "e" or k.startswith(("e/", "new"))}, {k: v for k, v in got.items() if k == "e" or k.startswith(("e/", "new"))})
        self.assertEqual(b"7\n", content_of(self.tree(first) + "/d/7"))
        self.assertEqual(os.stat(self.tree(first) + "/d/8").st_ino, os.stat(self.tree(second) + "/e/8").st_ino)

    def test_a_change_right_after_it_is_seen(self):
        """Written in the same tick of the clock, with the same size."""
        for i in range(20):
            self.run_in(f"printf {i:03d} >x")
            self.assertEqual(b"%03d" % i, content_of(self.tree(self.snapshot()) + "/x"))

    def test_it_is_of_one_instant_while_commands_write(self):
        self.run_in(f"mkdir many; cd many; for i in $(seq {FILES // 100}); do mkdir $i; for j in $(seq 100); do echo $j >$i/$j; done; done")
        stream = self.daemon.stream("POST", "/v1/workspaces/desk/exec", {"argv": ["python3", "-c", WRITER], "stream": True, "timeout_ms": 600000})
        self.addCleanup(stream.keep.close)
        execution = next(events_of(stream))
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(self.here + "/w/f00050"):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        taken = []
        for _ in range(3):
            answer = self.daemon.post("/v1/workspaces/desk/snapshots", {})
            if answer.status == 409:  # as here an ordinary user has no group to freeze: refused in words, and nothing is left
                self.assertEqual("workspace_busy", answer.code)
                self.assertIn("freezer", answer.json["error"]["message"])
                self.assertEqual([], os.listdir(self.kept) if os.path.exists(self.kept) else [])
                self.daemon.post(f"/v1/workspaces/desk/exec/{execution['exec_id']}/kill")
                return
            self.assertEqual(201, answer.status, answer.bytes)
            made = answer.json
            top = self.tree(made) + "/w"
            a, b = (int(content_of(f"{top}/{name}")) for name in "ab")
            self.assertIn(a - b, (0, 1))
            files = sorted(name for name in os.listdir(top) if name.startswith("f"))
            newest = len(files)
            self.assertEqual([f"f{n:05d}" for n in range(1, newest + 1)], files)
            self.assertIn(b - min(newest, 20000) if b < 20000 else 0, (-1, 0, 1))
            half = [n for n in range(1, newest) if content_of(f"{top}/f{n:05d}") != b"%d" % n]
            self.assertEqual([], half)
            taken.append((made["frozen_ms"], a))
            self.assertGreaterEqual(made["frozen_ms"], made["copy_ms"])
        self.assertLess(taken[0][1], taken[-1][1])  # it went on in between
        before = int(content_of(self.here + "/w/a"))
        deadline = time.monotonic() + PATIENCE
        while int(content_of(self.here + "/w/a")) == before:
            self.assertLess(time.monotonic(), deadline, "the writer does not go on")
        self.daemon.post(f"/v1/workspaces/desk/exec/{execution['exec_id']}/kill")
        print(f"  {FILES} files: frozen for {', '.join(str(ms) for ms, _ in taken)} ms")

    def test_files_over_http_wait_and_go_on(self):
        self.daemon.execute("desk", "true")
        stop, failed = threading.Event(), []

        def write():
            n = 0
            while not stop.is_set():
                n += 1
                answer = self.daemon.request("PUT", f"/v1/workspaces/desk/files/h{n % 5}", body=b"%04d" % n)
                if answer.status not in (200, 201, 204):
                    failed.append((answer.status, answer.bytes))
        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(5):
            self.snapshot()
        stop.set()
        writer.join()
        self.assertEqual([], failed)

    def test_names_and_refusals(self):
        self.run_in("echo 1 >x")
        made = self.snapshot(name="v1")
        self.assertEqual("conflict", self.snapshot(409, name="v1")["error"]["code"])
        for name in ("-x", "a/b", "a" * 65, "é", made["id"]):
            self.assertEqual("invalid_request", self.snapshot(400, name=name)["error"]["code"])
        self.snapshot(400, other=1)
        self.assertEqual(made["id"], self.daemon.get("/v1/workspaces/desk/snapshots/v1").json["id"])
        listed = self.daemon.get("/v1/workspaces/desk/snapshots").json["snapshots"]
        self.assertEqual([made["id"]], [one["id"] for one in listed])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/desk/snapshots/none").status)
        self.assertEqual(404, self.daemon.request("DELETE", "/v1/workspaces/desk/snapshots/none").status)
        self.assertEqual(404, self.daemon.request("DELETE", "/v1/workspaces/desk/snapshots/..%2f..").status)
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk/snapshots/v1").status)
        self.assertEqual([], os.listdir(self.kept))
        self.assertEqual([], self.daemon.get("/v1/workspaces/desk/snapshots").json["snapshots"])
        told = [record["op"] if "op" in record else record.get("operation") for record in self.daemon.audit()]
        self.assertIn("snapshot.create", told)
        self.assertIn("snapshot.delete", told)

    def test_what_was_interrupted_is_no_snapshot(self):
        self.run_in("echo 1 >x")
        self.snapshot(name="v1")
        owner = os.stat(self.here)
        for left in (".new-s" + "a" * 26, ".gone-s" + "b" * 26):
            for part in ("", "/tree", "/tree/half"):
                os.mkdir(f"{self.kept}/{left}{part}")
                os.chown(f"{self.kept}/{left}{part}", owner.st_uid, owner.st_gid)
        self.assertEqual(["v1"], [one["name"] for one in self.daemon.get("/v1/workspaces/desk/snapshots").json["snapshots"]])
        self.snapshot(name="v2")
        self.assertEqual([], [name for name in os.listdir(self.kept) if name.startswith(".")])

    def test_purge_takes_them_along(self):
        self.run_in("echo 1 >x")
        self.snapshot()
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk?purge=1").status)
        self.assertFalse(os.path.exists(self.kept))


if __name__ == "__main__":
    unittest.main(verbosity=2)
