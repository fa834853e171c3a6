#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Snapshots that the daemon makes by itself: before a plan is applied, and now and then; how many of them stay."""
import os
import time
import unittest

from carreltest import PATIENCE
from daemontest import DaemonTest


class Automatic(DaemonTest):
    def post(self, path, body, expect):
        answer = self.daemon.post(path, body)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def snapshots(self):
        return self.daemon.get("/v1/workspaces/desk/snapshots").json["snapshots"]

    def whys(self):
        return [one["why"] for one in self.snapshots()]

    def run_in(self, command):
        self.assertEqual(0, self.daemon.execute("desk", command)["exit_code"])

    def apply(self, content):
        plan = self.post("/v1/workspaces/desk/plans", [{"op": "write", "path": "x", "content": content}], 201)
        self.assertEqual("applied", self.post(f"/v1/workspaces/desk/plans/{plan['id']}/apply", {}, 200)["state"])

    def test_before_a_plan_is_applied(self):
        self.workspace(id="desk", policy={"plan": {"snapshot": True}, "snapshots": {"keep": 3}})
        self.run_in("echo 0 >x")
        self.post("/v1/workspaces/desk/snapshots", {"name": "mine"}, 201)
        self.apply("1")
        self.assertEqual(["asked"], self.whys())  # it holds what there was already
        for n in range(2, 7):
            self.apply(f"{n}")
        self.assertEqual(["asked", "apply", "apply", "apply"], self.whys())
        plan = self.post(f"/v1/workspaces/desk/snapshots/{self.snapshots()[-1]['id']}/restore", {}, 201)
        self.post(f"/v1/workspaces/desk/plans/{plan['id']}/apply", {}, 200)
        self.assertEqual(b"5", self.daemon.get("/v1/workspaces/desk/files/x").bytes)

    def test_one_that_a_fork_stands_on_stays(self):
        self.workspace(id="desk", policy={"plan": {"snapshot": True}, "snapshots": {"keep": 1}})
        self.apply("1")
        self.apply("2")
        first = self.snapshots()[0]["id"]
        self.post("/v1/workspaces", {"id": "try", "fork": {"workspace": "desk", "snapshot": first}}, 201)
        self.apply("3")
        self.apply("4")
        self.assertEqual(2, len(self.snapshots()))
        self.assertEqual(first, self.snapshots()[0]["id"])
        self.assertEqual(0, self.daemon.execute("try", "test -e /")["exit_code"])

    def test_where_it_fails_the_plan_is_not_applied(self):
        self.workspace(id="desk", policy={"plan": {"snapshot": True}})
        self.run_in("echo 0 >x")
        self.post("/v1/workspaces/desk/snapshots", {}, 201)
        self.run_in("echo 0 >x")
        kept = f"{self.daemon.state}/main/.carrel/workspaces/desk/snapshots"
        plan = self.post("/v1/workspaces/desk/plans", [{"op": "write", "path": "x", "content": "1"}], 201)
        os.chmod(kept, 0o500)
        answer = self.daemon.post(f"/v1/workspaces/desk/plans/{plan['id']}/apply", {})
        os.chmod(kept, 0o700)
        self.assertEqual(409, answer.status, answer.bytes)
        self.assertIn("snapshot", answer.json["error"]["message"])
        self.assertEqual("closed", self.daemon.get(f"/v1/workspaces/desk/plans/{plan['id']}").json["state"])
        self.assertEqual(b"0\n", self.daemon.get("/v1/workspaces/desk/files/x").bytes)

    def wait_for(self, is_there):
        deadline = time.monotonic() + PATIENCE
        while not is_there():
            self.assertLess(time.monotonic(), deadline, self.snapshots())
            time.sleep(0.1)

    def test_now_and_then_while_it_changes(self):
        self.workspace(id="desk", policy={"snapshots": {"every": "1s", "keep": 2}})
        seen = set()
        for n in range(3):
            self.run_in(f"echo {n} >x")
            self.wait_for(lambda: {one["id"] for one in self.snapshots()} - seen)
            seen |= {one["id"] for one in self.snapshots()}
        self.wait_for(lambda: self.whys() == ["every", "every"])
        self.run_in("cat x")  # changes nothing
        told = len(self.daemon.audit())
        self.wait_for(lambda: any(record.get("operation") == "snapshot.delete" for record in self.daemon.audit()[told:]))
        self.assertEqual(["every", "every"], self.whys())

    def test_bad_input(self):
        for policy in ({"snapshots": True}, {"snapshots": {"every": 5}}, {"snapshots": {"keep": 0}}, {"snapshots": {"keep": 101}},
                       {"snapshots": {"more": 1}}, {"plan": {"snapshot": 1}}):
            self.assertEqual(400, self.daemon.post("/v1/workspaces", {"id": "bad", "policy": policy}).status, policy)


if __name__ == "__main__":
    unittest.main(verbosity=2)
