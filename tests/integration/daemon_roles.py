#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# TAKES: 15
"""Keys are roles: which scope may use which route, which workspaces a key sees, who makes and revokes keys, who decides
about plans. Nothing that an agent's key can ask for moves its own boundary."""
import json
import os
import subprocess
import unittest

from carreltest import CARREL, PATIENCE
from daemon_tenants import ROUTES
from daemontest import DaemonTest

ADMIN, OWNERS = {"admin"}, {"admin", "owner", "user"}
MAKERS = {"admin", "owner"}
WORKERS = OWNERS | {"agent"}
READERS = WORKERS | {"read"}
VIEWERS = READERS | {"approve"}
ANYBODY = None

FILES = "/v1/workspaces/{ws}/files"
PLAN = "/v1/workspaces/{ws}/plans/{plan}"
EXEC = "/v1/workspaces/{ws}/exec/{exec}"
# Every route of the daemon, and which scopes open it. A route that is not here fails the test: decide about it.
DECIDED = {
    "GET /healthz": ANYBODY, "GET /readyz": ANYBODY, "GET /openapi.json": ANYBODY,
    "GET /v1/version": ANYBODY,
    "GET /metrics": ADMIN, "GET /v1/host": ADMIN, "POST /v1/adopt": ADMIN, "POST /v1/templates": ADMIN,
    "DELETE /v1/templates/{name}": ADMIN, "GET /v1/audit/raw": ADMIN, "GET /v1/audit/heads": ADMIN, "GET /v1/audit/keys": ADMIN,
    "POST /v1/stores": ADMIN, "GET /v1/stores": ADMIN, "DELETE /v1/stores/{name}": ADMIN, "POST /v1/stores/{name}/check": ADMIN,
    "GET /v1/secrets": OWNERS, "PUT /v1/secrets/{name}": OWNERS, "DELETE /v1/secrets/{name}": OWNERS,
    "POST /v1/keys": MAKERS, "GET /v1/keys": OWNERS, "DELETE /v1/keys/{key}": OWNERS,
    "POST /v1/workspaces": WORKERS, "GET /v1/workspaces": READERS, "GET /v1/workspaces/{ws}": READERS,
    "PATCH /v1/workspaces/{ws}": OWNERS, "DELETE /v1/workspaces/{ws}": OWNERS, "POST /v1/workspaces/{ws}/undelete": OWNERS,
    "GET /v1/workspaces/{ws}/backup": OWNERS, "POST /v1/workspaces/{ws}/restore": OWNERS, "POST /v1/workspaces/{ws}/sleep": WORKERS, "POST /v1/workspaces/{ws}/reset-system": OWNERS, "POST /v1/workspaces/{ws}/sync": WORKERS,
    "GET /v1/templates": READERS, "GET /v1/templates/{name}": READERS,
    "POST /v1/workspaces/{ws}/exec": WORKERS, "GET /v1/workspaces/{ws}/exec": READERS, f"GET {EXEC}": READERS,
    f"GET {EXEC}/output": READERS, f"POST {EXEC}/stdin": WORKERS, f"POST {EXEC}/signal": WORKERS, f"POST {EXEC}/resize": WORKERS,
    f"POST {EXEC}/kill": WORKERS, f"GET {EXEC}/attach": WORKERS,
    f"GET {FILES}/{{path}}": READERS, f"PUT {FILES}/{{path}}": WORKERS, f"DELETE {FILES}/{{path}}": WORKERS,
    **{f"POST {FILES}-{what}": WORKERS for what in "edit move copy mkdir chmod symlink write repair upload unpack".split()},
    **{f"POST {FILES}-{what}": READERS for what in "glob grep inventory read".split()}, f"GET {FILES}-watch": READERS,
    "GET /v1/workspaces/{ws}/env": READERS, "POST /v1/workspaces/{ws}/env/python": WORKERS, "POST /v1/workspaces/{ws}/env/node": WORKERS,
    "POST /v1/workspaces/{ws}/code": WORKERS, "GET /v1/workspaces/{ws}/code/contexts": READERS, "POST /v1/workspaces/{ws}/code/contexts": WORKERS,
    "POST /v1/workspaces/{ws}/code/contexts/{context}/restart": WORKERS, "DELETE /v1/workspaces/{ws}/code/contexts/{context}": WORKERS,
    "GET /v1/workspaces/{ws}/net": READERS, "GET /v1/workspaces/{ws}/net/try": READERS,
    "GET /v1/workspaces/{ws}/ports": READERS, "POST /v1/workspaces/{ws}/ports/{port}": WORKERS,
    "DELETE /v1/workspaces/{ws}/ports/{port}": WORKERS,
    "GET /v1/plans": VIEWERS, "GET /v1/workspaces/{ws}/plans": VIEWERS, f"GET {PLAN}": VIEWERS, f"GET {PLAN}/diff": VIEWERS,
    # Refused by the handler, on the record, to agents and to who only reads: below.
    f"POST {PLAN}/approve": VIEWERS, f"POST {PLAN}/reject": VIEWERS,
    "POST /v1/workspaces/{ws}/plans": WORKERS, f"DELETE {PLAN}": WORKERS,
    **{f"POST {PLAN}/{what}": WORKERS for what in "close verify apply undo cancel".split()},
    "POST /v1/workspaces/{ws}/snapshots": WORKERS, "GET /v1/workspaces/{ws}/snapshots": READERS, "GET /v1/workspaces/{ws}/usage": READERS,
    "GET /v1/workspaces/{ws}/snapshots/{name}": READERS, "DELETE /v1/workspaces/{ws}/snapshots/{name}": OWNERS,
    "POST /v1/workspaces/{ws}/snapshots/{name}/restore": WORKERS, "POST /v1/workspaces/{ws}/merge": WORKERS,
    "POST /v1/workspaces/{ws}/compare": WORKERS,
    "GET /v1/audit": READERS, "GET /v1/events": READERS,
    "POST /v1/sandbox": WORKERS, "DELETE /v1/sandbox/{ws}": OWNERS, "GET /v1/sandbox/{ws}/running": READERS,
    "POST /v1/sandbox/{ws}/exec": WORKERS, "GET /v1/sandbox/{ws}/pty": WORKERS, "GET /v1/sandbox/{ws}/file/{path}": READERS,
    "PUT /v1/sandbox/{ws}/file/{path}": WORKERS, "POST /v1/sandbox/{ws}/persist": READERS, "POST /v1/sandbox/{ws}/hydrate": WORKERS,
    "POST /v1/sandbox/{ws}/mount": WORKERS, "POST /v1/sandbox/{ws}/unmount": WORKERS,
    # Each tool asks another of these, with the same key.
    "POST /mcp": VIEWERS, "DELETE /mcp": VIEWERS,
}
SCOPES = ("admin", "owner", "user", "agent", "approve", "read")
ABSENT = {"ws": "thread-none", "context": "c" + "a" * 26, "exec": "x" + "a" * 26, "plan": "p" + "a" * 26, "key": "k" + "a" * 26, "name": "none", "port": "8000",
          "path": "a"}


class RolesTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.owner = self.daemon.key("alice", ("owner",))

    def make_key(self, key, *scopes, expect=201, **more):
        answer = self.daemon.post("/v1/keys", {"scopes": list(scopes), **more}, key=key)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json["key"] if expect == 201 else answer.json["error"]["message"]

    def make(self, name, key=None, expect=201, **more):
        answer = self.daemon.post("/v1/workspaces", {"id": name, **more}, key=key or self.owner)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def ids(self, key, path="/v1/workspaces"):
        return [w["id"] for w in self.daemon.get(path, key=key).json["workspaces"]]


class Routes(RolesTest):
    def key_of(self, scope):
        return self.daemon.key("alice", (scope,), **({"workspaces": ["thread-*"]} if scope == "agent" else {}))

    def status(self, method, path, key):
        """Of the head: some of the answers do not end."""
        response = self.daemon.stream(method, path, {"nope": 1} if method in ("POST", "PUT", "PATCH") else None, key=key)
        text = b"" if response.status == 200 else response.read()
        response.close()
        response.keep.close()
        return response.status, text

    def test_every_route_with_every_scope(self):
        paths = self.daemon.get("/openapi.json").json["paths"]
        routes = {f"{method.upper()} {path}" for path, item in paths.items() for method in item if method != "parameters"}
        self.assertEqual(set(), routes ^ set(DECIDED), "decide who may use it: DECIDED above")
        keys = {scope: self.key_of(scope) for scope in SCOPES}
        for route, may in DECIDED.items():
            method, path = route.split()
            for scope in SCOPES:
                with self.subTest(route=route, scope=scope):
                    status, text = self.status(method, path.format(**ABSENT), keys[scope])
                    if may is ANYBODY or scope in may:
                        self.assertIn(status, (200, 400, 404, 405), text)
                    else:
                        self.assertEqual(403, status, text)
                        error = json.loads(text)["error"]
                        message = error if isinstance(error, str) else error["message"]  # of /v1/sandbox
                        lacks = may & {"owner", "agent", "approve", "read"} or {"admin"}
                        self.assertEqual(lacks, {s for s in SCOPES if f"'{s}'" in message}, message)
                        self.assertIn("this key lacks the scope ", message)

    def test_who_reads_changes_nothing(self):
        self.make("desk", policy={"plan": {"approval": "required"}})
        self.daemon.request("PUT", "/v1/workspaces/desk/files/secret", b"kept", key=self.owner)
        plan = self.daemon.post("/v1/workspaces/desk/plans", [{"op": "create", "path": "a", "content": "x"}], key=self.owner).json["id"]
        running = self.daemon.post("/v1/workspaces/desk/exec", {"command": "sleep 1000", "background": True}, key=self.owner).json["exec_id"]
        reader = self.make_key(self.owner, "read")

        def state():
            entries = self.daemon.get("/v1/workspaces/desk/files/?list=1", key=self.owner).json["entries"]
            return [[(e["path"], e["mode"], e.get("modified")) for e in entries],
                    self.daemon.get("/v1/workspaces/desk", key=self.owner).json["policy"],
                    self.daemon.get(f"/v1/workspaces/desk/plans/{plan}", key=self.owner).json["state"],
                    self.daemon.get(f"/v1/workspaces/desk/exec/{running}", key=self.owner).json["state"],
                    self.daemon.get("/v1/workspaces/desk/ports", key=self.owner).json]
        before = state()
        for method, path, body in ROUTES:
            at = path.format(ws="desk", exec=running, plan=plan)
            reads = method == "GET" or any(f"files-{what}" in at for what in ("glob", "grep", "inventory", "read")) or at.endswith("/persist")
            if "watch" in at or at.endswith("/output"):
                continue  # do not end
            with self.subTest(route=f"{method} {path}"):
                answer = self.daemon.request(method, at, body, key=reader)
                expected = (403,) if not reads or at.endswith(("/backup", "/attach", "/pty", "/file/secret")) else (200, 404)
                self.assertIn(answer.status, expected, answer.bytes)
        self.assertEqual(before, state())
        self.assertEqual(b"kept", self.daemon.get("/v1/workspaces/desk/files/secret", key=reader).bytes)


class Workspaces(RolesTest):
    def agent(self, *workspaces, **more):
        return self.make_key(self.owner, "agent", workspaces=list(workspaces), **more)

    def test_an_agent_makes_what_matches_as_its_key_says(self):
        policy = {"network": "none", "plan": {"approval": "required"}}
        agent = self.agent("thread-*", "case-?", policy=policy)
        made = self.make("thread-1", agent)
        self.assertEqual(("alice", policy), (made["owner"], made["policy"]))
        self.assertEqual(policy, self.make("thread-2", agent, policy=policy, labels={"a": "b"}, owner="alice")["policy"])
        self.make("case-9", agent)
        for name in ("desk", "thread", "Thread-1", "case-10", "xthread-1", None):
            answer = self.daemon.post("/v1/workspaces", {"id": name} if name else {}, key=agent)
            self.assertEqual((403, "forbidden"), (answer.status, answer.code), name)
        for more in ({"policy": {}}, {"policy": {"network": "host"}}, {"policy": {**policy, "limits": {"processes": 5}}}, {"template": "office"},
                     {"links": {}}, {"links": {"ticket": "thread-1", "ticket_mode": "rw"}}, {"owner": "bob"}, {"builds": "mine"}):
            answer = self.daemon.post("/v1/workspaces", {"id": "thread-3", **more}, key=agent)
            self.assertEqual((403, "forbidden"), (answer.status, answer.code), (more, answer.bytes))
        self.assertEqual(404, self.daemon.get("/v1/workspaces/thread-3", key=self.owner).status)
        plain = self.agent("plain")
        self.assertEqual({}, self.make("plain", plain, policy={})["policy"])
        # The policy is not its to change, nor anything else of the boundary.
        for method, path, body in (("PATCH", "", {"policy": {}}), ("PATCH", "", {"links": {}}), ("PATCH", "", {"labels": {}}), ("DELETE", "", None),
                                   ("DELETE", "?purge=1", None), ("POST", "/undelete", {}), ("GET", "/backup", None), ("POST", "/restore", {})):
            self.assertEqual(403, self.daemon.request(method, f"/v1/workspaces/thread-1{path}", body, key=agent).status, (method, path))
        self.assertEqual(policy, self.daemon.get("/v1/workspaces/thread-1", key=self.owner).json["policy"])

    def test_a_key_sees_the_workspaces_it_was_made_for_and_no_others(self):
        agent = self.agent("thread-*", "desk")
        bob = self.daemon.key("bob", ("owner",))
        for name in ("thread-1", "thread-2", "desk", "private", "threads"):
            self.make(name)
        self.make("thread-bobs", bob)
        started = self.daemon.post("/v1/workspaces/private/exec", {"command": "sleep 1000", "background": True}, key=self.owner).json["exec_id"]
        plans = {name: self.daemon.post(f"/v1/workspaces/{name}/plans", [{"op": "create", "path": "a", "content": "x"}], key=self.owner).json["id"]
                 for name in ("private", "desk")}
        ids = {"exec": started, "plan": plans["private"]}
        for who, key in (("agent", agent), ("reader", self.make_key(self.owner, "read", workspaces=["thread-*", "desk"])),
                         ("judge", self.make_key(self.owner, "approve", workspaces=["thread-*", "desk"]))):
            for method, path, body in ROUTES:
                answers = []
                for ws in ("private", "threads", "thread-bobs", "nobodys"):
                    answer = self.daemon.request(method, path.format(ws=ws, **ids), body, key=key)
                    answers.append((answer.status, answer.bytes.replace(ws.encode(), b"ID")))
                with self.subTest(who=who, route=f"{method} {path}"):
                    self.assertEqual(1, len(set(answers)), answers)
                    self.assertIn(answers[0][0], (403, 404))
            seen = [p["id"] for p in self.daemon.get("/v1/plans", key=key).json["plans"]]
            self.assertEqual([] if who == "agent" else [plans["desk"]], seen, who)  # an agent sees plans that it made
            if who != "judge":
                self.assertEqual(["desk", "thread-1", "thread-2"], self.ids(key), who)
                self.assertEqual(["desk", "thread-1", "thread-2"], self.ids(key, "/v1/workspaces?owner=bob"), who)
                records = self.daemon.get("/v1/audit?limit=1000", key=key).json["records"]
                self.assertLessEqual({r["workspace"] for r in records}, {"desk", "thread-1", "thread-2", ""}, who)
                self.assertEqual([], self.daemon.get("/v1/audit?workspace=private&limit=1000", key=key).json["records"])
        linked = self.daemon.post("/v1/workspaces", {"id": "thread-9", "links": {"ticket": "private"}}, key=agent)
        self.assertEqual(403, linked.status)
        state = self.daemon.get(f"/v1/workspaces/private/exec/{started}", key=self.owner).json["state"]
        self.assertEqual("running", state, "something of it reached the command")

    def test_pages_are_full_and_the_cursor_is_an_id_of_ones_own(self):
        for name in [f"a{i}" for i in range(40)] + [f"thread-{i}" for i in range(5)] + ["zzz"]:
            self.make(name)
        agent = self.agent("thread-*")
        seen, cursor = [], ""
        while cursor is not None:
            page = self.daemon.get(f"/v1/workspaces?limit=2&cursor={cursor}", key=agent).json
            seen += [w["id"] for w in page["workspaces"]]
            cursor = page["next"]
            self.assertTrue(cursor is None or cursor.startswith("thread-"), cursor)
        self.assertEqual([f"thread-{i}" for i in range(5)], seen)
        self.daemon.request("DELETE", "/v1/workspaces/thread-3", key=self.owner)
        self.daemon.request("DELETE", "/v1/workspaces/a3", key=self.owner)
        self.assertEqual(["thread-3"], self.ids(agent, "/v1/workspaces?deleted=1"))

    def test_events_are_of_ones_own_workspaces(self):
        self.make("private")
        self.make("thread-1")
        streams = {who: self.daemon.stream("GET", "/v1/events", key=key)
                   for who, key in (("agent", self.agent("thread-*")), ("owner", self.owner))}
        for name in ("private", "thread-1", "thread-2"):
            if name == "thread-2":
                self.make(name)
            self.daemon.execute(name, "true", key=self.owner)
        self.make("end")
        self.make("thread-end")
        for who, stream in streams.items():
            of = []
            for line in stream:
                if line.startswith(b"data:"):
                    of.append(json.loads(line[5:])["workspace"])
                if of and of[-1] == "thread-end":
                    break
            self.assertEqual({"thread-1", "thread-2", "thread-end"} | ({"private", "end"} if who == "owner" else set()), set(of), who)
            stream.close()
            stream.keep.close()

    def test_an_id_that_is_another_owners_by_now(self):
        agent = self.agent("thread-1")
        self.make("thread-1", agent)
        self.assertEqual("mine\n", self.daemon.execute("thread-1", "echo mine", key=agent)["stdout"])
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/thread-1?purge=1", key=self.owner).status)
        self.make("thread-1", self.daemon.key("bob", ("owner",)))
        for path in ("", "/exec", "/files/?list=1", "/plans"):
            self.assertEqual(404, self.daemon.get(f"/v1/workspaces/thread-1{path}", key=agent).status, path)
        self.assertEqual([], self.ids(agent))
        self.assertEqual(409, self.daemon.post("/v1/workspaces", {"id": "thread-1"}, key=agent).status)
        records = self.daemon.get("/v1/audit?workspace=thread-1&limit=1000", key=agent).json["records"]
        self.assertEqual([], records, "of the one that is bob's")

    def test_a_port_is_open_to_who_works_there(self):
        for name in ("thread-1", "private"):
            self.make(name)
            self.daemon.execute(name, "true", key=self.owner)  # awake
        agent = self.agent("thread-*")
        addresses = {}
        for name, key in (("thread-1", agent), ("private", self.owner)):
            opened = self.daemon.post(f"/v1/workspaces/{name}/ports/8000", {"access": "key"}, key=key)
            self.assertIn(opened.status, (200, 201), opened.bytes)
            addresses[name] = "/p/" + opened.json["url"].split("/p/")[1]
        inside = (502, "port_closed")  # nothing listens there
        for who, key, expected in (("agent", agent, (inside, (404, "not_found"))), ("owner", self.owner, (inside, inside)),
                                   ("read", self.make_key(self.owner, "read"), ((404, "not_found"),) * 2),
                                   ("approve", self.make_key(self.owner, "approve"), ((404, "not_found"),) * 2),
                                   ("bob", self.daemon.key("bob", ("owner",)), ((404, "not_found"),) * 2)):
            answers = [self.daemon.get(addresses[name], key=key) for name in ("thread-1", "private")]
            self.assertEqual(expected, tuple((a.status, a.code) for a in answers), who)

    def test_what_is_on_a_template_is_not_told_to_who_sees_some(self):
        self.make("base", None, 201)
        frozen = self.daemon.post("/v1/templates", {"name": "mine", "workspace": "base"})
        self.assertEqual(201, frozen.status, frozen.bytes)
        agent = self.agent("thread-*", template="mine")
        self.assertEqual("mine", self.make("thread-1", agent)["template"]["name"])
        self.assertEqual("mine", self.make("thread-2", agent, template="mine")["template"]["name"])
        self.make("thread-3", agent, 403, template="other")
        self.assertIsNone(self.daemon.get("/v1/templates/mine", key=agent).json["workspaces"])
        self.assertEqual(2, self.daemon.get("/v1/templates/mine", key=self.owner).json["workspaces"])
        env = {"PATH": os.environ["PATH"], "HOME": self.dir, "CARREL_SOCKET": self.daemon.socket, "CARREL_KEY": agent}
        for verb in ("list", "show"):
            done = subprocess.run([CARREL, "template", verb, *(["mine"] if verb == "show" else [])], capture_output=True, text=True,
                                  timeout=PATIENCE, env=env, check=False)
            self.assertEqual((0, ""), (done.returncode, done.stderr), verb)
            self.assertIn("mine", done.stdout)


class Keys(RolesTest):
    def test_an_owner_makes_three_kinds_under_its_own_name(self):
        for scopes, more in ((["agent"], {"workspaces": ["a"]}), (["approve"], {}), (["read"], {}), (["approve", "read"], {"workspaces": ["x*"]}),
                             (["read"], {"owner": "alice"})):
            self.make_key(self.owner, *scopes, **more)
        for scopes in (["owner"], ["user"], ["admin"], ["read", "user"]):
            self.assertIn("administrator", self.make_key(self.owner, *scopes, expect=403))
        self.assertIn("'alice'", self.make_key(self.owner, "read", owner="bob", expect=403))
        user = self.daemon.key("alice", ("user",))
        for scope, key in (("user", user), ("read", self.make_key(self.owner, "read")), ("approve", self.make_key(self.owner, "approve")),
                           ("agent", self.make_key(self.owner, "agent", workspaces=["*"]))):
            self.assertEqual("this key lacks the scope 'owner'", self.make_key(key, "read", expect=403), scope)

    def test_what_does_not_go_together_is_refused_in_words(self):
        for scopes, more, words in ((["agent"], {}, "which workspaces"), (["agent", "read"], {"workspaces": ["a"]}, "no other scope"),
                                    (["agent", "owner"], {"workspaces": ["a"]}, "no other scope"),
                                    (["agent", "admin"], {"workspaces": ["a"]}, "no other scope"),
                                    (["agent", "approve"], {"workspaces": ["a"]}, "no other scope"),
                                    (["owner"], {"workspaces": ["a"]}, "limited"), (["admin"], {"workspaces": ["a"]}, "limited"),
                                    (["read", "user"], {"workspaces": ["a"]}, "limited"), ([], {}, "scopes"), (["judge"], {}, "scopes"),
                                    (["read"], {"policy": {}}, "agent"), (["read"], {"template": "office"}, "agent"),
                                    (["agent"], {"workspaces": ["a"], "policy": {"network": "everywhere"}}, "network"),
                                    (["agent"], {"workspaces": ["a"], "policy": {"level": "dir"}}, "level"),
                                    (["agent"], {"workspaces": ["a"], "policy": []}, "policy")):
            self.assertIn(words, self.make_key(None, *scopes, expect=400, owner="alice", **more), (scopes, more))
        self.make_key(None, "agent", expect=404, owner="alice", workspaces=["a"], template="nobodys")
        self.make_key(None, "read", expect=400)
        self.assertEqual(["owner"], [s for k in self.daemon.get("/v1/keys").json["keys"] for s in k["scopes"]], "one was left behind")

    def test_patterns_are_of_ids_and_nothing_else(self):
        for odd in ("", "a/b", "../x", "a b", "[a]", "a\"b", "a\\", "a\nb", "é", ".a", "-a", "{a,b}", "a\0b", "a" * 65, "%61", 5, None, ["a"]):
            answer = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["agent"], "workspaces": [odd]})
            self.assertEqual((400, "invalid_request"), (answer.status, answer.code), odd)
            self.assertTrue("\0" in str(odd) or "thread-*" in answer.json["error"]["message"], answer.bytes)
        for odd in ([], "thread-*", {}, ["a"] * 33):
            self.assertEqual(400, self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["agent"], "workspaces": odd}).status, odd)
        many = [f"w{i}" for i in range(31)] + ["a?c*.e_f-*"]
        agent = self.make_key(self.owner, "agent", workspaces=many)
        self.make("abcd.e_f-", agent)
        self.make("abcd.e_g-", agent, 403)

    def test_lists_show_what_a_key_is_for_and_who_revokes(self):
        self.make_key(self.owner, "agent", workspaces=["thread-*"], policy={"network": "none"}, name="threads")
        agent = [k for k in self.daemon.get("/v1/keys", key=self.owner).json["keys"] if k["name"] == "threads"][0]
        self.assertEqual((["agent"], ["thread-*"], {"network": "none"}, None),
                         (agent["scopes"], agent["workspaces"], agent["policy"], agent["template"]))
        record = [r for r in self.daemon.audit() if r["operation"] == "key.create"][-1]["details"]
        self.assertEqual((["agent"], ["thread-*"]), (record["scopes"], record["workspaces"]))
        bob = self.daemon.key("bob", ("owner",))
        self.assertEqual(["bob"], [k["owner"] for k in self.daemon.get("/v1/keys", key=bob).json["keys"]])
        self.assertEqual(404, self.daemon.request("DELETE", f"/v1/keys/{agent['id']}", key=bob).status)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{agent['id']}", key=self.owner).status)

    def test_a_key_revokes_itself_and_those_it_could_make(self):
        def made(*scopes, by=None, **more):
            answer = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": list(scopes), **more}, key=by)
            self.assertEqual(201, answer.status, answer.bytes)
            return answer.json

        for who in ("user", "owner"):
            key = made(who)
            for scopes, more in ((("owner",), {}), (("user",), {}), (("approve",), {}), (("read",), {}), (("approve", "read"), {}),
                                 (("agent",), {"workspaces": ["*"]}), (("read", "user"), {})):
                with self.subTest(who=who, revokes=scopes):
                    other = made(*scopes, **more)
                    answer = self.daemon.request("DELETE", f"/v1/keys/{other['id']}", key=key["key"])
                    may = who == "owner" and not {"owner", "user"} & set(scopes)
                    self.assertEqual(204 if may else 403, answer.status, answer.bytes)
                    if not may:
                        self.assertIn("itself", answer.json["error"]["message"])
                        self.assertEqual(200, self.daemon.get("/v1/plans", key=other["key"]).status, "it is no good any more")
                        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{other['id']}").status)
            admin = made("admin")
            self.assertEqual(404, self.daemon.request("DELETE", f"/v1/keys/{admin['id']}", key=key["key"]).status)
            self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{key['id']}", key=key["key"]).status)
            self.assertEqual(401, self.daemon.get("/v1/keys", key=key["key"]).status)

    def test_keys_outlive_the_one_that_made_them(self):
        reader = self.make_key(self.owner, "read")
        mine = [k["id"] for k in self.daemon.get("/v1/keys", key=self.owner).json["keys"] if k["scopes"] == ["owner"]][0]
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{mine}", key=self.owner).status)
        self.assertEqual(401, self.daemon.get("/v1/workspaces", key=self.owner).status)
        self.assertEqual(200, self.daemon.get("/v1/workspaces", key=reader).status)


class Decisions(RolesTest):
    def setUp(self):
        super().setUp()
        self.agent = self.make_key(self.owner, "agent", workspaces=["thread-*"])
        self.judge = self.make_key(self.owner, "approve")

    def plan(self, key, path="a", policy=None):
        if self.daemon.get("/v1/workspaces/thread-1", key=self.owner).status == 404:
            self.make("thread-1", policy={"plan": policy or {"approval": "required"}})
        answer = self.daemon.post("/v1/workspaces/thread-1/plans", [{"op": "create", "path": path, "content": "x"}], key=key)
        self.assertEqual(201, answer.status, answer.bytes)
        return answer.json

    def ask(self, plan, what, key, **body):
        answer = self.daemon.post(f"/v1/workspaces/thread-1/plans/{plan['id']}/{what}", body, key=key)
        return answer.status, answer.json.get("state") or answer.code

    def approve(self, plan, key):
        return self.ask(plan, "approve", key, hash=plan["hash"])

    def test_an_agents_plan_is_decided_by_its_owners_people(self):
        second = self.make_key(self.owner, "agent", workspaces=["*"])
        reader = self.make_key(self.owner, "read")
        people = {"owner": self.owner, "judge": self.judge, "user": self.daemon.key("alice"), "admin": self.daemon.key("root", ("admin",)),
                  "another owner's key": self.daemon.key("alice", ("owner",))}
        for who, key in people.items():
            plan = self.plan(self.agent, who.replace(" ", "-"))
            self.assertEqual((404, "plan_not_found"), self.approve(plan, second), "another agent")
            self.assertEqual((404, "plan_not_found"), self.ask(plan, "reject", second), "another agent")
            for no, other in (("itself", self.agent), ("reader", reader)):
                self.assertEqual((403, "approval_refused"), self.approve(plan, other), no)
                self.assertEqual((403, "approval_refused"), self.ask(plan, "reject", other), no)
            self.assertEqual((403, "approval_required"), self.ask(plan, "apply", self.agent))
            self.assertEqual((200, "approved"), self.approve(plan, key), who)
            self.assertEqual((200, "applied"), self.ask(plan, "apply", self.agent), who)
        refused = [r for r in self.daemon.audit() if r["operation"] in ("plan.approve", "plan.reject") and r["result"] == "refused"]
        self.assertEqual(4 * len(people), len(refused))

    def test_nobody_approves_what_the_same_key_has_made_nor_by_a_key_of_its_making(self):
        plan = self.plan(self.owner)
        for who, key in (("itself", self.owner), ("made by it", self.judge), ("not given the scope", self.daemon.key("alice"))):
            self.assertEqual((403, "approval_refused"), self.approve(plan, key), who)
        self.assertEqual((404, "not_found"), self.approve(plan, self.daemon.key("bob", ("approve",))))
        self.assertEqual((200, "approved"), self.approve(plan, self.daemon.key("alice", ("approve",))))

    def test_an_agent_sees_its_own_plans_and_of_others_not_whether_they_are_there(self):
        second = self.make_key(self.owner, "agent", workspaces=["*"])
        self.make("thread-1")
        opened = self.daemon.execute("thread-1", "echo secret > owners", key=self.owner, mode="plan", keep_open=True)["plan"]["id"]
        mine, theirs, owners = (self.plan(key, name) for key, name in ((self.agent, "mine"), (second, "theirs"), (self.owner, "owners")))
        none = dict(mine, id="p" + "a" * 26)
        for path in ("/v1/plans", "/v1/workspaces/thread-1/plans", "/v1/workspaces/thread-1/plans?state=closed", "/v1/plans?limit=1"):
            self.assertEqual([mine["id"]], [p["id"] for p in self.daemon.get(path, key=self.agent).json["plans"]], path)
        self.assertEqual([], self.daemon.get("/v1/plans?state=open", key=self.agent).json["plans"])
        self.assertEqual({opened, mine["id"], theirs["id"], owners["id"]}, {p["id"] for p in self.daemon.get("/v1/plans", key=self.judge).json["plans"]})
        calls = [("GET", "", None), ("GET", "?operations=1", None), ("GET", "/diff", None), ("GET", "/diff?path=a", None), ("DELETE", "", None)]
        calls += [("POST", f"/{what}", {}) for what in "close verify apply undo cancel approve reject".split()]
        calls += [("POST", "/verify", {"check": ["false"]})]
        for method, path, body in calls:
            answers = set()
            for plan in (none["id"], opened, theirs["id"], owners["id"]):
                answer = self.daemon.request(method, f"/v1/workspaces/thread-1/plans/{plan}{path}", body, key=self.agent)
                answers.add((answer.status, answer.bytes.replace(plan.encode(), b"ID")))
            with self.subTest(call=f"{method} {path}"):
                self.assertEqual(1, len(answers), answers)
                self.assertEqual(404, answers.pop()[0])
        answers = set()
        for plan in (none["id"], opened, theirs["id"]):
            answer = self.daemon.post("/v1/workspaces/thread-1/exec", {"command": "cat owners", "mode": "plan", "plan": plan}, key=self.agent)
            answers.add((answer.status, answer.bytes.replace(plan.encode(), b"ID")))
        self.assertEqual([404], [status for status, _ in answers], answers)
        for what in ("", "?operations=1", "/diff"):
            self.assertEqual(200, self.daemon.get(f"/v1/workspaces/thread-1/plans/{mine['id']}{what}", key=self.agent).status)
        self.assertEqual("closed", self.daemon.get(f"/v1/workspaces/thread-1/plans/{owners['id']}", key=self.owner).json["state"])

    def test_no_key_takes_the_room_for_plans_of_the_others(self):
        second, third = (self.make_key(self.owner, "agent", workspaces=["*"]) for _ in range(2))
        self.make("thread-1")

        def submit(key, expect):
            answer = self.daemon.post("/v1/workspaces/thread-1/plans", [{"op": "create", "path": "a", "content": "x"}], key=key)
            self.assertEqual((expect, "plan_limit" if expect == 413 else None),
                             (answer.status, answer.code if expect == 413 else None), answer.bytes)
        for _ in range(100):
            submit(self.agent, 201)
        submit(self.agent, 413)
        run = {"command": "true", "mode": "plan"}
        self.assertEqual(413, self.daemon.post("/v1/workspaces/thread-1/exec", run, key=self.agent).status)
        for key in (second, third, self.owner, None):
            for _ in range(10):
                submit(key, 201)
            submit(key, 413)
        self.make("thread-2", policy={"plan": {"waiting_bytes": "80K"}})
        big = {"command": "head -c 90000 /dev/zero > a", "mode": "plan"}
        for key in (self.agent, second, self.owner):
            for expect in (200, 413):
                answer = self.daemon.post("/v1/workspaces/thread-2/exec", big, key=key)
                self.assertEqual(expect, answer.status, answer.bytes)

    def test_an_agent_takes_nothing_back_that_a_person_approved(self):
        plan = self.plan(self.agent)
        self.assertEqual((200, "approved"), self.approve(plan, self.judge))
        self.assertEqual((200, "applied"), self.ask(plan, "apply", self.agent))
        self.assertEqual((403, "forbidden"), self.ask(plan, "undo", self.agent))
        self.assertEqual((403, "forbidden"), self.ask(plan, "undo", self.agent, paths=["a"]))
        self.assertEqual((200, "undone"), self.ask(plan, "undo", self.owner))
        owners, own = self.plan(self.owner, "b"), self.plan(self.agent, "c")
        for one, expected in ((owners, 404), (own, 200)):
            self.assertEqual(expected, self.daemon.request("DELETE", f"/v1/workspaces/thread-1/plans/{one['id']}", key=self.agent).status)

    def test_where_nobody_has_to_approve_an_agent_undoes(self):
        plan = self.plan(self.agent, policy={"approval": "none"})
        self.assertEqual((200, "applied"), self.ask(plan, "apply", self.agent))
        self.assertEqual((200, "undone"), self.ask(plan, "undo", self.agent))


class CommandLine(RolesTest):
    def carrel(self, *args, key=None, code=0):
        env = {"PATH": os.environ["PATH"], "HOME": self.dir, "CARREL_SOCKET": self.daemon.socket, **({"CARREL_KEY": key} if key else {})}
        done = subprocess.run([CARREL, *args], capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
        self.assertEqual(code, done.returncode, (done.stdout, done.stderr))
        return done.stdout if code == 0 else done.stderr

    def test_a_key_in_a_variable(self):
        with open(self.path("policy.json"), "w", encoding="ascii") as file:
            file.write('{"network": "none"}')
        key = self.carrel("key", "create", "--owner", "alice", "--scope", "agent", "--workspace", "thread-*", "--workspace", "desk",
                          "--policy", self.path("policy.json"))
        self.assertRegex(key, r"\Ack_[a-z2-7]{52}\n\Z")
        self.assertEqual("thread-1\n", self.carrel("ws", "create", "thread-1", key=key.strip()))
        self.assertIn("thread-*", self.carrel("ws", "create", "other", key=key.strip(), code=125))
        self.assertIn("the scope 'owner'", self.carrel("key", "create", "--owner", "alice", key=key.strip(), code=125))
        own = self.carrel("key", "create", "--scope", "approve", key=self.owner).strip()
        self.assertEqual("alice", self.daemon.get("/v1/keys", key=self.owner).json["keys"][0]["owner"])
        self.assertEqual(200, self.daemon.get("/v1/plans", key=own).status)
        self.assertRegex(self.carrel("key", "ls"), r"(?m)^k\w+ +alice +agent +thread-\*,desk +active ")
        self.assertIn("--owner", self.carrel("key", "create", "--scope", "owner", code=125))
        self.assertIn("workspaces", self.carrel("key", "create", "--owner", "alice", "--scope", "agent", code=125))


if __name__ == "__main__":
    unittest.main(verbosity=0)
