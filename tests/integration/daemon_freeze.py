#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
# TAKES: 12
"""Workspaces that stand still with what they have in memory: nothing in them runs, no time takes it from them but a command's own limit,
and they go on when a command is to run. Where the host has no freezer, and after a restart, they sleep, and say so."""
import signal
import time
import unittest

from carreltest import PATIENCE, ROOT
from daemontest import DaemonTest

COUNTS = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.01; done"


class Base(DaemonTest):
    options = ("--set", "idle=300ms")

    def setUp(self):
        super().setUp()
        self.ws = self.workspace()
        self.at = f"/v1/workspaces/{self.ws}"
        self.counter = self.daemon.post(f"{self.at}/exec", {"command": COUNTS, "background": True}).json
        self.until(lambda: self.count() > 0)

    def until(self, what):
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def count(self):
        answer = self.daemon.get(f"{self.at}/files/count")
        return int(answer.bytes or 0) if answer.status == 200 else 0

    def state(self):
        return self.daemon.get(self.at).json["state"]

    def stands_still(self):
        """Within what would be thirty turns of it."""
        before = self.count()
        time.sleep(0.3)
        return before == self.count()

    def freeze(self):
        answer = self.daemon.post(f"{self.at}/sleep?memory=1")
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual("frozen" if ROOT else "asleep", answer.json["state"], "an ordinary user has no group to freeze")


@unittest.skipUnless(ROOT, "")
class Freeze(Base):
    def test_stands_still_and_goes_on_with_a_command(self):
        self.freeze()
        self.assertEqual("frozen", self.state())
        before = self.count()
        time.sleep(0.8)  # more than the idle time
        self.assertEqual(("frozen", before), (self.state(), self.count()))
        self.assertEqual(200, self.daemon.post(f"{self.at}/sleep?memory=1").status, "twice is fine")
        self.daemon.execute(self.ws, "true")
        self.assertEqual("awake", self.state())
        self.until(lambda: self.count() > before)
        records = [r for r in self.daemon.audit() if r.get("op", r.get("operation")) == "workspace.sleep"]
        self.assertTrue(records and '"memory"' in str(records[0]).replace("'", '"'), records)

    def test_ends_while_it_stands_still(self):
        self.freeze()
        self.assertEqual("asleep", self.daemon.post(f"{self.at}/sleep").json["state"])
        self.assertEqual(0, int(self.daemon.execute(self.ws, "pgrep -c mv; true")["stdout"].strip() or 0))
        self.freeze()
        self.assertEqual(204, self.daemon.request("DELETE", f"{self.at}?purge=1").status)

    def test_a_snapshot_does_not_wake_it(self):
        self.freeze()
        self.assertEqual(201, self.daemon.post(f"{self.at}/snapshots").status)
        self.assertEqual("frozen", self.state())
        self.assertTrue(self.stands_still())

    def test_another_front_knows_and_another_daemon_has_the_files(self):
        self.freeze()
        self.daemon.kill_front()
        self.assertEqual("frozen", self.state())
        before = self.count()
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual(("asleep", before), (self.state(), self.count()))
        self.daemon.execute(self.ws, "true")
        self.assertTrue(self.stands_still())

    def test_at_the_end_of_a_lifetime_and_on_being_resumed(self):
        def lifetime(**more):
            answer = self.daemon.request("PATCH", self.at, {"lifetime": more})
            self.assertEqual(200, answer.status, answer.bytes)
        lifetime(seconds=1, at_end="freeze")
        self.until(lambda: self.daemon.get(self.at).json["lifetime"]["paused"])
        self.until(lambda: self.state() != "awake")
        self.assertTrue(self.stands_still())
        before = self.count()
        lifetime(paused=False, seconds=100)
        self.until(lambda: self.count() > before)
        self.assertEqual("awake", self.state())

    def test_its_command_is_killed_at_its_limit(self):
        slow = self.daemon.post(f"{self.at}/exec", {"command": "sleep 100", "background": True, "timeout_ms": 1500}).json["exec_id"]
        self.freeze()
        self.until(lambda: self.daemon.get(f"{self.at}/exec/{slow}").json["state"] == "ended")
        self.assertEqual("frozen", self.state())

@unittest.skipIf(ROOT, "")
class Without(Base):
    def test_sleeps_and_says_so(self):
        self.freeze()
        self.assertEqual("asleep", self.state())
        self.daemon.execute(self.ws, "true")
        self.assertTrue(self.stands_still())
        answer = self.daemon.request("PATCH", self.at, {"lifetime": {"seconds": 1, "at_end": "freeze"}})
        self.assertEqual(200, answer.status, answer.bytes)
        self.until(lambda: self.daemon.get(self.at).json["lifetime"]["paused"])
        self.until(lambda: self.state() == "asleep")


if __name__ == "__main__":
    unittest.main()
