#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 25
"""kill -9 of the front, the broker, an init: no command is lost that could live, no byte of output, and the record is true."""
import hashlib
import http.client
import os
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from carreltest import PATIENCE, cgroup_dirs  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

COMMANDS = 50
FOREVER = f"{100000 + os.getpid()}"  # seconds, and a mark that no other test has
SEEDED = ("import random, sys, time\n"
          "r = random.Random({seed})\n"
          "for i in range(40):\n"
          "    sys.stdout.buffer.write(r.randbytes(4096)); sys.stdout.buffer.flush(); time.sleep(0.05)\n")


SLOW_READER = "import os, time\nwhile b := os.read(0, 50000):\n os.write(1, b)\n time.sleep(0.02)"


def expected(seed):
    r = random.Random(seed)
    return hashlib.sha256(b"".join(r.randbytes(4096) for _ in range(40))).hexdigest()


class ProcessesDie(DaemonTest):
    options = ("--set", "max_execs=500")

    def begin(self, ws, command, **more):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": command, "background": True, **more})
        self.assertEqual(202, answer.status, answer.bytes)
        return answer.json["exec_id"]

    def test_the_front_dies_and_every_command_ends_with_every_byte(self):
        spaces = [self.workspace() for _ in range(5)]
        execs = []
        for seed in range(COMMANDS):
            ws = spaces[seed % len(spaces)]
            answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {
                "argv": ["python3", "-c", SEEDED.format(seed=seed)], "background": True})
            self.assertEqual(202, answer.status, answer.bytes)
            execs.append((ws, answer.json["exec_id"], seed))
        for _ in range(3):
            time.sleep(0.4)
            self.daemon.kill_front()
        for ws, one, seed in execs:
            out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}/output?follow=1&format=raw").bytes
            self.assertEqual(expected(seed), hashlib.sha256(out).hexdigest(), f"{one}: {len(out)} bytes")
            result = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["result"]
            self.assertEqual(("exit", 0), (result["reason"], result["exit_code"]))

    def test_a_front_that_dies_at_any_instant_loses_nothing_of_what_was_acknowledged(self):
        made, stop = [], threading.Event()

        def create():
            while not stop.is_set():
                try:
                    answer = self.daemon.post("/v1/workspaces", {})
                    if answer.status == 201:
                        made.append(answer.json["id"])
                except (OSError, ValueError, Exception):  # the connection died with it
                    time.sleep(0.01)
        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            time.sleep(random.uniform(0.1, 0.4))
            self.daemon.kill_front()
        stop.set()
        for thread in threads:
            thread.join()
        self.assertGreater(len(made), 10)
        for ws in made:
            self.assertEqual(200, self.daemon.get(f"/v1/workspaces/{ws}").status, f"{ws} was acknowledged and is gone")

    def feed(self, path, seed, total, attempts):
        """Gives a command its input, piece by piece, whatever dies meanwhile, then its end. Notes what was given, and
        whether that was acknowledged. The bytes of each piece are of a kind of their own: it is told where one ends."""
        r, given, piece = random.Random(seed), 0, None
        while given < total:
            if piece is None:
                kind = len(attempts) % 8 * 32
                piece = bytes(b % 32 + kind for b in r.randbytes(r.choice((100, 5000, 70000, 400000))))
            try:
                answer = self.daemon.request("POST", path, piece)
            except (OSError, http.client.HTTPException):  # the connection died: taken or not, nobody knows
                attempts.append((piece, False))
                piece = None
                continue
            if answer.status == 204:
                attempts.append((piece, True))
                given, piece = given + len(piece), None
            else:
                self.assertIn(answer.status, (429, 503), answer.bytes)  # it was not taken
                time.sleep(0.02)
        self.end_input(path)

    def end_input(self, path):
        unknown = False
        while True:
            try:
                answer = self.daemon.request("POST", path + "?eof=1", b"")
            except (OSError, http.client.HTTPException):
                unknown = True
                continue
            if answer.status == 204 or (answer.status == 409 and unknown):
                return
            self.assertEqual(503, answer.status, answer.bytes)

    def check_input(self, got, attempts):
        at = 0
        for number, (piece, acknowledged) in enumerate(attempts):
            n = len(os.path.commonprefix([piece, got[at:at + len(piece)]]))
            if acknowledged:
                self.assertEqual(len(piece), n, f"of piece {number} of {len(attempts)}, at {at} of {len(got)}")
            at += n
        self.assertEqual(at, len(got), "there is more than was given")

    def test_input_that_was_acknowledged_reaches_the_command_once_and_in_order_though_the_front_dies(self):
        ws = self.workspace()
        readers = ["sleep 2; cat", "cat", "sleep 4; cat", f"python3 -c '{SLOW_READER}'"]
        commands, threads = [], []
        for seed, command in enumerate(readers):
            one = self.begin(ws, command, stdin_open=True)
            commands.append((f"/v1/workspaces/{ws}/exec/{one}", []))
            path, attempts = commands[-1]
            threads.append(threading.Thread(target=self.feed, args=(path + "/stdin", seed, 6 << 20, attempts)))
            threads[-1].start()
        for _ in range(6):
            time.sleep(random.uniform(0.3, 1.3))
            self.daemon.kill_front()
        for thread in threads:
            thread.join()
        self.daemon.kill_front()  # now also the end of input is acknowledged
        for path, attempts in commands:
            self.assertGreater(sum(len(p) for p, acknowledged in attempts if acknowledged), 6 << 20)
            self.check_input(self.daemon.get(f"{path}/output?follow=1&format=raw").bytes, attempts)

    def test_input_and_its_end_that_came_with_a_command_outlive_the_front(self):
        ws = self.workspace()
        text = random.Random(5).randbytes(1 << 20).hex()
        many = self.begin(ws, "sleep 1; sha256sum", stdin=text)
        few = self.begin(ws, "sleep 1; sha256sum", stdin=text[:1000])
        self.daemon.kill_front()
        for one, bytes_ in ((many, text.encode()), (few, text[:1000].encode())):
            out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}/output?follow=1&format=raw").bytes
            self.assertEqual(hashlib.sha256(bytes_).hexdigest(), out[:64].decode())

    def test_an_end_of_input_that_the_broker_has_not_heard_yet_outlives_the_front(self):
        ws = self.workspace()
        for given in (b"few\n", b"many\n" * 100000):
            one = self.begin(ws, "sleep 1; sha256sum", stdin_open=True)
            path = f"/v1/workspaces/{ws}/exec/{one}"
            self.begin(ws, "sleep 0.3")
            self.daemon.process.send_signal(signal.SIGSTOP)
            try:
                time.sleep(0.6)  # the end of that one is what the broker sees first, and has nobody to tell
                self.assertEqual(204, self.daemon.request("POST", f"{path}/stdin?eof=1", given).status)
                front = self.daemon.front_pid()
                os.kill(front, signal.SIGKILL)
            finally:
                self.daemon.process.send_signal(signal.SIGCONT)
            while self.daemon.front_pid() == front:
                time.sleep(0.01)
            self.daemon.wait_ready()
            out = self.daemon.get(f"{path}/output?follow=1&format=raw").bytes
            self.assertEqual(hashlib.sha256(given).hexdigest(), out[:64].decode())

    def test_a_terminals_input_and_its_end_outlive_the_front(self):
        ws = self.workspace()
        raw = self.begin(ws, "stty raw -echo; echo raw; sleep 2; head -c 200000 | sha256sum", pty={})
        line = self.begin(ws, "cat; echo over", pty={})
        text = (b"%07d " * 25000) % tuple(range(25000))
        deadline = time.monotonic() + PATIENCE
        while b"raw" not in self.daemon.get(f"/v1/workspaces/{ws}/exec/{raw}/output?format=raw").bytes:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual(204, self.daemon.request("POST", f"/v1/workspaces/{ws}/exec/{raw}/stdin", text).status)
        self.assertEqual(204, self.daemon.request("POST", f"/v1/workspaces/{ws}/exec/{line}/stdin?eof=1", b"said\n").status)
        self.daemon.kill_front()
        out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{raw}/output?follow=1&format=raw").bytes
        self.assertIn(hashlib.sha256(text).hexdigest().encode(), out)
        out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{line}/output?follow=1&format=raw").bytes
        self.assertTrue(out.endswith(b"said\r\nover\r\n"), out)

    def test_the_broker_dies_and_nothing_is_left_but_the_truth(self):
        ws = self.workspace()
        before = cgroup_dirs()
        one = self.begin(ws, f"echo begun; sleep {FOREVER}")
        self.daemon.stop(signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while any(f"sleep\0{FOREVER}" in cmd for cmd in self.commands()):
            self.assertLess(time.monotonic(), deadline, "the command outlived the broker")
            time.sleep(0.05)
        self.daemon.start()
        exec_ = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json
        self.assertEqual("ended", exec_["state"])
        self.assertEqual("broker_ended", exec_["result"]["reason"])
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])
        self.daemon.stop()
        self.assertLessEqual(cgroup_dirs(), before)

    def commands(self):
        found = []
        for pid in os.listdir("/proc"):
            if pid.isdigit():
                try:
                    with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                        found.append(file.read())
                except OSError:
                    pass
        return found

    def test_an_init_dies_and_its_records_say_so(self):
        ws, other = self.workspace(), self.workspace()
        one = self.begin(ws, f"sleep {FOREVER}")
        second = self.begin(other, "sleep 2; echo fine")
        inits, deadline = [], time.monotonic() + PATIENCE
        while not inits and time.monotonic() < deadline:  # the shell has to become the command first
            inits = [int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_sandbox_of(p, f"sleep\0{FOREVER}")]
        self.assertEqual(1, len(inits), inits)
        os.kill(inits[0], signal.SIGKILL)
        out = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}/output?follow=1")
        self.assertEqual(200, out.status)
        result = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["result"]
        self.assertEqual(("signal", 137), (result["reason"], result["exit_code"]))
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])
        out = self.daemon.get(f"/v1/workspaces/{other}/exec/{second}/output?follow=1&format=raw")
        self.assertEqual(b"fine\n", out.bytes, "another sandbox died with it")

    def is_sandbox_of(self, pid, command):
        """Whether it is pid 1 of the sandbox in which that command runs: the grandparent of the command."""
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                if file.read().strip() != "carrel-init":
                    return False
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                if not any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in file):
                    return False
            return command in "\n".join(self.commands_below(int(pid)))
        except OSError:
            return False

    def commands_below(self, pid):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            found = [file.read()]
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += self.commands_below(int(child))
        return found


if __name__ == "__main__":
    unittest.main(verbosity=0)
