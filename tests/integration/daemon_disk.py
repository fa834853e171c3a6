#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 20
"""limits.disk of a workspace, where nothing but counting keeps it: calls on files and commands have one count, calls are
refused before they write, and what frees room works when there is none."""
import concurrent.futures
import contextlib
import io
import os
import subprocess
import tarfile
import time
import unittest

from carreltest import PATIENCE, ROOT, mount, umount
from daemontest import Answer, Daemon, DaemonTest

MIB = 1 << 20
LIMIT = 5 * MIB
SLACK = 64 << 10  # directories


class DiskTest(DaemonTest):
    def send(self, method, path, body, daemon=None, headers=None):
        """The answer also to a body that is not taken to its end."""
        connection = (daemon or self.daemon).connect()
        try:
            try:
                connection.request(method, path, body=body, headers=headers or {})
            except BrokenPipeError:
                pass
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def put(self, path, size, **kwargs):
        return self.send("PUT", f"/v1/workspaces/desk/files/{path}", b"x" * size, **kwargs)

    def on_disk(self, ws="desk"):
        done = subprocess.run(["du", "-s", "-B1", f"{self.daemon.state}/main/threads/{ws}"], check=True, capture_output=True, text=True)
        return int(done.stdout.split()[0])

    def refused(self, answer):
        self.assertEqual((507, "disk_full"), (answer.status, answer.code), answer.bytes)
        self.assertIn("limit", answer.json["error"]["message"])


class Bounded(DiskTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="desk", policy={"limits": {"disk": "5M"}})
        self.daemon.execute("desk", "true")
        self.before = self.on_disk()

    def added(self):
        return self.on_disk() - self.before

    def test_a_file_beyond_the_limit_is_refused_and_leaves_nothing(self):
        self.refused(self.put("large", 50 * MIB))
        self.assertLessEqual(self.added(), SLACK)
        self.assertEqual(404, self.daemon.get("/v1/workspaces/desk/files/large").status)
        self.assertEqual(201, self.put("fits", 4 * MIB).status)
        self.refused(self.put("more", 4 * MIB))
        self.assertEqual(201, self.put("rest", MIB - SLACK).status)
        self.refused(self.put("last", MIB))
        self.assertLessEqual(self.added(), LIMIT + SLACK)

    def test_every_call_that_writes_has_the_same_count(self):
        self.assertEqual(201, self.put("a", 3 * MIB).status)
        at = "/v1/workspaces/desk"
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            one = tarfile.TarInfo("t")
            one.size = 3 * MIB
            tar.addfile(one, io.BytesIO(b"x" * one.size))
        for what, answer in {
                "append": self.put("a?append=1", 3 * MIB),
                "copy": self.daemon.post(f"{at}/files-copy", {"from": "/a", "to": "/b"}),
                "edit": self.daemon.post(f"{at}/files-edit", {"path": "/a", "old": "x" * 4096, "new": "x" * 8192, "all": True}),
                "tar": self.send("POST", f"{at}/files-unpack?path=/", packed.getvalue(), headers={"Content-Type": "application/x-tar"}),
        }.items():
            with self.subTest(what):
                self.assertGreaterEqual(answer.status, 400, answer.bytes)
                self.assertIn(b"disk_full", answer.bytes)
                self.assertLessEqual(self.added(), LIMIT + SLACK)
        answer = self.daemon.post(f"{at}/files-write", {"files": [{"path": f"/b{i}", "content": "x" * MIB} for i in range(4)]})
        self.assertIn(b"disk_full", answer.bytes)
        self.assertLessEqual(self.added(), LIMIT + SLACK)
        while self.put("filler?append=1", 64 << 10).status < 400:
            pass
        for number in range(40):  # directories take room too
            answer = self.daemon.post(f"{at}/files-mkdir", {"path": f"/d{number}"})
            if answer.status >= 400:
                break
        self.refused(answer)
        self.assertLessEqual(self.added(), LIMIT + SLACK)

    def test_many_at_once_add_no_more_than_one(self):
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda i: self.put(f"f{i}", MIB), range(12)))
        self.assertLessEqual({507}, {answer.status for answer in answers})
        self.assertLessEqual({answer.status for answer in answers}, {201, 507})
        self.assertLessEqual(self.added(), LIMIT + SLACK)

    def test_what_is_deleted_may_be_written_again(self):
        self.assertEqual(201, self.put("a", 4 * MIB).status)
        self.refused(self.put("b", 4 * MIB))
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk/files/a").status)
        self.assertEqual(201, self.put("b", 4 * MIB).status)
        self.refused(self.put("c", 4 * MIB))
        self.assertEqual(200, self.put("b", 0).status)  # a truncate
        self.assertEqual(201, self.put("c", 4 * MIB).status)
        self.assertEqual(0, self.daemon.execute("desk", "rm c")["exit_code"])
        self.assertEqual(201, self.put("d", 4 * MIB).status)

    def test_a_count_under_way_is_no_answer_for_what_is_deleted_behind_it(self):
        """A count that has met the file ends after the file has gone; or another call has the next count begun."""
        many = [f"n{number}" for number in range(3000)]
        self.assertEqual(0, self.daemon.execute("desk", f"mkdir z; cd z; touch {' '.join(many)}")["exit_code"])
        for number in range(12):
            answer = self.put(f"c{number}", 3 * MIB)
            self.assertEqual(201, answer.status, (number, answer.bytes))
            done = self.daemon.execute("desk", f"sleep 0.2{number:02}; rm c{number}")
            self.assertEqual(0, done["exit_code"], done)

    def test_commands_and_calls_share_the_count(self):
        self.assertEqual(0, self.daemon.execute("desk", "head -c 3M /dev/zero >made")["exit_code"])
        self.refused(self.put("a", 3 * MIB))
        self.assertEqual(201, self.put("b", MIB).status)
        done = self.daemon.execute("desk", "head -c 3M /dev/zero >more; sleep 100")
        self.assertEqual(("disk", 123), (done["reason"], done["exit_code"]), done)

    def test_what_a_fast_command_left_may_be_deleted_inside(self):
        """Ended between two looks, it has overshot: nobody adds more, and `rm` is not ended for it."""
        self.daemon.execute("desk", "head -c 20M /dev/zero >big")
        time.sleep(0.5)
        if any(r["operation"] == "sandbox.end" for r in self.daemon.audit()):
            return  # it was seen at once
        self.refused(self.put("a", MIB))
        removed = self.daemon.execute("desk", "rm big && sleep 0.5 && echo gone")
        self.assertEqual(("exit", "gone\n"), (removed["reason"], removed["stdout"]), removed)
        self.assertEqual(201, self.put("a", MIB).status)

    def test_without_a_limit_nothing_is_refused(self):
        self.workspace(id="free")
        self.assertEqual(201, self.send("PUT", "/v1/workspaces/free/files/a", b"x" * (20 * MIB)).status)


@unittest.skipUnless(ROOT, "only root can mount a small disk")
class Full(DiskTest):
    """The host's disk is full: with the record on it, too."""

    def setUp(self):
        super().setUp()
        self.small = self.path("small")
        os.mkdir(self.small)
        mount("none", self.small, "tmpfs", "size=64m")
        self.full = Daemon(f"{self.small}/s")

    def tearDown(self):
        self.full.stop()
        umount(self.small, lazily=True)
        super().tearDown()

    def fill(self):
        for piece in (MIB, 4096, 512):
            with open(f"{self.small}/fill", "ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * piece)

    def test_what_frees_room_works_and_is_on_record(self):
        for ws, policy in (("plain", {}), ("limited", {"limits": {"disk": "5M"}})):
            self.assertEqual(201, self.full.post("/v1/workspaces", {"id": ws, "policy": policy}).status)
            for name in "abc":
                self.assertEqual(201, self.full.request("PUT", f"/v1/workspaces/{ws}/files/{name}", b"x" * MIB).status)
            self.full.post(f"/v1/workspaces/{ws}/sleep")
        key = self.full.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        for ws in ("busy", "base"):
            self.assertEqual(201, self.full.post("/v1/workspaces", {"id": ws}).status)
        self.assertEqual(201, self.full.post("/v1/templates", {"name": "old", "workspace": "base"}).status)
        running = self.full.post("/v1/workspaces/busy/exec", {"command": "sleep 1000", "background": True}).json["exec_id"]
        self.assertEqual(201, self.full.post("/v1/workspaces/plain/ports/8000", {}).status)
        plan = self.full.post("/v1/workspaces/plain/plans", [{"op": "create", "path": "p", "content": "x"}]).json["id"]
        self.fill()
        self.assertEqual(0, os.statvfs(self.small).f_bavail)
        for ws in ("plain", "limited"):
            at = f"/v1/workspaces/{ws}/files"
            with self.subTest(ws):
                answer = self.send("PUT", f"{at}/more", b"x" * MIB, daemon=self.full)
                self.assertEqual((507, "disk_full"), (answer.status, answer.code), answer.bytes)
                answer = self.full.request("PUT", f"{at}/a", b"")
                self.assertEqual(200, answer.status, answer.bytes)
                answer = self.full.request("DELETE", f"{at}/b")
                self.assertEqual(204, answer.status, answer.bytes)
                self.fill()
        for _ in range(1000):  # until nothing is left but what is kept for these
            answer = self.full.post("/v1/keys", {"owner": "alice", "scopes": ["user"]})
            if answer.status != 201:
                break
        self.assertIn("the disk has no room for the audit record", answer.json["error"]["message"])
        # No right is given and nothing begun; a right is taken away, and what takes room ends and goes.
        for path, body in (("/v1/keys", {"owner": "alice", "scopes": ["user"]}), ("/v1/workspaces", {"id": "third"}),
                           ("/v1/workspaces/plain/ports/8001", {}), ("/v1/workspaces/plain/exec", {"command": "true"})):
            answer = self.full.post(path, body)
            self.assertEqual((507, "disk_full"), (answer.status, answer.code), (path, answer.bytes))
        for method, path in (("POST", f"/v1/workspaces/busy/exec/{running}/kill"), ("DELETE", f"/v1/keys/{key['id']}"),
                             ("DELETE", "/v1/workspaces/plain/ports/8000"), ("DELETE", f"/v1/workspaces/plain/plans/{plan}"),
                             ("POST", "/v1/workspaces/busy/sleep"), ("DELETE", "/v1/workspaces/limited"),
                             ("DELETE", "/v1/workspaces/busy?purge=1"), ("DELETE", "/v1/templates/old")):
            self.fill()
            answer = self.full.request(method, path)
            self.assertIn(answer.status, (200, 202, 204), (method, path, answer.bytes))
        self.assertEqual(401, self.full.get("/v1/workspaces", key=key["key"]).status)
        os.unlink(f"{self.small}/fill")
        deadline = time.monotonic() + PATIENCE
        while self.full.post("/v1/workspaces", {"id": "again"}).status != 201:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        records = [(r["operation"], r["workspace"]) for r in self.full.get("/v1/audit?limit=1000").json["records"]]
        for ws in ("plain", "limited"):
            self.assertIn(("file.delete", ws), records)


if __name__ == "__main__":
    unittest.main()
