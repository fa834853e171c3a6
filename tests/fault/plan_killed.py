#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 3000
"""Applying and undoing a plan, cut short: by kill -9 at every call that changes something and at random instants, and by a
full or failing disk at each of these calls. After recovery the tree is the old or the new one, and nothing else is left.

One scene is used all the time: what was taken back must also be applicable again."""
import collections
import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "integration"))
from carreltest import PATIENCE, CarrelTest  # noqa: E402
from planmodel import Data, Model, Node, carrel_plan, content, difference, leftovers, remove, start  # noqa: E402

LONG = bool(os.environ.get("LONG"))
INSTANTS = 1000 if LONG else 20
CHANGING = ("write", "pwrite64", "renameat2", "renameat", "rename", "fsync", "syncfs", "linkat", "link", "unlinkat", "unlink", "symlinkat", "mkdirat",
            "fchmod", "fchmodat2", "chmod", "utimensat", "ftruncate", "fallocate", "fremovexattr")
POINTS = 10**9 if LONG else 20  # of each kind of test; otherwise spread over all
MESSAGE = re.compile(r".{20,}", re.S)


def write(path, data, mode=0o644):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)
    os.utime(path, ns=(10**18, 10**18))


def make_scene(tree, plan):
    """One of each: swapped files, a chain, directories moved into each other, one deleted with something saved from it, a
    moved one with things written and made in it, file and directory for each other, locked directories, hard links."""
    for folder in ("d/sub", "moved/in", "gone/deep", "locked", "becomes-file", "nest/inner", "untouched"):
        os.makedirs(f"{tree}/{folder}")
    for name in ("swap1", "swap2", "chain1", "chain2", "chain3", "written", "mode", "becomes-dir", "d/keep", "moved/in/f", "moved/g",
                 "gone/1", "gone/deep/2", "gone/deep/saved", "locked/f", "becomes-file/x", "nest/inner/y", "untouched/z", "hard1"):
        write(f"{tree}/{name}", name.encode() * 50)
    os.link(f"{tree}/hard1", f"{tree}/hard2")
    os.symlink("somewhere", f"{tree}/link")
    os.chmod(f"{tree}/locked", 0o555)
    for folder, _, _ in os.walk(tree):
        os.utime(folder, ns=(10**18 + 3, 10**18 + 3))
    model = Model(tree)
    top = model.root.children
    top[b"swap1"], top[b"swap2"] = top[b"swap2"], top[b"swap1"]
    top[b"chain4"], top[b"chain3"], top[b"chain2"] = top.pop(b"chain3"), top.pop(b"chain2"), top.pop(b"chain1")
    top[b"written"].data = Data(b"new content\n" * 1000)
    top[b"mode"].mode = 0o700
    top[b"becomes-dir"] = Node("directory", 0o755)
    top[b"becomes-dir"].children[b"n"] = Node("file", 0o600, data=Data(b"inside"))
    top[b"becomes-file"] = Node("file", 0o644, data=Data(b"was a directory"))
    top[b"saved"] = top[b"gone"].children[b"deep"].children.pop(b"saved")
    del top[b"gone"]
    moved = top.pop(b"moved")
    top[b"d"].children[b"there"] = moved
    moved.children[b"in"].children[b"f"].data = Data(b"changed in a moved one")
    moved.children[b"fresh"] = Node("directory", 0o555)
    moved.children[b"fresh"].children[b"new"] = Node("file", 0o400, data=Data(b"new"))
    inner = top[b"nest"].children.pop(b"inner")
    inner.children[b"nest"] = top.pop(b"nest")
    top[b"inner"] = inner
    top[b"locked"].children[b"f"].data = Data(b"in a locked one")
    top[b"locked"].children[b"more"] = Node("symlink", 0o777, target=b"f")
    top[b"link"].target = b"elsewhere"
    top[b"hard3"] = Node("file", top[b"hard1"].mode, data=top[b"hard1"].data)
    del top[b"hard2"]
    twin = Data(b"two names")
    top[b"twin1"], top[b"twin2"] = Node("file", data=twin), Node("file", data=twin)
    os.mkdir(plan, 0o700)
    return model, *model.write_plan(plan)


class Scene(CarrelTest):
    def setUp(self):
        super().setUp()
        self.tree, self.plan = self.path("tree"), self.path("plan")
        os.mkdir(self.tree)
        self.model, self.hash, self.operations = make_scene(self.tree, self.plan)
        self.before, self.planned = content(self.tree, times=True), self.model.content()
        self.count = len(self.operations)

    def tearDown(self):
        remove(self.tree)
        remove(self.plan)
        super().tearDown()

    def job(self, verb):
        return {"hash": self.hash} if verb == "apply" else {}

    def ok(self, verb, **job):
        answer = carrel_plan(verb, self.tree, self.plan, job)
        self.assertEqual(0, answer.status, f"{verb}: {answer.text} {answer.stderr}")
        return answer.json

    def is_old(self, what, times=True):
        before = self.before if times else {path: facts[:3] if isinstance(facts, tuple) else facts for path, facts in self.before.items()}
        if not times:
            del before[b"/"]
        if text := difference(before, content(self.tree, times)):
            self.fail(f"{what}: not the old tree\n{text}")
        self.assertEqual([], leftovers(self.plan), f"{what}: left in the slots")

    def is_new(self, what):
        if text := difference(self.planned, content(self.tree)):
            self.fail(f"{what}: not the new tree\n{text}")
        bases = [name for name in leftovers(self.plan) if not name.endswith(".base")]
        exchanged = {str(i) for i, o in enumerate(self.operations) if o["op"] == "symlink" and "base" in o}
        self.assertLessEqual(set(bases), exchanged, f"{what}: more in the slots than undo needs")

    def recovered(self, what, times=True):
        """Recovers, looks, and says whether the plan is in force."""
        answer = self.ok("recover")
        self.assertIn(answer["in_force"], (0, self.count), f"{what}: {answer}")
        self.assertEqual((0, 0), (answer["kept"], answer["lost"]), what)
        self.assertEqual({"taken_back": False}, {"taken_back": self.ok("recover")["taken_back"]}, f"{what}: again")
        if answer["in_force"]:
            self.is_new(what)
        else:
            self.is_old(what, times)
        return bool(answer["in_force"])

    def bring_to(self, in_force, wanted):
        """Where the next attempt begins."""
        if in_force != wanted:
            self.ok("apply" if wanted else "undo", **self.job("apply" if wanted else "undo"))
        (self.is_new if wanted else self.is_old)("to and fro")


def numbers_of_calls():
    lines = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                           capture_output=True, text=True, check=True).stdout
    return {"fchmodat2": 452} | {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", lines)}


def spread(points):
    if len(points) <= POINTS:
        return points
    return sorted(random.Random(1).sample(points, POINTS), key=points.index)


class Cut(Scene):
    def setUp(self):
        super().setUp()
        self.fail_call, self.log = self.path("fail_call"), self.path("calls")
        source = os.path.join(os.path.dirname(os.path.realpath(__file__)), "fail_call.c")
        subprocess.run(["cc", "-O1", "-Wall", "-static", "-o", self.fail_call, source], check=True)
        self.numbers, self.hits, self.tried = numbers_of_calls(), 0, 0

    def disturbed(self, verb, call=None, number=0, error=0):
        """One call of it fails, or with error 0 is never made: the process is killed."""
        process = -1 if call is None else 0
        prefix = [self.fail_call, self.log, *map(str, (process, self.numbers.get(call, -1), number, error))]
        return carrel_plan(verb, self.tree, self.plan, self.job(verb), prefix=prefix)

    def calls(self, verb):
        """How often an undisturbed run makes each call that changes something."""
        answer = self.disturbed(verb)
        self.assertEqual(0, answer.status, answer.text)
        names = {number: name for name, number in self.numbers.items() if name in CHANGING}
        with open(self.log, encoding="ascii") as file:
            made = [names.get(int(line.split()[1])) for line in file]
        counts = collections.Counter(name for name in made if name)
        self.assertGreater(counts["renameat2"], 20)
        self.assertGreater(counts["fsync"], 1)
        return [(call, number + 1) for call in sorted(counts) for number in range(counts[call])]

    def at_every_call(self, verb, attempt):
        begins = verb == "undo"
        if begins:
            self.ok("apply", hash=self.hash)
        points = self.calls(verb)
        in_force = not begins
        outcomes = collections.Counter()
        for call, number in spread(points):
            self.bring_to(in_force, begins)
            in_force = attempt(verb, call, number)
            outcomes[in_force] += 1
        print(f"{verb}: {len(points)} calls, outcomes {dict(outcomes)}")
        self.assertGreater(outcomes[begins], 3, "most are taken back")

    def kill(self, verb, call, number):
        what = f"{verb} killed at {call} number {number}"
        answer = self.disturbed(verb, call, number)
        self.assertIn(answer.status, (128 + signal.SIGKILL, 0), f"{what}: {answer.text}")
        self.tried += 1
        self.hits += answer.status != 0  # what is right already is not made so again
        if random.random() < 0.4:  # and the recovery, too
            self.disturbed("recover", random.choice(["renameat2", "fsync", "unlinkat", "pwrite64"]), random.randint(1, 6))
        return self.recovered(what)

    def test_killed_at_every_call_of_apply(self):
        self.at_every_call("apply", self.kill)
        self.assertGreater(self.hits, self.tried * 0.4)

    def test_killed_at_every_call_of_undo(self):
        self.at_every_call("undo", self.kill)
        self.assertGreater(self.hits, self.tried * 0.4)

    def fail_with(self, error):
        def attempt(verb, call, number):
            what = f"{verb}: {call} number {number} answers {error}"
            begins, times = verb == "undo", call != "utimensat"
            answer = self.disturbed(verb, call, number, getattr(errno, error))
            if answer.status == 0 or call == "write":  # the last one prints the answer
                in_force = self.recovered(what, times=times)
                if not times and not in_force:
                    self.restore_times()
                return in_force
            self.assertEqual(1, answer.status, f"{what}: {answer.text} {answer.stderr}")
            self.assertRegex(answer.message, MESSAGE, what)
            self.assertNotIn("recover", answer.message, f"{what}: must be taken back at once")
            in_force = self.recovered(what, times=times)
            self.assertEqual(begins, in_force, f"{what}: {answer.text}")
            return in_force
        return attempt

    def restore_times(self):
        for path, facts in sorted(self.before.items(), reverse=True):
            if path not in (b"/", b"/links") and facts[0] == "directory":
                os.utime(os.path.join(os.fsencode(self.tree), path), ns=(facts[3], facts[3]))
        os.utime(self.tree, ns=(self.before[b"/"],) * 2)

    def test_full_disk_at_every_call_of_apply(self):
        self.at_every_call("apply", self.fail_with("ENOSPC"))

    def test_full_disk_at_every_call_of_undo(self):
        self.at_every_call("undo", self.fail_with("ENOSPC"))

    def test_failing_disk_at_every_call_of_apply(self):
        self.at_every_call("apply", self.fail_with("EIO"))

    def test_failing_disk_at_every_call_of_undo(self):
        self.at_every_call("undo", self.fail_with("EIO"))


class AnyInstant(Scene):
    def duration(self, verb):
        began = time.monotonic()
        self.ok(verb, **self.job(verb))
        return time.monotonic() - began

    def test_killed_at_random_instants(self):
        random.seed(seed := int(os.environ.get("SEED", random.randrange(1 << 30))))
        lasts = {"apply": self.duration("apply"), "undo": self.duration("undo")}
        print(f"SEED={seed}; apply takes {lasts['apply'] * 1000:.1f} ms, undo {lasts['undo'] * 1000:.1f} ms")
        in_force, turned = False, 0
        for number in range(INSTANTS):
            verb = "undo" if in_force else "apply"
            process = start(verb, self.tree, self.plan, self.job(verb))
            # Some get the time to end, also on a machine that is busier than it was.
            deadline = time.monotonic() + random.uniform(0, 1.3 if number % 4 else 8) * lasts[verb]
            while time.monotonic() < deadline:
                pass
            process.kill()
            process.communicate(timeout=PATIENCE)
            now = self.recovered(f"instant {number}, {verb}, seed {seed}")
            turned += now != in_force
            in_force = now
        print(f"{turned} of {INSTANTS} were done before the kill")
        self.assertGreater(turned, 0)
        self.assertLess(turned, INSTANTS)


if __name__ == "__main__":
    unittest.main()
