#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# TAKES: 30
"""A run ends when its command does, or its deadline comes: whoever called, reads, or was left behind.

INV-4: the engine watches pid 1 and the deadline whatever it waits for."""
import os
import signal
import unittest

from carreltest import PYTHON, CarrelTest, children, describe

ORPHANS = 500


class NeverWaitsForEver(CarrelTest):
    def test_a_caller_that_ignores_its_children_still_gets_an_end_and_a_status(self):
        ignore = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
        for level in ("ns", "dir"):
            with self.subTest(level=level):
                self.assertEqual("x\n", self.ok("--level", level, "--", "echo", "x", **ignore))
                self.assertEqual(7, self.run_in("--level", level, "-c", "exit 7", **ignore).returncode)
                result, _ = self.json("--level", level, "-c", "echo x; exit 7", **ignore)
                self.assertEqual((7, "x\n", "exit"), (result["exit_code"], result["stdout"], result["reason"]))

    def test_a_terminal_that_nobody_reads_does_not_outlast_the_deadline(self):
        for option in ("--tty", "--no-tty"):
            for streams in (("stdout",), ("stdin", "stdout"), ("stdin", "stdout", "stderr")):
                with self.subTest(option=option, streams=streams):
                    master, slave = os.openpty()
                    try:
                        done = self.run_in(option, "--timeout", "1s", "--", "yes", timeout=15,
                                           **dict.fromkeys(streams, slave))
                    finally:
                        os.close(slave)
                        os.close(master)
                    self.assertEqual(124, done.returncode, done.stderr)

    def test_a_pipe_that_nobody_reads_does_not_outlast_the_deadline(self):
        for stream in ("stdout", "stderr"):
            read_end, write_end = os.pipe()
            try:
                done = self.run_in("--timeout", "1s", "-c", "yes; sleep 1000" if stream == "stdout" else "yes >&2",
                                   **{stream: write_end})
            finally:
                os.close(read_end)
                os.close(write_end)
            self.assertEqual(124, done.returncode)

    def test_at_level_dir_every_orphan_is_gone_at_the_end(self):
        # More of them than fit in one page of /proc/PID/task/PID/children, each in a session of its own.
        program = ("import os, time\n"
                   f"for _ in range({ORPHANS}):\n"
                   "    if os.fork() == 0:\n"
                   "        os.setsid()\n"
                   "        os.fork() and os._exit(0)\n"
                   "        time.sleep(1000)\n"
                   f"for _ in range({ORPHANS}): os.wait()\n"
                   "print('forked', flush=True)\n")
        for ending, code in (("", 0), ("time.sleep(1000)", 124)):
            with self.subTest(code=code):
                done = self.run_in("--level", "dir", "--timeout", "1h" if code == 0 else "10s", "--",
                                   PYTHON, "-c", program + ending)
                left = [describe(pid) for pid in children()]
                self.assertEqual((code, "forked\n"), (done.returncode, done.stdout), done.stderr)
                self.assertEqual(([], 0), (left[:3], len(left)))


if __name__ == "__main__":
    unittest.main()
