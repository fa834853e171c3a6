#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 3600
"""Forks that are merged back, workspaces that go back to a snapshot, versions compared: all of it as plans, held against a model."""
import json
import os
import signal
import time
import unittest

from carreltest import PATIENCE
from daemontest import DaemonTest
from mergemodel import EDITOR, Edits, Merge, picture

LONG = bool(os.environ.get("LONG"))
SEEDS = int(os.environ.get("SEEDS", 500 if LONG else 3))
FIRST = int(os.environ.get("FIRST_SEED", 1))
MOUNTED = ("usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32", "etc", "proc", "dev", "tmp", ".cache", ".carrel")


class Merging(DaemonTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="desk", owner="alice")
        self.judge = self.daemon.key("alice", ("approve",))
        self.here = f"{self.daemon.state}/main/threads/desk"

    def post(self, path, body, expect, key=None):
        answer = self.daemon.post(path, body, key=key)
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def run_in(self, workspace, command, expect=0, **more):
        result = self.daemon.execute(workspace, command, **more)
        self.assertEqual(expect, result["exit_code"], result)
        return result["stdout"]

    def edit(self, workspace, steps):
        answer = self.post(f"/v1/workspaces/{workspace}/exec", {"argv": ["python3", "-c", EDITOR], "stdin": json.dumps(steps)}, 200)
        self.assertEqual(0, answer["exit_code"], answer)

    def snapshot(self, workspace="desk", **body):
        return self.post(f"/v1/workspaces/{workspace}/snapshots", body, 201)["id"]

    def fork(self, name, snapshot, of="desk", **body):
        return self.post("/v1/workspaces", {"id": name, "owner": "alice", "fork": {"workspace": of, "snapshot": snapshot}, **body}, 201)

    def merge(self, fork, expect=201, into="desk", key=None, **body):
        return self.post(f"/v1/workspaces/{into}/merge", {"fork": fork, **body}, expect, key)

    def ask(self, plan, what, expect=200, key=None, body=None):
        return self.post(f"/v1/workspaces/desk/plans/{plan['id']}/{what}", body or {}, expect, key)

    def apply(self, plan):
        answer = self.daemon.post(f"/v1/workspaces/desk/plans/{plan['id']}/apply", {})
        if answer.status == 403:  # it deletes much, or the like
            self.assertEqual("approval_required", answer.code)
            self.ask(plan, "approve", key=self.judge, body={"hash": plan["hash"]})
            answer = self.daemon.post(f"/v1/workspaces/desk/plans/{plan['id']}/apply", {"hash": plan["hash"]})
        self.assertEqual((200, "applied"), (answer.status, answer.json.get("state")), answer.bytes)

    def now(self):
        return picture(self.here, MOUNTED)

    def kept(self, workspace, snapshot):
        return picture(f"{self.daemon.state}/main/.carrel/workspaces/{workspace}/snapshots/{snapshot}/tree", MOUNTED)

    def compare(self, desk, expect=200, **body):
        answer = self.post(f"/v1/workspaces/{desk}/compare", body, expect)
        return {change["path"]: change["change"] for change in answer["changes"]} if expect == 200 else answer

    # --- going back ---

    def test_a_workspace_goes_back_to_a_snapshot_and_forward_again(self):
        self.run_in("desk", "mkdir -p d/e keep; echo one >d/one; echo two >d/e/two; ln -s one d/l; chmod 700 keep; echo x >was-file; mkdir was-dir; echo y >was-dir/y")
        before = self.now()
        self.snapshot(name="first")
        self.run_in("desk", "rm -r d/e; echo changed >d/one; ln -sf other d/l; mkdir -p new/er; echo n >new/er/n; chmod 755 keep; "
                            "rm was-file; mkdir was-file; echo z >was-file/z; rm -r was-dir; echo f >was-dir")
        after = self.now()
        self.assertEqual({"d/e": "removed", "d/e/two": "removed", "d/one": "changed", "d/l": "changed", "new": "added", "new/er": "added", "new/er/n": "added",
                          "keep": "changed", "was-file": "changed", "was-file/z": "added", "was-dir": "changed", "was-dir/y": "removed"},
                         self.compare("desk", **{"from": "first"}))
        plan = self.post("/v1/workspaces/desk/snapshots/first/restore", {}, 201)
        self.assertEqual("closed", plan["state"])
        self.assertEqual(after, self.now())  # a plan changes nothing by itself
        self.apply(plan)
        self.assertEqual(before, self.now())
        self.assertEqual("no_changes", self.post("/v1/workspaces/desk/snapshots/first/restore", {}, 409)["error"]["code"])
        self.assertEqual({}, self.compare("desk", **{"from": "first"}))
        self.assertEqual("undone", self.ask(plan, "undo")["state"])
        self.assertEqual(after, self.now())
        self.assertEqual(404, self.daemon.post("/v1/workspaces/desk/snapshots/none/restore", {}).status)

    def test_what_has_changed_since_the_plan_was_made_makes_it_stale(self):
        self.run_in("desk", "echo one >x")
        self.snapshot(name="first")
        self.run_in("desk", "echo two >x")
        plan = self.post("/v1/workspaces/desk/snapshots/first/restore", {}, 201)
        self.run_in("desk", "echo three >x")
        self.ask(plan, "apply", 409)
        self.assertEqual("three\n", self.run_in("desk", "cat x"))

    # --- merging ---

    def test_lines_of_both_come_together(self):
        self.run_in("desk", "seq 20 >text; printf 'a\\0b' >binary; echo same >same")
        self.fork("one", self.snapshot())
        self.run_in("one", "sed -i 's/^3$/three/' text; echo mine >mine; chmod 600 same")
        self.run_in("desk", "sed -i 's/^17$/seventeen/' text; echo other >other")
        plan = self.merge("one")
        self.assertEqual((0, 1, "one"), (plan["merge"]["conflict_count"], plan["merge"]["merged"], plan["merge"]["fork"]))
        self.apply(plan)
        text = self.run_in("desk", "cat text mine other; stat -c %a same").split()
        self.assertEqual("1 2 three 4 5 6 7 8 9 10 11 12 13 14 15 16 seventeen 18 19 20 mine other 600".split(), text)
        records = self.daemon.get("/v1/audit?workspace=desk").json["records"]
        self.assertIn("plan.merge", [one["operation"] for one in records])

    def test_a_conflict_has_to_be_decided(self):
        self.run_in("desk", "seq 5 >text; printf 'a\\0b' >binary; echo x >gone; echo y >kept")
        self.fork("one", self.snapshot())
        self.run_in("one", "sed -i 's/^3$/mine/' text; printf 'm\\0m' >binary; rm gone; echo edited >kept; echo n >new")
        self.run_in("desk", "sed -i 's/^3$/ours/' text; printf 'o\\0o' >binary; echo edited >gone; rm kept; echo o >new")
        before = self.now()
        error = self.merge("one", 409)["error"]
        self.assertEqual("merge_conflict", error["code"])
        self.assertEqual({"text": "content", "binary": "content", "gone": "changed here, deleted there", "kept": "deleted here, changed there", "new": "new in both"},
                         {one["path"]: one["conflict"] for one in error["details"]["conflicts"]})
        self.assertEqual([], self.daemon.get("/v1/workspaces/desk/plans").json["plans"])
        error = self.merge("one", 409, decided={"text": "theirs", "binary": "ours"})["error"]
        self.assertEqual(3, error["details"]["undecided"])
        plan = self.merge("one", prefer="theirs", decided={"binary": "ours", "kept": "ours"})
        self.assertEqual(5, plan["merge"]["conflict_count"])
        self.apply(plan)
        self.assertEqual("1\n2\nmine\n4\n5\nn\n", self.run_in("desk", "cat text new; test ! -e gone; test ! -e kept; grep -q o binary"))
        self.ask(plan, "undo")
        self.assertEqual(before, self.now())
        self.merge("one", 400, prefer="mine")
        self.merge("one", 400, decided={"text": "mine"})
        self.merge("one", 400, decided=["text"])
        self.merge("one", 400, more=1)

    def test_a_second_merge_brings_only_what_is_new(self):
        self.run_in("desk", "seq 9 >text")
        self.fork("one", self.snapshot())
        self.run_in("one", "sed -i 's/^2$/two/' text; echo a >a")
        first = self.merge("one")
        self.apply(first)
        self.assertEqual("no_changes", self.merge("one", 409)["error"]["code"])
        self.run_in("desk", "rm a; sed -i 's/^two$/TWO/' text")  # of what was brought: decided otherwise since
        self.run_in("one", "sed -i 's/^8$/eight/' text; echo b >b")
        second = self.merge("one")
        self.apply(second)
        self.assertEqual("1 TWO 3 4 5 6 7 eight 9 b".split(), self.run_in("desk", "cat text b; test ! -e a").split())
        self.ask(second, "undo")
        self.assertEqual(second["counts"], self.merge("one")["counts"])  # it is as if it had not been
        snapshots = [one["why"] for one in self.daemon.get("/v1/workspaces/one/snapshots").json["snapshots"]]
        self.assertLessEqual(snapshots.count("merge"), 3, snapshots)
        base = self.daemon.get("/v1/workspaces/one/snapshots").json["snapshots"][0]["id"]
        self.assertEqual("snapshot_in_use", self.daemon.request("DELETE", f"/v1/workspaces/one/snapshots/{base}").code)

    def test_a_mode_that_is_changed_again_is_seen(self):
        """Of a file whose content the fork shares with the snapshot that it stands on."""
        self.run_in("desk", "echo one >x; chmod 644 x")
        self.fork("one", self.snapshot())
        for mode in (0o600, 0o640, 0o755):
            self.run_in("one", f"chmod {mode:o} x")
            self.assertEqual(mode, self.kept("one", self.snapshot("one"))["x"][2])
            self.apply(self.merge("one"))
            self.assertEqual(mode, self.now()["x"][2])

    def test_against_a_model(self):
        for seed in range(FIRST, FIRST + SEEDS):
            with self.subTest(seed=seed):
                self.hold_against_model(seed)
        print(f"  seeds {FIRST} to {FIRST + SEEDS - 1}")

    def hold_against_model(self, seed):
        ours = Edits(f"{seed}o", self.now())
        for path in [path for path in ours.tree if "/" not in path]:
            ours.remove(path)
        base = ours.grow(15).tree.copy()
        self.edit("desk", ours.steps)
        self.assertEqual(base, self.now())
        snapshot = self.snapshot()
        name = f"m{seed}"
        self.fork(name, snapshot)
        ours, theirs = Edits(f"{seed}a", base).make(10), Edits(f"{seed}b", base).make(10)
        self.edit("desk", ours.steps)
        self.edit(name, theirs.steps)
        prefer = ("ours", "theirs")[seed % 2]
        merged, is_applied = self.merge_and_check(name, base, ours.tree, theirs.tree, prefer)
        more, again = Edits(f"{seed}c", merged).make(4), Edits(f"{seed}d", theirs.tree).make(4)
        self.edit("desk", more.steps)
        self.edit(name, again.steps)
        # What all was decided against left no plan: it is asked again.
        self.merge_and_check(name, theirs.tree if is_applied else base, more.tree, again.tree, prefer)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{name}?purge=1").status)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/desk/snapshots/{snapshot}").status)

    def merge_and_check(self, name, base, ours, theirs, prefer):
        self.assertEqual(theirs, self.kept(name, self.snapshot(name)))
        model = Merge(base, ours, theirs, prefer)
        if model.conflicts:
            error = self.merge(name, 409)["error"]
            self.assertEqual("merge_conflict", error["code"], error)
            self.assertEqual(sorted(model.conflicts) and True, bool(error["details"]["conflicts"]))
        if model.result == ours:
            self.assertEqual("no_changes", self.merge(name, 409, prefer=prefer)["error"]["code"])
            return ours, False
        plan = self.merge(name, prefer=prefer)
        self.assertEqual(len(model.conflicts), plan["merge"]["conflict_count"])
        self.assertEqual(ours, self.now())
        self.apply(plan)
        self.assertEqual(model.result, self.now())
        self.assertEqual("undone", self.ask(plan, "undo")["state"])
        self.assertEqual(ours, self.now())
        self.apply(self.merge(name, prefer=prefer))
        self.assertEqual(model.result, self.now())
        return model.result, True

    # --- who may ---

    def test_an_agent_asks_and_a_person_decides(self):
        self.post("/v1/workspaces", {"id": "shared", "owner": "ann", "policy": {"writes": "plan", "plan": {"approval": "required"}}}, 201)
        agent = self.daemon.key("ann", ("agent",), workspaces=["shared", "try"])
        owner, judge = self.daemon.key("ann", ("owner",)), self.daemon.key("ann", ("approve",))
        stranger = self.daemon.key("bob", ("owner",))
        self.post("/v1/workspaces/shared/plans", [{"op": "create", "path": "x", "content": "1\n"}], 201)
        snapshot = self.post("/v1/workspaces/shared/snapshots", {}, 201)["id"]
        self.post("/v1/workspaces", {"id": "try", "owner": "ann", "policy": {}, "fork": {"workspace": "shared", "snapshot": snapshot}}, 201)
        self.assertEqual(0, self.daemon.execute("try", "echo 2 >y", key=agent)["exit_code"])
        plan = self.merge("try", into="shared", key=agent)
        self.assertEqual("pending", plan["state"])
        path = f"/v1/workspaces/shared/plans/{plan['id']}"
        self.assertEqual(403, self.daemon.post(path + "/apply", {}, key=agent).status)
        self.assertEqual(403, self.daemon.post(path + "/approve", {"hash": plan["hash"]}, key=agent).status)
        self.post(path + "/approve", {"hash": plan["hash"]}, 200, key=judge)
        self.assertEqual("applied", self.post(path + "/apply", {"hash": plan["hash"]}, 200, key=owner)["state"])
        self.assertEqual("2\n", self.daemon.execute("shared", "cat y", key=owner)["stdout"])
        # of another owner, neither as the fork nor as what it comes into
        self.workspace(id="bobs", owner="bob")
        self.assertEqual(404, self.daemon.post("/v1/workspaces/bobs/merge", {"fork": "try"}, key=stranger).status)
        self.assertEqual(404, self.daemon.post("/v1/workspaces/shared/merge", {"fork": "try"}, key=stranger).status)
        self.assertEqual(404, self.daemon.post("/v1/workspaces/bobs/merge", {"fork": "try"}).status)
        self.assertEqual(404, self.daemon.post("/v1/workspaces/bobs/compare", {"from": "now", "workspace": "try"}).status)
        other = self.daemon.key("ann", ("agent",), workspaces=["shared"])
        self.assertEqual(404, self.daemon.post("/v1/workspaces/shared/merge", {"fork": "try"}, key=other).status)

    def test_what_cannot_be_merged_is_said(self):
        self.run_in("desk", "echo 1 >x")
        self.fork("one", self.snapshot())
        self.fork("two", self.snapshot("one"), of="one")
        self.workspace(id="plain", owner="alice")
        self.assertEqual("conflict", self.merge("plain", 409)["error"]["code"])
        self.assertEqual("is_a_fork", self.merge("two", 409, into="one")["error"]["code"])
        self.assertEqual("not_found", self.merge("nobody", 404)["error"]["code"])
        self.merge("../x", 400)
        self.run_in("two", "echo 2 >y")
        self.apply(self.merge("two"))  # into what its fork is of
        self.assertEqual("2\n", self.run_in("desk", "cat y"))

    def test_forks_are_compared(self):
        self.run_in("desk", "seq 3 >x; echo g >gone")
        snapshot = self.snapshot()
        self.fork("one", snapshot)
        self.fork("two", snapshot)
        self.run_in("one", "echo 1 >mine; rm gone")
        self.run_in("two", "echo 4 >>x")
        self.assertEqual({"mine": "added", "gone": "removed"}, self.compare("one", **{"from": "base"}))
        self.assertEqual({"mine": "removed", "gone": "added", "x": "changed"}, self.compare("one", **{"from": "now", "workspace": "two"}))
        self.assertEqual({"mine": "added", "gone": "removed"}, self.compare("desk", **{"from": "now", "workspace": "one"}))
        for _ in range(3):
            self.compare("one", **{"from": "base"})
        self.assertEqual(1, len(self.daemon.get("/v1/workspaces/one/snapshots").json["snapshots"]))  # none piles up
        of_its_own = self.daemon.get("/v1/workspaces/one/snapshots").json["snapshots"][0]["id"]
        self.fork("three", of_its_own, of="one")
        self.compare("one", **{"from": "base"})
        self.assertEqual("1\n", self.run_in("three", "cat mine"))  # what it stands on was left
        self.assertEqual(2, len(self.daemon.get("/v1/workspaces/one/snapshots").json["snapshots"]))
        self.assertEqual(400, self.daemon.post("/v1/workspaces/one/compare", {}).status)
        self.assertEqual(404, self.daemon.post("/v1/workspaces/one/compare", {"from": "none"}).status)
        self.workspace(id="plain", owner="alice")
        self.assertEqual(400, self.daemon.post("/v1/workspaces/desk/compare", {"from": "now", "workspace": "plain"}).status)

    # --- killed ---

    def test_a_merge_that_is_killed_half_way_is_taken_back(self):
        self.run_in("desk", "mkdir d; for i in $(seq 400); do echo $i >d/$i; done; sync")
        self.fork("one", self.snapshot())
        self.run_in("one", "for i in $(seq 400); do echo changed $i >d/$i; done; mkdir new; for i in $(seq 400); do echo $i >new/$i; done")
        plan = self.merge("one")
        before = self.now()
        journal = f"{self.daemon.state}/main/.carrel/workspaces/desk/plans/{plan['id']}/journal"
        self.ask(plan, "apply", 202, body={"async": True})
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(journal) or os.path.getsize(journal) < 2000:
            self.assertLess(time.monotonic(), deadline)
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        state = self.settled(plan)
        self.assertIn(self.now(), (before, self.kept("one", plan["merge"]["snapshot"])))
        if state != "applied":
            self.apply(self.merge("one"))
        self.assertEqual(self.kept("one", plan["merge"]["snapshot"]), self.now())

    def settled(self, plan):
        deadline = time.monotonic() + PATIENCE
        while True:
            state = self.daemon.get(f"/v1/workspaces/desk/plans/{plan['id']}").json["state"]
            if state not in ("applying", "queued"):
                return state
            self.assertLess(time.monotonic(), deadline, state)
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
