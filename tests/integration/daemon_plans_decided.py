#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 25
"""Plans over HTTP: who approves them, the queue they are applied from, with what rights, and when that goes wrong."""
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
from carreltest import PATIENCE, TMP, CarrelTest, mount, umount, write
from daemonplantest import PlanTest
from daemontest import Daemon


class Approvals(PlanTest):
    def setUp(self):
        super().setUp()
        self.alice = self.daemon.key("alice")
        self.judge = self.daemon.key("alice", ("approve",))

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
        itself = self.daemon.key("alice", ("approve", "user"))
        others = self.daemon.key("judge", ("approve",))
        refused = [("the owner's own key", self.alice, made["hash"]), ("another that has not the scope", self.daemon.key("alice"), made["hash"]),
                   ("one that has another scope beside", self.daemon.key("alice", ("user", "read")), made["hash"]),
                   ("the administrator without a key", None, made["hash"]), ("another hash", self.judge, "0" * 64),
                   ("no hash", self.judge, None)]
        for who, key, value in refused:
            body = {"hash": value} if value else {}
            answer = self.decide(made["id"], "approve", key, **body)
            self.assertEqual((403, "approval_refused"), (answer.status, answer.code), (who, answer.bytes))
        self.assertEqual(404, self.decide(made["id"], "approve", others, hash=made["hash"]).status)
        self.assertEqual("pending", self.plan(made["id"])["state"])
        own = self.submit([{"op": "create", "path": "c", "content": "3"}], key=itself)
        answer = self.decide(own["id"], "approve", itself, hash=own["hash"])
        self.assertEqual((403, "approval_refused"), (answer.status, answer.code), "the scope on the author's own key")
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
        admin = self.daemon.key("carol", ("admin",))
        self.assertEqual(200, self.decide(other["id"], "approve", admin, hash=other["hash"]).status)

    def test_keys_that_made_each_other(self):
        parent = self.daemon.key("parent", ("admin", "user"))

        def made_by(key, owner, *scopes):
            answer = self.daemon.post("/v1/keys", {"owner": owner, "scopes": list(scopes)}, key=key)
            self.assertEqual(201, answer.status, answer.bytes)
            return answer.json["key"]
        agent = made_by(parent, "agent", "user", "admin")
        child = made_by(agent, "agent", "approve")
        grandchild = made_by(made_by(agent, "agent", "owner"), None, "approve")
        sister = made_by(parent, "agent", "approve")
        self.make({"approval": "required"}, key=agent)
        made = self.submit([{"op": "create", "path": "a", "content": "1"}], key=agent)
        for who, key in (("made by the plan's key", child), ("made by one that it made", grandchild)):
            answer = self.decide(made["id"], "approve", key, hash=made["hash"])
            self.assertEqual((403, "approval_refused"), (answer.status, answer.code), who)
        self.assertEqual(404, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        self.assertEqual(200, self.decide(made["id"], "approve", sister, hash=made["hash"]).status, "they have one maker")

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
        self.assertEqual(403, self.decide(made["id"], "approve", self.judge, hash=made["hash"]).status)
        self.assertTrue(self.operations("plan.expire"))

    def test_a_judge_sees_plans_and_nothing_else(self):
        made = self.pending()
        for method, path in (("GET", ""), ("GET", "/exec"), ("GET", "/files/?list=1"), ("DELETE", ""), ("GET", "/ports"),
                             ("POST", f"/plans/{made['id']}/apply"), ("DELETE", f"/plans/{made['id']}")):
            answer = self.daemon.request(method, f"/v1/workspaces/{self.ws}{path}", {} if method == "POST" else None, key=self.judge)
            self.assertIn(answer.status, (403, 404), (method, path, answer.bytes))
        self.assertEqual(404, self.daemon.get(f"/v1/workspaces/{self.ws}/plans", key=self.daemon.key("judge", ("approve",))).status)

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

    def test_a_judge_sees_the_plans_of_its_owner_and_of_the_workspaces_it_was_made_for(self):
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["approve"], "workspaces": ["case-?"]}).json["key"]
        others = self.daemon.key("judge", ("approve",))
        keys = {"alice's": self.judge, "of some": made, "another's": others}
        plans = {}
        for ws in ("case-1", "desk"):
            self.make({"approval": "required"}, key=self.alice, id=ws)
            plans[ws] = self.submit([{"op": "create", "path": "w", "content": "1"}], key=self.alice)
        for who, key in keys.items():
            seen = {"alice's": {"case-1", "desk"}, "of some": {"case-1"}, "another's": set()}[who]
            listed = {p["workspace"] for p in self.daemon.get("/v1/plans", key=key).json["plans"]}
            self.assertEqual(seen, listed, who)
            for ws, plan in plans.items():
                at = f"/v1/workspaces/{ws}/plans"
                expected = 200 if ws in seen else 404
                for path in (at, f"{at}/{plan['id']}", f"{at}/{plan['id']}?operations=1", f"{at}/{plan['id']}/diff?path=w"):
                    self.assertEqual(expected, self.daemon.get(path, key=key).status, (who, path))
                if ws not in seen:
                    for what in ("approve", "reject"):
                        self.assertEqual(404, self.daemon.post(f"{at}/{plan['id']}/{what}", {"hash": plan["hash"]}, key=key).status)
        answer = self.daemon.post(f"/v1/workspaces/case-1/plans/{plans['case-1']['id']}/approve", {"hash": plans["case-1"]["hash"]}, key=made)
        self.assertEqual((200, "approved"), (answer.status, answer.json.get("state")), answer.bytes)

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
        self.assertEqual({"CapEff": "0" * 16, "CapPrm": "0" * 16, "CapAmb": "0" * 16, "NoNewPrivs": "1", "Uid": str(owner), "memory": str(2 << 30)},
                         {k: seen[k] for k in ("CapEff", "CapPrm", "CapAmb", "NoNewPrivs", "Uid", "memory")})

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
                    with open(f"/proc/{pid}/limits", encoding="utf-8") as file:
                        return found | {"memory": next(line.split()[4] for line in file if line.startswith("Max address space"))}
            except OSError:
                continue
        return None


class Lying(CarrelTest):
    """A carrel-plan that does what it is told and says that it failed: the journal is believed, not the exit status. And
    that never ends when it shall show something."""
    LIAR = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int status, lies = argc > 1 && (!strcmp(argv[1], "apply") || !strcmp(argv[1], "undo"));
    if (argc > 1 && !strcmp(argv[1], "show"))
        pause();
    while (argc > 1 && !strcmp(argv[1], "recover") && access(HOLD, F_OK) == 0)
        usleep(20000);
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
        done = subprocess.run(["cc", "-O1", f'-DREAL="{place}/real"', f'-DHOLD="{self.dir}/hold"', "-xc", "-", "-o", f"{place}/carrel-plan"],
                              input=self.LIAR.encode(), capture_output=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        for at in (TMP, self.dir):
            os.chmod(at, os.stat(at).st_mode | 0o711)
        return f"{place}/carrel"

    def test_one_owner_does_not_take_all_that_work_on_plans(self):
        with unittest.mock.patch.object(daemontest, "CARREL", self.programs()):
            daemon = Daemon(self.path("s"))
        asking = []
        try:
            ones = []
            for owner in ("ann", "ann", "bob", "ann"):
                ws = daemon.post("/v1/workspaces", {"owner": owner}).json["id"]
                made = daemon.post(f"/v1/workspaces/{ws}/plans", [{"op": "create", "path": "a", "content": "1"}]).json
                ones.append(f"/v1/workspaces/{ws}/plans/{made['id']}")
            self.assertEqual(200, daemon.get(f"{ones[0]}/diff").status)
            for _ in range(16):
                asking.append(daemontest.Connection(daemon.socket))
                asking[-1].request("GET", f"{ones[0]}?operations=1")
            deadline = time.monotonic() + PATIENCE
            while (answer := daemon.get(f"{ones[1]}/diff")).status == 200 and time.monotonic() < deadline:
                time.sleep(0.02)  # until all of them have been taken up
            self.assertEqual((429, "plan_jobs"), (answer.status, answer.json["error"]["details"]["reason"]))
            for verb in ("verify", "apply", "undo"):
                self.assertEqual(429, daemon.post(f"{ones[1]}/{verb}", {}).status, verb)
            self.assertEqual(200, daemon.get(f"{ones[2]}/diff").status)
            self.assertEqual("clean", daemon.post(f"{ones[2]}/verify", {}).json["verdict"])
            # What comes by itself waits as well: from the queue, and at the end of a command.
            self.assertEqual(202, daemon.post(f"{ones[1]}/apply", {"async": True}).status)
            run = daemontest.Connection(daemon.socket)
            asking.insert(0, run)
            run.request("POST", f"/v1/workspaces/{ws}/exec", json.dumps({"command": "echo 2 > b", "mode": "plan"}))
            plans = f"/v1/workspaces/{ws}/plans?state=open"
            while not (opened := daemon.get(plans).json["plans"]) and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(1)
            self.assertEqual(opened, daemon.get(plans).json["plans"])
            self.assertEqual("queued", daemon.get(ones[1]).json["state"])
            asking.pop().close()
            answer = daemontest.Answer(run.getresponse())
            self.assertEqual((200, "closed"), (answer.status, answer.json["plan"]["state"]), answer.bytes)
            while (answer := daemon.get(ones[1])).json["state"] != "applied" and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual("applied", answer.json["state"])
            self.assertEqual(200, daemon.get(f"{ones[1]}/diff").status)
        finally:
            for connection in asking:
                connection.close()
            daemon.stop()

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

    def test_who_asks_hears_of_it_after_what_was_left_is_dealt_with(self):
        with unittest.mock.patch.object(daemontest, "CARREL", self.programs()):
            daemon = Daemon(self.path("s"))
        try:
            ws = daemon.post("/v1/workspaces", {}).json["id"]
            made = daemon.post(f"/v1/workspaces/{ws}/plans", [{"op": "create", "path": "a", "content": "1"}]).json
            one = f"/v1/workspaces/{ws}/plans/{made['id']}"
            write(self.path("hold"), "")
            asking = daemontest.Connection(daemon.socket)
            asking.request("POST", f"{one}/apply", "{}")
            time.sleep(12)  # the broker is at it
            self.assertEqual("applying", daemon.get(one).json["state"])
            os.unlink(self.path("hold"))
            answer = daemontest.Answer(asking.getresponse())
            asking.close()
            self.assertEqual((200, "applied"), (answer.status, answer.json.get("state")), answer.bytes)
            self.assertTrue(answer.json["apply"]["interrupted"])
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


if __name__ == "__main__":
    unittest.main()
