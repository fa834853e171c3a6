#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 3600
"""Random trees and random plans: applied, the tree is what a model in memory says; undone, at once or path by path, it is
what it was, down to inodes and times.

    SEED=17 plan_model.py    one of them"""
import os
import random
import time
import unittest

from carreltest import CarrelTest
from planmodel import Changes, Model, carrel_plan, content, difference, leftovers, make_tree, remove

LONG = bool(os.environ.get("LONG"))
COUNT = 2000 if LONG else 30
FIRST = int(os.environ.get("FIRST_SEED", time.time_ns() // 10**9 % 10**6 * 10000 if LONG else 1))


class Modelled(CarrelTest):
    def setUp(self):
        super().setUp()
        self.tree, self.plan = self.path("tree"), self.path("plan")

    def tearDown(self):
        remove(self.tree)
        remove(self.plan)
        super().tearDown()

    def ok(self, verb, **job):
        answer = carrel_plan(verb, self.tree, self.plan, job)
        self.assertEqual(0, answer.status, f"{verb} {job}: {answer.text} {answer.stderr}")
        return answer.json

    def same(self, expected, seen, what):
        if text := difference(expected, seen):
            self.fail(f"{what}\n{text}")

    def scene(self, seed):
        r = random.Random(seed)
        remove(self.tree)
        remove(self.plan)
        make_tree(r, self.tree, r.choice([3, 12, 30, 60]))
        model = Model(self.tree)
        Changes(r, model).random(r.choice([1, 4, 15, 40]))
        os.mkdir(self.plan, 0o700)
        return r, model, *model.write_plan(self.plan)

    def one(self, seed):
        r, model, plan_hash, operations = self.scene(seed)
        if not operations:
            return
        where = f"SEED={seed}"
        before = content(self.tree, times=True)
        self.ok("apply", hash=plan_hash)
        self.same(model.content(), content(self.tree), f"{where}: applied")
        after = content(self.tree, times=True)
        marks = [path for path, what in after.items() if path not in (b"/", b"/links") and "user.overlay.origin" in what[6]]
        self.assertEqual([], marks, where)
        if r.random() < 0.5:
            self.undo_in_parts(r, operations, where)
        else:
            self.ok("undo")
        self.same(before, content(self.tree, times=True), f"{where}: undone")
        self.assertEqual([], leftovers(self.plan), where)
        # What is below a deleted directory is known by its times, which change with a further name of a file.
        if not (before[b"/links"] and any(o["op"] == "delete" and o["type"] == "directory" for o in operations)):
            self.ok("apply", hash=plan_hash)
            self.same(model.content(), content(self.tree), f"{where}: applied again")
        self.assertEqual(False, self.ok("recover")["taken_back"], where)
        self.ok("drop")
        self.assertEqual([], os.listdir(self.plan), where)

    def undo_in_parts(self, r, operations, where):
        left = set(range(len(operations)))
        while left:
            chosen = r.sample(sorted(left), r.randint(1, len(left)))
            gone = {entry["index"] for entry in self.ok("undo", operations=chosen)["operations"]}
            self.assertLessEqual(set(chosen), gone, where)
            self.assertLessEqual(gone, left, where)
            left -= gone

    def test_a_random_plan_does_what_the_model_says_and_is_undone_without_a_trace(self):
        if "SEED" in os.environ:
            return self.one(int(os.environ["SEED"]))
        for seed in range(FIRST, FIRST + COUNT):
            with self.subTest(seed=seed):
                self.one(seed)
        return None


if __name__ == "__main__":
    unittest.main()
