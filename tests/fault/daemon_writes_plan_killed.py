#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 15
"""The daemon's processes are killed while an agent's plan is open: the tree is as it was, and the plan can be gone on with,
closed, discarded."""
import os
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import PATIENCE  # noqa: E402
from writesplantest import WritesPlanTest  # noqa: E402


class KilledTest(WritesPlanTest):
    def tearDown(self):
        self.daemon.execute(self.ws, "true")  # the next sandbox removes the control groups that a killed daemon has left
        super().tearDown()

    def busy(self):
        """Commands that write without end, and calls on files beside them; ends when the daemon does not answer."""
        self.planned()
        self.run_agent("echo first > first.txt; rm notes.txt")
        for number in range(3):
            self.run_agent(f"i=0; while :; do i=$((i+1)); echo $i > busy{number}; mkdir -p d$i/e; mv dir/deep.txt d$i/ 2>/dev/null;"
                           " done", background=True, expect=202)
        self.writing = True
        self.acknowledged = 0

        def write():
            while self.writing:
                try:
                    answer = self.call("PUT", f"/files/put-{self.acknowledged}", b"x" * 5000)
                except OSError:
                    time.sleep(0.05)
                    continue
                if answer.status == 201:
                    self.acknowledged += 1
        self.thread = threading.Thread(target=write)
        self.thread.start()
        deadline = time.monotonic() + PATIENCE
        while self.acknowledged < 3:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return self.open_plan()

    def calm(self):
        self.writing = False
        self.thread.join(PATIENCE)

    def whole(self):
        """All that was acknowledged is in the plan's view."""
        for number in range(self.acknowledged):
            self.assertEqual(b"x" * 5000, self.call("GET", f"/files/put-{number}", expect=200).bytes)
        self.assertEqual(b"first\n", self.call("GET", "/files/first.txt", expect=200).bytes)
        self.assertEqual(404, self.call("GET", "/files/notes.txt").status)

    def apply_and_undo(self, plan):
        made = self.close(plan)
        self.assertEqual("closed", made["state"])
        self.unchanged("closed")
        self.call("POST", f"/plans/{plan}/apply", {}, expect=200)
        self.assertEqual((b"first\n", None), (self.read("first.txt"), self.read("notes.txt")))
        self.call("POST", f"/plans/{plan}/undo", {}, key=self.owner, expect=200)
        self.assertEqual((None, b"one\n"), (self.read("first.txt"), self.read("notes.txt")))

    def test_front(self):
        plan = self.busy()
        self.daemon.kill_front()
        self.assertEqual(plan, self.open_plan())
        running = self.call("GET", "/exec?state=running", expect=200).json["execs"]
        self.assertEqual(3, len(running), "a front's death ends no command")
        self.assertEqual(plan, self.run_agent("true")["plan"]["id"])
        self.calm()
        self.whole()
        self.unchanged("front")
        self.apply_and_undo(plan)

    def test_broker(self):
        plan = self.busy()
        self.daemon.stop(signal.SIGKILL)
        self.calm()
        self.daemon.start()
        self.unchanged("broker")
        self.assertEqual(plan, self.open_plan())
        self.whole()
        self.assertEqual("1\n", self.run_agent("ls first.txt | wc -l")["stdout"])
        self.unchanged("broker, gone on")
        self.apply_and_undo(plan)

    def test_broker_and_given_up(self):
        plan = self.busy()
        self.daemon.stop(signal.SIGKILL)
        self.calm()
        self.daemon.start()
        self.call("DELETE", f"/plans/{plan}", expect=200)
        self.plans_are_left(0)
        self.unchanged("discarded")
        self.assertEqual(b"one\n", self.call("GET", "/files/notes.txt", expect=200).bytes)

    def test_while_it_closes(self):
        for pause in (0, 0.01, 0.05):
            plan = self.busy() if pause == 0 else self.open_plan()
            threading.Thread(target=self.try_close, args=(plan,)).start()
            time.sleep(pause)
            self.daemon.stop(signal.SIGKILL)
            self.daemon.start()
            self.unchanged(f"killed {pause} s after it was asked to close")
            if self.plan(plan)["state"] != "open":
                break
        self.calm()
        if self.plan(plan)["state"] == "open":
            self.apply_and_undo(plan)

    def try_close(self, plan):
        try:
            self.call("POST", f"/plans/{plan}/close", {})
        except OSError:
            pass


if __name__ == "__main__":
    unittest.main()
