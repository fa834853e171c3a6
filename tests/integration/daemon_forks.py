#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""Forks: they start from a snapshot, keep their changes to themselves, take no room, and hold on to what they stand on."""
import os
import signal
import time
import unittest

from carreltest import PATIENCE
from daemontest import DaemonTest


class Forks(DaemonTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="desk", policy={"limits": {"timeout": "5m"}}, labels={"a": "b"})
        self.run_in("desk", "mkdir -p d/e; for i in $(seq 50); do echo $i >d/$i; done; echo one >x; ln x y; ln -s x l")
        self.first = self.post("/v1/workspaces/desk/snapshots", {"name": "first"}, 201)["id"]

    def post(self, path, body, expect):
        answer = self.daemon.post(path, body)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def fork(self, name, snapshot=None, expect=201, of="desk", **body):
        return self.post("/v1/workspaces", {"id": name, "fork": {"workspace": of, "snapshot": snapshot or self.first}, **body}, expect)

    def run_in(self, workspace, command, expect=0):
        result = self.daemon.execute(workspace, command)
        self.assertEqual(expect, result["exit_code"], result)
        return result["stdout"]

    def test_it_starts_from_the_snapshot_and_keeps_its_changes_to_itself(self):
        self.run_in("desk", "echo later >x; rm d/1")
        made = self.fork("one")
        self.assertEqual({"workspace": "desk", "snapshot": self.first}, made["fork"])
        self.assertEqual({"limits": {"timeout": "5m"}}, made["policy"])  # as nothing else was said
        records = self.daemon.get("/v1/audit?workspace=one").json["records"]
        self.assertEqual([f"desk/{self.first}"], [one["details"]["fork"] for one in records if one["operation"] == "workspace.create"])
        self.fork("two")
        self.assertEqual("one\n1\n", self.run_in("one", "cat x d/1"))
        self.run_in("one", "echo mine >x; mv d f; rm f/2; chmod 600 f/3; mkdir new; echo n >new/n")
        self.assertEqual("one\n2\n", self.run_in("two", "cat x d/2"))
        self.assertEqual("later\n", self.run_in("desk", "cat x"))
        for _ in range(3):  # the layer is there again after each sleep
            self.post("/v1/workspaces/one/sleep", {}, 200)
            self.assertEqual("mine\n3\nn\n", self.run_in("one", "cat x f/3 new/n; test ! -e d; test ! -e f/2"))
        snapshot = f"{self.daemon.state}/main/.carrel/workspaces/desk/snapshots/{self.first}/tree"
        with open(snapshot + "/x", encoding="ascii") as file:
            self.assertEqual("one\n", file.read())

    def test_the_end_of_a_lifetime_leaves_what_forks_stand_on(self):
        self.fork("one")
        for at_end in ("purge", "delete"):
            answer = self.daemon.request("PATCH", "/v1/workspaces/desk", {"lifetime": {"seconds": 1, "at_end": at_end, "paused": False}})
            self.assertEqual(200, answer.status, answer.bytes)
            deadline = time.monotonic() + PATIENCE
            while not (now := self.daemon.get("/v1/workspaces/desk").json)["lifetime"]["paused"]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            self.assertIsNone(now["deleted"])
            self.assertEqual("one\n", self.run_in("one", "cat x"))

    def state_of(self, top):
        """Everything that could tell that something below was changed; not when it was read."""
        seen = {}
        for where, dirs, files in os.walk(top):
            for name in [".", *dirs, *files]:
                path = os.path.join(where, name)
                st = os.lstat(path)
                content = os.readlink(path) if os.path.islink(path) else None
                if os.path.isfile(path) and content is None:
                    with open(path, "rb") as file:
                        content = file.read()
                seen[path] = (st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_mtime_ns, st.st_ctime_ns, content,
                              tuple(sorted(os.listxattr(path, follow_symlinks=False))))
        return seen

    def test_nothing_that_runs_in_it_changes_the_snapshot(self):
        self.fork("one")
        top = f"{self.daemon.state}/main/.carrel/workspaces/desk/snapshots/{self.first}/tree"
        before = self.state_of(top)
        self.assertGreater(len(before), 50)
        for command in ("chmod 777 x d d/1; touch -d 2001-01-01 d/2 d; ln d/3 hard; echo more >>hard; truncate -s 0 d/4; rm -rf d/e; mv d/5 d/6",
                        "cd d && mv 7 ../7 && ln -sf 8 9 && cp --remove-destination 10 11; fallocate -p -l 1 12; fallocate -l 4096 13",
                        "python3 -c 'import mmap; f = open(\"d/14\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b\"!\"; m.flush()'",
                        "python3 -c 'import os; os.setxattr(\"d/15\", \"user.a\", b\"b\"); os.open(\"d\", os.O_TMPFILE | os.O_RDWR)'",
                        "python3 -c 'import fcntl; f = open(\"d/16\"); fcntl.ioctl(f, 0x40086602, b\"\\x10\" + bytes(7))'",
                        "for f in d/1?; do python3 -c 'import os, sys; f = os.open(sys.argv[1], 0); open(f\"/proc/self/fd/{f}\", \"w\").write(\"z\")' $f; done",
                        "rm -rf d x y l; mkdir d; echo new >d/1"):
            self.daemon.execute("one", command)  # some of it fails
        self.assertEqual("new\n", self.run_in("one", "cat d/1; test ! -e x; test ! -e d/2"))
        self.assertEqual(before, self.state_of(top))
        self.fork("two")
        self.assertEqual("one\n50\n1\n", self.run_in("two", "cat y d/50 d/1"))

    def test_files_over_http_are_the_forks_awake_and_asleep(self):
        self.fork("one")
        self.assertEqual(b"one\n", self.daemon.get("/v1/workspaces/one/files/x").bytes)
        self.assertLess(self.daemon.request("PUT", "/v1/workspaces/one/files/x", b"put").status, 300)
        self.post("/v1/workspaces/one/sleep", {}, 200)
        self.assertEqual(b"put", self.daemon.get("/v1/workspaces/one/files/x").bytes)
        self.assertEqual(b"7\n", self.daemon.get("/v1/workspaces/one/files/d/7").bytes)

    def test_it_takes_no_room(self):
        self.run_in("desk", "head -c 30M /dev/urandom >big; mkdir m; for i in $(seq 1000); do : >m/$i; done")
        second = self.post("/v1/workspaces/desk/snapshots", {}, 201)["id"]
        for i in range(10):
            self.fork(f"f{i}", second)
        own = f"{self.daemon.state}/main/.carrel/workspaces/f3/fork"
        entries = [os.path.join(where, name) for where, dirs, files in os.walk(own) for name in dirs + files]
        self.assertLessEqual(len(entries), 4, entries)

    def test_what_it_stands_on_stays(self):
        self.fork("one")
        for path in ("/v1/workspaces/desk", "/v1/workspaces/desk?purge=1", "/v1/workspaces/desk/snapshots/first",
                     f"/v1/workspaces/desk/snapshots/{self.first}"):
            answer = self.daemon.request("DELETE", path)
            self.assertEqual((409, "snapshot_in_use"), (answer.status, answer.code), answer.bytes)
            self.assertIn("one", answer.json["error"]["message"])
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/one").status)  # to the trash: it may come back
        self.assertEqual(409, self.daemon.request("DELETE", "/v1/workspaces/desk/snapshots/first").status)
        self.post("/v1/workspaces/one/undelete", {}, 200)
        self.assertEqual("one\n", self.run_in("one", "cat x"))
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/one?purge=1").status)
        self.workspace(id="one")  # of the same name, and no fork
        self.assertIsNone(self.daemon.get("/v1/workspaces/one").json["fork"])
        self.run_in("one", "test ! -e x; test ! -e d")
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk/snapshots/first").status)
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk").status)

    def test_bad_input(self):
        for fork in ({}, {"workspace": "desk"}, {"workspace": "desk", "snapshot": "first"}, {"workspace": "../desk", "snapshot": self.first},
                     {"workspace": "desk", "snapshot": "s/../../.."}, {"workspace": 1, "snapshot": self.first}, "desk@first",
                     {"workspace": "desk", "snapshot": self.first, "more": 1}):
            self.assertEqual("invalid_request", self.post("/v1/workspaces", {"id": "bad", "fork": fork}, 400)["error"]["code"])
        self.fork("bad", expect=404, of="nobodys")
        self.fork("bad", "s" + "a" * 26, expect=404)
        self.fork("bad", expect=400, template="base")
        self.post("/v1/stores", {"name": "far", "path": "b", "config": {"type": "s3", "endpoint": "http://127.0.0.1:9"}}, 201)
        for wanted in ({"policy": {"writes": "plan"}}, {"policy": {"limits": {"disk": "image:100M"}}}, {"store": {"mirror": "far"}}, {"from_store": "far"}):
            self.assertEqual("is_a_fork", self.fork("bad", expect=409, **wanted)["error"]["code"])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/bad").status)
        self.assertFalse(os.path.exists(f"{self.daemon.state}/main/.carrel/workspaces/bad"))
        key = self.daemon.key("bob")
        answer = self.daemon.post("/v1/workspaces", {"id": "bobs", "fork": {"workspace": "desk", "snapshot": self.first}}, key=key)
        self.assertEqual(404, answer.status, answer.bytes)

    def test_what_a_fork_cannot_do_is_said(self):
        self.post("/v1/stores", {"name": "far", "path": "b", "config": {"type": "s3", "endpoint": "http://127.0.0.1:9"}}, 201)
        self.fork("one")
        for path, body in (("/v1/workspaces/one/exec", {"command": "true", "mode": "plan"}),
                           ("/v1/workspaces/one/plans", [{"op": "create", "path": "a", "content": "x"}]),
                           ("/v1/templates", {"name": "t", "workspace": "one"})):
            answer = self.daemon.post(path, body)
            self.assertEqual((409, "is_a_fork"), (answer.status, answer.code), answer.bytes)
            self.assertIn("carrel ws backup", answer.json["error"]["message"])
        for change in ({"policy": {"writes": "plan"}}, {"policy": {"limits": {"disk": "image:100M"}}}, {"store": {"mirror": "far"}}):
            answer = self.daemon.request("PATCH", "/v1/workspaces/one", change)
            self.assertEqual((409, "is_a_fork"), (answer.status, answer.code), answer.bytes)
        self.assertEqual({"limits": {"timeout": "5m"}}, self.daemon.get("/v1/workspaces/one").json["policy"])
        self.workspace(id="other", links={"ticket": "one"})
        answer = self.daemon.post("/v1/workspaces/other/exec", {"command": "true"})
        self.assertEqual((409, "is_a_fork"), (answer.status, answer.code), answer.bytes)

    def test_it_survives_a_daemon_that_is_killed(self):
        self.fork("one")
        self.run_in("one", "echo mine >x; sync")
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual("mine\n50\n", self.run_in("one", "cat x d/50"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
