#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
"""Stores that commands see as directories: read and written, without a key inside, and nothing hangs when they do not answer."""
import glob
import os
import signal
import time
import unittest

import rclonetest
from carreltest import PATIENCE, ROOT
from storetest import S3, StoreTest, Webdav

LONG = bool(os.environ.get("LONG"))
SECRET = "opensesame"


class Mounts(StoreTest):
    options = ("--set", "mirror_delay=50ms")

    def projects(self, kind=Webdav, **files):
        server = self.serve(kind)
        for name, text in files.items():
            path = f"{self.dir}/object"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            server.rclone("copyto", path, f"there:bucket/projects/{name}")
        self.store(server, "projects", "bucket/projects")
        return server

    def desk(self, ws="desk", mode="ro", at="/projects", **more):
        self.workspace(id=ws, policy={"mounts": [{"store": "projects", "at": at, "mode": mode}], **more})
        return ws

    def run_in(self, ws, line, **more):
        return self.daemon.execute(ws, line, **more)

    def rclone_pid(self):
        """The one that serves this daemon's mount."""
        for path in glob.glob("/proc/[0-9]*/status"):
            try:
                with open(path, encoding="utf-8") as file:
                    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                with open(path.replace("status", "cmdline"), "rb") as file:
                    line = file.read()
                with open(f"/proc/{status['PPid'].strip()}/stat", encoding="ascii") as file:
                    daemon = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"\0mount\0store:" in line and daemon == self.daemon.process.pid:
                return int(status["Pid"])
        return None


@unittest.skipIf(ROOT, "root's can")
class Rootless(Mounts):
    def test_it_is_refused_in_words(self):
        self.projects(a="hello\n")
        self.desk()
        answer = self.daemon.post("/v1/workspaces/desk/exec", {"command": "true"})
        self.assertEqual((501, "unsupported"), (answer.status, answer.code), answer.bytes)
        self.assertIn("a daemon that root has started", answer.json["error"]["message"])


@unittest.skipUnless(ROOT, "stores are mounted by a daemon of root's")
class ReadOnly(Mounts):
    def test_debians_rclone_shows_and_does_not_write(self):
        self.projects(a="hello\n", b="world\n")
        self.desk()
        done = self.run_in("desk", "ls -A /projects; cat /projects/a /projects/b; echo x >/projects/new; touch ok; env; cat /proc/mounts")
        self.assertIn("a\nb\nhello\nworld\n", done["stdout"])
        self.assertIn("Read-only file system", done["stderr"])
        self.assertNotIn(SECRET, done["stdout"])
        answer = self.daemon.post("/v1/workspaces", {"id": "writes", "policy": {"mounts": [{"store": "projects", "at": "/projects", "mode": "rw"}]}})
        self.assertEqual(201, answer.status, answer.bytes)
        answer = self.daemon.post("/v1/workspaces/writes/exec", {"command": "true"})
        self.assertEqual((501, "unsupported"), (answer.status, answer.code), answer.bytes)
        self.assertIn("rclone.org/downloads", answer.json["error"]["message"])

    def test_who_may(self):
        self.projects(a="hello\n")
        policy = {"mounts": [{"store": "projects", "at": "/projects", "mode": "ro"}]}
        owner = self.daemon.key("alice", scopes=["owner"])
        answer = self.daemon.post("/v1/workspaces", {"id": "hers", "policy": policy}, key=owner)
        self.assertEqual((403, "forbidden"), (answer.status, answer.code), answer.bytes)
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "hers", "owner": "alice", "policy": policy}).status)
        self.assertEqual("hello\n", self.run_in("hers", "cat /projects/a", key=owner)["stdout"])
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/hers", {"policy": {**policy, "tmp": "exec"}}, key=owner).status)
        more = {"mounts": [{"store": "projects", "at": "/projects", "mode": "rw"}]}
        self.assertEqual(403, self.daemon.request("PATCH", "/v1/workspaces/hers", {"policy": more}, key=owner).status)

    def test_what_is_refused(self):
        self.projects()
        for mount in ({"store": "projects", "at": "/a/b"}, {"store": "projects", "at": "a"}, {"store": "../x", "at": "/a"}, {"store": "projects"},
                      {"store": "projects", "at": "/.."}, {"store": "projects", "at": "/a", "mode": "rx"}, {"store": "projects", "at": "/a", "source": "/"}):
            with self.subTest(mount):
                self.assertEqual(400, self.daemon.post("/v1/workspaces", {"policy": {"mounts": [mount]}}).status)
        answer = self.daemon.post("/v1/workspaces", {"policy": {"mounts": [{"store": "projects", "at": "/a", "mode": "plan"}]}})
        self.assertEqual((501, "unsupported"), (answer.status, answer.code))
        for at, store, status in (("/usr", "projects", 400), ("/tmp", "projects", 400), ("/a", "none", 404)):
            answer = self.daemon.post("/v1/workspaces", {"policy": {"mounts": [{"store": store, "at": at}]}})
            self.assertEqual(201, answer.status, answer.bytes)
            ran = self.daemon.post(f"/v1/workspaces/{answer.json['id']}/exec", {"command": "true"})
            self.assertEqual(status, ran.status, ran.bytes)

    def test_a_store_that_is_wrong_is_told_in_words(self):
        server = self.serve(Webdav)
        self.store(server, "projects", "bucket/projects", user="nobody")
        self.desk()
        answer = self.daemon.post("/v1/workspaces/desk/exec", {"command": "true"})
        self.assertEqual(502, answer.status, answer.bytes)
        self.assertIn("does not accept the credentials", answer.json["error"]["message"])
        self.store(server, "projects", "bucket/projects")
        self.assertEqual("", self.run_in("desk", "ls /projects")["stdout"])

    def test_nothing_hangs_and_it_comes_back(self):
        self.projects(a="hello\n")
        self.desk()
        self.assertEqual("hello\n", self.run_in("desk", "cat /projects/a")["stdout"])
        pid = self.rclone_pid()
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        done = self.run_in("desk", "stat /projects/other; echo $?", timeout_ms=60000)
        self.assertIn("1\n", done["stdout"], done)
        self.assertLess(time.monotonic() - began, 45, "it is ended at a bound")
        self.assertTrue(any("projects" in one["what"] for one in done["denials"]), done)
        self.assertEqual("ok\n", self.run_in("desk", "echo ok")["stdout"], "commands that want nothing of it run")
        until = time.monotonic() + PATIENCE
        while self.run_in("desk", "cat /projects/a")["stdout"] != "hello\n":
            self.assertLess(time.monotonic(), until, "the sandbox that lives has the new mount")
            time.sleep(0.2)
        self.assertEqual(1, sum(one["operation"] == "sandbox.start" for one in self.daemon.audit()), "the same sandbox")
        self.assertEqual(["store.mount", "store.unmount", "store.mount"],
                         [one["operation"] for one in self.daemon.audit() if one["operation"] in ("store.mount", "store.unmount")])

    @unittest.skipUnless(LONG, "it takes as long as rclone waits for a server")
    def test_a_server_that_stands_still_is_told(self):
        server = self.projects(a="hello\n")
        self.desk()
        self.assertEqual("hello\n", self.run_in("desk", "cat /projects/a")["stdout"])
        server.process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            done = self.run_in("desk", "ls /projects/deep/er; echo $?", timeout_ms=90000)
            self.assertIn("2\n", done["stdout"], done)
            self.assertLess(time.monotonic() - began, 60)
        finally:
            server.process.send_signal(signal.SIGCONT)


@unittest.skipUnless(ROOT, "stores are mounted by a daemon of root's")
class Writable(Mounts):
    def setUp(self):
        self.options = (*Mounts.options, "--set", "rclone=" + rclonetest.rclone())
        super().setUp()

    def until_objects(self, server, expected):
        end = time.monotonic() + 2 * PATIENCE
        while (found := server.objects("bucket/projects")) != expected:
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.2)

    def test_written_to_the_store_and_seen_by_others(self):
        server = self.projects(S3, a="hello\n")
        self.desk(mode="rw")
        self.desk("reader", mode="ro", at="/p")
        done = self.run_in("desk", "cat /projects/a; mkdir /projects/z; echo q >/projects/z/h; mv /projects/z /projects/zz; truncate -s1 /projects/zz/h; rm /projects/a")
        self.assertEqual(("hello\n", "", 0), (done["stdout"], done["stderr"], done["exit_code"]))
        self.assertEqual("q", self.run_in("reader", "cat /p/zz/h")["stdout"], "one mount, shared")
        self.assertIn("Read-only", self.run_in("reader", "echo x >/p/zz/h")["stderr"])
        self.until_objects(server, {"zz/h": b"q"})
        for place in ("cat /proc/self/environ", "env", "cat /proc/*/environ /proc/*/cmdline", "cat /proc/mounts", "find / -xdev -name '*carrel*'"):
            self.assertNotIn("carreltestsecret", self.run_in("desk", place + " 2>/dev/null")["stdout"])

    def test_what_was_written_is_not_lost_when_all_is_killed(self):
        server = self.projects(a="hello\n")
        self.desk(mode="rw")
        self.assertEqual(0, self.run_in("desk", "echo kept >/projects/b")["exit_code"])
        self.daemon.post("/v1/workspaces/desk/exec", {"command": "for i in $(seq 200); do echo x >/projects/w; sleep 0.02; done", "background": True})
        os.kill(self.rclone_pid(), signal.SIGKILL)
        self.until_objects(server, {"a": b"hello\n", "b": b"kept\n", "w": b"x\n"})
        self.assertEqual(0, self.run_in("desk", "until echo more >/projects/c; do sleep 0.1; done", timeout_ms=30000)["exit_code"])
        self.assertEqual([], os.listdir(f"{self.daemon.state}/main/threads/desk/projects"), "nothing was written beside the store")
        self.daemon.process.kill()
        self.daemon.process.wait(PATIENCE)
        self.daemon.start()
        self.until_objects(server, {"a": b"hello\n", "b": b"kept\n", "c": b"more\n", "w": b"x\n"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
