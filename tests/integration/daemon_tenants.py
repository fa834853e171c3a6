#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Two tenants: every endpoint with every foreign id is the same 404 as one that does not exist (attacks 74 and 75)."""
import json
import os
import re
import socket
import time
import unittest

from carreltest import PATIENCE
from daemontest import DaemonTest
from mcptest import Mcp

# Every route that names an id, and a body that would do something.
ROUTES = [
    ("GET", "/v1/workspaces/{ws}", None),
    ("PATCH", "/v1/workspaces/{ws}", {"labels": {"a": "b"}}),
    ("DELETE", "/v1/workspaces/{ws}", None),
    ("DELETE", "/v1/workspaces/{ws}?purge=1", None),
    ("POST", "/v1/workspaces/{ws}/undelete", {}),
    ("POST", "/v1/workspaces/{ws}/sleep", {}), ("POST", "/v1/workspaces/{ws}/reset-system", {}), ("POST", "/v1/workspaces/{ws}/sync", {}),
    ("GET", "/v1/workspaces/{ws}/backup", None),
    ("POST", "/v1/workspaces/{ws}/restore", {}),
    ("POST", "/v1/workspaces/{ws}/snapshots", {}),
    ("GET", "/v1/workspaces/{ws}/usage", None),
    ("GET", "/v1/workspaces/{ws}/snapshots", None),
    ("GET", "/v1/workspaces/{ws}/snapshots/first", None),
    ("DELETE", "/v1/workspaces/{ws}/snapshots/first", None),
    ("POST", "/v1/workspaces/{ws}/snapshots/first/restore", {}),
    ("POST", "/v1/workspaces/{ws}/merge", {"fork": "try"}),
    ("POST", "/v1/workspaces/{ws}/compare", {"from": "now"}),
    ("POST", "/v1/workspaces/{ws}/exec", {"command": "id"}),
    ("GET", "/v1/workspaces/{ws}/exec", None),
    ("GET", "/v1/workspaces/{ws}/exec/{exec}", None),
    ("GET", "/v1/workspaces/{ws}/exec/{exec}/output", None),
    ("POST", "/v1/workspaces/{ws}/exec/{exec}/stdin", {}),
    ("POST", "/v1/workspaces/{ws}/exec/{exec}/signal", {"signal": "KILL"}),
    ("POST", "/v1/workspaces/{ws}/exec/{exec}/resize", {"cols": 80, "rows": 24}),
    ("POST", "/v1/workspaces/{ws}/exec/{exec}/kill", {}),
    ("GET", "/v1/workspaces/{ws}/exec/{exec}/attach", None),
    ("POST", "/v1/workspaces/{ws}/code", {"code": "1"}),
    ("GET", "/v1/workspaces/{ws}/code/contexts", None),
    ("POST", "/v1/workspaces/{ws}/code/contexts", {}),
    ("POST", "/v1/workspaces/{ws}/code/contexts/c" + "a" * 26 + "/restart", {}),
    ("DELETE", "/v1/workspaces/{ws}/code/contexts/c" + "a" * 26, None),
    ("GET", "/v1/workspaces/{ws}/files/secret", None),
    ("GET", "/v1/workspaces/{ws}/files/?list=1", None),
    ("PUT", "/v1/workspaces/{ws}/files/secret", b"changed"),
    ("DELETE", "/v1/workspaces/{ws}/files/secret", None),
    ("POST", "/v1/workspaces/{ws}/files-edit", {"path": "/secret", "old": "kept", "new": "changed"}),
    ("POST", "/v1/workspaces/{ws}/files-move", {"from": "/secret", "to": "/moved"}),
    ("POST", "/v1/workspaces/{ws}/files-copy", {"from": "/etc/hostname", "to": "/secret"}),
    ("POST", "/v1/workspaces/{ws}/files-mkdir", {"path": "/made"}),
    ("POST", "/v1/workspaces/{ws}/files-chmod", {"path": "/secret", "mode": "0777"}),
    ("POST", "/v1/workspaces/{ws}/files-symlink", {"path": "/secret", "target": "x", "replace": True}),
    ("POST", "/v1/workspaces/{ws}/files-glob", {"pattern": "*"}),
    ("POST", "/v1/workspaces/{ws}/files-grep", {"pattern": "kept"}),
    ("GET", "/v1/workspaces/{ws}/files-watch", None),
    ("POST", "/v1/workspaces/{ws}/files-inventory", {}),
    ("POST", "/v1/workspaces/{ws}/files-read", {"paths": ["/secret"]}),
    ("POST", "/v1/workspaces/{ws}/files-write", {"files": [{"path": "/secret", "content": "changed"}]}),
    ("POST", "/v1/workspaces/{ws}/files-upload", b'--x\r\nContent-Disposition: form-data; name="f"; filename="secret"\r\n\r\nchanged\r\n--x--'),
    ("POST", "/v1/workspaces/{ws}/files-unpack", b"\0" * 1024),
    ("POST", "/v1/workspaces/{ws}/files-repair", {"path": "/"}),
    ("GET", "/v1/workspaces/{ws}/env", None),
    ("POST", "/v1/workspaces/{ws}/env/python", {}),
    ("POST", "/v1/workspaces/{ws}/env/node", {}),
    ("GET", "/v1/workspaces/{ws}/ports", None),
    ("GET", "/v1/workspaces/{ws}/net", None),
    ("GET", "/v1/workspaces/{ws}/net/try?url=https://example.org/", None),
    ("POST", "/v1/workspaces/{ws}/ports/8000", {}),
    ("DELETE", "/v1/workspaces/{ws}/ports/8000", None),
    ("POST", "/v1/workspaces/{ws}/plans", {"deletions": ["secret"]}),
    ("GET", "/v1/workspaces/{ws}/plans", None),
    ("GET", "/v1/workspaces/{ws}/plans/{plan}", None),
    ("GET", "/v1/workspaces/{ws}/plans/{plan}?operations=1", None),
    ("GET", "/v1/workspaces/{ws}/plans/{plan}/diff", None),
    ("DELETE", "/v1/workspaces/{ws}/plans/{plan}", None),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/close", {}),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/verify", {}),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/approve", {"hash": "0" * 64}),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/reject", {}),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/apply", {}),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/undo", {}),
    ("POST", "/v1/workspaces/{ws}/plans/{plan}/cancel", {}),
    ("POST", "/v1/workspaces/{ws}/exec", {"command": "id", "mode": "plan"}),
    ("GET", "/v1/sandbox/{ws}/running", None),
    ("POST", "/v1/sandbox/{ws}/exec", {"argv": ["rm", "/secret"]}),
    ("GET", "/v1/sandbox/{ws}/file/workspace/secret", None),
    ("GET", "/v1/sandbox/{ws}/file/secret", None),
    ("PUT", "/v1/sandbox/{ws}/file/workspace/secret", b"changed"),
    ("POST", "/v1/sandbox/{ws}/persist", b""),
    ("POST", "/v1/sandbox/{ws}/hydrate", b"\0" * 1024),
    ("POST", "/v1/sandbox/{ws}/mount", {"bucket": "b", "mountPath": "/workspace/b"}),
    ("POST", "/v1/sandbox/{ws}/unmount", {"mountPath": "/workspace/b"}),
    ("GET", "/v1/sandbox/{ws}/pty", None),
    ("DELETE", "/v1/sandbox/{ws}", None),
]
# And the tools of /mcp that take one.
TOOLS = {
    "execute": {"command": "rm /secret"}, "read_file": {"path": "/secret"}, "write_file": {"path": "/secret", "content": "changed"},
    "edit_file": {"path": "/secret", "old_string": "kept", "new_string": "changed"}, "ls": {"path": "/"}, "glob": {"pattern": "*"},
    "grep": {"pattern": "kept"}, "delete": {"path": "/secret"}, "move": {"source": "/secret", "destination": "/moved"},
    "start_process": {"command": "rm /secret"}, "read_process": {"process_id": "{exec}"}, "kill_process": {"process_id": "{exec}"},
    "write_process": {"process_id": "{exec}", "input": "x"}, "list_processes": {}, "plan_run": {"command": "id"}, "plan_list": {},
    "plan_show": {"plan": "{plan}"}, "plan_diff": {"plan": "{plan}"}, "plan_close": {"plan": "{plan}"}, "plan_verify": {"plan": "{plan}"},
    "plan_apply": {"plan": "{plan}"}, "plan_undo": {"plan": "{plan}"}, "plan_discard": {"plan": "{plan}"},
}


class Tenants(DaemonTest):
    def setUp(self):
        super().setUp()
        self.alice, self.bob = self.daemon.key("alice"), self.daemon.key("bob")
        self.theirs = self.daemon.post("/v1/workspaces", {"id": "alices"}, key=self.alice).json["id"]
        self.exec = self.daemon.post(f"/v1/workspaces/{self.theirs}/exec",
                                     {"command": "sleep 1000", "background": True}, key=self.alice).json["exec_id"]
        self.plan = self.daemon.post(f"/v1/workspaces/{self.theirs}/plans",
                                     [{"op": "create", "path": "planned", "content": "x"}], key=self.alice).json["id"]
        self.mine = self.daemon.post("/v1/workspaces", {"id": "bobs"}, key=self.bob).json["id"]

    def blank(self, answer, *ids):
        """The answer without the ids that were asked for and the request's own."""
        text = answer.bytes.decode()
        for one in ids:
            text = text.replace(one, "ID")
        return answer.status, text

    def names(self):
        listed = self.daemon.get(f"/v1/workspaces/{self.theirs}/files/?list=1", key=self.alice).json["entries"]
        return [(entry["path"], entry["mode"]) for entry in listed]

    def test_every_route_with_a_foreign_id_is_that_of_one_that_does_not_exist(self):
        made = self.daemon.request("PUT", f"/v1/workspaces/{self.theirs}/files/secret", b"kept", key=self.alice)
        self.assertEqual(201, made.status, made.bytes)
        before = self.names()
        for method, path, body in ROUTES:
            with self.subTest(route=f"{method} {path}"):
                foreign = self.daemon.request(method, path.format(ws=self.theirs, exec=self.exec, plan=self.plan), body,
                                              key=self.bob)
                absent = self.daemon.request(method, path.format(ws="nobodys", exec="x" + "a" * 26, plan="p" + "a" * 26), body,
                                             key=self.bob)
                self.assertEqual(404, foreign.status, foreign.bytes)
                self.assertEqual(self.blank(absent, "nobodys", "x" + "a" * 26, "p" + "a" * 26),
                                 self.blank(foreign, self.theirs, self.exec, self.plan))
                # ... and a command or plan of theirs in a workspace of mine.
                if "{exec}" in path or "{plan}" in path:
                    mixed = self.daemon.request(method, path.format(ws=self.mine, exec=self.exec, plan=self.plan), body,
                                                key=self.bob)
                    self.assertEqual(404, mixed.status, mixed.bytes)
        state = self.daemon.get(f"/v1/workspaces/{self.theirs}/exec/{self.exec}", key=self.alice).json["state"]
        self.assertEqual("running", state, "something of it reached the command")
        plan = self.daemon.get(f"/v1/workspaces/{self.theirs}/plans/{self.plan}", key=self.alice).json["state"]
        self.assertEqual("closed", plan, "something of it reached the plan")
        self.assertEqual([], self.daemon.get("/v1/plans", key=self.bob).json["plans"])
        secret = self.daemon.get(f"/v1/workspaces/{self.theirs}/files/secret", key=self.alice)
        self.assertEqual((200, b"kept"), (secret.status, secret.bytes), "something of it reached the file")
        self.assertEqual(before, self.names(), "something of it reached the tree")

    def test_every_route_that_names_an_id_is_in_the_list(self):
        tried = {(method, path.partition("?")[0]) for method, path, _ in ROUTES}
        for path, methods in self.daemon.get("/openapi.json").json["paths"].items():
            like = re.compile(re.sub(r"\\{(port|path|name|context)\\}", ".+", re.escape(path)))
            for method in set(methods) & {"get", "put", "post", "patch", "delete"} if "{ws}" in path else ():
                self.assertTrue(any(m == method.upper() and like.fullmatch(p) for m, p in tried), f"{method} {path}")

    def test_every_tool_with_a_foreign_id_is_that_of_one_that_does_not_exist(self):
        self.daemon.request("PUT", f"/v1/workspaces/{self.theirs}/files/secret", b"kept", key=self.alice)
        before = self.names()
        mcp = Mcp(self.daemon, key=self.bob)
        listed = {tool["name"] for tool in mcp.ask("tools/list").result["tools"]}
        self.assertEqual(listed, set(TOOLS) | {"workspace_list", "workspace_create"})

        def refused(tool, ws, one, plan):
            given = {name: value.format(exec=one, plan=plan) for name, value in TOOLS[tool].items()}
            said = mcp.fail(tool, workspace=ws, **given)
            return said.replace(ws, "ID").replace(one, "ID").replace(plan, "ID")
        for tool in TOOLS:
            with self.subTest(tool=tool):
                self.assertEqual(refused(tool, "nobodys", "x" + "a" * 26, "p" + "a" * 26), refused(tool, self.theirs, self.exec, self.plan))
        state = self.daemon.get(f"/v1/workspaces/{self.theirs}/exec/{self.exec}", key=self.alice).json["state"]
        self.assertEqual("running", state, "something of it reached the command")
        plan = self.daemon.get(f"/v1/workspaces/{self.theirs}/plans/{self.plan}", key=self.alice).json["state"]
        self.assertEqual("closed", plan, "something of it reached the plan")
        self.assertEqual(before, self.names(), "something of it reached the tree")

    def test_lists_events_and_the_record_show_only_ones_own(self):
        self.assertEqual(["bobs"], [w["id"] for w in self.daemon.get("/v1/workspaces", key=self.bob).json["workspaces"]])
        asked = self.daemon.get("/v1/workspaces?owner=alice", key=self.bob).json["workspaces"]
        self.assertEqual(["bobs"], [w["id"] for w in asked])
        records = self.daemon.get("/v1/audit?limit=1000", key=self.bob).json["records"]
        self.assertNotIn("alices", json.dumps(records))
        self.assertIn("bobs", json.dumps(records))
        keys = self.daemon.get("/v1/keys", key=self.bob).json["keys"]
        self.assertEqual(["bob"], [k["owner"] for k in keys])
        alices = [k["id"] for k in self.daemon.get("/v1/keys").json["keys"] if k["owner"] == "alice"][0]
        self.assertEqual(404, self.daemon.request("DELETE", f"/v1/keys/{alices}", key=self.bob).status)
        self.assertEqual(200, self.daemon.get("/v1/workspaces", key=self.alice).status)

    def test_what_is_the_administrators_is_refused(self):
        for method, path, body in [("POST", "/v1/keys", {"owner": "bob", "scopes": ["admin"]}), ("GET", "/metrics", None),
                                   ("POST", "/v1/templates", {"name": "mine", "workspace": self.theirs}),
                                   ("DELETE", "/v1/templates/office", None),
                                   ("GET", "/v1/host", None)]:
            self.assertEqual(403, self.daemon.request(method, path, body, key=self.bob).status, path)
        self.assertEqual(403, self.daemon.post("/v1/workspaces", {"owner": "alice"}, key=self.bob).status)
        linked = self.daemon.post("/v1/workspaces", {"links": {"ticket": self.theirs}}, key=self.bob)
        self.assertEqual(404, linked.status, linked.bytes)
        skills = self.daemon.post("/v1/workspaces", {"links": {"skills_user": "alice"}}, key=self.bob)
        self.assertEqual(400, skills.status, skills.bytes)

    def test_keys_are_needed_hashed_and_revocable(self):
        with open(f"{self.daemon.state}/admin.key", encoding="ascii") as file:
            admin = file.read().strip()
        mode = os.stat(f"{self.daemon.state}/admin.key").st_mode & 0o777
        self.assertEqual(0o600, mode)
        self.assertEqual(200, self.daemon.get("/v1/host", key=admin).status)
        for wrong in ("ck_" + "a" * 52, "", "x", admin + "x", admin[:-1]):
            answer = self.daemon.get("/v1/workspaces", headers={"Authorization": f"Bearer {wrong}"})
            self.assertEqual((401, "unauthorized"), (answer.status, answer.code))
        with open(f"{self.daemon.state}/db/carrel.db", "rb") as file:
            kept = file.read()
        wal = f"{self.daemon.state}/db/carrel.db-wal"
        if os.path.exists(wal):
            with open(wal, "rb") as file:
                kept += file.read()
        self.assertNotIn(self.bob.encode(), kept, "a key is stored as it is")
        mine = self.daemon.get("/v1/keys", key=self.bob).json["keys"][0]["id"]
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{mine}", key=self.bob).status)
        self.assertEqual(401, self.daemon.get("/v1/workspaces", key=self.bob).status)

    def test_a_link_does_not_lead_to_who_has_the_id_later(self):
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "ticket"}, key=self.bob).status)
        links = {"ticket": "ticket", "ticket_mode": "rw"}
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/bobs", {"links": links}, key=self.bob).status)
        self.assertEqual(0, self.daemon.execute("bobs", "touch .ticket/mine", key=self.bob)["exit_code"])
        self.daemon.post("/v1/workspaces/bobs/sleep", key=self.bob)
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/ticket?purge=1", key=self.bob).status)
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "ticket"}, key=self.alice).status)
        answer = self.daemon.post("/v1/workspaces/bobs/exec", {"command": "ls .ticket"}, key=self.bob)
        self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
        records = self.daemon.get("/v1/audit?workspace=ticket&limit=1000", key=self.alice).json["records"]
        self.assertEqual(["workspace.create"], [r["operation"] for r in records], "records of the one before")

    def test_a_key_that_is_revoked_while_its_request_is_on_its_way_does_nothing(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.daemon.socket)
            body = b'{"id":"late"}'
            s.sendall(b"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + self.bob.encode() +
                      b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:5])
            time.sleep(0.2)
            mine = self.daemon.get("/v1/keys", key=self.bob).json["keys"][0]["id"]
            self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{mine}").status)
            s.sendall(body[5:])
            self.assertIn(b" 401 ", s.recv(4096).split(b"\r\n")[0])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/late").status)

    def test_ids_that_cannot_be(self):
        for odd in ("..", ".", "%2e%2e", "a%2fb", "a%00b", "%00", "a%zz", "%", "a" * 65, "-a", "a b".replace(" ", "%20"),
                    "%c3%a9", "..%2f..%2fetc", "A" * 5000):
            answer = self.daemon.get(f"/v1/workspaces/{odd}")
            self.assertIn(answer.status, (404, 400, 414), f"{odd}: {answer.bytes!r}")
        for odd in ("..", "a/b", "", "a\0b", "é", "a" * 65, "-x", ".hidden"):
            self.assertEqual(400, self.daemon.post("/v1/workspaces", {"id": odd}).status, odd)

    def test_a_guess_takes_as_long_as_a_miss(self):
        """Not a benchmark: a difference an attacker can see is a factor, not a per cent."""
        def median(path):
            times = []
            with_one = self.daemon.connect()
            for _ in range(300):
                began = time.perf_counter()
                self.daemon.get(path, key=self.bob, connection=with_one)
                times.append(time.perf_counter() - began)
            with_one.close()
            return sorted(times)[150]
        pairs = [(median(f"/v1/workspaces/{self.theirs}"), median("/v1/workspaces/nobody")) for _ in range(5)]
        ratio = sorted(a / b for a, b in pairs)[2]
        self.assertTrue(0.67 < ratio < 1.5, f"{ratio:.2f}, {pairs}")
        self.assertLess(max(max(p) for p in pairs), PATIENCE)


if __name__ == "__main__":
    unittest.main(verbosity=0)
