# SPDX-License-Identifier: Apache-2.0
"""What the tests of planned writes share: a workspace with an owner's, an approver's and an agent's key, and its tree."""
import os
import time

from carreltest import PATIENCE
from daemonplantest import PlanTest


class WritesPlanTest(PlanTest):
    """A workspace of alice's with some files, her keys: one of a person, one who approves, one of an agent."""

    def setUp(self):
        super().setUp()
        self.owner = self.key("owner")
        self.approver = self.key("approve", by=self.owner)

    def tearDown(self):
        if self.ws:  # rootless a layer that is not closed has a directory that not even its owner may enter
            for plan in self.daemon.get(f"/v1/workspaces/{self.ws}/plans?state=open").json["plans"]:
                self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{plan['id']}")
            self.until_settled()
        super().tearDown()

    def until_settled(self):
        deadline = time.monotonic() + PATIENCE
        known = {p["id"] for p in self.daemon.get(f"/v1/workspaces/{self.ws}/plans").json["plans"] if p["state"] != "discarded"}
        while set(self.plan_dirs()) - known and time.monotonic() < deadline:
            time.sleep(0.02)

    def key(self, *scopes, by=None, **more):
        answer = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": list(scopes), **more}, key=by)
        self.assertEqual(201, answer.status, answer.bytes)
        return answer.json["key"]

    def agent_key(self, pattern="desk*", **more):
        return self.key("agent", by=self.owner, workspaces=[pattern], **more)

    def desk(self, policy=None, name="desk", **more):
        answer = self.daemon.post("/v1/workspaces", {"id": name, "owner": "alice", "policy": policy or {}, **more})
        self.assertEqual(201, answer.status, answer.bytes)
        self.ws = name
        self.agent = self.agent_key()
        self.put("notes.txt", b"one\n", key=self.owner)
        self.put("dir/deep.txt", b"two\n", key=self.owner)
        self.daemon.execute(self.ws, "ln -s notes.txt link; mkdir -p empty; chmod 750 dir", key=self.owner)
        return name

    def planned(self, plan=None, **more):
        self.desk({"writes": "plan", **({"plan": plan} if plan else {})}, **more)
        self.before = self.facts()

    def facts(self):
        """All of the tree that can be seen from outside, but when something was read; and of the directory in which file
        servers keep what is not whole yet, not what the next one removes that a killed one has left, nor when."""
        found = {}
        root = self.root()
        for at, directories, files in os.walk(root):
            for path in [at] + [os.path.join(at, name) for name in directories + files]:
                stat = os.lstat(path)
                content = b""
                if os.path.islink(path):
                    content = os.readlink(path).encode()
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        content = file.read()
                marks = {name: os.getxattr(path, name, follow_symlinks=False)
                         for name in os.listxattr(path, follow_symlinks=False)}
                name = os.path.relpath(path, root)
                times = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_nlink) if name != ".cache" else ()
                if not name.startswith(".cache/.carrel-"):
                    found[name] = (stat.st_mode, stat.st_ino, stat.st_uid, stat.st_gid, times, content, marks)
        return found

    def unchanged(self, what=""):
        now = self.facts()
        for path in sorted(set(self.before) | set(now)):
            self.assertEqual(self.before.get(path), now.get(path), (what, path))

    def run_agent(self, command, expect=200, **more):
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": command, **more}, key=self.agent)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def call(self, method, path, body=None, key=None, expect=None, **more):
        answer = self.daemon.request(method, f"/v1/workspaces/{self.ws}{path}", body, key=key or self.agent, **more)
        if expect is not None:
            self.assertEqual(expect, answer.status, (method, path, answer.bytes))
        return answer

    def open_plans(self, key=None):
        return self.call("GET", "/plans?state=open", key=key or self.owner, expect=200).json["plans"]

    def open_plan(self):
        plans = self.open_plans()
        self.assertEqual(1, len(plans), plans)
        return plans[0]["id"]

    def close(self, plan=None):
        return self.call("POST", f"/plans/{plan or self.open_plan()}/close", {}, expect=200).json
