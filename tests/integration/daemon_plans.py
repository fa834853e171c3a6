#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 25
"""Plans over HTTP: made by a command or written, verified, applied, undone; what is in their way, and what they leave."""
import hashlib
import os
import signal
import time
import unittest

from carreltest import PATIENCE
from daemonplantest import PlanTest
from daemontest import events_of


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
        self.plans_are_left(0)
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

    def test_a_check_sees_what_a_written_plan_would_make_of_the_tree(self):
        # Of all that is there: type, mode, target, size; attributes; and what the files hold.
        names = "deep moved swap1 swap2 keep made saved full empty top holes holes2"
        look = ["sh", "-c", f"(find {names} -printf '%y %m %p %l\\n'; find {names} -type f -printf '%p %s\\n'; grep -ar . {names} | tr -d '\\0';"
                f" python3 -c 'import os; print([os.listxattr(n) for n in (\"moved/a\", \"made/for/m\")])') 2>/dev/null | LC_ALL=C sort"]
        self.make()
        self.daemon.execute(self.ws, "mkdir -p deep/er/est swap1 swap2 keep full/of; echo 1 > deep/er/a; echo 2 > deep/er/est/b; echo s1 > swap1/f;"
                            " echo s2 > swap2/f; echo k > keep/k; echo m > keep/m; ln -s k keep/l; echo x > full/of/x; echo y > full/y;"
                            " echo old > top; chmod 750 deep/er; chmod 640 deep/er/a; truncate -s 3M holes;"
                            " python3 -c 'import os; os.setxattr(\"keep/m\", \"user.note\", b\"n\")'; chmod 555 deep/er/est")
        before = self.tree()
        written = [
            {"op": "move", "src": "deep/er", "dest": "moved"}, {"op": "write", "path": "moved/a", "content": "rewritten"},
            {"op": "chmod", "path": "moved/est", "mode": "0700"}, {"op": "create", "path": "moved/est/new", "content": "n"},
            {"op": "move", "src": "swap1/f", "dest": "swap2/f"}, {"op": "move", "src": "swap2/f", "dest": "swap1/f"},
            {"op": "move", "src": "keep/m", "dest": "made/for/m"}, {"op": "symlink", "path": "made/link", "target": "for/m"},
            {"op": "move", "src": "keep/l", "dest": "made/for/l"}, {"op": "move", "src": "full/of/x", "dest": "saved"},
            {"op": "delete", "path": "full", "recursive": True}, {"op": "mkdir", "path": "empty", "mode": "0711"},
            {"op": "delete", "path": "top"}, {"op": "create", "path": "top/now/a/directory", "content": "yes"},
            {"op": "chmod", "path": "keep/k", "mode": "0600"}, {"op": "move", "src": "holes", "dest": "holes2"}]
        made = self.submit(written)
        spoils = "rm -r moved swap1 && echo junk > saved && echo junk > holes2 && echo junk > keep/k && test -d empty"
        for check in (["sh", "-c", spoils], look):
            verified = self.ask(made["id"], "verify", {"check": check})
            self.assertEqual((0, "clean"), (verified["check"]["exit_code"], verified["verdict"]), verified)
            self.assertEqual(before, self.tree())
        # Also one that prints what is no text.
        refused = self.ask(made["id"], "verify", {"check": ["sh", "-c", "printf 'a\\0\\377b'; test -e full"]})
        self.assertEqual(("refused", "check"), (refused["verdict"], refused["findings"][0]["rule"]))
        refused = self.ask(made["id"], "verify", {"check": ["sh", "-c", "printf 'a\\0b'; test -e deep/er"]})
        self.assertEqual(("refused", 2), (refused["verdict"], refused["findings_count"]), refused)
        made = self.submit(written)
        self.ask(made["id"], "apply")
        self.assertEqual(verified["check"]["output"], self.daemon.execute(self.ws, look[2])["stdout"])
        self.plans_are_left(2)  # nothing of the views

    def test_what_a_written_plan_cannot_be_is_told_before_its_check_runs(self):
        self.make()
        self.put("a", b"1")
        made = self.submit([{"op": "move", "src": "a", "dest": "b"}])
        self.daemon.execute(self.ws, "rm a")
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made['id']}/verify", {"check": ["true"]})
        self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
        self.assertIn("verify it without a check", answer.json["error"]["message"])
        self.assertEqual("stale", self.ask(made["id"], "verify")["findings"][0]["rule"])
        self.plans_are_left(1)

    def test_discard(self):
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])
        self.assertEqual([made["id"]], self.plan_dirs())
        answer = self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{made['id']}")
        self.assertEqual((200, "discarded"), (answer.status, answer.json["state"]))
        self.ask(made["id"], "apply", expect=409)
        self.plans_are_left(0)


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
        self.plans_are_left(2)
        self.assertIn(made["id"], self.plan_dirs())
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
        self.plans_are_left(0)

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

    def test_plans_that_wait_do_not_take_all_of_the_disk(self):
        self.make({"waiting_bytes": "8K"})
        first = self.plan_run("head -c 9000 /dev/zero > a")["plan"]
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans", [{"op": "create", "path": "b", "content": "1"}])
        self.assertEqual((413, "plan_limit"), (answer.status, answer.code))
        self.assertIn("waiting_bytes", answer.json["error"]["message"])
        self.assertEqual(200, self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}/plans/{first['id']}").status)
        self.submit([{"op": "create", "path": "b", "content": "1"}])


class Ends(PlanTest):
    def test_a_workspace_deleted_while_its_plan_waits(self):
        self.make({"approval": "required"})
        judge = self.daemon.key("admin", ("approve",))
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
