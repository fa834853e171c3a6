#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""carrel-plan verify, show and diff, as whoever starts them sees them: written plans, judged under policies, on a tree that
changes; shown in pages; compared with the base."""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from carreltest import CARREL, PATIENCE, CarrelTest, write

PROGRAM = pathlib.Path(CARREL).parent / "carrel-plan"


class Judged(CarrelTest):
    def setUp(self):
        super().setUp()
        self.tree = pathlib.Path(self.dir) / "tree"
        self.plan = pathlib.Path(self.dir) / "plan"
        for path in (self.tree, self.plan, self.tree / "docs", self.tree / "docs" / "old"):
            path.mkdir()
        write(self.tree / "a.txt", "one\ntwo\nthree\n")
        write(self.tree / "docs" / "b.txt", "b\n")
        write(self.tree / "docs" / "old" / "c.txt", "c\n")
        write(self.tree / "binary", "\0\1\2")

    def run_plan(self, verb, job, status=0):
        """The process's output as it is; descriptors 3 and 4 are the tree and the plan."""
        tree = os.open(self.tree, os.O_PATH | os.O_DIRECTORY)
        plan = os.open(self.plan, os.O_RDONLY | os.O_DIRECTORY)

        def place():
            high = [os.dup(tree), os.dup(plan)]  # neither is in the way of the other
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
        try:
            done = subprocess.run([PROGRAM, verb], input=json.dumps(job).encode(), capture_output=True, check=False,
                                  timeout=PATIENCE, preexec_fn=place, close_fds=False)
        finally:
            os.close(tree)
            os.close(plan)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def submit(self, plan):
        return json.loads(self.run_plan("submit", plan))

    def submit_again(self, plan):
        shutil.rmtree(self.plan)
        self.plan.mkdir()
        self.submit(plan)

    def verify(self, policy=None, **job):
        answer = json.loads(self.run_plan("verify", {"policy": {"plan": policy or {}}, **job}))
        return answer["verdict"], [(f["rule"], f["severity"], f.get("path")) for f in answer["findings"]]

    def show(self, **job):
        return [json.loads(line) for line in self.run_plan("show", job).splitlines()]

    def test_every_verb_is_confined_before_it_reads_its_job(self):
        tree = os.open(self.tree, os.O_PATH | os.O_DIRECTORY)
        plan = os.open(self.plan, os.O_RDONLY | os.O_DIRECTORY)

        def place():
            high = [os.dup(tree), os.dup(plan)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
        layer = {1 << number for number in (1, 2, 3, 21)}  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SYS_ADMIN
        for verb in ("derive", "submit", "show", "diff", "view", "verify", "apply", "undo", "recover", "journal", "drop"):
            with subprocess.Popen([PROGRAM, verb], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=place, close_fds=False) as process:
                deadline = time.monotonic() + PATIENCE
                status = {}
                while status.get("Seccomp") != "2" and time.monotonic() < deadline:
                    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                        status = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
                process.stdin.close()
            self.assertEqual(("2", "1"), (status["Seccomp"], status["NoNewPrivs"]), verb)
            held = int(status["CapEff"], 16)
            self.assertEqual(0, held & ~sum(layer) if verb in ("derive", "view") else held, verb)
        os.close(tree)
        os.close(plan)

    def test_a_plan_of_nothing_is_clean(self):
        self.submit([])
        self.assertEqual(self.verify(), ("clean", []))
        self.assertEqual(self.show(), [])
        self.assertEqual(self.run_plan("diff", {}), b"")

    def test_findings_name_operation_rule_and_remedy(self):
        self.submit([{"op": "create", "path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n", "mode": "0755"},
                     {"op": "delete", "path": "a.txt"}])
        verdict, findings = self.verify()
        self.assertEqual(verdict, "review")
        self.assertIn(("sensitive", "review", ".git/hooks/pre-commit"), findings)
        self.assertIn(("executables", "review", ".git/hooks/pre-commit"), findings)
        self.assertNotIn("a.txt", [path for _, _, path in findings])
        verdict, findings = self.verify({"protect": ["*.txt"], "executables": "refuse", "sensitive": "allow"})
        self.assertEqual(verdict, "refused")
        self.assertEqual(sorted(findings), [("executables", "refuse", ".git/hooks/pre-commit"), ("protect", "refuse", "a.txt")])
        answer = json.loads(self.run_plan("verify", {"policy": {"plan": {"operations": ["delete"]}}}))
        for finding in answer["findings"]:
            line = self.show(cursor=str(finding["operation"]), limit=1)[0]
            self.assertEqual((line["path"], line["op"]), (finding["path"], finding["op"]))
            self.assertTrue(finding["message"] and finding["remedy"])

    def test_a_tree_that_changed_makes_the_plan_stale(self):
        self.submit([{"op": "move", "src": "a.txt", "dest": "docs/a.txt"}, {"op": "delete", "path": "docs/old", "recursive": True}])
        self.assertEqual(self.verify(), ("clean", []))
        write(self.tree / "docs" / "old" / "new", "x")
        self.assertEqual(self.verify(), ("refused", [("stale", "refuse", "docs/old")]))
        os.unlink(self.tree / "docs" / "old" / "new")
        write(self.tree / "docs" / "a.txt", "in the way")
        self.assertEqual(self.verify()[1], [("occupied", "refuse", "docs/a.txt")])

    def test_a_link_that_leads_out_through_other_links_is_told(self):
        os.symlink("/etc", self.tree / "out")
        os.symlink("docs/old/..", self.tree / "in")
        os.symlink("../up", self.tree / "docs" / "up")
        os.symlink("loop", self.tree / "loop")
        links = {"a1": "out/passwd", "a2": "./docs/../out", "b1": "in/b.txt", "b2": "docs/b.txt", "b3": "loop/x", "b4": "nowhere/x",
                 "a3": "new/x", "new": "a4", "a4": "docs/old/../../../x", "docs/a5": "../in/../../x", "b5": "in/../in/../a.txt",
                 "a6": "moved/x", "b6": "docs/up", "far": "/".join(["in/.."] * 30)}
        self.submit([{"op": "symlink", "path": path, "target": target} for path, target in links.items()] +
                    [{"op": "move", "src": "out", "dest": "moved"}])
        verdict, findings = self.verify()
        told = {path for rule, _, path in findings if rule == "link_out"}
        # What was behind "out" is behind "moved" now: a1 and a2 lead to nothing.
        self.assertEqual({"a3", "new", "a4", "docs/a5", "a6", "moved", "b3"}, told)  # b3 goes round and round
        self.assertEqual("review", verdict)
        self.submit_again([{"op": "symlink", "path": path, "target": target} for path, target in links.items()])
        self.assertEqual({"a1", "a2", "a3", "new", "a4", "docs/a5", "b3"}, {path for rule, _, path in self.verify()[1] if rule == "link_out"})
        answer = json.loads(self.run_plan("verify", {"policy": {}}))
        self.assertIn("through the link 'out'", [f["message"] for f in answer["findings"] if f["path"] == "a1"][0])

    def test_a_link_in_the_place_of_a_directory_is_not_followed(self):
        self.submit([{"op": "create", "path": "docs/new", "content": "x"}])
        os.rename(self.tree / "docs", self.tree / "elsewhere")
        os.symlink("elsewhere", self.tree / "docs")
        self.assertEqual(self.verify(), ("refused", [("parent", "refuse", "docs/new")]))

    def test_a_mode_does_not_reach_a_closed_file_by_another_name(self):
        for name in ("closed", "open"):
            (self.tree / name).mkdir()
        write(self.tree / "closed" / "a", "x")
        os.link(self.tree / "closed" / "a", self.tree / "open" / "b")
        write(self.tree / "open" / "c", "x")
        self.submit([{"op": "chmod", "path": "open/b", "mode": "0666"}, {"op": "chmod", "path": "open/c", "mode": "0666"}])
        refused = ("refused", [("hard_link", "refuse", "open/b")])
        self.assertEqual(self.verify({"protect": ["closed/**"]}), refused)
        self.assertEqual(self.verify({"allow": ["open/**"]}), refused)
        self.assertEqual(self.verify(), ("review", [("hard_link", "review", "open/b")]))

    def test_a_move_that_changes_the_mode_is_a_change_of_all_names(self):
        os.link(self.tree / "a.txt", self.tree / "docs" / "also")
        self.submit([{"op": "move", "src": "docs/also", "dest": "n"}])
        self.assertEqual(self.verify({"protect": ["a.txt"]}), ("clean", []))
        self.submit_again([{"op": "move", "src": "docs/also", "dest": "n"}, {"op": "chmod", "path": "n", "mode": "0666"}])
        self.assertEqual(self.verify({"protect": ["a.txt"]}), ("refused", [("hard_link", "refuse", "n")]))

    def test_a_moved_directory_brings_what_is_in_it(self):
        for name in (".git/hooks", "plain/sub"):
            (self.tree / "docs" / "old" / name).mkdir(parents=True)
        self.submit([{"op": "move", "src": "docs/old/plain", "dest": "plain"}])
        self.assertEqual(self.verify(), ("clean", []))
        self.submit_again([{"op": "move", "src": "docs", "dest": "papers"}])
        self.assertEqual(self.verify(), ("review", [("sensitive", "review", "papers")]))
        self.assertEqual(self.verify({"sensitive": "allow"}), ("clean", []))

    def test_paths_may_be_deep_and_not_deeper(self):
        self.submit([{"op": "create", "path": "d/" * 511 + f"f{i}", "content": "x"} for i in range(3)])
        self.assertEqual(self.verify()[0], "clean")
        answer = json.loads(self.run_plan("submit", [{"op": "create", "path": "d/" * 512 + "f", "content": "x"}], status=1))
        self.assertEqual(answer["error"]["code"], "plan_invalid")
        self.assertIn("512 names deep", answer["error"]["message"])

    def test_the_hash_that_is_named_must_be_the_plans(self):
        digest = self.submit([{"op": "delete", "path": "a.txt"}])["hash"]
        self.assertEqual(self.verify(hash=digest)[0], "clean")
        answer = json.loads(self.run_plan("verify", {"hash": "0" * 64}, status=1))
        self.assertEqual(answer["error"]["code"], "plan_conflict")

    def test_content_changed_after_closing_is_refused(self):
        self.submit([{"op": "create", "path": "n", "content": "approved"}])
        write(self.plan / "upper" / "n", "something else")
        self.assertEqual(self.verify(), ("refused", [("content", "refuse", "n")]))
        self.assertIn(b"not what the plan was closed with", self.run_plan("diff", {"path": "n"}))

    def test_validations_are_looked_at_before_and_after(self):
        self.submit({"moves": [{"src": "a.txt", "dest": "docs/"}],
                     "validations": [{"check": "exists", "path": "a.txt"}, {"check": "absent", "path": "a.txt", "when": "after"},
                                     {"check": "count", "path": "docs/*.txt", "count": 2, "when": "after"},
                                     {"check": "free_space", "bytes": 1}]})
        self.assertEqual(self.verify(), ("clean", []))
        write(self.tree / "docs" / "more.txt", "x")
        self.assertEqual(self.verify(), ("refused", [("validation", "refuse", "docs/*.txt")]))

    def test_many_findings_come_in_windows(self):
        self.submit([{"op": "create", "path": f"d/f{i:04}", "content": "x"} for i in range(2500)])
        policy = {"policy": {"plan": {"allow": []}}}
        first = json.loads(self.run_plan("verify", policy))
        self.assertEqual((first["refused"], len(first["findings"]), first["next"]), (2501, 1000, 1000))
        last = json.loads(self.run_plan("verify", {**policy, "from": 2000, "limit": 10000}))
        self.assertEqual((last["refused"], len(last["findings"]), "next" in last), (2501, 501, False))

    def test_operations_are_shown_in_pages_by_kind_and_place(self):
        self.submit([{"op": "create", "path": f"d{i % 3}/f{i:04}", "content": "xx"} for i in range(100)] +
                    [{"op": "delete", "path": "docs", "recursive": True}])
        everything = self.show()
        self.assertEqual([line["number"] for line in everything], list(range(104)))
        pages, cursor = [], "0"
        while cursor:
            page = self.show(cursor=cursor, limit=7)
            cursor = page[-1].get("next")
            pages += page[:-1] if cursor else page
        self.assertEqual(pages, everything)
        self.assertEqual([line["path"] for line in self.show(kinds=["delete"])], ["docs"])
        self.assertEqual(len(self.show(under="d1")), 34)
        summary = self.show(summary=True, limit=0)[0]["summary"]
        self.assertEqual((summary["operations"], summary["bytes"], summary["counts"]["create"]), (104, 200, 100))
        self.assertEqual((summary["deleted_entries"], summary["deleted_bytes"]), (3, 4))
        self.assertEqual(summary["directories"][0], {"path": "d0", "operations": 35, "bytes": 68})

    def test_jobs_that_are_not_understood_are_refused(self):
        self.submit([])
        for verb, job in [("show", {"cursor": "x"}), ("show", {"cursor": "-1"}), ("show", {"limit": -1}), ("show", {"kinds": ["x"]}),
                          ("show", {"kinds": "delete"}), ("show", {"more": 1}), ("verify", {"policy": 3}), ("verify", {"limit": 10**9}),
                          ("verify", {"policy": {"plan": {"x": 1}}}), ("verify", {"more": 1}), ("diff", {"path": 1}), ("diff", {"x": 1})]:
            with self.subTest(verb=verb, job=job):
                answer = json.loads(self.run_plan(verb, job, status=1))
                self.assertEqual(answer["error"]["code"], "plan_invalid")
        answer = json.loads(self.run_plan("diff", {"path": "nowhere"}, status=1))
        self.assertEqual(answer["error"]["code"], "plan_not_found")

    def test_text_is_compared_line_by_line_and_the_rest_is_said_in_words(self):
        os.symlink("a.txt", self.tree / "link")
        self.submit([{"op": "write", "path": "a.txt", "content": "one\nTWO\nthree\n"}, {"op": "create", "path": "n", "content": "new\n"},
                     {"op": "delete", "path": "docs/b.txt"}, {"op": "write", "path": "binary", "content_b64": "AAECAw=="},
                     {"op": "move", "src": "docs/old", "dest": "older"}, {"op": "symlink", "path": "s", "target": "a.txt"}])
        text = self.run_plan("diff", {}).decode()
        self.assertIn("--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n", text)
        self.assertIn("--- /dev/null\n+++ b/n\n@@ -0,0 +1,1 @@\n+new\n", text)
        self.assertIn("--- a/docs/b.txt\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-b\n", text)
        self.assertIn("write binary, 4 bytes\n  (binary)\n", text)
        self.assertIn("move older from docs/old\n", text)
        self.assertIn("symlink s -> a.txt\n", text)
        self.assertTrue(self.run_plan("diff", {"path": "n"}).startswith(b"create n, mode 0644, 4 bytes\n"))
        write(self.tree / "a.txt", "one\nsecret of somebody else\n")
        text = self.run_plan("diff", {"path": "a.txt"})
        self.assertIn(b"the base has changed since", text)
        self.assertNotIn(b"secret", text)

    def test_a_diff_never_waits_for_a_fifo_nor_follows_a_link(self):
        self.submit([{"op": "write", "path": "a.txt", "content": "x"}, {"op": "delete", "path": "docs/b.txt"}])
        os.unlink(self.tree / "a.txt")
        os.mkfifo(self.tree / "a.txt")
        os.unlink(self.tree / "docs" / "b.txt")
        os.symlink("/etc/passwd", self.tree / "docs" / "b.txt")
        text = self.run_plan("diff", {})
        self.assertEqual(text.count(b"the base has changed since"), 2)
        self.assertNotIn(b"root:", text)

    def test_names_cannot_forge_lines_of_a_diff(self):
        name = "x\n--- forged\n\x1b[31m"
        self.submit([{"op": "create", "path": name, "content": "1\n"}])
        text = self.run_plan("diff", {})
        self.assertNotIn(b"\n--- forged\n", text)
        self.assertNotIn(b"\x1b", text)
        encoded = base64.b64encode(name.encode()).decode()
        self.assertEqual(self.run_plan("diff", {"path_b64": encoded}), text)

    def test_large_files_are_not_compared(self):
        with open(self.tree / "a.txt", "w", encoding="ascii") as file:
            file.truncate(1 << 40)
        self.submit([{"op": "write", "path": "a.txt", "content": "x"}])
        self.assertIn(b"too large to be compared", self.run_plan("diff", {}))

    def test_twenty_thousand_operations_are_judged_within_seconds(self):
        self.submit([{"op": "create", "path": f"d{i % 300}/f{i}", "content": "x"} for i in range(20000)])
        begin = time.monotonic()
        self.assertEqual(self.verify({"protect": ["contracts/**", "*.key"], "allow": ["**"]})[0], "clean")
        self.assertLess(time.monotonic() - begin, PATIENCE / 2)


if __name__ == "__main__":
    unittest.main()
