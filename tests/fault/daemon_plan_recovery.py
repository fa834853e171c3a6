#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 30
"""A tree that is half changed is nobody's until it is taken back, whatever fails meanwhile; and there is a way out.

INV-13: what was half done is taken back before anything starts in the tree."""
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, PATIENCE, read, write  # noqa: E402
from daemonplantest import PlanTest  # noqa: E402
from daemontest import Daemon  # noqa: E402


class RecoveryTest(PlanTest):
    def carrel(self):
        return f"{self.daemon.state}/{self.bucket()}/.carrel"

    def marked(self, carrel):
        return os.listdir(f"{carrel}/applying")

    def until(self, wanted, what):
        deadline = time.monotonic() + PATIENCE
        while not wanted():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def recoveries(self):
        return [r["result"] for r in self.operations("plan.recover")]

    def interrupted(self):
        """A plan that the daemon finds half applied at its next start; where its directory is."""
        self.make()
        made = self.submit([{"op": "create", "path": "a", "content": "1"}])["id"]
        carrel = self.carrel()
        self.daemon.stop()
        os.makedirs(f"{carrel}/applying", 0o700, exist_ok=True)
        write(f"{carrel}/applying/{self.ws}~{made}", "")
        return carrel, made, f"{carrel}/workspaces/{self.ws}/plans"

    def ask_for_command(self):
        """A command that is asked for now, and its answer when there is one."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.daemon.execute(self.ws, "echo ran")["stdout"]))
        thread.start()
        return thread, answers


class Found(RecoveryTest):
    """At a start."""

    def test_only_a_plan_that_is_gone_is_given_up(self):
        carrel, made, plans = self.interrupted()
        os.rename(plans, plans + ".away")
        write(plans, "in the way")  # it cannot be opened, which does not say that it is not there
        self.daemon.start()
        thread, answers = self.ask_for_command()
        self.until(lambda: "event=recovery_failed" in self.daemon.said(), "it is told")
        time.sleep(3.5)  # and tried again: twice
        self.assertEqual([f"{self.ws}~{made}"], self.marked(carrel))
        self.assertEqual([], answers)
        self.assertEqual(["not_started"], self.recoveries())
        os.unlink(plans)
        os.rename(plans + ".away", plans)
        thread.join(PATIENCE)
        self.assertEqual(["ran\n"], answers)
        self.assertEqual(["not_started", "done"], self.recoveries())
        self.assertEqual([], self.marked(carrel))

    def test_what_cannot_be_recovered_is_told_once_and_there_is_a_way_out(self):
        carrel, made, plans = self.interrupted()
        write(f"{plans}/{made}/manifest", "no manifest")
        self.daemon.start()
        thread, answers = self.ask_for_command()
        time.sleep(5)  # three tries
        self.assertEqual([], answers)
        self.assertEqual(["failed"], self.recoveries())
        said = [line for line in self.daemon.said().splitlines() if "event=recovery_failed" in line]
        self.assertEqual(1, len(said), said)
        self.assertIn(f"directory='{plans}/{made}'", said[0])
        os.rename(f"{plans}/{made}", self.path("away"))
        thread.join(PATIENCE)
        self.assertEqual(["ran\n"], answers)
        self.assertEqual(["failed", "left"], self.recoveries())
        self.assertIn("event=recovery_given_up", self.daemon.said())
        self.assertEqual([], self.marked(carrel))

    def test_two_of_a_workspace_have_it_one_after_the_other(self):
        carrel, made, plans = self.interrupted()
        self.daemon.start()
        other = self.submit([{"op": "create", "path": "b", "content": "1"}])["id"]
        self.daemon.stop()
        for plan in (made, other):
            write(f"{carrel}/applying/{self.ws}~{plan}", "")
        kept = read(f"{plans}/{other}/manifest")
        write(f"{plans}/{other}/manifest", "no manifest")
        self.daemon.start()
        thread, answers = self.ask_for_command()
        self.until(lambda: len(self.marked(carrel)) == 1, "the one is recovered")
        time.sleep(1)
        self.assertEqual([], answers)  # the other is not
        write(f"{plans}/{other}/manifest", kept)
        thread.join(PATIENCE)
        self.assertEqual(["ran\n"], answers)

    def test_to_settle_a_queued_plan_uses_up_none_of_its_tries(self):
        _, made, _ = self.interrupted()
        self.daemon.start()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{self.ws}").status)  # in the trash nothing is settled
        self.daemon.stop()
        details = json.dumps({"apply": {"async": True, "by": "admin", "keep_going": False}})
        with sqlite3.connect(f"{self.daemon.state}/db/carrel.db") as database:
            database.execute("UPDATE plans SET state = 'applying', attempts = 1, details = ? WHERE id = ?", (details, made))
        database.close()
        begun = len(self.daemon.said())
        self.daemon.start()
        self.until(lambda: self.daemon.said()[begun:].count("event=plan_waits") >= 3, "it cannot be settled")
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{self.ws}/undelete").status)
        self.assertEqual(2, self.wait_state(made, "applied")["attempts"])

    def test_of_a_plan_that_is_given_up_nobody_says_that_nothing_was_changed(self):
        _, made, plans = self.interrupted()
        self.daemon.start()
        self.daemon.stop()
        with sqlite3.connect(f"{self.daemon.state}/db/carrel.db") as database:
            database.execute("UPDATE plans SET state = 'applying' WHERE id = ?", (made,))
        database.close()
        os.rename(f"{plans}/{made}", self.path("away"))
        self.daemon.start()
        self.wait_state(made, "failed")
        env = {**os.environ, "CARREL_SOCKET": self.daemon.socket}
        shown = subprocess.run([CARREL, "plan", "show", self.ws, made], env=env, capture_output=True, text=True, check=False)
        self.assertEqual(0, shown.returncode, shown.stderr)
        self.assertRegex(shown.stdout, "failed, .*some of its changes may be in the files")

    def test_a_start_that_cannot_look_for_them_is_none(self):
        carrel, _, _ = self.interrupted()
        os.rename(f"{carrel}/applying", f"{carrel}/away")
        write(f"{carrel}/applying", "in the way")
        try:
            with self.assertRaisesRegex(AssertionError, "half applied"):
                self.daemon.start()
        finally:
            os.unlink(f"{carrel}/applying")
            os.rename(f"{carrel}/away", f"{carrel}/applying")
            self.daemon.start()


class Calls(RecoveryTest):
    """System calls of the broker that fail while a file says so."""

    def setUp(self):
        super().setUp()
        self.daemon.stop()
        self.faults, library = self.path("faults"), self.path("fail_broker.so")
        os.mkdir(self.faults, 0o700)
        source = os.path.join(os.environ["SRC"], "tests", "fault", "fail_broker.c")
        subprocess.run(["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", library, source], check=True)
        self.daemon = Daemon(self.path("s"), env={**os.environ, "LD_PRELOAD": library, "FAULTS": self.faults})

    def fault(self, call, text=""):
        write(f"{self.faults}/{call}", text)

    def mend(self, call):
        os.unlink(f"{self.faults}/{call}")

    def log(self):
        return read(f"{self.faults}/log").splitlines() if os.path.exists(f"{self.faults}/log") else []

    def test_a_recovery_that_cannot_be_watched_is_tried_again_and_keeps_the_workspace(self):
        self.make()
        self.put("keep", b"1")
        self.sleep()
        before, root, carrel = self.tree(), self.root(), self.carrel()
        made = self.submit([{"op": "create", "path": f"d{i % 50}/f{i}", "content": str(i)} for i in range(20000)])["id"]
        connection = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/plans/{made}/apply", {}, wait=False)
        self.until(lambda: len(os.listdir(root)) > len(before), "it is being applied")
        pid, = (int(p) for p in os.listdir("/proc") if p.isdigit() and is_apply_of(p, self.daemon.process.pid))
        os.kill(pid, signal.SIGSTOP)
        self.fault("epoll_ctl")
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: any(line.startswith("unwatched") for line in self.log()), "the recovery is begun")
        time.sleep(1.5)
        self.assertNotEqual(before, self.tree())  # half done,
        self.assertEqual([f"{self.ws}~{made}"], self.marked(carrel))
        thread, answers = self.ask_for_command()
        time.sleep(0.5)
        self.assertEqual([], answers)  # and nobody's
        self.mend("epoll_ctl")
        thread.join(PATIENCE)
        self.assertEqual(["ran\n"], answers)
        connection.close()
        self.wait_state(made, "closed")
        self.assertEqual(before, self.tree())
        self.assertEqual([], self.marked(carrel))

    def test_what_became_of_a_plan_is_known_while_commands_run(self):
        """They may, once what was half done is taken back; the front asks after that."""
        self.make()
        self.put("keep", b"1")
        self.sleep()
        before, root = self.tree(), self.root()
        made = self.submit([{"op": "create", "path": f"d{i % 50}/f{i}", "content": str(i)} for i in range(20000)])["id"]
        connection = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/plans/{made}/apply", {}, wait=False)
        self.until(lambda: len(os.listdir(root)) > len(before), "it is being applied")
        pid, = (int(p) for p in os.listdir("/proc") if p.isdigit() and is_apply_of(p, self.daemon.process.pid))
        os.kill(pid, signal.SIGSTOP)
        answers = []
        body = {"command": "echo ran; sleep 1000", "background": True}
        thread = threading.Thread(target=lambda: answers.append(self.daemon.post(f"/v1/workspaces/{self.ws}/exec", body)))
        thread.start()
        time.sleep(0.5)
        self.assertEqual([], answers)
        os.kill(pid, signal.SIGKILL)
        thread.join(PATIENCE)
        self.assertEqual(202, answers[0].status, answers[0].bytes)
        self.wait_state(made, "closed")
        running = self.daemon.get(f"/v1/workspaces/{self.ws}/exec/{answers[0].json['exec_id']}").json["state"]
        self.assertEqual("running", running)
        self.assertEqual(before, self.tree())
        connection.close()

    def test_directories_are_on_disk_before_what_is_in_them(self):
        self.make()
        top = f"{self.carrel()}/workspaces"
        self.fault("fsync", f"{top}/{self.ws}/plans")
        plan = [{"op": "create", "path": "a", "content": "1"}]
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans", plan)
        self.assertGreaterEqual(answer.status, 500, answer.bytes)
        self.assertFalse(os.path.exists(f"{top}/{self.ws}/plans"))
        self.mend("fsync")
        made = self.submit(plan)["id"]
        written = {line.split()[1] for line in self.log() if line.startswith("fsync ")}
        for path in (self.carrel(), top, f"{top}/{self.ws}", f"{top}/{self.ws}/plans", f"{top}/{self.ws}/plans/{made}"):
            self.assertIn(path, written)

    def test_a_check_sees_all_of_the_plan_or_nothing(self):
        self.make()
        made = self.plan_run("echo 1 > a")["plan"]["id"]
        staged = f"{self.carrel()}/workspaces/{self.ws}/plans/{made}/upper/a"
        try:
            os.setxattr(staged, "user.small", b"1")
        except OSError as error:
            self.skipTest(f"the file system has no attributes: {error}")
        self.fault("getxattr")
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/plans/{made}/verify", {"check": ["true"]})
        self.assertGreaterEqual(answer.status, 500, answer.bytes)
        self.mend("getxattr")
        try:
            os.setxattr(staged, "user.large", b"x" * 10000)
        except OSError:
            pass  # as large as that is not for every file system
        else:
            self.ask(made, "verify", {"check": ["true"]})
            self.assertIn("setxattr user.large 10000", self.log())


def is_apply_of(pid, broker):
    try:
        command = read(f"/proc/{pid}/cmdline").split("\0")
        parent = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1]
    except OSError:
        return False
    return command[:2] == ["carrel-plan", "apply"] and int(parent) == broker


if __name__ == "__main__":
    unittest.main(verbosity=0)
