#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Applying and undoing plans: what is refused and leaves no trace, what is left out on request, what force keeps aside."""
import base64
import fcntl
import json
import os
import struct
import subprocess
import termios
import time
import unittest

from carreltest import PATIENCE, CarrelTest
from planmodel import PLAN, Data, Model, Node, carrel_plan, content, difference, later, leftovers, remove, save_manifest


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class PlanApplied(CarrelTest):
    def setUp(self):
        super().setUp()
        self.tree, self.plan = self.path("tree"), self.path("plan")
        os.makedirs(f"{self.tree}/dir/sub")
        for name in ("a", "b", "dir/x", "dir/sub/y"):
            write(f"{self.tree}/{name}", name)
        os.mkdir(self.plan, 0o700)

    def tearDown(self):
        remove(self.tree)
        remove(self.plan)
        super().tearDown()

    def planned(self, change):
        model = Model(self.tree)
        change(model.root.children)
        self.hash, self.operations = model.write_plan(self.plan)
        self.model = model
        later()

    def run_verb(self, verb, **job):
        if verb == "apply":
            job.setdefault("hash", self.hash)
        return carrel_plan(verb, self.tree, self.plan, job)

    def ok(self, verb, **job):
        answer = self.run_verb(verb, **job)
        self.assertEqual(0, answer.status, f"{verb}: {answer.text} {answer.stderr}")
        return answer.json

    def refused(self, code, words, verb="apply", **job):
        """Told in words, and the tree is what it was to the last inode."""
        before = content(self.tree, times=True)
        answer = self.run_verb(verb, **job)
        self.assertEqual((1, code), (answer.status, answer.code), answer.text)
        self.assertRegex(answer.message, words)
        self.assertEqual("", difference(before, content(self.tree, times=True)))
        return answer

    def is_new(self):
        self.assertEqual("", difference(self.model.content(), content(self.tree)))

    def index(self, path):
        return next(i for i, o in enumerate(self.operations) if o["path"] == path)


class Whole(PlanApplied):
    def test_a_pair_of_new_names(self):
        def change(top):
            data = Data(b"one")
            top[b"z"], top[b"new"] = Node("file", data=data), Node("file", data=data)
        self.planned(change)
        # As a layer has it: under both names.
        os.link(*(f"{self.plan}/upper/{name}" for name in (("new", "z") if os.path.exists(f"{self.plan}/upper/new") else ("z", "new"))))
        self.ok("apply")
        self.is_new()
        self.assertEqual(2, os.stat(f"{self.tree}/z").st_nlink)

    def test_of_many_operations_some_are_told_and_all_counted(self):
        self.planned(lambda top: top.update({b"n%d" % i: Node("directory", 0o755) for i in range(300)}))
        answer = self.ok("apply", keep_going=True)
        self.assertEqual((300, 0, 200, 100), (answer["applied"], answer["failed"], len(answer["operations"]), answer["operations_untold"]))
        answer = self.ok("undo")
        self.assertEqual((300, 200, 100), (answer["undone"], len(answer["operations"]), answer["operations_untold"]))

    def test_a_new_directory_has_its_attributes(self):
        self.planned(lambda top: top.update({b"new": Node("directory", 0o755)}))
        self.operations[self.index(b"new")]["attributes"] = [("user.a", "AP8="), ("user.b", "")]
        self.hash = save_manifest(self.plan, os.fsencode(self.tree), self.operations)
        self.ok("apply")
        self.assertEqual({"user.a": b"\0\xff", "user.b": b""}, {n: os.getxattr(f"{self.tree}/new", n) for n in os.listxattr(f"{self.tree}/new")})
        self.ok("undo")
        self.assertFalse(os.path.lexists(f"{self.tree}/new"))

    def test_nothing_to_recover(self):
        self.assertEqual({"taken_back": False}, self.ok("recover"))
        self.assertEqual({"in_force": 0}, self.ok("journal"))


class Refused(PlanApplied):
    def test_attributes_that_the_plan_does_not_name(self):
        self.planned(lambda top: setattr(top[b"a"], "data", Data(b"new")))
        for change in (lambda path: os.setxattr(path, "user.keep", b"another"), lambda path: os.removexattr(path, "user.keep"),
                       lambda path: (os.setxattr(path, "user.keep", b"me"), os.setxattr(path, "user.more", b""))):
            change(f"{self.plan}/upper/a")
            self.refused("plan_conflict", "the attributes of what is planned for 'a' are not what the plan says")
        os.removexattr(f"{self.plan}/upper/a", "user.more")
        self.ok("apply")

    def test_a_file_that_changed_since(self):
        self.planned(lambda top: setattr(top[b"a"], "data", Data(b"new")))
        write(f"{self.tree}/a", "somebody else's")
        self.refused("plan_conflict", "'a' has changed since the plan was made")

    def test_a_file_that_changed_and_has_its_old_time_again(self):
        self.planned(lambda top: setattr(top[b"a"], "data", Data(b"new")))
        st = os.stat(f"{self.tree}/a")
        write(f"{self.tree}/a", "A")
        os.utime(f"{self.tree}/a", ns=(st.st_atime_ns, st.st_mtime_ns))
        self.refused("plan_conflict", "'a' has changed")

    def test_a_place_that_is_taken(self):
        self.planned(lambda top: top.update({b"new": Node("file", data=Data(b"1"))}))
        write(f"{self.tree}/new", "first")
        self.refused("plan_conflict", "'new' is there already")

    def test_a_parent_that_is_a_symlink_by_now(self):
        self.planned(lambda top: top[b"dir"].children.update({b"new": Node("file", data=Data(b"1"))}))
        os.mkdir(self.path("outside"))
        os.rename(f"{self.tree}/dir", self.path("moved"))
        os.symlink(self.path("outside"), f"{self.tree}/dir")
        self.refused("plan_conflict", "no directory|symlink")
        self.assertEqual([], os.listdir(self.path("outside")))
        os.unlink(f"{self.tree}/dir")
        os.rename(self.path("moved"), f"{self.tree}/dir")

    def test_a_deleted_directory_that_holds_more_by_now(self):
        self.planned(lambda top: top.pop(b"dir"))
        write(f"{self.tree}/dir/sub/more", "work of somebody")
        self.refused("plan_conflict", "holds something else")

    def test_content_that_was_changed_after_the_plan_was_made(self):
        self.planned(lambda top: setattr(top[b"a"], "data", Data(b"approved")))
        write(f"{self.plan}/upper/a", "replaced")
        self.refused("plan_conflict", "not what the plan says")

    def test_content_that_somebody_has_open_for_writing(self):
        self.planned(lambda top: setattr(top[b"a"], "data", Data(b"approved")))
        with open(f"{self.plan}/upper/a", "r+b"):
            self.refused("plan_conflict", "open for writing")
        self.ok("apply")
        self.is_new()

    def test_another_hash_than_the_plan_has(self):
        self.planned(lambda top: top.pop(b"a"))
        self.refused("plan_conflict", "asked for", hash="0" * 64)

    def test_a_second_time(self):
        self.planned(lambda top: top.pop(b"a"))
        self.ok("apply")
        self.refused("plan_conflict", "nothing left of the plan")
        self.ok("undo")
        self.refused("plan_conflict", "nothing of the plan is in force", verb="undo")

    def test_a_chosen_operation_without_the_directory_it_needs(self):
        def change(top):
            top[b"new"] = Node("directory", 0o755)
            top[b"new"].children[b"f"] = Node("file", data=Data(b"1"))
        self.planned(change)
        self.refused("plan_invalid", "cannot be done without operation", operations=[self.index(b"new/f")])
        self.assertEqual(1, self.ok("apply", operations=[self.index(b"new")])["applied"])
        self.assertEqual([], os.listdir(f"{self.tree}/new"))


class LeftOut(PlanApplied):
    def test_what_fails_and_what_depends_on_it_the_rest_is_done(self):
        def change(top):
            top[b"a"].data = Data(b"new a")
            top[b"c"], top[b"b2"] = Node("file", data=Data(b"c")), top.pop(b"b")
            top[b"d1"] = Node("directory", 0o755)
            top[b"d1"].children[b"f"] = Node("file", data=Data(b"f"))
        self.planned(change)
        write(f"{self.tree}/a", "changed by somebody else")
        os.mkdir(f"{self.tree}/d1")
        answer = self.ok("apply", keep_going=True)
        outcome = {entry["path"]: entry["outcome"] for entry in answer["operations"]}
        self.assertEqual({"a": "failed", "b2": "applied", "c": "applied", "d1": "failed", "d1/f": "left_out"}, outcome)
        self.assertEqual(2, answer["applied"])
        self.assertTrue(all(entry["message"] for entry in answer["operations"] if entry["outcome"] != "applied"))
        self.assertEqual(("changed by somebody else", "c", "b"), tuple(read(f"{self.tree}/{n}") for n in ("a", "c", "b2")))
        self.ok("undo")
        self.assertEqual({"a", "b", "dir", "d1"}, set(os.listdir(self.tree)))

    def test_steps_are_told_while_they_happen(self):
        self.planned(lambda top: (top.pop(b"a"), top.update({b"n\xff": Node("file", data=Data(b"1"))})))
        ends = os.pipe()
        answer = carrel_plan("apply", self.tree, self.plan, {"hash": self.hash}, steps=ends[1])
        os.close(ends[1])
        with os.fdopen(ends[0]) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(0, answer.status)
        self.assertEqual([("delete", "a"), ("create", None)], [(line["op"], line.get("path")) for line in lines])
        self.assertIn("path_b64", lines[1])
        self.assertTrue(all(1 <= line["step"] <= line["of"] for line in lines))

    def test_who_watches_the_steps_may_go(self):
        self.planned(lambda top: top.pop(b"a"))
        ends = os.pipe()
        os.close(ends[0])
        answer = carrel_plan("apply", self.tree, self.plan, {"hash": self.hash}, steps=ends[1])
        os.close(ends[1])
        self.assertEqual(0, answer.status, answer.text)


class Undone(PlanApplied):
    def change(self, top):
        top[b"a"].data = Data(b"new a")
        top[b"made"] = Node("directory", 0o755)
        top[b"made"].children[b"moved"] = top.pop(b"b")
        del top[b"dir"]

    def setUp(self):
        super().setUp()
        self.planned(self.change)
        self.before = content(self.tree, times=True)
        self.ok("apply")
        later()

    def test_new_things_in_a_made_directory_that_cannot_be_read(self):
        for mode in (0o300, 0o000, 0o200) if os.geteuid() == 0 else (0o300,):  # the comparison has to look inside
            with self.subTest(mode=oct(mode)):
                self.run_verb("undo", force=True)
                remove(self.plan)
                os.mkdir(self.plan, 0o700)
                self.planned(lambda top, mode=mode: top.update({b"dd": Node("directory", mode)}))
                self.ok("apply")
                os.chmod(f"{self.tree}/dd", 0o700)
                write(f"{self.tree}/dd/precious", "newer")
                os.chmod(f"{self.tree}/dd", mode)
                self.refused("plan_conflict", "mkdir 'dd' cannot be undone: it was changed since", verb="undo")
                self.ok("undo", force=True)
                self.assertEqual("newer", read(f"{self.plan}/slots/kept.0/precious"))

    def test_a_made_directory_that_cannot_be_read_and_is_as_it_was(self):
        self.ok("undo")
        os.unlink(f"{self.plan}/journal")
        self.planned(lambda top: top.update({b"dd": Node("directory", 0o300)}))
        self.ok("apply")
        self.ok("undo")
        self.assertEqual("", difference(self.before, content(self.tree, times=True)))
        self.assertEqual([], leftovers(self.plan))

    def test_one_path_and_then_the_rest(self):
        answer = self.ok("undo", paths=["a"])
        self.assertEqual((1, "a", 3), (answer["undone"], read(f"{self.tree}/a"), answer["in_force"]))
        self.assertFalse(os.path.exists(f"{self.tree}/dir"))
        self.ok("undo")
        self.assertEqual("", difference(self.before, content(self.tree, times=True)))

    def test_a_directory_takes_what_was_put_into_it_along(self):
        answer = self.ok("undo", paths=["made"])
        self.assertEqual(["made", "made/moved"], sorted(entry["path"] for entry in answer["operations"]))
        self.assertEqual("b", read(f"{self.tree}/b"))

    def test_a_path_that_the_plan_did_not_touch(self):
        self.refused("plan_not_found", "'nowhere'", verb="undo", paths=["nowhere"])

    def test_what_was_changed_since_is_refused_and_kept_by_force(self):
        write(f"{self.tree}/a", "precious")
        self.refused("plan_conflict", "write 'a' cannot be undone: it was changed since", verb="undo")
        self.ok("undo", force=True)
        self.assertEqual("a", read(f"{self.tree}/a"))
        self.assertEqual(["kept.0"], leftovers(self.plan))
        self.assertEqual("precious", read(f"{self.plan}/slots/kept.0"))
        self.assertEqual({"a", "b", "dir"}, set(os.listdir(self.tree)))

    def test_what_was_replaced_since_is_kept_by_force(self):
        for name in ("a", "made/moved"):
            write(f"{self.tree}/other", "precious")
            os.rename(f"{self.tree}/other", f"{self.tree}/{name}")
        self.refused("plan_conflict", "cannot be undone: something else is there now", verb="undo")
        self.ok("undo", force=True)
        self.assertEqual("a", read(f"{self.tree}/a"))
        self.assertIn("precious", [read(f"{self.plan}/slots/{name}") for name in leftovers(self.plan) if os.path.isfile(f"{self.plan}/slots/{name}")])

    def test_a_made_file_that_was_replaced_since(self):
        self.ok("undo")
        self.planned(lambda top: top.update({b"new": Node("file", data=Data(b"new"))}))
        os.unlink(f"{self.plan}/journal")
        self.ok("apply")
        write(f"{self.tree}/other", "precious")
        os.rename(f"{self.tree}/other", f"{self.tree}/new")
        self.ok("undo", force=True)
        self.assertFalse(os.path.exists(f"{self.tree}/new"))
        self.assertEqual(["precious"], [read(f"{self.plan}/slots/{name}") for name in leftovers(self.plan)])

    def test_a_path_in_base64_and_many_of_them(self):
        coded = {"path_b64": base64.b64encode(b"a").decode()}
        self.assertEqual(1, self.ok("undo", paths=[coded] + ["a"] * 100000)["undone"])
        self.refused("plan_invalid", "no path", verb="undo", paths=[{"path_b64": "!"}])

    def test_new_things_in_a_made_directory(self):
        write(f"{self.tree}/made/theirs", "precious")
        self.refused("plan_conflict", "mkdir 'made' cannot be undone", verb="undo", paths=["made"])
        self.ok("undo", force=True)
        self.assertEqual("precious", read(f"{self.plan}/slots/kept.0/theirs"))
        self.assertEqual("b", read(f"{self.tree}/b"))

    def test_a_place_that_is_taken_by_now(self):
        os.mkdir(f"{self.tree}/dir")
        write(f"{self.tree}/dir/theirs", "precious")
        self.refused("plan_conflict", "the place where it was is taken", verb="undo")
        self.ok("undo", force=True)
        self.assertEqual("precious", read(f"{self.plan}/slots/kept.0/theirs"))
        self.assertEqual("dir/sub/y", read(f"{self.tree}/dir/sub/y"))

    def test_what_is_gone_or_somewhere_else(self):
        os.unlink(f"{self.tree}/a")
        os.rename(f"{self.tree}/made/moved", f"{self.tree}/elsewhere")
        self.refused("plan_conflict", "not there any more", verb="undo")
        answer = self.ok("undo", force=True)
        self.assertEqual("a", read(f"{self.tree}/a"))
        self.assertEqual("b", read(f"{self.tree}/elsewhere"))
        self.assertIn("nothing could be moved back", [e.get("message", "") for e in answer["operations"] if e["path"] == "made/moved"][0])

    def test_dropped_nothing_is_left_and_the_tree_stays(self):
        after = content(self.tree, times=True)
        os.makedirs(f"{self.plan}/work/work")
        os.makedirs(f"{self.plan}/upper/" + "/".join(["deep" * 20] * 30))
        os.chmod(f"{self.plan}/work/work", 0)
        os.symlink(self.tree, f"{self.plan}/upper/out")
        self.ok("drop")
        self.assertEqual([], os.listdir(self.plan))
        self.assertEqual("", difference(after, content(self.tree, times=True)))


class Interrupted(PlanApplied):
    def start(self, verb, job, *more):
        """The process, with what it was asked; `more` are its descriptors from 5 on."""
        fds = [os.open(path, os.O_RDONLY) for path in (self.tree, self.plan)]

        def place():
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (*fds, *more)]
            for number, fd in enumerate(high):
                os.dup2(fd, 3 + number)
        process = subprocess.Popen([PLAN, verb], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=place, close_fds=False)
        for fd in fds:
            os.close(fd)
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
        return process

    def diff(self, path):
        with self.start("diff", {"path": path}) as process:
            return process.stdout.read().decode()

    def apply_and_kill(self):
        """Nobody reads of the steps: it waits in the middle of them."""
        ends = os.pipe()
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
        process = self.start("apply", {"hash": self.hash}, ends[1])
        held, deadline = -1, time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            now = struct.unpack("i", fcntl.ioctl(ends[0], termios.FIONREAD, b"\0" * 4))[0]
            if now == held and now > 2000:
                break
            held = now
            time.sleep(0.2)
        self.assertIsNone(process.poll())
        process.kill()
        process.wait(timeout=PATIENCE)
        process.stdout.close()
        for fd in ends:
            os.close(fd)

    def test_a_plan_whose_apply_was_killed_is_not_stale_by_that(self):
        for number in range(100):
            for name in ("moved", "written", "gone", "mode"):
                write(f"{self.tree}/{name}{number}", "old")

        def change(top):
            for number in range(100):
                top[b"to%d" % number] = top.pop(b"moved%d" % number)
                top[b"written%d" % number].data = Data(b"new")
                del top[b"gone%d" % number]
                top[b"mode%d" % number].mode = 0o600
        self.planned(change)
        before = content(self.tree, times=True)
        self.assertEqual("clean", self.ok("verify")["verdict"])
        self.apply_and_kill()
        self.refused("plan_conflict", "half done", verb="journal")
        self.assertTrue(self.ok("recover")["taken_back"])
        self.assertEqual({"in_force": 0}, self.ok("journal"))
        self.assertEqual("", difference(before, content(self.tree, times=True)))
        answer = self.ok("verify")
        self.assertEqual(("clean", 0), (answer["verdict"], answer["changed"]), answer["findings"][:3])
        self.assertIn("-old\n", self.diff("written1"))
        later()
        os.chmod(f"{self.tree}/gone7", 0o600)
        os.chmod(f"{self.tree}/gone7", 0o644)
        self.assertEqual(["gone7"], [finding["path"] for finding in self.ok("verify")["findings"]])
        later()
        write(f"{self.tree}/gone7", "somebody else's")
        self.refused("plan_conflict", "'gone7' has changed since")
        answer = self.ok("apply", keep_going=True)
        self.assertEqual((399, 1), (answer["applied"], answer["failed"]))


class Confined(PlanApplied):
    def test_it_has_nothing_left_before_it_reads_anything(self):
        fds = [os.open(path, os.O_RDONLY) for path in (self.tree, self.plan)]

        def place():
            for number, fd in enumerate(fds):
                os.dup2(fd, 13 + number)
            for number in (3, 4):
                os.dup2(number + 10, number)

        process = subprocess.Popen([PLAN, "apply"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=place, pass_fds=(3, 4))
        facts, deadline = {}, time.monotonic() + PATIENCE
        while facts.get("Seccomp") != "2" and time.monotonic() < deadline:
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                facts = {key: value.strip() for key, _, value in (line.partition(":") for line in file)}
        self.assertEqual(("0" * 16, "0" * 16, "0" * 16, "1", "2"),
                         tuple(facts[key] for key in ("CapEff", "CapPrm", "CapAmb", "NoNewPrivs", "Seccomp")))
        process.communicate(b"{}", timeout=PATIENCE)
        self.assertEqual(1, process.returncode)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    unittest.main()
