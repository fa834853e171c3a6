#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""`--tty`: a terminal made inside, of the caller's size, with job control, and no byte lost."""
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from carreltest import CARREL, PATIENCE, PYTHON, CarrelTest


class Terminal:
    """A person at a terminal: carrel runs on it, we type and read."""

    def __init__(self, *args, rows=33, columns=101):
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [CARREL, "run", *args], stdin=self.slave, stdout=self.slave, stderr=self.slave,
            preexec_fn=self.become_foreground, close_fds=True)

    def become_foreground(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read_some(self, deadline):
        ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            return False
        self.seen += os.read(self.master, 65536)
        return True

    def press_until(self, key, pattern):
        """Presses a key until the pattern comes: a shell shows a job before the terminal is that job's."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.type(key)
            try:
                return self.expect(pattern, patience=1)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise

    def expect(self, pattern, patience=PATIENCE):
        """Reads until the pattern has come; returns the match and forgets all up to its end."""
        deadline = time.monotonic() + patience
        while not (match := re.search(pattern, self.seen, re.S)):
            if not self.read_some(deadline):
                raise AssertionError(f"{pattern!r} did not come; seen: {self.seen!r}")
        self.seen = self.seen[match.end():]
        return match

    def finish(self):
        """Reads all there is to the end; returns the exit status and what was read."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.read_some(min(deadline, time.monotonic() + 0.05))
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"does not end; seen: {self.seen[-2000:]!r}")
        while select.select([self.master], [], [], 0.2)[0]:
            self.seen += os.read(self.master, 65536)
        modes = termios.tcgetattr(self.slave)
        os.close(self.slave)
        os.close(self.master)
        if modes != self.modes:
            raise AssertionError(f"the caller's terminal was not restored: {self.modes} {modes}")
        return self.process.returncode, self.seen


class TerminalTest(CarrelTest):
    def setUp(self):
        super().setUp()
        self.terminals = []

    def tearDown(self):
        for term in self.terminals:
            term.process.kill()
        super().tearDown()

    def terminal(self, *args, **kwargs):
        self.terminals.append(Terminal("--workspace", self.ws, "--tty", *args, **kwargs))
        return self.terminals[-1]

    def test_all_three_streams_are_a_terminal_of_the_callers_size(self):
        term = self.terminal("-c", "test -t 0 && test -t 1 && test -t 2 && tty && stty size", rows=33, columns=101)
        status, out = term.finish()
        self.assertEqual((0, b"/dev/pts/0\r\n33 101\r\n"), (status, out))

    def test_on_a_terminal_it_is_the_default_and_can_be_declined(self):
        look = ["-c", "test -t 0 && test -t 1 && echo terminal || echo none"]
        self.terminals.append(Terminal("--workspace", self.ws, *look))
        self.assertEqual((0, b"terminal\r\n"), self.terminals[-1].finish())
        self.terminals.append(Terminal("--workspace", self.ws, "--no-tty", *look))
        self.assertEqual((0, b"none\r\n"), self.terminals[-1].finish())

    def test_it_does_not_go_with_json(self):
        self.refused("--workspace", self.ws, "--tty", "--json", words=("--tty", "--json"))

    def test_a_resize_arrives(self):
        term = self.terminal("--", "bash", "-c",
                             "trap 'stty size; exit 7' WINCH; echo ready; while :; do sleep 0.1; done")
        term.expect(b"ready")
        term.resize(12, 34)
        status, out = term.finish()
        self.assertEqual(7, status)
        self.assertIn(b"12 34", out)

    def test_the_exit_status_and_a_lot_of_output_are_whole(self):
        term = self.terminal("-c", "seq 1 200000; exit 9")
        status, out = term.finish()
        self.assertEqual(9, status)
        self.assertEqual("".join(f"{n}\r\n" for n in range(1, 200001)).encode(), out)

    def test_the_last_word_is_never_lost(self):
        for _ in range(20):
            status, out = self.terminal("--", "printf", "last-word").finish()
            self.assertEqual((0, b"last-word"), (status, out))

    def test_what_is_typed_is_echoed_once_and_read(self):
        term = self.terminal("-c", "echo ready; read line; echo got:$line")
        term.expect(b"ready\r\n")
        term.type("hello\n")
        status, out = term.finish()
        self.assertEqual((0, b"hello\r\ngot:hello\r\n"), (status, out))

    def test_end_of_file_is_typed_with_control_d(self):
        term = self.terminal("-c", "echo ready; cat")
        term.expect(b"ready\r\n")
        term.type("one\n")
        term.expect(b"one\r\none\r\n")
        term.type("\x04")
        self.assertEqual(0, term.finish()[0])

    def test_control_c_interrupts_the_command_and_not_carrel(self):
        term = self.terminal("-c", "trap 'echo caught; exit 4' INT; echo ready; sleep 100 & wait")
        term.expect(b"ready")
        term.type("\x03")
        status, out = term.finish()
        self.assertEqual(4, status)
        self.assertIn(b"caught", out)

    def test_a_command_that_dies_of_control_c_says_so(self):
        term = self.terminal("-c", "echo ready; exec sleep 100")
        term.expect(b"ready")
        term.type("\x03")
        self.assertEqual(128 + signal.SIGINT, term.finish()[0])

    def test_job_control_of_bash_works(self):
        term = self.terminal("--env", "PS1=ready> ", "--", "bash", "--norc", "--noprofile", "-i")
        self.assertNotIn(b"no job control", term.expect(rb".*ready> ")[0])
        term.type("sleep 100\n")
        term.expect(rb"sleep 100\r\n")
        term.press_until("\x1a", rb"Stopped +sleep 100")
        term.type("bg\n")
        term.expect(rb"\[1\]\+ sleep 100 &")
        term.type("jobs\n")
        term.expect(rb"Running +sleep 100")
        term.type("fg\n")
        term.expect(rb"fg\r\n.*sleep 100\r\n")
        term.press_until("\x03", rb"ready> ")
        term.type("echo status=$?; exit 11\n")
        term.expect(rb"status=130")
        self.assertEqual(11, term.finish()[0])

    def test_programs_that_draw_get_a_usable_term(self):
        term = self.terminal("--", PYTHON, "-c", "import curses, os; curses.setupterm(); print(os.environ['TERM'])")
        status, out = term.finish()
        self.assertEqual(0, status, out)

    def test_a_timeout_ends_it_and_restores_the_terminal(self):
        term = self.terminal("--timeout", "1s", "-c", "stty raw -echo; trap '' TERM INT HUP; sleep 1000; sleep 1000")
        self.assertEqual(124, term.finish()[0])

    def test_output_that_was_cut_off_is_not_mixed_with_what_carrel_says(self):
        status, out = self.terminal("--max-output", "5", "-c", "printf 123456789; sleep 100").finish()
        self.assertEqual(122, status)
        self.assertRegex(out, rb"\A12345\r\ncarrel: the output limit was reached")

    def test_the_outer_terminal_is_not_reachable(self):
        # TIOCSTI into the caller's terminal would be typing commands as the caller.
        term = self.terminal("--", PYTHON, "-c", "import fcntl, termios\n"
                             "try: fcntl.ioctl(0, termios.TIOCSTI, b'x'); print('pushed')\n"
                             "except OSError as e: print('refused')")
        status, out = term.finish()
        # On a terminal Carrel also says that it was not allowed.
        self.assertRegex(out, rb"\Arefused\r\ncarrel: not allowed: ioctl TIOCSTI [^\n]*\n\Z")
        self.assertEqual(0, status)

    def test_without_a_terminal_outside_there_is_still_one_inside(self):
        done = self.run_in("--tty", "-c", "test -t 0 && test -t 1 && echo yes")
        self.assertEqual((0, "yes"), (done.returncode, done.stdout.strip()), done.stderr)

    def test_hangup_of_the_outer_terminal_ends_everything(self):
        term = self.terminal("-c", "(setsid sh -c \"trap '' HUP; sleep 1000\" &); echo ready; sleep 1000")
        term.expect(b"ready")
        os.close(term.slave)
        os.close(term.master)
        self.assertNotEqual(0, term.process.wait(timeout=PATIENCE))


if __name__ == "__main__":
    unittest.main()
