#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 40
"""A policy with "writes": "plan": what an agent's key changes goes into one open plan, and the tree stays as it is."""
import io
import json
import os
import subprocess
import tarfile
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE, ROOT, TMP
from mcptest import Mcp
from websockettest import TEXT, WebSocket
from writesplantest import WritesPlanTest


class OnePlan(WritesPlanTest):
    def test_commands_and_calls_on_files_share_one_plan(self):
        self.planned()
        first = self.run_agent("echo three > new.txt; cat notes.txt")
        self.assertEqual("one\n", first["stdout"])
        plan = self.open_plan()
        self.assertEqual({"id": plan, "state": "open"}, first["plan"])
        self.assertEqual(b"three\n", self.call("GET", "/files/new.txt", expect=200).bytes)
        self.call("PUT", "/files/dir/put.txt", b"put\n", expect=201)
        self.assertEqual("put\n", self.run_agent("cat dir/put.txt")["stdout"])
        self.call("DELETE", "/files/notes.txt", expect=204)
        self.assertEqual(404, self.call("GET", "/files/notes.txt").status)
        names = [e["path"].lstrip("/") for e in self.call("GET", "/files/?list=1", expect=200).json["entries"]]
        self.assertIn("new.txt", names)
        self.assertNotIn("notes.txt", names)
        found = self.call("POST", "/files-glob", {"pattern": "**/*.txt"}, expect=200).bytes
        self.assertIn(b"dir/put.txt", found)
        found = self.call("POST", "/files-grep", {"pattern": "three"}, expect=200).bytes
        self.assertIn(b"new.txt", found)
        self.assertIn(b"put.txt", self.call("GET", "/files/dir?archive=tar", expect=200).bytes)
        self.assertEqual(plan, self.open_plan())
        # The owner sees the tree as it is.
        self.assertEqual(b"one\n", self.call("GET", "/files/notes.txt", key=self.owner, expect=200).bytes)
        self.assertEqual(404, self.call("GET", "/files/new.txt", key=self.owner).status)
        self.unchanged()
        made = self.close()
        self.assertEqual("closed", made["state"])
        self.assertEqual([], self.open_plans())
        # Where none is open, an agent reads the tree.
        self.assertEqual(b"one\n", self.call("GET", "/files/notes.txt", expect=200).bytes)
        self.assertEqual([], self.open_plans())
        self.call("POST", f"/plans/{plan}/apply", {"hash": made["hash"]}, expect=200)
        self.assertEqual((b"three\n", b"put\n", None), (self.read("new.txt"), self.read("dir/put.txt"), self.read("notes.txt")))
        # The next change begins another.
        self.call("PUT", "/files/after.txt", b"x", expect=201)
        self.assertNotEqual(plan, self.open_plan())

    def test_parallel_and_background_commands_share_it_and_closing_ends_them(self):
        self.planned()
        results = []

        def one(number):
            results.append(self.run_agent(f"echo {number} > p{number}; sleep 0.2; ls p* | wc -l"))
        threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({0}, {r["exit_code"] for r in results}, results)
        self.assertEqual(1, len({r["plan"]["id"] for r in results}), results)
        background = self.run_agent("sleep 1000", background=True, expect=202)
        self.assertEqual(results[0]["plan"]["id"], background["plan"]["id"])
        self.run_agent("setsid -f sh -c 'while :; do date > ticking; sleep 0.05; done' >/dev/null 2>&1")
        deadline = time.monotonic() + PATIENCE
        while self.call("GET", "/files/ticking").status != 200:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        plan = self.open_plan()
        made = self.close(plan)
        self.assertEqual(plan, made["id"])
        self.assertGreaterEqual(made["operations"], 7)
        ended = self.call("GET", f"/exec/{background['exec_id']}", expect=200).json
        self.assertEqual("ended", ended["state"])
        self.unchanged()

    def test_what_comes_while_it_is_closed_is_done_or_told_so(self):
        """Every change that was answered well is in a plan; of the others the answer says why not, and that it was the closing."""
        self.planned()
        ended, answers, done = threading.Event(), {}, set()

        def write(number):
            body = os.urandom(100000)
            at = 0
            while not ended.is_set():
                at += 1
                name = f"w{number}-{at}"
                if number % 4 == 3:
                    answer = self.call("POST", "/exec", {"command": f"echo x > {name}"})
                    good = answer.status == 200 and answer.json["exit_code"] == 0
                else:
                    answer = self.call("PUT", f"/files/{name}", body)
                    good = answer.status == 201
                if good:
                    done.add(name)
                elif answer.status != 200:  # a command that was ended with its plan
                    answers.setdefault((answer.status, answer.code), set()).add(answer.json["error"]["message"])
        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        closed = []
        try:
            for _ in range(25):
                deadline = time.monotonic() + PATIENCE
                while not (plans := self.open_plans()):
                    self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
                answer = self.call("POST", f"/plans/{plans[0]['id']}/close", {}, key=self.owner)
                self.assertIn(answer.status, (200, 409), answer.bytes)
                closed.append(plans[0]["id"])
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        closed += [p["id"] for p in self.open_plans()]
        self.assertLessEqual(set(answers), {(409, "conflict")}, answers)
        for said in answers.values():
            for message in said:
                self.assertRegex(message, "closed|ended")
        if closed[-1] not in closed[:-1] and self.open_plans():
            self.close(closed[-1])
        made = set()
        for plan in closed:
            cursor = 0
            while cursor is not None:
                page = self.call("GET", f"/plans/{plan}?operations=1&limit=10000&cursor={cursor}", expect=200).json
                made |= {item["path"] for item in page["items"]}
                cursor = page["next"]
        self.assertEqual(set(), done - made, "answered well, and in no plan")
        self.unchanged()

    def test_modes_and_other_plans_are_refused(self):
        self.planned()
        refused = self.run_agent("id", mode="direct", expect=403)
        self.assertIn("in its plan only", refused["error"]["message"])
        self.assertEqual([], self.open_plans())
        first = self.run_agent("echo x > x", mode="plan")
        again = self.run_agent("cat x", mode="plan", plan=first["plan"]["id"], keep_open=False)
        self.assertEqual(("x\n", "open"), (again["stdout"], again["plan"]["state"]))
        other = self.plan_run("echo y > y", key=self.owner, keep_open=True)["plan"]["id"]
        self.run_agent("id", mode="plan", plan=other, expect=409)
        for what in ("close", "apply", "undo", "cancel"):
            self.call("POST", f"/plans/{other}/{what}", {}, expect=404)
        self.call("DELETE", f"/plans/{other}", expect=404)
        self.unchanged()

    def test_each_agent_has_its_own(self):
        self.planned()
        second = self.agent_key()
        self.run_agent("echo one > of-one")
        mine = self.open_plan()
        self.assertEqual(404, self.call("GET", "/files/of-one", key=second).status)
        self.call("PUT", "/files/of-two", b"two", key=second, expect=201)
        self.assertEqual(2, len(self.open_plans()))
        self.assertEqual(404, self.call("GET", "/files/of-two").status)
        self.call("POST", f"/plans/{mine}/close", {}, key=second, expect=404)
        self.unchanged()

    def test_one_that_sleeps_keeps_what_was_written(self):
        self.planned()
        self.run_agent("echo kept > kept.txt; echo gone > /tmp/gone")
        plan = self.open_plan()
        self.daemon.post(f"/v1/workspaces/{self.ws}/sleep", {}, key=self.owner)
        self.assertEqual(b"kept\n", self.call("GET", "/files/kept.txt", expect=200).bytes)
        self.assertEqual(plan, self.open_plan())
        self.assertEqual("kept\n", self.run_agent("cat kept.txt; ls /tmp")["stdout"])
        self.unchanged()

    def test_terminals_input_and_signals(self):
        self.planned()
        started = self.run_agent("read a; echo got $a > typed; sleep 1000", pty={"cols": 80, "rows": 24}, background=True,
                                 expect=202)["exec_id"]
        self.call("POST", f"/exec/{started}/stdin", b"words\n", expect=204)
        self.call("POST", f"/exec/{started}/resize", {"cols": 100, "rows": 30}, expect=204)
        deadline = time.monotonic() + PATIENCE
        while self.call("GET", "/files/typed").bytes != b"got words\n":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.call("POST", f"/exec/{started}/signal", {"signal": "KILL"}, expect=204)
        self.unchanged()

    def seen(self):
        """What each of them sees in /by: the agent, and the owner."""
        def names(key):
            answer = self.call("GET", "/files/by?list=1", key=key)
            return {e["path"].rpartition("/")[2] for e in answer.json["entries"]} if answer.status == 200 else set()
        return names(self.agent), names(self.owner)

    def test_what_is_typed_over_websockets_goes_into_it(self):
        """Into a command that the agent began, and into a shell of the protocol of OpenAI's agents."""
        self.planned()
        own = self.run_agent("mkdir by; exec bash", stdin_open=True, background=True, expect=202)
        terminal = WebSocket(self.daemon, f"/v1/workspaces/{self.ws}/exec/{own['exec_id']}/attach", key=self.agent)
        self.assertEqual(101, terminal.status, terminal.head)
        terminal.send(b"rm notes.txt; echo x > by/attach; echo done; read line\n")
        terminal.read(b"done\n")
        self.unchanged("attach")
        terminal.send(json.dumps({"type": "eof"}), TEXT)
        terminal.read()
        terminal.close()
        terminal = WebSocket(self.daemon, f"/v1/sandbox/{self.ws}/pty", key=self.agent)
        self.assertEqual(101, terminal.status, terminal.head)
        terminal.send(b"rm -r /dir; echo x > /by/pty\n")
        terminal.read()
        terminal.close()
        self.assertEqual(({"attach", "pty"}, set()), self.seen())
        self.unchanged("pty")
        paths = {item["path"] for item in self.call("GET", f"/plans/{self.close()['id']}?operations=1", expect=200).json["items"]}
        self.assertLessEqual({"notes.txt", "dir", "by"}, paths)
        self.unchanged()

    def test_what_tools_and_the_routes_of_others_write_goes_into_it(self):
        self.planned()
        self.run_agent("mkdir by workspace; touch by/moved by/deleted; echo old > by/edited")
        for modern in (True, False):
            mcp = Mcp(self.daemon, key=self.agent, modern=modern)
            name = f"{mcp.version}-"
            mcp.do("write_file", workspace=self.ws, path=f"/by/{name}file", content="x")
            mcp.do("execute", workspace=self.ws, command=f"echo x > by/{name}command")
            process = mcp.do("start_process", workspace=self.ws, command="bash")["exec_id"]
            mcp.do("write_process", workspace=self.ws, process_id=process, input=f"echo x > by/{name}typed; exit\n", eof=True)
            mcp.do("read_process", workspace=self.ws, process_id=process, wait_ms=1000 * PATIENCE)
            self.assertIn("plan", mcp.do("plan_run", workspace=self.ws, command=f"echo x > by/{name}planned"))
            self.unchanged(f"/mcp, {mcp.version}")
        mcp.do("edit_file", workspace=self.ws, path="/by/edited", old_string="old", new_string="new")
        mcp.do("move", workspace=self.ws, source="/by/moved", destination="/by/there")
        mcp.do("delete", workspace=self.ws, path="/by/deleted")
        at = f"/v1/sandbox/{self.ws}"
        ran = self.daemon.post(at + "/exec", {"argv": ["sh", "-c", "ln -s ../by/worker here; echo x > /by/argv"]}, key=self.agent)
        self.assertIn(b'"exit_code":0', ran.bytes)
        self.assertEqual(200, self.daemon.request("PUT", at + "/file/workspace/put", b"x", key=self.agent).status)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("unpacked"))
        self.assertEqual(200, self.daemon.post(at + "/hydrate", packed.getvalue(), key=self.agent).status)
        made = {f"{version}-{how}" for version in ("2026-07-28", "2025-11-25") for how in ("file", "command", "typed", "planned")}
        self.assertEqual((made | {"edited", "there", "argv"}, set()), self.seen())
        self.assertEqual("here\nput\nunpacked\n", self.run_agent("ls workspace")["stdout"])
        self.unchanged()
        self.close()
        self.unchanged()

    def test_reading_adds_nothing_to_a_tree_that_was_never_awake(self):
        """Not even the empty directories that things are mounted on inside."""
        made = self.daemon.post("/v1/workspaces", {"id": "desk", "owner": "alice", "policy": {"writes": "plan"}}, key=self.owner)
        self.assertEqual(201, made.status, made.bytes)
        self.ws, self.agent = "desk", self.agent_key(policy={"writes": "plan"})
        self.before = self.facts()
        for body, path in ((None, "/files/?list=1"), ({"pattern": "**"}, "/files-glob"), ({"pattern": "x"}, "/files-grep"),
                           (None, "/files/?archive=tar"), ({}, "/files-inventory")):
            self.call("POST" if body is not None else "GET", path, body, expect=200)
        self.unchanged("read")
        self.assertEqual([], self.open_plans())
        self.run_agent("ls -la / > listing")
        self.unchanged("a command")
        # Nor to one that it makes itself.
        made = self.daemon.post("/v1/workspaces", {"id": "desk-own"}, key=self.agent)
        self.assertEqual(201, made.status, made.bytes)
        self.close()
        self.ws = "desk-own"
        self.before = self.facts()
        self.call("GET", "/files/?list=1", expect=200)
        self.call("PUT", "/files/x", b"x", expect=201)
        self.unchanged("its own")
        refused = self.daemon.post("/v1/workspaces", {"id": "desk-env", "python": True}, key=self.agent)
        self.assertEqual(403, refused.status, refused.bytes)

    def test_mount_points_that_were_taken_away_come_back_and_nothing_else(self):
        """They are names that Carrel reserves, and no part of the tree: whoever wakes it has them made, also by reading."""
        self.planned()
        self.sleep()
        points = {name for name in os.listdir(self.root()) if not os.path.islink(f"{self.root()}/{name}")
                  and os.path.isdir(f"{self.root()}/{name}")} - {"dir", "empty"}
        self.assertLessEqual({"usr", "proc", "tmp"}, points)
        kept = self.facts()
        for name in points:
            os.rmdir(f"{self.root()}/{name}")
        self.before = self.facts()
        self.call("POST", "/files-glob", {"pattern": "/usr/*"}, expect=200)  # wakes it
        self.run_agent("echo x > x")
        now = self.facts()
        self.assertEqual(points, set(now) - set(self.before))
        for name in points:
            self.assertEqual((kept[name][0], *kept[name][2:4]), (now[name][0], *now[name][2:4]), name)
            self.assertEqual([], os.listdir(f"{self.root()}/{name}"))
            del now[name]
        for found in (self.before, now):
            mode, inode, uid, gid, _, content, marks = found["."]
            found["."] = mode, inode, uid, gid, content, marks
        self.assertEqual(self.before, now)
        self.assertEqual(["x"], [item["path"] for item in self.call(
            "GET", f"/plans/{self.close()['id']}?operations=1", expect=200).json["items"]])

    def test_on_the_record_is_who_and_which_plan(self):
        self.planned()
        self.run_agent("echo x > x")
        self.call("PUT", "/files/y", b"y", expect=201)
        plan = self.open_plan()
        key = self.daemon.get(f"/v1/workspaces/{self.ws}/plans/{plan}").json["created_by"]
        found = {}
        for record in self.daemon.audit():
            details = record.get("details") or {}
            if isinstance(details, dict) and details.get("plan") == plan:
                found.setdefault(record["operation"], set()).add(record["actor"])
        for operation in ("plan.open", "exec.start", "file.write"):
            self.assertEqual({key}, found.get(operation), found)

    def test_the_owner_goes_on_directly_and_the_plan_goes_stale(self):
        self.planned()
        self.run_agent("echo planned > notes.txt")
        self.daemon.execute(self.ws, "echo beside > beside.txt", key=self.owner)
        self.assertEqual(b"planned\n", self.call("GET", "/files/notes.txt", expect=200).bytes)
        made = self.close()
        self.daemon.execute(self.ws, "echo direct > notes.txt", key=self.owner)
        answer = self.call("POST", f"/plans/{made['id']}/apply", {})
        self.assertEqual((409, "plan_stale"), (answer.status, answer.code))
        self.assertEqual(b"direct\n", self.read("notes.txt"))

    def both_change(self):
        """The agent first. What the owner has left, and the plan."""
        names = ("both", "gone", "kept", "mode", "moved", "only", "within")
        self.desk({"writes": "plan"})
        self.daemon.execute(self.ws, f"mkdir old; for f in {' '.join(names)}; do echo $f > $f; done; mv within old", key=self.owner)
        self.run_agent("echo mine > both; rm -r old gone kept; chmod 600 mode; mv moved elsewhere; echo mine > only")
        self.daemon.execute(self.ws, "echo theirs > both; echo theirs > gone; echo theirs > old/new; chmod 640 mode; "
                                     "chmod 600 moved; echo theirs > beside", key=self.owner)
        theirs = {"both": b"theirs\n", "gone": b"theirs\n", "old/new": b"theirs\n", "old/within": b"within\n", "mode": b"mode\n",
                  "moved": b"moved\n", "elsewhere": None, "beside": b"theirs\n", "kept": b"kept\n", "only": b"only\n"}
        return theirs, self.close()["id"]

    def test_what_both_have_changed_while_it_was_open_is_stale(self):
        theirs, plan = self.both_change()
        answer = self.call("POST", f"/plans/{plan}/verify", {}, expect=200).json
        self.assertEqual("refused", answer["verdict"])
        self.assertEqual({"both", "old", "gone", "mode", "elsewhere"}, {f["path"] for f in answer["findings"]}, answer)
        for finding in answer["findings"]:
            self.assertEqual("stale", finding["rule"])
            self.assertIn("was changed in the tree, too, while the plan was open", finding["message"])
            self.assertIn("make a new plan", finding["remedy"])
        answer = self.call("POST", f"/plans/{plan}/apply", {})
        self.assertEqual((409, "plan_stale"), (answer.status, answer.code))
        self.assertEqual(theirs, {path: self.read(path) for path in theirs})

    def test_what_only_one_of_them_has_changed_can_be_applied_alone(self):
        theirs, plan = self.both_change()
        self.call("POST", f"/plans/{plan}/apply", {"keep_going": True}, expect=200)
        self.assertEqual({**theirs, "kept": None, "only": b"mine\n"}, {path: self.read(path) for path in theirs})

    def test_what_the_agent_changes_after_the_owner_is_not(self):
        self.planned()
        self.run_agent("echo first > first.txt")
        self.daemon.execute(self.ws, "mkdir in; for f in edit gone mode moved; do echo theirs > in/$f; done", key=self.owner)
        self.run_agent("echo mine >> in/edit; mv in/moved moved; chmod 600 in/mode; rm in/gone")
        made = self.close()
        self.call("POST", f"/plans/{made['id']}/apply", {"hash": made["hash"]}, expect=200)
        self.assertEqual((b"theirs\nmine\n", b"theirs\n", None, b"first\n"),
                         tuple(self.read(path) for path in ("in/edit", "moved", "in/gone", "first.txt")))

    @unittest.skipUnless(ROOT, "rootless the kernel does not say which file a copy was made of")
    def test_what_the_owner_has_replaced_since_the_agent_read_it_is_stale(self):
        """By another file of that name, older than the agent's copy: the agent changes what it had read."""
        self.planned()
        names = ("edit", "mode", "moved", "same", "twin", "in/deep")
        self.daemon.execute(self.ws, f"mkdir in over; for f in {' '.join(names)} over/a over/b other target; do echo first $f > $f; done",
                            key=self.owner)
        self.run_agent(f"cat {' '.join(names)} over/a other target >/dev/null; sleep 0.1")
        self.daemon.execute(self.ws, "for f in edit mode moved in/deep; do echo THEIR $f > next; mv $f $f.bak; mv next $f; done; "
                                     "rm mode.bak moved.bak; sleep 0.2", key=self.owner)
        # What it moves over others is not taken for replaced, wherever it was.
        self.run_agent("echo mine >> edit; chmod 600 mode; mv moved elsewhere; echo mine >> in/deep; echo mine >> same; "
                       "echo mine >> other; mv other target; echo mine >> over/a; mv over/a twin; rm -r over")
        seen = self.run_agent("cat edit")["stdout"]
        made = self.close()
        answer = self.call("POST", f"/plans/{made['id']}/verify", {}, expect=200).json
        stale = {f["path"] for f in answer["findings"] if f["rule"] == "stale"}
        if seen == "first edit\nmine\n":  # else the kernel showed it the new one, and it is no conflict
            self.assertEqual({"edit", "mode", "elsewhere", "in/deep"}, stale, answer["findings"])
            answer = self.call("POST", f"/plans/{made['id']}/apply", {})
            self.assertEqual((409, "plan_stale"), (answer.status, answer.code))
            self.assertEqual(b"THEIR edit\n", self.read("edit"))
        else:
            self.assertEqual("THEIR edit\nmine\n", seen)
            self.assertNotIn("edit", stale)
        self.assertFalse(stale & {"same", "target", "twin", "over"}, answer)

    def test_a_locked_base(self):
        self.planned({"base": "locked"})
        self.run_agent("sleep 1000", background=True, expect=202)
        self.assertEqual(0, self.run_agent("echo x > x")["exit_code"])  # beside the other, in the same plan
        second = self.agent_key()
        self.call("PUT", "/files/of-two", b"two", key=second, expect=201)
        answer = self.call("PUT", "/files/direct", b"x", key=self.owner)
        self.assertEqual((409, "plan_open"), (answer.status, answer.code))
        self.unchanged()

    def test_a_disk_in_an_image_does_not_go_with_it(self):
        answer = self.daemon.post("/v1/workspaces", {"id": "desk", "policy": {"writes": "plan", "limits": {"disk": "image:64M"}}})
        self.assertEqual(400, answer.status)
        self.assertIn("image", answer.json["error"]["message"])
        answer = self.daemon.post("/v1/workspaces", {"id": "desk", "policy": {"writes": "never"}})
        self.assertIn('"direct" or "plan"', answer.json["error"]["message"])


class Approval(WritesPlanTest):
    def test_from_nothing_to_undone(self):
        self.planned({"approval": "required"})
        self.run_agent("rm notes.txt; echo new > new.txt")
        made = self.close()
        self.assertEqual("pending", made["state"])
        plan = f"/plans/{made['id']}"
        self.assertEqual("approval_required", self.call("POST", plan + "/apply", {}, expect=403).code)
        self.assertEqual("approval_refused", self.call("POST", plan + "/approve", {"hash": made["hash"]}, expect=403).code)
        self.unchanged()
        self.call("POST", plan + "/approve", {"hash": made["hash"]}, key=self.approver, expect=200)
        self.assertEqual("plan_conflict", self.call("POST", plan + "/apply", {"hash": "0" * 64}, expect=409).code)
        self.unchanged()
        self.call("POST", plan + "/apply", {"hash": made["hash"]}, expect=200)
        self.assertEqual((None, b"new\n"), (self.read("notes.txt"), self.read("new.txt")))
        refused = self.call("POST", plan + "/undo", {}, expect=403)
        self.assertIn("owner", refused.json["error"]["message"])
        self.assertEqual(b"new\n", self.read("new.txt"))
        self.call("POST", plan + "/undo", {}, key=self.owner, expect=200)
        self.assertEqual((b"one\n", None), (self.read("notes.txt"), self.read("new.txt")))

    def test_an_agent_brings_no_failing_check_to_the_plan_of_another(self):
        self.planned()
        made = self.call("POST", "/plans", {"deletions": ["notes.txt"]}, key=self.owner, expect=201).json
        plan = f"/plans/{made['id']}"
        self.call("POST", plan + "/verify", {"check": ["false"]}, expect=404)
        self.call("POST", plan + "/apply", {}, key=self.owner, expect=200)

    def test_what_an_agent_submits_waits_too(self):
        self.planned({"approval": "required"})
        made = self.call("POST", "/plans", {"deletions": ["notes.txt"]}, expect=201).json
        self.assertEqual("pending", made["state"])
        self.call("POST", f"/plans/{made['id']}/apply", {}, expect=403)
        self.call("POST", f"/plans/{made['id']}/apply", {"async": True}, expect=403)
        self.unchanged()


FORM = b'--x\r\nContent-Disposition: form-data; name="f"; filename="notes.txt"\r\n\r\nchanged\r\n--x--'
FORM_TYPE = {"Content-Type": "multipart/form-data; boundary=x"}



class Typed(bytes):
    """What is typed over a WebSocket."""


# What an agent's key tries on each route: bodies that would change the tree. A route that refuses it says 403.
W = "/v1/workspaces/{ws}"
S = "/v1/sandbox/{ws}"
REFUSED = [
    ("PATCH", W, [{"policy": {}}, {"labels": {"a": "b"}}, {"links": {"ticket": "other"}}]),
    ("DELETE", W, [None]),
    ("DELETE", S, [None]),
    ("POST", W + "/undelete", [{}]),
    ("POST", W + "/sleep", [{}]),
    ("POST", W + "/reset-system", [{}]),
    ("GET", W + "/backup", [None]),
    ("POST", W + "/restore", [b"\0" * 1024]),
    ("POST", W + "/code", [{"code": "open('/notes.txt', 'w')"}, {"code": "rm /notes.txt", "language": "bash"}]),
    ("POST", W + "/code/contexts", [{}]),
    ("POST", W + "/code/contexts/{context}/restart", [None]),
    ("DELETE", W + "/code/contexts/{context}", [None]),
    ("GET", W + "/env", [None]),
    ("POST", W + "/env/python", [{}, {"clear": True}]),
    ("POST", W + "/env/node", [{}]),
    ("POST", W + "/snapshots", [{}]),
    ("DELETE", W + "/snapshots/{name}", [None]),
    ("POST", W + "/plans/{plan}/approve", [{"hash": "0" * 64}]),
    ("POST", W + "/plans/{plan}/reject", [{}]),
    ("POST", "/v1/adopt", [{}]),
    ("POST", "/v1/templates", [{"name": "mine", "workspace": "desk"}]),
    ("DELETE", "/v1/templates/{name}", [None]),
    ("POST", "/v1/stores", [{"name": "mine", "path": "b", "config": {"type": "s3"}}]),
    ("GET", "/v1/stores", [None]),
    ("DELETE", "/v1/stores/{name}", [None]),
    ("POST", "/v1/stores/{name}/check", [{}]),
    ("GET", "/v1/secrets", [None]),
    ("PUT", "/v1/secrets/{name}", [{"value": "another-value"}]),
    ("DELETE", "/v1/secrets/{name}", [None]),
    ("POST", "/v1/keys", [{"owner": "alice", "scopes": ["owner"]}, {"owner": "alice", "scopes": ["approve"]}]),
    ("GET", "/v1/keys", [None]),
    ("DELETE", "/v1/keys/{key}", [None]),
    ("GET", "/v1/host", [None]),
    ("GET", "/metrics", [None]),
    ("GET", "/v1/audit/raw", [None]),
    ("GET", "/v1/audit/heads", [None]),
    ("GET", "/v1/audit/keys", [None]),
]
INTO_THE_PLAN = [
    ("POST", W + "/exec", [{"command": "rm -rf /notes.txt /dir /link; chmod 777 /; touch /made; setfattr -n user.x -v y / || true"},
                           {"command": "echo x > notes.txt", "mode": "direct"}, {"argv": ["rm", "notes.txt"], "cwd": "/", "mode": "plan"},
                           {"command": "touch made", "user": "root"}, {"command": "touch made2", "pty": {}, "stream": True}]),
    ("PUT", W + "/files/{path}", [b"changed"]),
    ("DELETE", W + "/files/{path}", [None]),
    ("POST", W + "/files-edit", [{"path": "/notes.txt", "old": "one", "new": "changed"}]),
    ("POST", W + "/files-move", [{"from": "/dir", "to": "/moved"}]),
    ("POST", W + "/files-copy", [{"from": "/etc/hostname", "to": "/copied"}]),
    ("POST", W + "/files-mkdir", [{"path": "/made-dir"}]),
    ("POST", W + "/files-chmod", [{"path": "/empty", "mode": "0777"}]),
    ("POST", W + "/files-symlink", [{"path": "/link", "target": "x", "replace": True}]),
    ("POST", W + "/files-write", [{"files": [{"path": "/notes.txt", "content": "changed"}]}]),
    ("POST", W + "/files-repair", [{"path": "/"}]),
    ("POST", W + "/files-upload", [FORM]),
    ("POST", W + "/files-unpack", [b"\0" * 1024]),
    ("POST", W + "/ports/{port}", [{}]),
    ("DELETE", W + "/ports/{port}", [None]),
    ("POST", W + "/plans", [{"deletions": ["notes.txt"]}]),
    ("POST", W + "/plans/{plan}/close", [{}]),
    ("POST", W + "/plans/{plan}/verify", [{}, {"check": {"argv": ["rm", "/notes.txt"]}}]),
    ("POST", W + "/plans/{plan}/cancel", [{}]),
    ("POST", W + "/plans/{plan}/undo", [{}]),
    ("POST", W + "/plans/{plan}/apply", [{}, {"async": True}, {"keep_going": True}]),
    ("DELETE", W + "/plans/{plan}", [None]),
    ("POST", "/v1/sandbox", [{"id": "desk"}]),
    ("POST", S + "/exec", [{"argv": ["sh", "-c", "rm -rf /notes.txt /dir; touch /made; echo x > made"]}]),
    ("PUT", S + "/file/workspace/{path}", [b"changed"]),
    ("PUT", S + "/file/{path}", [b"changed"]),
    ("POST", S + "/hydrate", [b"\0" * 1024]),
    ("POST", S + "/mount", [{}]),
    ("POST", S + "/unmount", [{}]),
    ("GET", S + "/pty", [None, Typed(b"rm -rf /notes.txt /dir; echo x > /made\n")]),
    ("POST", "/mcp", [("write_file", {"path": "/notes.txt", "content": "x"}), ("execute", {"command": "rm notes.txt"}),
                      ("edit_file", {"path": "/notes.txt", "old_string": "one", "new_string": "x"}), ("delete", {"path": "/notes.txt"}),
                      ("move", {"source": "/empty", "destination": "/moved2"}), ("start_process", {"command": "rm notes.txt"}),
                      ("plan_run", {"command": "rm notes.txt"}), ("plan_apply", {"plan": "{plan}"}), ("plan_undo", {"plan": "{plan}"}),
                      ("write_process", {"process_id": "{exec}", "input": "rm notes.txt\n"}), ("kill_process", {"process_id": "{exec}"}),
                      ("plan_verify", {"plan": "{plan}", "check": ["rm", "/notes.txt"]}), ("plan_close", {"plan": "{plan}"}),
                      ("plan_discard", {"plan": "{plan}"}), ("workspace_create", {"id": "desk"})]),
]
# Of the tools of /mcp, that one has another list of routes: those that only look.
TOOLS_THAT_LOOK = {"read_file", "ls", "glob", "grep", "read_process", "list_processes", "workspace_list", "plan_list", "plan_show",
                   "plan_diff"}
OF_OTHERS = [  # a command of the owner's, which runs in the tree
    ("POST", W + "/exec/{exec}/stdin", [b"rm notes.txt\n"]),
    ("POST", W + "/exec/{exec}/signal", [{"signal": "USR1"}]),
    ("POST", W + "/exec/{exec}/resize", [{"cols": 80, "rows": 24}]),
    ("POST", W + "/exec/{exec}/kill", [{}]),
    ("GET", W + "/exec/{exec}/attach", [None, Typed(b"rm notes.txt\n")]),
]
ONLY_LOOKS = [
    ("GET", "/healthz", [None]), ("GET", "/readyz", [None]), ("GET", "/openapi.json", [None]), ("GET", "/v1/version", [None]),
    ("GET", W + "/code/contexts", [None]),
    ("POST", W + "/sync", [{}]),
    ("GET", "/v1/workspaces", [None]), ("GET", W, [None]), ("GET", "/v1/templates", [None]),
    ("GET", "/v1/templates/{name}", [None]), ("GET", W + "/exec", [None]), ("GET", W + "/exec/{exec}", [None]),
    ("GET", W + "/exec/{exec}/output", [None]), ("GET", W + "/files/{path}", [None]),
    ("POST", W + "/files-glob", [{"pattern": "**"}]), ("POST", W + "/files-grep", [{"pattern": "one"}]),
    ("POST", W + "/files-inventory", [{}]), ("POST", W + "/files-read", [{"paths": ["/notes.txt"]}]),
    ("GET", W + "/files-watch", [None]), ("GET", W + "/ports", [None]), ("GET", W + "/net", [None]),
    ("GET", W + "/net/try", [None]), ("GET", "/v1/plans", [None]), ("GET", W + "/plans", [None]),
    ("POST", W + "/snapshots/{name}/restore", [{}]), ("POST", W + "/merge", [{"fork": "try"}]), ("POST", W + "/compare", [{"from": "now"}]),
    ("GET", W + "/usage", [None]), ("GET", W + "/snapshots", [None]), ("GET", W + "/snapshots/{name}", [None]),
    ("GET", W + "/plans/{plan}", [None]), ("GET", W + "/plans/{plan}/diff", [None]), ("GET", "/v1/audit", [None]),
    ("GET", "/v1/events", [None]), ("DELETE", "/mcp", [None]), ("GET", S + "/running", [None]), ("GET", S + "/file/{path}", [None]), ("POST", S + "/persist", [b""]),
    ("POST", "/v1/workspaces", [{"id": "desk"}, {"id": "desk", "policy": {}}, {"id": "desk2", "links": {"ticket": "desk", "ticket_mode": "rw"}}]),
]
STREAMS = ("/v1/events", W + "/files-watch")


class EveryRoute(WritesPlanTest):
    def template_of(self, path):
        return path.replace("{workspace}", "{ws}").replace("{id}", "{ws}")

    def routes(self):
        """Method and path of all routes, with the names that the lists above have for what varies."""
        found = set()
        for path, methods in self.daemon.get("/openapi.json").json["paths"].items():
            for method in methods:
                if method in ("get", "put", "post", "patch", "delete"):
                    found.add((method.upper(), path))
        return found

    def attempt(self, method, path, body):
        names = {"ws": self.ws, "exec": self.exec, "plan": self.current, "port": "8000", "path": "notes.txt", "name": "office",
                 "key": "k" + "a" * 26, "context": "c" + "a" * 26}
        real = path.format(**names)
        headers = FORM_TYPE if body == FORM else None
        if (method, path) == ("POST", "/mcp"):
            tool, given = body
            given = {k: v.format(**names) if isinstance(v, str) else v for k, v in given.items()}
            if tool != "workspace_create":
                given["workspace"] = self.ws
            answers = [Mcp(self.daemon, key=self.agent, modern=modern).call(tool, **given) for modern in (True, False)]
            return max(answer.status for answer in answers), b"".join(answer.bytes for answer in answers)
        if isinstance(body, Typed):
            terminal = WebSocket(self.daemon, real, key=self.agent)
            terminal.send(body)
            terminal.read()
            terminal.close()
            return terminal.status, terminal.rest
        if path in STREAMS:
            stream = self.daemon.stream(method, real, key=self.agent)
            status = stream.status
            stream.keep.close()
            return status, b""
        answer = self.daemon.request(method, real, body, key=self.agent, headers=headers)
        return answer.status, answer.bytes

    def begin(self):
        self.planned({"approval": "required"})
        self.exec = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"argv": ["bash"], "stdin_open": True, "background": True},
                                     key=self.owner).json["exec_id"]
        # One that an agent made, and that waits.
        self.current = self.call("POST", "/plans", {"creations": [{"path": "planned", "content": "x"}]}, expect=201).json["id"]
        self.before = self.facts()

    def test_not_one_byte(self):
        """INV-13: nothing that an agent's key asks for writes to the tree."""
        """Every route is in one of the lists: who adds one decides what an agent's key may do with it."""
        self.begin()
        listed = {(m, p) for table in (REFUSED, INTO_THE_PLAN, OF_OTHERS, ONLY_LOOKS) for m, p, _ in table}
        normal = {(m, p) for m, p in listed}
        missing = {r for r in self.routes() if r not in normal}
        self.assertEqual(set(), missing, "no decision for agents' keys in workspaces of planned writes")
        tools = {tool["name"] for tool in Mcp(self.daemon, key=self.agent).ask("tools/list").result["tools"]}
        tried = {tool for _, path, bodies in INTO_THE_PLAN if path == "/mcp" for tool, _ in bodies}
        self.assertEqual(tools, tried | TOOLS_THAT_LOOK, "no decision for a tool of /mcp")
        for table, allowed in ((REFUSED, {403}), (OF_OTHERS, {403}), (INTO_THE_PLAN, None), (ONLY_LOOKS, None), (REFUSED, {403}),
                               (OF_OTHERS, {403})):
            for method, path, bodies in table:
                for body in bodies:
                    status, said = self.attempt(method, path, body)
                    if allowed:
                        self.assertIn(status, allowed, (method, path, body, said))
                    self.assertLess(status, 500, (method, path, body, said))
                    self.unchanged((method, path, body))
        self.assertEqual("running", self.call("GET", f"/exec/{self.exec}", key=self.owner).json["state"])
        for plan in self.open_plans():
            self.close(plan["id"])
        self.unchanged()

    def test_a_refusal_says_why(self):
        self.begin()
        for method, path, body in (("POST", W + "/sleep", {}), ("GET", W + "/env", None), ("POST", W + "/env/python", {})):
            status, said = self.attempt(method, path, body)
            self.assertEqual(403, status)
            self.assertIn(b'\\"writes\\": \\"plan\\"', said)


class WaysAround(WritesPlanTest):
    def test_from_inside(self):
        self.planned()
        root = self.root()
        tries = (f"""
            for p in /proc/[0-9]*/root/notes.txt /proc/self/root/../notes.txt {root}/notes.txt; do echo x >> $p; done
            mount -t tmpfs none / ; mount --bind / /tmp; umount /; umount -l /; mount -o remount,rw /
            unshare -Urm sh -c 'mount --bind / /mnt; echo x > /notes.txt'
            python3 -c 'import os
for n in range(3, 64):
    try: os.open("notes.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=n)
    except OSError: pass'
            chmod 000 notes.txt; ln -f notes.txt hard; mv dir dir2; setfattr -n user.a -v b notes.txt; touch -d 2001-01-01 notes.txt link
            find / -xdev -newer /proc/self -delete
            python3 -c 'import mmap,os; f=os.open("notes.txt", os.O_RDWR); m=mmap.mmap(f, 3); m[0:3]=b"zzz"; m.flush()'
            """)
        self.run_agent(tries, timeout_ms=60000)
        self.unchanged()
        self.close()
        self.unchanged()

    def test_through_a_link_of_another_workspace(self):
        self.desk({"writes": "direct"})
        other = self.daemon.post("/v1/workspaces", {"id": "desk-other", "owner": "alice",
                                                    "links": {"ticket": "desk", "ticket_mode": "rw"}}, key=self.owner)
        self.assertEqual(201, other.status, other.bytes)
        writer = "while :; do date > /.ticket/ticking 2>/dev/null; sleep 0.02; done"
        self.daemon.post("/v1/workspaces/desk-other/exec", {"command": writer, "background": True}, key=self.agent)
        deadline = time.monotonic() + PATIENCE
        while self.read("ticking") is None:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.switch()
        self.before = self.facts()
        time.sleep(0.3)
        self.unchanged("what was begun before the switch")
        result = self.daemon.execute("desk-other", "echo x > /.ticket/notes.txt; rm /.ticket/notes.txt; cat /.ticket/notes.txt",
                                     key=self.agent)
        self.assertEqual("one\n", result["stdout"], result)
        answer = self.daemon.request("PUT", "/v1/workspaces/desk-other/files/.ticket/put", b"x", key=self.agent)
        self.assertGreaterEqual(answer.status, 400)
        self.unchanged("a link")

    def switch(self, policy=None):
        answer = self.daemon.request("PATCH", f"/v1/workspaces/{self.ws}", {"policy": policy or {"writes": "plan"}}, key=self.owner)
        self.assertEqual(200, answer.status, answer.bytes)

    def typed(self):
        return [name for name in os.listdir(self.root()) if name.startswith("typed-")]

    def test_what_runs_at_the_switch(self):
        self.desk({"writes": "direct"})
        beat = "while :; do date +%N > {0}; sleep 0.02; done"
        started = self.run_agent(beat.format("one"), background=True, expect=202)["exec_id"]
        self.run_agent(f"setsid -f bash -c '{beat.format('two')}' >/dev/null 2>&1 </dev/null")
        typed = self.run_agent("bash", background=True, stdin_open=True, expect=202)["exec_id"]
        theirs = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"argv": ["bash"], "background": True, "stdin_open": True},
                                  key=self.owner).json["exec_id"]
        terminals = [WebSocket(self.daemon, path, key=self.agent) for path in (
            *(f"/v1/workspaces/{self.ws}/exec/{one}/attach" for one in (typed, theirs)), f"/v1/sandbox/{self.ws}/pty")]
        for terminal in terminals:
            self.assertEqual(101, terminal.status, terminal.head)
            terminal.send(b"set +m; while :; do read -t 0.02 line; eval $line; date +%N > /typed-$$; done\n")
        mcp = Mcp(self.daemon, key=self.agent)
        streamed = mcp.post(mcp.message("tools/call", {"name": "execute", "arguments": {
            "workspace": self.ws, "command": beat.format("three")}}, progress=1), wait=False)
        upload = self.daemon.connect()
        upload.putrequest("PUT", f"/v1/workspaces/{self.ws}/files/uploaded")
        upload.putheader("Authorization", f"Bearer {self.agent}")
        upload.putheader("Content-Length", "100000")
        upload.endheaders()
        upload.send(b"x" * 50000)
        unpack = self.daemon.connect()
        unpack.putrequest("POST", f"/v1/workspaces/{self.ws}/files-unpack?path=/unpacked")
        unpack.putheader("Authorization", f"Bearer {self.agent}")
        unpack.putheader("Content-Length", "100000")
        unpack.endheaders()
        watch = self.daemon.stream("GET", f"/v1/workspaces/{self.ws}/files-watch", key=self.agent)
        deadline = time.monotonic() + PATIENCE
        while None in (self.read("one"), self.read("two"), self.read("three")) or len(self.typed()) < 3:
            self.assertLess(time.monotonic(), deadline, os.listdir(self.root()))
            time.sleep(0.02)
        self.switch()
        self.before = self.facts()
        for connection, rest in ((upload, 50000), (unpack, 100000)):
            try:
                connection.send(b"\0" * rest)
                answer = connection.getresponse()
                self.assertGreaterEqual(answer.status, 400)
            except OSError:
                pass  # it was cut off before
            connection.close()
        self.assertEqual(403, self.call("POST", f"/exec/{typed}/stdin", b"rm notes.txt\n").status)
        for terminal in terminals:
            terminal.send(b"rm notes.txt\n")
            terminal.read()  # they end
            self.assertIn(b'"type":"exit"', b"".join(payload for _, payload in terminal.heard))
            terminal.close()
        self.assertIn(b"[exit code 137", streamed.getresponse().read())
        streamed.close()
        time.sleep(0.3)
        self.unchanged("what ran before the switch")
        self.assertEqual("ended", self.call("GET", f"/exec/{started}", expect=200).json["state"])
        watch.keep.close()
        self.assertEqual("one\n", self.run_agent("echo late > late; cat notes.txt")["stdout"])
        self.unchanged("after the switch")
        # And back: what is open stays, and the agent writes to the tree again.
        self.switch({"writes": "direct"})
        self.run_agent("echo direct > direct")
        self.assertEqual(b"direct\n", self.read("direct"))
        self.assertEqual(1, len(self.open_plans()))

    def test_an_agent_that_goes_on_starting_commands_does_not_hold_up_the_switch(self):
        self.desk({"writes": "direct"})
        ended = threading.Event()

        def start():
            while not ended.is_set():
                self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True}, key=self.agent)
                time.sleep(0.005)
        threads = [threading.Thread(target=start) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                self.switch()
                self.switch({"writes": "direct"})
            self.switch()
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        self.before = self.facts()
        self.run_agent("echo x > notes.txt")
        self.unchanged("after the switch")

    def test_a_switch_that_a_front_did_not_finish(self):
        """A sandbox that began before the policy was last written may be of before the switch, and ends with the next front."""
        self.planned()
        running = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "sleep 1000", "background": True},
                                   key=self.owner).json["exec_id"]
        self.daemon.kill_front()
        self.assertEqual("running", self.call("GET", f"/exec/{running}", key=self.owner).json["state"])
        answer = self.daemon.request("PATCH", f"/v1/workspaces/{self.ws}", {"labels": {"a": "b"}}, key=self.owner)
        self.assertEqual(200, answer.status)
        self.daemon.kill_front()
        deadline = time.monotonic() + PATIENCE
        while self.call("GET", f"/exec/{running}", key=self.owner).json["state"] == "running":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)


SERVER = """python3 -c '
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        open("served", "a").write("x")
        body = os.environ["WHO"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", 8000), H).serve_forever()'"""


class Ports(WritesPlanTest):
    def port(self, key, number=8000, access=None, expect=201):
        answer = self.call("POST", f"/ports/{number}", {"access": access} if access else {}, key=key)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def serve(self, key):
        who = "agent" if key == self.agent else "owner"
        started = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": SERVER, "env": {"WHO": who}, "background": True},
                                   key=key)
        self.assertEqual(202, started.status, started.bytes)

    def until(self, path, key, want):
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.daemon.get(path, key=key)
            if (answer.status, answer.bytes) == want:
                return
            self.assertLess(time.monotonic(), deadline, answer.bytes)
            time.sleep(0.05)

    def test_an_agents_lead_into_its_plan(self):
        self.planned()
        path = self.port(self.agent)["path"]
        secret = self.port(self.agent, 8001, "token")["path"]
        answer = self.daemon.get(path, key=self.agent)
        self.assertEqual((502, "port_closed"), (answer.status, answer.code))
        self.serve(self.agent)
        self.until(path, self.agent, (200, b"agent"))
        self.until(path, self.owner, (200, b"agent"))
        self.assertEqual(502, self.daemon.get(secret).status)
        self.unchanged()
        self.close()
        self.assertEqual(502, self.daemon.get(path, key=self.agent).status)
        self.unchanged()

    def test_of_two_who_open_or_close_a_port_at_once_the_owner_has_it(self):
        self.planned()
        keys = {key["id"]: key["scopes"] for key in self.daemon.get("/v1/keys").json["keys"]}

        def ask(barrier, method, key, status):
            barrier.wait()
            status[key] = self.call(method, "/ports/8000", {} if method == "POST" else None, key=key).status

        def at_once(agents):
            barrier, status = threading.Barrier(2), {}
            threads = [threading.Thread(target=ask, args=(barrier, *who, status)) for who in ((agents, self.agent), ("POST", self.owner))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(201, status[self.owner])
            self.assertIn(status[self.agent], (201, 204, 403))
            ports = self.call("GET", "/ports", key=self.owner, expect=200).json["ports"]
            self.assertEqual([["owner"]], [keys[p["made_by"].removeprefix("key:")] for p in ports], agents)
            return status[self.agent]
        refused = 0
        for _ in range(60):
            refused += at_once("POST") == 403
            self.call("DELETE", "/ports/8000", key=self.owner, expect=204)
            self.port(self.agent)
            at_once("DELETE")
            self.call("DELETE", "/ports/8000", key=self.owner, expect=204)
        print(f"the agent was refused {refused} of 60 times")

    def test_the_owners_server_is_not_the_agents_hand(self):
        self.planned()
        path = self.port(self.owner)["path"]
        self.serve(self.owner)
        self.until(path, self.owner, (200, b"owner"))
        self.before = self.facts()
        self.assertEqual(502, self.daemon.get(path, key=self.agent).status)
        self.port(self.agent, 8000, expect=403)
        self.call("DELETE", "/ports/8000", expect=403)
        self.run_agent("true")
        self.assertGreaterEqual(self.daemon.get(path, key=self.agent).status, 500)
        self.unchanged()
        self.serve(self.agent)
        self.until(path, self.agent, (200, b"agent"))
        self.unchanged()


class Beside(WritesPlanTest):
    """What lies beside the tree."""
    options = ("--set", f"mount_roots={TMP}")

    def test_mounts_of_the_policy_are_only_read(self):
        outside = self.path("outside")
        os.makedirs(outside)
        os.chmod(outside, 0o777)
        with open(f"{outside}/file", "w", encoding="utf-8") as file:
            file.write("as it was")
        self.desk({"writes": "plan", "mounts": [{"source": outside, "target": "/data", "writable": True}]})
        self.assertEqual(0, self.daemon.execute(self.ws, "echo owner > /data/file", key=self.owner)["exit_code"])
        self.before = self.facts()
        result = self.run_agent("echo agent > /data/file; rm -f /data/file; touch /data/new; cat /data/file")
        self.assertEqual("owner\n", result["stdout"], result)
        self.assertGreaterEqual(self.call("PUT", "/files/data/put", b"x").status, 400)
        self.assertEqual(["file"], os.listdir(outside))
        self.unchanged()

    def test_what_a_template_starts_is_not_started_by_reading(self):
        answer = self.daemon.post("/v1/workspaces", {"id": "base", "builds": "ready"})
        self.assertEqual(201, answer.status, answer.bytes)
        self.daemon.execute("base", "echo based > based.txt")
        made = self.daemon.post("/v1/templates", {"name": "ready", "workspace": "base", "spec": {"start": "date >> /started; sleep 1000"}})
        self.assertEqual(201, made.status, made.bytes)
        self.ws = "desk"
        answer = self.daemon.post("/v1/workspaces", {"id": "desk", "owner": "alice", "template": "ready", "policy": {"writes": "plan"}},
                                  key=self.owner)
        self.assertEqual(201, answer.status, answer.bytes)
        self.agent = self.agent_key()
        self.sleep()
        self.before = self.facts()
        self.call("GET", "/files/?list=1", expect=200)
        self.call("POST", "/files-glob", {"pattern": "**"}, expect=200)
        self.run_agent("echo x > x")
        time.sleep(0.3)
        self.unchanged()
        self.sleep()
        self.daemon.execute(self.ws, "true", key=self.owner)
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(f"{self.root()}/started"):
            self.assertLess(time.monotonic(), deadline, "an owner's command starts it")
            time.sleep(0.02)


class OnTheCommandLine(WritesPlanTest):
    def carrel(self, key, *argv):
        return subprocess.run([CARREL, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * PATIENCE,
                              env={**os.environ, "CARREL_SOCKET": self.daemon.socket, "CARREL_KEY": key}, check=False)

    def test_a_command_says_into_which_plan_it_writes_once(self):
        self.planned()
        done = self.carrel(self.agent, "exec", self.ws, "-c", "echo out; echo err >&2")
        plan = self.open_plan()
        said = f"carrel: what it writes goes into plan {plan}; when all is done: carrel plan close {self.ws} {plan}"
        self.assertEqual(("out\n", sorted([said, "err"])), (done.stdout, sorted(done.stderr.splitlines())))
        done = self.carrel(self.agent, "exec", "--background", self.ws, "-c", "true")
        self.assertEqual(said + "\n", done.stderr)
        done = self.carrel(self.agent, "exec", "--json", self.ws, "-c", "true")
        self.assertEqual(("", {"id": plan, "state": "open"}), (done.stderr, json.loads(done.stdout)["plan"]))
        self.assertEqual("", self.carrel(self.owner, "exec", self.ws, "-c", "true").stderr)
        closed = self.carrel(self.agent, "plan", "close", self.ws, plan)
        self.assertEqual(0, closed.returncode, closed.stderr)
        refused = self.carrel(self.agent, "env", "show", self.ws)
        self.assertNotEqual(0, refused.returncode)


if __name__ == "__main__":
    unittest.main()
