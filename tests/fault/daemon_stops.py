#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 25
"""However the daemon stops, every command has one end, the same wherever it is told, and no byte written before it is lost."""
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from carreltest import CARREL, PATIENCE, TMP  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

COMMANDS = 20
SPACES = 4
MARK = f"stops-{os.getpid()}"  # in the command lines: no other test has it
# Writes at different speeds, and keeps in a file how much of it is in the pipe.
SEEDED = ("import os, random, sys, time\n"
          "mark, seed = sys.argv[1], int(sys.argv[2])\n"
          "r, sent = random.Random(seed), 0\n"
          "count = os.open(f'count-{seed}', os.O_WRONLY | os.O_CREAT, 0o644)\n"
          "while True:\n"
          "    piece = r.randbytes(1024)\n"
          "    while piece:\n"
          "        n = os.write(1, piece)\n"
          "        sent, piece = sent + n, piece[n:]\n"
          "        os.pwrite(count, b'%020d' % sent, 0)\n"
          "    time.sleep(0.0005 * (seed % 5))\n")


def seeded(seed, n):
    """The first n bytes of what that command writes; the generator makes them in pieces."""
    r = random.Random(seed)
    return b"".join(r.randbytes(1024) for _ in range(n // 1024 + 1))[:n]


class Stops(DaemonTest):
    options = ("--set", "max_execs=500")

    def begin(self, ws, argv):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"argv": argv, "background": True})
        self.assertEqual(202, answer.status, answer.bytes)
        return answer.json["exec_id"]

    def begin_seeded(self):
        spaces = [self.workspace() for _ in range(SPACES)]
        return [(spaces[seed % SPACES], self.begin(spaces[seed % SPACES], ["python3", "-c", SEEDED, MARK, str(seed)]), seed)
                for seed in range(COMMANDS)]

    def wait_for_bytes(self, execs):
        deadline = time.monotonic() + PATIENCE
        for ws, _, seed in execs:
            while self.counted(ws, seed) < 4096:
                self.assertLess(time.monotonic(), deadline, f"{seed} does not write")
                time.sleep(0.02)

    def counted(self, ws, seed):
        try:
            with open(f"{self.daemon.state}/main/threads/{ws}/count-{seed}", encoding="ascii") as file:
                return int(file.read() or 0)
        except OSError:
            return 0

    def still_running(self):
        found = []
        for pid in os.listdir("/proc"):
            if pid.isdigit():
                try:
                    with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                        if MARK in file.read().split("\0"):
                            found.append(pid)
                except OSError:
                    pass
        return found

    def ends(self):
        """exec.end by exec, of which there is one each."""
        found = {}
        for record in self.daemon.audit():
            if record["operation"] == "exec.end":
                self.assertNotIn(record["details"]["exec"], found, "it ended twice")
                found[record["details"]["exec"]] = record
        return found

    def check_whole(self, execs):
        for ws, one, seed in execs:
            out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}/output?from=0&format=raw").bytes
            self.assertGreaterEqual(len(out), self.counted(ws, seed), f"{one}: bytes are missing")
            self.assertTrue(out == seeded(seed, len(out)), f"{one}: {len(out)} other bytes")

    def check_stopped(self, execs):
        ends = self.ends()
        for ws, one, _ in execs:
            row = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json
            self.assertEqual("ended", row["state"])
            result = row["result"]
            self.assertEqual(("signal", "daemon stopped", 137), (result["reason"], result.get("note"), result["exit_code"]))
            self.assertEqual(("signal", "daemon stopped", 137), (
                ends[one]["result"], ends[one]["details"]["why"], ends[one]["details"]["exit_code"]))

    def test_told_to_stop_it_ends_everything_and_keeps_every_byte(self):
        execs = self.begin_seeded()
        self.wait_for_bytes(execs)
        began = time.monotonic()
        self.assertEqual(0, self.daemon.stop())
        self.assertLess(time.monotonic() - began, PATIENCE / 2)
        self.assertEqual([], self.still_running())
        self.assertEqual("daemon.stop", self.daemon.audit()[-1]["operation"])
        self.daemon.start()
        self.assertEqual("stopped", [r for r in self.daemon.audit() if r["operation"] == "daemon.start"][-1]["details"]["previous"])
        self.check_stopped(execs)
        self.check_whole(execs)

    def test_a_client_that_waits_for_its_command_hears_how_it_ended(self):
        ws = self.workspace()
        waiting = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {"command": f"echo begun; sleep 1000; : {MARK}"}, wait=False)
        deadline = time.monotonic() + PATIENCE
        while "exec.start" not in [r["operation"] for r in self.daemon.audit()]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        time.sleep(0.3)
        self.assertEqual(0, self.daemon.stop())
        response = waiting.getresponse()
        self.assertEqual(200, response.status)
        self.assertIn(b"daemon stopped", response.read())

    def test_a_front_that_dies_with_the_stop_is_started_for_the_last_words(self):
        execs = self.begin_seeded()
        self.wait_for_bytes(execs)
        os.kill(self.daemon.front_pid(), signal.SIGKILL)
        self.assertEqual(0, self.daemon.stop())
        self.assertEqual([], self.still_running())
        self.daemon.start()
        self.check_stopped(execs)
        self.check_whole(execs)

    def test_killed_it_leaves_no_start_without_an_end(self):
        execs = self.begin_seeded()
        self.wait_for_bytes(execs)
        for ws in {ws for ws, _, _ in execs}:
            self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])
        self.daemon.stop(signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while self.still_running():
            self.assertLess(time.monotonic(), deadline, "a command outlived the broker")
            time.sleep(0.05)
        # A start that is refused does not pass for a stop.
        refused = subprocess.run([CARREL, "serve", "--state", self.daemon.state, "--listen", "127.0.0.1:0", "--set",
                                  "socket=/proc/no/such/place"], stdin=subprocess.DEVNULL, capture_output=True, cwd=TMP,
                                 timeout=PATIENCE, check=False)
        self.assertEqual(125, refused.returncode, refused.stderr)
        self.daemon.start()
        self.assertIn("killed", [r for r in self.daemon.audit() if r["operation"] == "daemon.start"][-1]["details"]["previous"])
        self.check_all_ended(execs)
        self.daemon.stop()
        self.daemon.start()
        self.check_all_ended(execs)  # and nothing is added twice

    def check_all_ended(self, execs):
        records, ends = self.daemon.audit(), self.ends()
        starts = [r["details"]["exec"] for r in records if r["operation"] == "exec.start"]
        self.assertEqual(len(execs) + SPACES, len(starts))
        self.assertEqual(set(starts), set(ends))
        for ws, one, _ in execs:
            self.assertEqual((ws, "broker_ended"), (ends[one]["workspace"], ends[one]["result"]))
            self.assertEqual("broker_ended", self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["result"]["reason"])
        begun = [r["workspace"] for r in records if r["operation"] == "sandbox.start"]
        over = [r["workspace"] for r in records if r["operation"] == "sandbox.end"]
        self.assertEqual(sorted(begun), sorted(over))
        verified = subprocess.run([CARREL, "audit", "verify", "--state", self.daemon.state], capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        self.assertEqual(0, verified.returncode, verified.stderr)


class FrontHangs(DaemonTest):
    options = ("--set", "front_watchdog=1s")

    def wait_for_another(self, hung):
        deadline = time.monotonic() + PATIENCE
        while self.daemon.front_pid() in (None, hung):
            self.assertLess(time.monotonic(), deadline, self.daemon.said()[-2000:])
            time.sleep(0.05)
        self.daemon.wait_ready()

    def test_a_front_that_hangs_is_replaced_and_the_commands_live_on(self):
        ws = self.workspace()
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {
            "command": f"sleep 4; echo lived; : {MARK}", "background": True})
        hung = self.daemon.front_pid()
        os.kill(hung, signal.SIGSTOP)  # nobody says anything to it meanwhile
        self.wait_for_another(hung)
        self.assertIn("front_hangs", self.daemon.said())
        out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{answer.json['exec_id']}/output?follow=1&format=raw")
        self.assertEqual(b"lived\n", out.bytes)
        self.assertIn("signal 9", [r["result"] for r in self.daemon.audit() if r["operation"] == "front.end"])

    def test_a_front_that_is_well_stays_also_when_the_broker_was_stopped(self):
        front = self.daemon.front_pid()
        self.daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        self.daemon.process.send_signal(signal.SIGCONT)
        time.sleep(3)
        self.assertEqual(front, self.daemon.front_pid())
        os.kill(front, signal.SIGSTOP)  # not for long
        time.sleep(0.3)
        os.kill(front, signal.SIGCONT)
        time.sleep(2)
        self.assertEqual(front, self.daemon.front_pid())
        self.assertNotIn("front_hangs", self.daemon.said())


class ServiceManager(DaemonTest):
    """What systemd hears: nothing more when fronts hang and starting others does not help."""
    options = ("--set", "front_watchdog=1s")

    def setUp(self):
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listening.bind(f"\0carrel-{MARK}")
        self.listening.settimeout(0.1)
        os.environ.update(NOTIFY_SOCKET=f"@carrel-{MARK}", WATCHDOG_USEC="400000")
        try:
            super().setUp()
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]

    def tearDown(self):
        self.listening.close()
        super().tearDown()

    def beats(self, seconds):
        heard, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                heard.append(self.listening.recv(100))
            except TimeoutError:
                pass
        return heard.count(b"WATCHDOG=1")

    def test_it_hears_a_beat_only_while_a_front_answers(self):
        self.assertGreater(self.beats(2), 4)
        stop = threading.Event()

        def hold():
            while not stop.wait(0.005):
                pid = self.daemon.front_pid()
                try:
                    if pid:
                        os.kill(pid, signal.SIGSTOP)
                except ProcessLookupError:
                    pass  # the broker was faster
        thread = threading.Thread(target=hold)
        thread.start()
        try:
            self.assertGreater(self.beats(1.5), 2, "it is the broker's turn first")
            time.sleep(3)
            self.beats(0.1)
            self.assertTrue(any(self.beats(1.5) == 0 for _ in range(10)), "it hears beats, and no front answers")
        finally:
            stop.set()
            thread.join()
        os.kill(self.daemon.front_pid(), signal.SIGCONT)
        self.daemon.wait_ready()
        self.assertGreater(self.beats(2), 2)


if __name__ == "__main__":
    unittest.main(verbosity=0)
