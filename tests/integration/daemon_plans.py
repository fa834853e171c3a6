#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""Plans over HTTP: made by a command or written, verified, approved, applied, undone; and what must not happen."""
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import unittest
import unittest.mock

import daemontest
from carreltest import PATIENCE, TMP, CarrelTest, mount, umount
from daemontest import Daemon, DaemonTest, events_of


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

    def bucket(self):
        return self.daemon.get(f"/v1/workspaces/{self.ws}").json["bucket"]


class Submitted(PlanTest):
    def test_whole_life(self):
        self.make()
        self.put("a.txt", b"one")
        self.put("b.txt", b"two")
        before = self.tree()
        made = self.submit({"moves": [{"src": "a.txt", "dest": "dir/a.txt"}], "deletions": ["b.txt"],
                            "creations": [{"path": "c.txt", "content": "three"}]})
        self.assertEqual("closed", made["state"])
        self.assertEqual("submitted", made["origin"])
        self.assertEqual(64, len(made["hash"]))
        self.assertEqual(before, self.tree())
        plan = made["id"]
        shown = self.plan(plan, "?operations=1&limit=2")
        self.assertEqual(2, len(shown["items"]))
        rest = self.plan(plan, f"?operations=1&cursor={shown['next']}")
        self.assertEqual(made["operations"], 2 + len(rest["items"]))
        self.assertIsNone(rest["next"])
        verified = self.ask(plan, "verify")
        self.assertEqual("clean", verified["verdict"], verified)
        self.ask(plan, "apply", {"hash": "0" * 64}, expect=409)
        applied = self.ask(plan, "apply", {"hash": made["hash"]})
        self.assertEqual("applied", applied["state"])
        self.assertEqual(made["operations"], applied["apply"]["applied"])
        self.assertEqual((b"one", b"three", None, None), (self.read("dir/a.txt"), self.read("c.txt"),
                                                          self.read("b.txt"), self.read("a.txt")))
        self.ask(plan, "apply", expect=409)
        undone = self.ask(plan, "undo")
        self.assertEqual("undone", undone["state"])
        self.assertEqual(before, self.tree())
        listed = self.daemon.get(f"/v1/workspaces/{self.ws}/plans?state=undone").json["plans"]
        self.assertEqual([plan], [p["id"] for p in listed])
        names = [(r["operation"], r["result"]) for r in self.daemon.audit() if r["operation"].startswith("plan.")]
        self.assertIn(("plan.submit", "ok"), names)
        self.assertIn(("plan.verify", "clean"), names)
        self.assertIn(("plan.apply", "asked"), names)
        self.assertIn(("plan.apply", "done"), names)
        self.assertIn(("plan.undo", "done"), names)
        self.assertGreaterEqual(len(self.operations("plan.step")), made["operations"])

    def test_bad_plans_are_refused_and_leave_nothing(self):
        self.make()
        self.put("a.txt", b"one")
        for bad in (b"", b"nonsense", b"[1]", b'{"moves":[{"src":"../x","dest":"y"}]}',
                    b'[{"op":"chown","path":"a.txt"}]', b'{"creations":[{"path":"usr/x","content":""}]}',
                    b'{"unknown":[]}'):
            answer = self.daemon.request("POST", f"/v1/workspaces/{self.ws}/plans", bad)
            self.assertEqual(400, answer.status, (bad, answer.bytes))
            self.assertEqual("plan_invalid", answer.code)
        deadline = time.monotonic() + PATIENCE
        while self.plan_dirs() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([], self.plan_dirs())
        self.assertEqual([], self.daemon.get(f"/v1/workspaces/{self.ws}/plans").json["plans"])

    def test_base_changed_since_is_stale_and_nothing_is_applied(self):  # attack 62
        self.make()
        self.put("a.txt", b"one")
        made = self.submit([{"op": "write", "path": "a.txt", "content": "two"}, {"op": "create", "path": "n", "content": "x"}])
        self.put("a.txt", b"changed since")
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((409, "plan_stale"), (answer.status, answer.code))
        self.assertEqual((b"changed since", None), (self.read("a.txt"), self.read("n")))
        self.assertEqual("stale", self.plan(made["id"])["state"])

    def test_more_stale_operations_than_are_told(self):
        self.make()
        made = self.submit([{"op": "create", "path": f"f{i}", "content": "x"} for i in range(1200)])
        self.daemon.execute(self.ws, "for i in $(seq 0 1199); do echo other > f$i; done")
        self.sleep()
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((409, "plan_stale"), (answer.status, answer.code))
        self.assertEqual(1200, answer.json["error"]["details"]["findings_count"])
        self.assertEqual("stale", self.plan(made["id"])["state"])

    def test_one_that_is_refused_among_many_stale_ones(self):
        self.make({"protect": ["zz"]})
        made = self.submit([{"op": "create", "path": f"f{i}", "content": "x"} for i in range(1200)] +
                           [{"op": "create", "path": "zz", "content": "x"}])
        self.daemon.execute(self.ws, "for i in $(seq 0 1199); do echo other > f$i; done")
        self.sleep()
        for options in ({}, {"keep_going": True}):
            answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", options)
            self.assertEqual((422, "plan_refused"), (answer.status, answer.code))
        self.assertIsNone(self.read("zz"))

    def test_keep_going_leaves_out_what_changed(self):
        self.make()
        self.put("a.txt", b"one")
        made = self.submit([{"op": "write", "path": "a.txt", "content": "two"}, {"op": "create", "path": "n", "content": "x"}])
        self.put("a.txt", b"changed since")
        applied = self.ask(made["id"], "apply", {"keep_going": True})
        self.assertEqual("applied", applied["state"])
        self.assertEqual(1, applied["apply"]["applied"])
        self.assertEqual((b"changed since", b"x"), (self.read("a.txt"), self.read("n")))

    def test_policy_refuses_with_findings(self):
        self.make({"protect": ["keep/**"], "max_operations": 5})
        self.put("keep/a", b"one")
        made = self.submit({"deletions": ["keep/a"]})
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((422, "plan_refused"), (answer.status, answer.code))
        finding = answer.json["error"]["details"]["findings"][0]
        self.assertEqual("protect", finding["rule"])
        self.assertTrue(finding["remedy"])
        self.assertEqual(b"one", self.read("keep/a"))
        self.assertTrue(self.operations("plan.finding"))

    def test_undo_of_paths_and_of_what_changed(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}, {"op": "create", "path": "b", "content": "2"}])
        self.ask(made["id"], "apply")
        part = self.ask(made["id"], "undo", {"paths": ["a"]})
        self.assertEqual("applied", part["state"])
        self.assertEqual((None, b"2"), (self.read("a"), self.read("b")))
        self.put("b", b"changed")
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/undo", {})
        self.assertEqual(409, answer.status, answer.bytes)
        self.assertEqual(b"changed", self.read("b"))
        self.assertEqual("undone", self.ask(made["id"], "undo", {"force": True})["state"])
        self.assertIsNone(self.read("b"))

    def test_a_record_that_would_be_too_long_leaves_out_the_list_alone(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        self.ask(made["id"], "apply")
        paths = [f"{i}" + "x" * 200 for i in range(400)]
        self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/undo", {"paths": paths, "force": True})
        told = [r["details"] for r in self.operations("plan.undo") if r["result"] == "asked"][-1]
        self.assertEqual((made["id"], made["hash"], True, 400),
                         (told["plan"], told["hash"], told["what"]["force"], told["what"]["paths"]["count"]))

    def test_discard(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        self.assertEqual([made["id"]], self.plan_dirs())
        answer = self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{made['id']}")
        self.assertEqual((200, "discarded"), (answer.status, answer.json["state"]))
        self.ask(made["id"], "apply", expect=409)
        deadline = time.monotonic() + PATIENCE
        while self.plan_dirs() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([], self.plan_dirs())


class Run(PlanTest):
    def test_a_command_becomes_a_plan_that_is_applied_and_undone(self):
        self.make()
        self.put("a.txt", b"one")
        self.put("old/b.txt", b"two")
        self.sleep()
        before = self.tree()
        result = self.plan_run("mkdir new; mv old/b.txt new/; echo three >> a.txt; echo four > c.txt; cat a.txt")
        self.assertEqual((0, "onethree\n"), (result["exit_code"], result["stdout"]))
        made = result["plan"]
        self.assertEqual("closed", made["state"])
        self.assertEqual(64, len(made["hash"]))
        self.assertEqual(before, self.tree())
        self.assertIsNone(self.read("c.txt"))
        plan = self.plan(made["id"], "?operations=1")
        self.assertEqual("run", plan["origin"])
        self.assertEqual(result["exec_id"], plan["exec_id"])
        self.assertIn(("write", "a.txt"), [(i["op"], i["path"]) for i in plan["items"]])
        diff = self.daemon.get(f"/v1/workspaces/{self.ws}/plans/{made['id']}/diff?path=a.txt")
        self.assertEqual(200, diff.status, diff.bytes)
        self.assertIn(b"+onethree", diff.bytes)
        self.ask(made["id"], "apply")
        self.sleep()
        after = self.tree()
        self.assertEqual(b"onethree\n", after["a.txt"][1])
        self.assertEqual(b"two", after["new/b.txt"][1])
        self.assertEqual(b"four\n", after["c.txt"][1])
        self.ask(made["id"], "undo")
        self.assertEqual(before, self.tree())

    def test_in_streams_and_background(self):
        self.make()
        stream = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/exec",
                                    {"command": "echo hello; echo x > x", "mode": "plan", "stream": True})
        events = list(events_of(stream))
        self.assertEqual("end", events[-1]["type"])
        self.assertEqual("closed", events[-1]["plan"]["state"])
        self.assertEqual(1, events[-1]["plan"]["operations"])
        started = self.plan_run("echo y > y", background=True, expect=202)
        self.wait_state(started["plan"]["id"], "closed")
        self.assertIsNone(self.read("x"))

    def test_an_open_plan_is_continued_and_closed(self):
        self.make()
        first = self.plan_run("echo 1 > one", keep_open=True)["plan"]
        self.assertEqual("open", first["state"])
        self.ask(first["id"], "apply", expect=409)
        again = self.plan_run("cat one; echo 2 > two", plan=first["id"], keep_open=True)
        self.assertEqual("1\n", again["stdout"])
        self.assertIsNone(self.read("one"))
        closed = self.ask(first["id"], "close")
        self.assertEqual(("closed", 2), (closed["state"], closed["operations"]))
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "true", "mode": "plan", "plan": first["id"]})
        self.assertEqual(409, answer.status, answer.bytes)
        self.ask(first["id"], "apply")
        self.assertEqual((b"1\n", b"2\n"), (self.read("one"), self.read("two")))
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec",
                                  {"command": "true", "mode": "plan", "plan": "p" + "a" * 26})
        self.assertEqual((404, "plan_not_found"), (answer.status, answer.code))

    def test_a_command_that_fails_or_is_killed_has_a_plan_too(self):
        self.make()
        result = self.plan_run("echo x > x; exit 3")
        self.assertEqual((3, 1), (result["exit_code"], result["plan"]["operations"]))
        result = self.plan_run("echo x > y; sleep 100", timeout_ms=500)
        self.assertTrue(result["timed_out"])
        self.assertEqual(1, result["plan"]["operations"])

    def test_what_runs_on_cannot_write_after_the_plan(self):  # attack 61
        self.make()
        result = self.plan_run("(while :; do echo evil > f; date > g; done) >/dev/null 2>&1 & sleep 0.3; echo good > f")
        made = result["plan"]
        plan = self.plan(made["id"], "?operations=1")
        hashes = {i["path"]: i["sha256"] for i in plan["items"] if "sha256" in i}
        time.sleep(0.3)
        self.ask(made["id"], "apply", {"hash": made["hash"]})
        self.sleep()
        for path, told in hashes.items():
            with open(os.path.join(self.root(), path), "rb") as file:
                self.assertEqual(told, hashlib.sha256(file.read()).hexdigest(), path)

    def test_content_changed_after_approval_is_not_applied(self):  # attack 61, by who can write there
        self.make()
        made = self.plan_run("echo good > f")["plan"]
        for at, _, files in os.walk(f"{self.daemon.state}/{self.bucket()}/.carrel/workspaces/{self.ws}"):
            if "f" in files:
                with open(os.path.join(at, "f"), "w", encoding="utf-8") as file:
                    file.write("evil")
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {"hash": made["hash"]})
        self.assertGreaterEqual(answer.status, 400, answer.bytes)
        self.assertIsNone(self.read("f"))

    def test_a_check_runs_in_the_planned_view_and_leaves_no_trace(self):
        self.make()
        self.put("a.txt", b"one")
        self.put("old/b", b"two")
        self.put("gone", b"three")
        made = self.plan_run("echo good > a.txt; mv old new; rm gone; mkdir d; ln -s a.txt l")["plan"]
        check = "grep -q good a.txt && test \"$(cat new/b)\" = two && ! test -e old && ! test -e gone && test -L l && echo junk > a.txt && rm -r d && echo fine"
        verified = self.ask(made["id"], "verify", {"check": ["sh", "-c", check]})
        self.assertEqual((0, "fine\n"), (verified["check"]["exit_code"], verified["check"]["output"]), verified)
        self.assertEqual("clean", verified["verdict"], verified)
        self.assertEqual(made["hash"], verified["hash"])
        other = made
        made = self.plan_run("echo bad > a.txt")["plan"]
        verified = self.ask(made["id"], "verify", {"check": ["sh", "-c", "echo it is bad; exit 3"]})
        self.assertEqual("refused", verified["verdict"])
        self.assertEqual("check", verified["findings"][0]["rule"])
        self.assertIn("it is bad", verified["findings"][0]["message"])
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((422, "plan_refused"), (answer.status, answer.code))
        self.assertEqual("clean", self.ask(other["id"], "verify", {"check": ["true"]})["verdict"])
        made = other
        self.ask(made["id"], "apply", {"hash": made["hash"]})
        self.assertEqual((b"good\n", b"two"), (self.read("a.txt"), self.read("new/b")))
        deadline = time.monotonic() + PATIENCE
        while len(self.plan_dirs()) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(2, len(self.plan_dirs()))
        self.assertIn(made["id"], self.plan_dirs())
        written = self.submit([{"op": "create", "path": "x", "content": "1"}])
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{written['id']}/verify", {"check": ["true"]})
        self.assertEqual((501, "unsupported"), (answer.status, answer.code))
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/verify", {"check": "true"})
        self.assertEqual(400, answer.status)

    def test_a_failed_check_is_not_forgotten_for_another_that_passes(self):
        self.make()
        made = self.plan_run("echo x > x")["plan"]
        # The view is the plan over the tree as it is now: the same check can end otherwise.
        same = ["sh", "-c", "test -e later || { echo no later; exit 3; }"]
        self.assertEqual("refused", self.ask(made["id"], "verify", {"check": same})["verdict"])
        for body in ({"check": ["true"]}, {}, {"check": same[:2] + ["true"]}):
            verified = self.ask(made["id"], "verify", body)
            self.assertEqual("refused", verified["verdict"], verified)
            self.assertEqual([same], [c["argv"] for c in verified["failed_checks"]])
            self.assertIn("no later", verified["findings"][0]["message"])
        self.assertEqual(0, verified["check"]["exit_code"])
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((422, "plan_refused"), (answer.status, answer.code))
        self.assertIsNone(self.read("x"))
        self.put("later", b"")
        verified = self.ask(made["id"], "verify", {"check": same})
        self.assertEqual("clean", verified["verdict"], verified)
        self.assertNotIn("failed_checks", verified)
        self.ask(made["id"], "apply")
        self.assertEqual(b"x\n", self.read("x"))

    def test_failed_checks_are_bounded_and_none_makes_room_for_another(self):
        self.make()
        made = self.plan_run("echo x > x")["plan"]
        for i in range(8):
            self.ask(made["id"], "verify", {"check": ["sh", "-c", f"exit {i + 1}"]})
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/verify", {"check": ["false"]})
        self.assertGreaterEqual(answer.status, 400, answer.bytes)
        self.assertLess(answer.status, 500, answer.bytes)
        verified = self.ask(made["id"], "verify", {"check": ["true"]})
        self.assertEqual(["exit 1", "exit 8"], [verified["failed_checks"][i]["argv"][2] for i in (0, 7)])
        self.assertEqual(("refused", 8), (verified["verdict"], verified["findings_count"]))

    def test_discarding_an_open_plan_ends_what_runs_in_it(self):
        self.make()
        started = self.plan_run("sleep 1000", background=True, expect=202)
        answer = self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{started['plan']['id']}")
        self.assertEqual((200, "discarded"), (answer.status, answer.json["state"]), answer.bytes)
        deadline = time.monotonic() + PATIENCE
        while self.plan_dirs() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([], self.plan_dirs())

    def test_mode_is_checked(self):
        self.make()
        for body in ({"mode": "strange"}, {"plan": "p" + "a" * 26}, {"keep_open": True}):
            answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "true", **body})
            self.assertEqual(400, answer.status, answer.bytes)
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"argv": ["/nonexistent"], "mode": "plan"})
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual(127, answer.json["exit_code"])


class Busy(PlanTest):
    def test_running_commands_refuse_an_apply_and_are_named(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        running = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True}).json
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((409, "workspace_busy"), (answer.status, answer.code))
        self.assertIn(running["exec_id"], answer.json["error"]["message"])
        self.assertEqual("closed", self.plan(made["id"])["state"])
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec/{running['exec_id']}/kill")
        # A process that was left behind is in the way as well.
        self.daemon.execute(self.ws, "setsid sleep 1000 >/dev/null 2>&1 &")
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {})
        self.assertEqual((409, "workspace_busy"), (answer.status, answer.code))
        self.sleep()
        self.ask(made["id"], "apply")
        self.assertEqual(b"1", self.read("a"))

    def test_an_idle_sandbox_is_put_to_sleep(self):
        self.make()
        self.daemon.execute(self.ws, "echo x > x")
        made = self.submit([{"op": "move", "src": "x", "dest": "y"}])
        self.assertEqual("awake", self.daemon.get(f"/v1/workspaces/{self.ws}").json["state"])
        self.ask(made["id"], "apply")
        self.assertEqual("x\n", self.daemon.execute(self.ws, "cat y")["stdout"])

    def test_a_locked_base_refuses_changes_while_a_plan_waits(self):
        self.make({"base": "locked"})
        self.put("a", b"1")
        made = self.plan_run("echo 2 > a", keep_open=True)["plan"]
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "true"})
        self.assertEqual((409, "plan_open"), (answer.status, answer.code))
        answer = self.daemon.request("PUT", f"/v1/workspaces/{self.ws}/files/a", b"3")
        self.assertEqual((409, "plan_open"), (answer.status, answer.code))
        self.assertEqual(b"1", self.read("a"))
        self.plan_run("echo 3 >> a", plan=made["id"])
        self.ask(made["id"], "apply")
        self.put("a", b"4")
        running = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True}).json
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "true", "mode": "plan"})
        self.assertEqual((409, "workspace_busy"), (answer.status, answer.code))
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec/{running['exec_id']}/kill")


    def test_a_locked_base_however_it_is_written(self):
        raw = b'{"policy":{"plan":{"base":"l\\u006fcked"}}}'
        self.ws = self.daemon.request("POST", "/v1/workspaces", raw).json["id"]
        self.plan_run("echo 2 > a", keep_open=True)
        answer = self.daemon.request("PUT", f"/v1/workspaces/{self.ws}/files/a", b"3")
        self.assertEqual((409, "plan_open"), (answer.status, answer.code))

    def test_plans_that_wait_are_not_without_end(self):
        self.make()
        made = [self.submit([{"op": "create", "path": "a", "content": "1"}])["id"] for _ in range(100)]
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans", [{"op": "create", "path": "b", "content": "1"}])
        self.assertEqual((413, "plan_limit"), (answer.status, answer.code))
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "echo > x", "mode": "plan"})
        self.assertEqual((413, "plan_limit"), (answer.status, answer.code))
        self.assertEqual(200, self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{made[0]}").status)
        self.plan_run("echo > x")


class Approvals(PlanTest):
    def setUp(self):
        super().setUp()
        self.alice = self.daemon.key("alice")
        self.judge = self.daemon.key("judge", ("approve",))

    def decide(self, plan, what, key, **body):
        return self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{plan}/{what}", body, key=key)

    def pending(self, policy=None):
        self.make({"approval": "required", **(policy or {})}, key=self.alice)
        made = self.submit([{"op": "create", "path": "a", "content": "1"}, {"op": "create", "path": "b", "content": "2"}],
                           key=self.alice)
        self.assertEqual("pending", made["state"])
        return made

    def test_whole_way(self):
        made = self.pending()
        answer = self.decide(made["id"], "apply", self.alice)
        self.assertEqual((403, "approval_required"), (answer.status, answer.code))
        waiting = self.daemon.get("/v1/plans?state=pending", key=self.judge).json["plans"]
        self.assertEqual([made["id"]], [p["id"] for p in waiting])
        self.assertEqual(2, len(self.plan(made["id"], "?operations=1", key=self.judge)["items"]))
        answer = self.decide(made["id"], "approve", self.judge, hash=made["hash"], comment="looks good")
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual(("approved", "looks good"), (answer.json["state"], answer.json["approval"]["comment"]))
        self.assertEqual(200, self.decide(made["id"], "apply", self.alice).status)
        self.assertEqual(b"1", self.read("a"))
        record = self.operations("plan.approve")[-1]
        self.assertEqual(("ok", made["hash"]), (record["result"], record["details"]["hash"]))

    def test_who_may_not(self):
        made = self.pending()
        admin = self.daemon.key("carol", ("admin", "user", "approve"))
        same = self.daemon.key("alice", ("approve", "user"))
        refused = [("the owner's own key", self.alice, made["hash"]), ("another key of the same principal", same, made["hash"]),
                   ("the administrator without the scope", None, made["hash"]), ("another hash", self.judge, "0" * 64),
                   ("no hash", self.judge, None)]
        for who, key, value in refused:
            body = {"hash": value} if value else {}
            answer = self.decide(made["id"], "approve", key, **body)
            self.assertEqual((403, "approval_refused"), (answer.status, answer.code), (who, answer.bytes))
        self.assertEqual("pending", self.plan(made["id"])["state"])
        # Of another workspace, an older plan, and once more.
        answer = self.decide(made["id"], "approve", self.judge, hash=made["hash"])
        self.assertEqual(200, answer.status, answer.bytes)
        answer = self.decide(made["id"], "approve", self.judge, hash=made["hash"])
        self.assertEqual((403, "approval_refused"), (answer.status, answer.code))
        first = self.ws
        other = self.pending()
        answer = self.decide(other["id"], "approve", self.judge, hash="1" * 64)
        self.assertEqual((403, "approval_refused"), (answer.status, answer.code))
        answer = self.daemon.post(f"/v1/workspaces/{first}/plans/{other['id']}/approve", {"hash": other["hash"]}, key=self.judge)
        self.assertEqual((404, "plan_not_found"), (answer.status, answer.code))
        self.assertTrue([r for r in self.operations("plan.approve") if r["result"] == "refused"])
        self.assertTrue(admin)

    def test_keys_that_made_each_other(self):
        parent = self.daemon.key("parent", ("admin", "user"))

        def made_by(key, owner, *scopes):
            answer = self.daemon.post("/v1/keys", {"owner": owner, "scopes": list(scopes)}, key=key)
            self.assertEqual(201, answer.status, answer.bytes)
            return answer.json["key"]
        agent = made_by(parent, "agent", "user", "admin")
        child = made_by(agent, "child", "approve")
        sister = made_by(parent, "sister", "approve")
        self.make({"approval": "required"}, key=agent)
        made = self.submit([{"op": "create", "path": "a", "content": "1"}], key=agent)
        for who, key in (("made by the plan's key", child), ("made by its parent", sister)):
            answer = self.decide(made["id"], "approve", key, hash=made["hash"])
            self.assertEqual((403, "approval_refused"), (answer.status, answer.code), who)
        self.assertEqual(200, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)

    def test_some_operations(self):
        made = self.pending()
        items = self.plan(made["id"], "?operations=1")["items"]
        number = [i["number"] for i in items if i["path"] == "b"][0]
        self.assertEqual(400, self.decide(made["id"], "approve", self.judge, hash=made["hash"], operations=[7]).status)
        self.assertEqual(200, self.decide(made["id"], "approve", self.judge, hash=made["hash"], operations=[number]).status)
        applied = self.decide(made["id"], "apply", self.alice)
        self.assertEqual(200, applied.status, applied.bytes)
        self.assertEqual((None, b"2"), (self.read("a"), self.read("b")))

    def test_rejected_and_expired(self):
        made = self.pending()
        answer = self.decide(made["id"], "reject", self.judge, hash=made["hash"], comment="no")
        self.assertEqual((200, "rejected"), (answer.status, answer.json["state"]))
        self.assertEqual(403, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        self.assertEqual(409, self.decide(made["id"], "apply", self.alice).status)
        made = self.pending({"expires": "1s"})
        self.wait_state(made["id"], "expired")
        self.assertEqual(404, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        self.assertTrue(self.operations("plan.expire"))

    def test_a_judge_sees_plans_and_nothing_else(self):
        made = self.pending()
        for method, path in (("GET", ""), ("GET", "/exec"), ("GET", "/files/?list=1"), ("DELETE", ""), ("GET", "/ports"),
                             ("POST", f"/plans/{made['id']}/apply"), ("DELETE", f"/plans/{made['id']}")):
            answer = self.daemon.request(method, f"/v1/workspaces/{self.ws}{path}", {} if method == "POST" else None, key=self.judge)
            self.assertIn(answer.status, (403, 404), (method, path, answer.bytes))
        self.make(key=self.alice)
        self.assertEqual(404, self.daemon.get(f"/v1/workspaces/{self.ws}/plans", key=self.judge).status)

    def test_what_needs_review_waits_also_without_the_policy(self):
        self.make(key=self.alice)
        made = self.submit([{"op": "create", "path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n", "mode": "0755"}],
                           key=self.alice)
        answer = self.decide(made["id"], "apply", self.alice)
        self.assertEqual((403, "approval_required"), (answer.status, answer.code), answer.bytes)
        self.assertEqual(200, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        self.assertEqual(200, self.decide(made["id"], "apply", self.alice).status)


    def test_what_is_stale_beside_it_does_not_let_it_pass_unreviewed(self):
        self.make(key=self.alice)
        self.put("a.txt", b"one", key=self.alice)
        made = self.submit([{"op": "write", "path": "a.txt", "content": "two"},
                            {"op": "create", "path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n", "mode": "0755"}], key=self.alice)
        self.put("a.txt", b"changed since", key=self.alice)
        for options in ({"keep_going": True}, {"keep_going": True, "async": True}):
            answer = self.decide(made["id"], "apply", self.alice, **options)
            if answer.status == 202:
                self.wait_state(made["id"], "pending")
            else:
                self.assertEqual((403, "approval_required"), (answer.status, answer.code), answer.bytes)
            self.assertEqual("pending", self.plan(made["id"])["state"])
            self.assertIsNone(self.read(".git/hooks/pre-commit"))
        self.assertEqual(200, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        answer = self.decide(made["id"], "apply", self.alice, keep_going=True)
        self.assertEqual((403, "approval_refused"), (answer.status, answer.code), answer.bytes)
        self.assertEqual((b"changed since", None), (self.read("a.txt"), self.read(".git/hooks/pre-commit")))

    def test_what_was_approved_as_a_whole_is_not_applied_in_part(self):
        self.make({"approval": "required"}, key=self.alice)
        self.put("acl", b"open", key=self.alice)
        made = self.submit([{"op": "write", "path": "acl", "content": "closed"},
                            {"op": "create", "path": "feature", "content": "on"}], key=self.alice)
        self.assertEqual(200, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        self.put("acl", b"mine", key=self.alice)
        for options in ({"keep_going": True}, {"keep_going": True, "async": True}):
            answer = self.decide(made["id"], "apply", self.alice, **options)
            self.assertEqual((403, "approval_refused"), (answer.status, answer.code), answer.bytes)
            self.assertIn("keep_going", answer.json["error"]["message"])
            self.assertEqual("approved", self.plan(made["id"])["state"])
        answer = self.decide(made["id"], "apply", self.alice)
        self.assertEqual((409, "plan_stale"), (answer.status, answer.code), answer.bytes)
        self.assertEqual((b"mine", None), (self.read("acl"), self.read("feature")))

    def test_a_judge_sees_what_waits_and_what_it_decided(self):
        second = self.daemon.key("second", ("approve",))
        self.make(key=self.alice)
        early = self.submit([{"op": "create", "path": "e", "content": "1"}], key=self.alice)["id"]
        self.ask(early, "apply", key=self.alice)
        answer = self.daemon.request("PATCH", f"/v1/workspaces/{self.ws}", {"policy": {"plan": {"approval": "required"}}})
        self.assertEqual(200, answer.status, answer.bytes)
        opened = self.plan_run("echo secret > s", key=self.alice, keep_open=True)["plan"]["id"]

        def seen(key):
            at = f"/v1/workspaces/{self.ws}/plans"
            listed = self.daemon.get(at, key=key)
            found = {p["id"] for p in listed.json["plans"]} if listed.status == 200 else set()
            self.assertEqual(found, {p["id"] for p in self.daemon.get("/v1/plans", key=key).json["plans"]})
            for plan in (early, opened, waiting):
                for path in ("", "?operations=1", "/diff?path=s"):
                    status = self.daemon.get(f"{at}/{plan}{path}", key=key).status
                    if plan not in found:
                        self.assertEqual(404, status, (plan, path))
                for what in ("approve", "reject"):
                    if plan not in found:
                        self.assertEqual(404, self.decide(plan, what, key, hash="0" * 64).status)
                if plan in found:
                    self.assertEqual(200, self.daemon.get(f"{at}/{plan}", key=key).status)
            return listed.status, found
        waiting = "p" + "a" * 26
        self.assertEqual((404, set()), seen(self.judge))
        made = self.submit([{"op": "create", "path": "w", "content": "1"}], key=self.alice)
        waiting = made["id"]
        self.assertEqual((200, {waiting}), seen(self.judge))
        self.assertEqual((200, {waiting}), seen(second))
        self.assertEqual(200, self.decide(waiting, "approve", self.judge, hash=made["hash"]).status)
        self.assertEqual((200, {waiting}), seen(self.judge))
        self.assertEqual((404, set()), seen(second))
        self.assertEqual({early, opened, waiting},
                         {p["id"] for p in self.daemon.get(f"/v1/workspaces/{self.ws}/plans", key=self.alice).json["plans"]})

    def test_a_policy_tightened_since_holds_for_plans_that_were_made_before(self):
        self.make(key=self.alice)
        plans = [self.submit([{"op": "create", "path": name, "content": "1"}], key=self.alice) for name in "abc"]
        running = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True}).json
        self.assertEqual(202, self.decide(plans[2]["id"], "apply", self.alice, **{"async": True}).status)
        answer = self.daemon.request("PATCH", f"/v1/workspaces/{self.ws}", {"policy": {"plan": {"approval": "required"}}})
        self.assertEqual(200, answer.status, answer.bytes)
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec/{running['exec_id']}/kill")
        for plan, options in ((plans[0], {}), (plans[1], {"async": True})):
            answer = self.decide(plan["id"], "apply", self.alice, **options)
            self.assertEqual((403, "approval_required"), (answer.status, answer.code), answer.bytes)
            self.assertEqual("pending", self.plan(plan["id"])["state"])
        self.wait_state(plans[2]["id"], "pending")
        self.assertEqual((None, None, None), (self.read("a"), self.read("b"), self.read("c")))
        self.assertEqual(200, self.decide(plans[0]["id"], "approve", self.judge, hash=plans[0]["hash"]).status)
        self.assertEqual(200, self.decide(plans[0]["id"], "apply", self.alice).status)


class Queue(PlanTest):
    def many(self, n):
        return [{"op": "create", "path": f"d{i % 50}/f{i}", "content": str(i)} for i in range(n)]

    def test_async(self):
        self.make()
        made = self.submit(self.many(300))
        queued = self.ask(made["id"], "apply", {"async": True}, expect=202)
        self.assertIn(queued["state"], ("queued", "applying", "applied"))
        done = self.wait_state(made["id"], "applied")
        self.assertEqual(made["operations"], done["apply"]["applied"])
        self.assertTrue(done["apply"]["async"])
        self.assertEqual(b"7", self.read("d7/f7"))

    def test_waits_for_the_workspace_and_can_be_cancelled(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        other = self.submit([{"op": "create", "path": "b", "content": "1"}])
        running = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True}).json
        self.ask(made["id"], "apply", {"async": True}, expect=202)
        self.ask(other["id"], "apply", {"async": True}, expect=202)
        deadline = time.monotonic() + PATIENCE
        while self.plan(made["id"]).get("attempts", 0) < 2:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertIn(self.plan(made["id"])["state"], ("queued", "applying"))
        for _ in range(100):
            answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{other['id']}/cancel", {})
            self.assertIn(answer.status, (200, 202, 409), answer.bytes)
            if self.plan(other["id"])["state"] == "closed":
                break
            time.sleep(0.05)
        self.assertEqual("closed", self.plan(other["id"])["state"])
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec/{running['exec_id']}/kill")
        self.wait_state(made["id"], "applied")
        self.assertEqual((b"1", None), (self.read("a"), self.read("b")))

    def test_cancelling_tells_whether_it_came_in_time(self):
        self.make()
        made = self.submit(self.many(5000))
        self.ask(made["id"], "apply", {"async": True}, expect=202)
        # A busy machine may not let us look in between: then it is too late as well.
        while not (now := self.plan(made["id"])).get("apply", {}).get("steps_done") and now["state"] != "applied":
            self.assertIn(now["state"], ("queued", "applying"))
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/cancel", {})
        self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
        self.wait_state(made["id"], "applied")
        # While it is verified it is in time: then it is out of the queue when that is said.
        other = self.submit([{"op": "create", "path": "b", "content": "1"}])
        self.ask(other["id"], "apply", {"async": True}, expect=202)
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{other['id']}/cancel", {})
        state = self.plan(other["id"])["state"]
        self.assertIn((answer.status, state), ((200, "closed"), (409, "applied")), answer.bytes)

    def test_an_end_that_cannot_be_written_down_is_found_out_later(self):
        self.make()
        made = self.submit(self.many(3000))
        connection = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {}, wait=False)
        while self.plan(made["id"])["state"] != "applying":
            time.sleep(0.01)
        database = sqlite3.connect(f"{self.daemon.state}/db/carrel.db", isolation_level=None)
        try:
            database.execute("BEGIN IMMEDIATE")
            answer = connection.getresponse()
            answer.read()
        finally:
            database.close()
        connection.close()
        self.assertGreaterEqual(answer.status, 400)
        self.wait_state(made["id"], "applied")
        self.assertEqual(b"7", self.read("d7/f7"))

    def test_the_queue_goes_on_after_restarts(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True})
        self.ask(made["id"], "apply", {"async": True}, expect=202)
        self.daemon.kill_front()
        self.assertIn(self.plan(made["id"])["state"], ("queued", "applying"))
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.wait_state(made["id"], "applied")
        self.assertEqual(b"1", self.read("a"))

    def test_killed_in_the_middle_of_an_apply(self):
        """The front or the broker at some instant: afterwards the tree is the old or the new one, and the row says which."""
        self.make()
        self.put("keep", b"1")
        self.sleep()
        before = self.tree()
        for who, delay in (("front", 0.05), ("broker", 0.05), ("front", 0.3), ("broker", 0.3), ("broker", 0.6)):
            made = self.submit(self.many(3000))
            connection = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {}, wait=False)
            time.sleep(delay)
            if who == "front":
                self.daemon.kill_front()
            else:
                self.daemon.stop(signal.SIGKILL)
                self.daemon.start()
            connection.close()
            state = self.wait_state(made["id"], "applied", "closed")["state"]
            now = self.tree()
            if state == "applied":
                self.assertEqual(len(before) + made["operations"], len(now), (who, delay))
                self.ask(made["id"], "undo")
            self.assertEqual(before, self.tree(), (who, delay, state))
            self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{made['id']}")
        self.assertEqual(0, os.system(f"{os.environ['CARREL']} audit verify --state {self.daemon.state} >/dev/null"))

    def test_execs_wait_while_a_plan_is_applied(self):
        self.make()
        made = self.submit(self.many(5000))
        results = []
        thread = threading.Thread(target=lambda: results.append(self.ask(made["id"], "apply")["state"]))
        thread.start()
        while self.plan(made["id"])["state"] == "closed":
            time.sleep(0.01)
        self.assertEqual("5000\n", self.daemon.execute(self.ws, "find d[0-9]* -type f | wc -l")["stdout"])
        thread.join()
        self.assertEqual(["applied"], results)


class Rights(PlanTest):
    def test_who_changes_the_tree_has_no_rights(self):
        self.make()
        made = self.submit([{"op": "create", "path": f"d{i % 50}/f{i}", "content": str(i)} for i in range(5000)])
        owner = os.stat(self.root()).st_uid
        connection = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {}, wait=False)
        seen = None
        deadline = time.monotonic() + PATIENCE
        while not seen and time.monotonic() < deadline:
            seen = self.applier()
        connection.getresponse().read()
        connection.close()
        self.assertIsNotNone(seen, "it was never seen")
        self.assertEqual({"CapEff": "0" * 16, "CapPrm": "0" * 16, "CapAmb": "0" * 16, "NoNewPrivs": "1", "Uid": str(owner)},
                         {k: seen[k] for k in ("CapEff", "CapPrm", "CapAmb", "NoNewPrivs", "Uid")})

    def applier(self):
        """Its status, once it is itself."""
        for pid in os.listdir("/proc"):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if words[:2] != [b"carrel-plan", b"apply"]:
                    continue
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    lines = [line.split(":", 1) for line in file]
                found = {k: v.split()[0] for k, v in lines if v.split()}
                if int(found["PPid"]) == self.daemon.process.pid:
                    return found
            except OSError:
                continue
        return None


class Lying(CarrelTest):
    """A carrel-plan that does what it is told and says that it failed: the journal is believed, not the exit status."""
    LIAR = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int status, lies = argc > 1 && (!strcmp(argv[1], "apply") || !strcmp(argv[1], "undo"));
    pid_t child = lies ? fork() : 0;
    if (child == 0) {
        int sink = lies ? open("/dev/null", O_WRONLY) : -1;
        if (sink >= 0)
            dup2(sink, 1);
        execv(REAL, argv);
        _exit(124);
    }
    waitpid(child, &status, 0);
    puts("{\"error\":{\"code\":\"io_error\",\"message\":\"lost\"}}");
    return 1;
}
"""

    def programs(self):
        place = self.path("bin")
        os.mkdir(place, 0o755)
        above = os.path.dirname(os.environ["CARREL"])
        for name in os.listdir(above):
            if name.startswith("carrel") and os.access(f"{above}/{name}", os.X_OK) and os.path.isfile(f"{above}/{name}"):
                shutil.copy(f"{above}/{name}", f"{place}/{name}")
        os.rename(f"{place}/carrel-plan", f"{place}/real")
        done = subprocess.run(["cc", "-O1", f'-DREAL="{place}/real"', "-xc", "-", "-o", f"{place}/carrel-plan"],
                              input=self.LIAR.encode(), capture_output=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        for at in (TMP, self.dir):
            os.chmod(at, os.stat(at).st_mode | 0o711)
        return f"{place}/carrel"

    def test_the_row_says_what_is_in_the_tree(self):
        with unittest.mock.patch.object(daemontest, "CARREL", self.programs()):
            daemon = Daemon(self.path("s"))
        try:
            ws = daemon.post("/v1/workspaces", {}).json["id"]
            root = daemon.get(f"/v1/workspaces/{ws}").json["path"]
            made = daemon.post(f"/v1/workspaces/{ws}/plans", [{"op": "create", "path": "a", "content": "1"}]).json
            one = f"/v1/workspaces/{ws}/plans/{made['id']}"
            for verb, state, there in (("apply", "applied", True), ("undo", "undone", False)):
                answer = daemon.post(f"{one}/{verb}", {})
                self.assertEqual((200, state), (answer.status, answer.json.get("state")), answer.bytes)
                self.assertEqual(there, os.path.exists(f"{root}/a"))
                self.assertTrue(answer.json[verb]["interrupted"])
        finally:
            daemon.stop()


class DiskFull(CarrelTest):
    """A file system of its own, which is full at the wrong moment."""

    def test_nothing_is_half_done(self):
        if os.geteuid() != 0:
            self.skipTest("mounts a file system")
        place = self.path("m")
        os.mkdir(place, 0o711)
        mount("tmpfs", place, "tmpfs", "size=48m,mode=711")
        try:
            self.full(place)
        finally:
            umount(place, lazily=True)

    def full(self, place):
        for above in (TMP, self.dir):
            os.chmod(above, 0o711)
        daemon = Daemon(f"{place}/s")
        try:
            ws = daemon.post("/v1/workspaces", {}).json["id"]
            root = daemon.get(f"/v1/workspaces/{ws}").json["path"]
            plans = f"/v1/workspaces/{ws}/plans"
            made = daemon.post(plans, [{"op": "create", "path": f"f{i}", "content": "x" * 100} for i in range(500)]).json
            large = daemon.post(plans, [{"op": "create", "path": "large", "content": "x" * (60 << 20)}])
            self.assertEqual((507, "disk_full"), (large.status, large.code), large.bytes)
            before = sorted(os.listdir(root))
            deadline = time.monotonic() + PATIENCE  # what the large one took is given back first
            while os.listdir(f"{place}/s/main/.carrel/workspaces/{ws}/plans") != [made["id"]]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            with open(f"{place}/filler", "wb") as filler:
                try:
                    while True:
                        filler.write(b"x" * 65536)
                        filler.flush()
                except OSError:
                    pass
            answer = daemon.post(f"{plans}/{made['id']}/apply")
            self.assertGreaterEqual(answer.status, 400, answer.bytes)
            self.assertEqual(before, sorted(os.listdir(root)))
            os.unlink(f"{place}/filler")
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                answer = daemon.post(f"{plans}/{made['id']}/apply")
                if answer.status == 200:
                    break
                time.sleep(0.5)
            self.assertEqual(200, answer.status, answer.bytes)
            self.assertEqual(500, len([n for n in os.listdir(root) if n.startswith("f")]))
        finally:
            daemon.stop()


class Ends(PlanTest):
    def test_a_workspace_deleted_while_its_plan_waits(self):
        self.make({"approval": "required"})
        judge = self.daemon.key("judge", ("approve",))
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        bucket = self.bucket()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}").status)
        self.assertEqual([], self.daemon.get("/v1/plans?state=pending", key=judge).json["plans"])
        self.assertEqual(409, self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/apply", {}).status)
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{self.ws}/undelete").status)
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/approve", {"hash": made["hash"]}, key=judge)
        self.assertEqual(200, answer.status, answer.bytes)
        running = self.plan_run("sleep 1000", background=True, expect=202)
        self.assertTrue(running["plan"]["id"])
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}?purge=1").status)
        self.assertEqual(404, self.daemon.get(f"/v1/workspaces/{self.ws}/plans/{made['id']}").status)
        self.assertFalse(os.path.exists(f"{self.daemon.state}/{bucket}/.carrel/workspaces/{self.ws}"))

    def test_a_workspace_deleted_while_its_plan_is_queued(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True})
        self.ask(made["id"], "apply", {"async": True}, expect=202)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}").status)
        time.sleep(1)
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{self.ws}/undelete").status)
        self.wait_state(made["id"], "applied", "failed")

    def test_history_is_bounded(self):
        self.make({"history": {"keep": 2}})
        plans = []
        for i in range(4):
            made = self.submit([{"op": "create", "path": f"f{i}", "content": "x"}])
            self.ask(made["id"], "apply")
            plans.append(made["id"])
        deadline = time.monotonic() + PATIENCE
        while len(self.plan_dirs()) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(sorted(plans[2:]), self.plan_dirs())
        self.assertTrue(self.plan(plans[0])["dropped"])
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{plans[0]}/undo", {})
        self.assertEqual((410, "gone"), (answer.status, answer.code))
        self.ask(plans[3], "undo")

    def test_directories_without_a_row_are_removed_by_the_next_start(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        stray = "p" + "b" * 26
        above = f"{self.daemon.state}/{self.bucket()}/.carrel/workspaces/{self.ws}/plans"
        os.mkdir(f"{above}/{stray}")
        self.daemon.stop()
        self.daemon.start()
        deadline = time.monotonic() + PATIENCE
        while stray in self.plan_dirs() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([made["id"]], self.plan_dirs())

    def test_an_open_plan_survives_the_brokers_death(self):
        self.make()
        self.put("a", b"1")
        made = self.plan_run("echo 2 > a", keep_open=True)["plan"]
        self.daemon.post(f"/v1/workspaces/{self.ws}/exec",
                         {"command": "echo 3 > b; sleep 1000", "mode": "plan", "plan": made["id"], "background": True})
        time.sleep(0.5)
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual("open", self.plan(made["id"])["state"])
        self.assertEqual(b"1", self.read("a"))
        self.assertEqual("2\n", self.plan_run("cat a", plan=made["id"])["stdout"])

    def test_a_front_that_dies_with_a_plan_run_closes_it_later(self):
        self.make()
        started = self.plan_run("sleep 1; echo x > x", background=True, expect=202)
        self.daemon.kill_front()
        closed = self.wait_state(started["plan"]["id"], "closed")
        self.assertEqual(1, closed["operations"])

    def test_metrics_and_events(self):
        self.make()
        stream = self.daemon.stream("GET", "/v1/events")
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        self.ask(made["id"], "apply")
        seen = b""
        while b"plan.apply" not in seen:
            seen += stream.readline()
        self.assertIn(b"plan.submit", seen)
        stream.close()
        metrics = self.daemon.get("/metrics").bytes.decode()
        self.assertIn("carrel_plans_total{outcome=\"applied\"} 1", metrics)


if __name__ == "__main__":
    unittest.main()
