#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Signals sent to carrel reach the command; if carrel dies, everything inside does."""
import os
import signal
import subprocess
import unittest

from carreltest import CARREL, PATIENCE, CarrelTest, reap_until_alone


class SignalsReachTheCommand(CarrelTest):
    def start(self, script, *options):
        """A running command that has said it is ready."""
        process = subprocess.Popen([CARREL, "run", "--workspace", self.ws, *options, "-c", script],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual("ready\n", process.stdout.readline())
        return process

    def test_a_signal_is_handled_by_the_command(self):
        for name in ("INT", "TERM", "HUP", "QUIT"):
            with self.subTest(signal=name):
                process = self.start(f"trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.05; done")
                process.send_signal(getattr(signal, "SIG" + name))
                self.assertEqual(7, process.wait(timeout=PATIENCE))
                self.assertEqual(f"got {name}\n", process.stdout.read())

    def test_a_signal_that_is_not_handled_ends_it_as_outside(self):
        for name in ("INT", "TERM", "HUP"):
            with self.subTest(signal=name):
                process = self.start("echo ready; exec sleep 1000")
                number = getattr(signal, "SIG" + name)
                process.send_signal(number)
                self.assertIn(process.wait(timeout=PATIENCE), (128 + number, -number))

    def test_a_command_that_ignores_a_signal_goes_on(self):
        process = self.start("trap '' TERM; echo ready; read x; echo still here; exit 3")
        process.send_signal(signal.SIGTERM)
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual("still here\n", process.stdout.readline())
        self.assertEqual(3, process.wait(timeout=PATIENCE))

    def test_a_signal_reaches_it_under_json_and_a_deadline(self):
        process = subprocess.Popen([CARREL, "run", "--workspace", self.ws, "--json", "--timeout", "50s", "-c",
                                    "trap 'exit 9' TERM; echo x > /ready; while :; do sleep 0.05; done"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        with process:
            while not os.path.exists(f"{self.ws}/ready"):
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(9, self.object(process.stdout.read())["exit_code"])

    def test_killing_carrel_kills_everything_inside(self):
        process = self.start("(setsid sleep 1000 &); sleep 1000 & trap '' TERM HUP INT; echo ready; sleep 1000")
        process.kill()
        process.wait(timeout=PATIENCE)
        self.assertEqual([], reap_until_alone())

    def test_killing_the_sandbox_from_outside_is_reported_and_not_a_hang(self):
        process = self.start("echo ready; sleep 1000")
        inner = [int(pid) for line in descendants(process.pid) for pid in [line]]
        self.assertTrue(inner)
        os.kill(inner[0], signal.SIGKILL)
        self.assertIn(process.wait(timeout=PATIENCE), (125, 137))

    def test_stopping_and_continuing_carrel_loses_nothing(self):
        process = self.start("echo ready; for i in 1 2 3 4 5; do sleep 0.1; echo $i; done")
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        self.assertEqual("1\n2\n3\n4\n5\n", process.stdout.read())
        self.assertEqual(0, process.wait(timeout=PATIENCE))

    def test_the_command_is_in_a_session_of_its_own(self):
        shown = self.ok("-c", "ps -o pid=,pgid=,sid= -p $$").split()
        self.assertEqual(1, len(set(shown)), shown)
        self.assertEqual([], reap_until_alone())


def descendants(pid):
    found = []
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        for child in map(int, file.read().split()):
            found += [child, *descendants(child)]
    return found


if __name__ == "__main__":
    unittest.main()
