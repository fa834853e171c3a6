# SPDX-License-Identifier: Apache-2.0
"""What the tests of the daemon's plans share: a workspace, its tree, and asking for plans of it."""
import os
import time

from carreltest import PATIENCE
from daemontest import DaemonTest


class PlanTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.ws = None

    def make(self, policy=None, key=None, **body):
        if policy:
            body["policy"] = {"plan": policy}
        answer = self.daemon.post("/v1/workspaces", body, key=key)
        self.assertEqual(201, answer.status, answer.bytes)
        self.ws = answer.json["id"]
        return self.ws

    def put(self, path, content, key=None):
        answer = self.daemon.request("PUT", f"/v1/workspaces/{self.ws}/files/{path}", content, key=key)
        self.assertIn(answer.status, (200, 201, 204), answer.bytes)

    def read(self, path):
        answer = self.daemon.get(f"/v1/workspaces/{self.ws}/files/{path}")
        return answer.bytes if answer.status == 200 else None

    def tree(self):
        """What the tree holds: path -> type, mode, content."""
        found = {}
        for at, directories, files in os.walk(self.root()):
            for name in directories + files:
                path = os.path.join(at, name)
                stat = os.lstat(path)
                kind = stat.st_mode & 0o170777
                content = b""
                if os.path.islink(path):
                    content = os.readlink(path).encode()
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        content = file.read()
                found[os.path.relpath(path, self.root())] = (kind, content)
        return found

    def root(self):
        return self.daemon.get(f"/v1/workspaces/{self.ws}").json["path"]

    def sleep(self):
        self.daemon.post(f"/v1/workspaces/{self.ws}/sleep")

    def plan_run(self, command, key=None, expect=200, **more):
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": command, "mode": "plan", **more}, key=key)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def submit(self, plan, key=None, expect=201):
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans", plan, key=key)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def ask(self, plan, what, body=None, key=None, expect=200):
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{plan}/{what}", body or {}, key=key)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def plan(self, plan, query="", key=None):
        answer = self.daemon.get(f"/v1/workspaces/{self.ws}/plans/{plan}{query}", key=key)
        self.assertEqual(200, answer.status, answer.bytes)
        return answer.json

    def wait_state(self, plan, *states):
        deadline = time.monotonic() + PATIENCE
        while True:
            now = self.plan(plan)
            if now["state"] in states:
                return now
            self.assertLess(time.monotonic(), deadline, now)
            time.sleep(0.05)

    def operations(self, *names):
        return [r for r in self.daemon.audit() if r["operation"] in names]

    def plan_dirs(self):
        found = []
        for at, directories, _ in os.walk(f"{self.daemon.state}/{self.bucket()}/.carrel/workspaces"):
            if at.endswith("/plans"):
                found += directories
                directories.clear()
        return sorted(found)

    def plans_are_left(self, count):
        """So many directories of plans, when what goes by itself has gone."""
        deadline = time.monotonic() + PATIENCE
        while len(self.plan_dirs()) > count and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(count, len(self.plan_dirs()))

    def bucket(self):
        return self.daemon.get(f"/v1/workspaces/{self.ws}").json["bucket"]
