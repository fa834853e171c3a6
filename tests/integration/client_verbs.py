#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""carrel ws, exec, shell, ps, logs, kill, key, events and audit, as a person uses them, against a daemon."""
import fcntl
import hashlib
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE, TMP, carrel, describe, write
from daemontest import DaemonTest

SEEDED = ("import random, sys, time\n"
          "r = random.Random({seed})\n"
          "for i in range(60):\n"
          "    to = sys.stdout if i % 3 else sys.stderr\n"
          "    to.buffer.write(r.randbytes(20000)); to.buffer.flush(); time.sleep({pause})\n")
OSC = "\x1b]52;c;cm0gLXJm\x07"
HOSTILE = f"{OSC}\x1b[2J\x9b31m\u202e\u200bx\r\n"


def seeded(seed):
    """What it writes: standard output, standard error."""
    r = random.Random(seed)
    pieces = [r.randbytes(20000) for _ in range(60)]
    return b"".join(p for i, p in enumerate(pieces) if i % 3), b"".join(p for i, p in enumerate(pieces) if i % 3 == 0)


class Terminal:
    """A terminal with carrel in it; its other side stays open here, to be looked at when carrel has gone."""

    def __init__(self, env, *args, size=(24, 80)):
        self.master, self.slave = pty.openpty()
        self.resize(*size, tell=False)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""

        def take():
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under nohup would hand on that it is ignored
        self.process = subprocess.Popen([CARREL, *args], stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env=env, cwd=TMP, preexec_fn=take)

    def resize(self, rows, columns, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            self.seen += os.read(self.master, 65536)
        except OSError:
            return False
        return True

    def until(self, pattern):
        """Waits for it in what comes from now on; what was seen until then is forgotten with the next call."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen, re.S)):
            if time.monotonic() > deadline or (not self.read(0.1) and self.process.poll() is not None and not self.read(0.1)):
                raise AssertionError(f"{pattern} was not seen ({self.process.poll()}): {self.seen[-2000:]!r}")
        self.seen = self.seen[found.end():]
        return found.group()

    def type(self, text):
        os.write(self.master, text)

    def end(self):
        """Its status, all it has written at last, and whether the terminal is as it was."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.read(0.05)
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not end: {describe(self.process.pid)} {self.seen[-2000:]!r}")
        while self.read(0.05):
            pass
        same = termios.tcgetattr(self.slave) == self.before
        return self.process.returncode, self.seen, same

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)


class Verbs(DaemonTest):
    def setUp(self):
        super().setUp()
        self.terminals = []
        self.env = {**os.environ, "CARREL_SOCKET": self.daemon.socket, "TERM": "xterm", "HOME": self.dir}

    def tearDown(self):
        for terminal in self.terminals:
            terminal.close()
        super().tearDown()

    def terminal(self, *args, **kwargs):
        self.terminals.append(Terminal({**self.env, **kwargs.pop("env", {})}, *args, **kwargs))
        return self.terminals[-1]

    def carrel(self, *args, **kwargs):
        return carrel(*args, **{"env": self.env, **kwargs})

    def says(self, *args, **kwargs):
        """What it prints; it must succeed, and have nothing to complain about."""
        return self.succeeded(self.carrel(*args, **kwargs))

    def desk(self):
        self.assertEqual("desk\n", self.says("ws", "create", "desk"))

    def begin(self, *args):
        return subprocess.Popen([CARREL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.env, cwd=TMP)

    def wait_for(self, what, because):
        deadline = time.monotonic() + PATIENCE
        while not (found := what()):
            self.assertLess(time.monotonic(), deadline, because)
            time.sleep(0.05)
        return found

    def test_workspaces_from_the_first_to_the_last(self):
        policy = write(self.path("policy.json"), '{"limits": {"timeout": "50s"}}')
        self.assertEqual("desk\n", self.says("ws", "create", "desk", "--label", "team=blue", "--policy", policy))
        made = self.says("ws", "create").strip()
        self.assertRegex(made, r"^w[a-z2-7]{26}$")
        listed = self.says("ws", "ls")
        self.assertRegex(listed, r"^ID +OWNER +STATE +EXECS +CREATED +MIRROR +LABELS\n")
        self.assertRegex(listed, r"\ndesk +admin +asleep +0 .*team=blue\n")
        self.assertIn(made, listed)
        self.assertEqual({"desk", made}, {w["id"] for w in self.object(self.says("ws", "ls", "--json"))["workspaces"]})
        self.assertEqual("desk", self.object(self.says("ws", "show", "desk", "--json"))["id"])
        self.assertRegex(self.says("ws", "show", "desk"), r"(?m)^owner +admin$")
        self.assertEqual({"limits": {"timeout": "50s"}}, self.object(self.says("ws", "policy", "desk")))
        self.says("ws", "policy", "desk", write(policy, '{"limits": {"timeout": "300ms"}}'))
        self.assertEqual(124, self.carrel("exec", "desk", "--", "sleep", "60").returncode)
        self.says("ws", "policy", "desk", "-", input="{}")
        self.assertEqual({}, self.object(self.says("ws", "policy", "desk")))
        self.one_line(self.carrel("ws", "policy", "desk", "-", input='{"nope": 1}'), "nope")
        self.one_line(self.carrel("ws", "policy", "desk", "-", input="{"))
        self.one_line(self.carrel("ws", "policy", "desk", "/nope"), "/nope")
        self.one_line(self.carrel("ws", "create", "desk"), "desk")
        self.assertEqual("asleep", self.object(self.says("ws", "sleep", "desk", "--json"))["state"])
        self.says("ws", "rm", "desk")
        self.assertNotRegex(self.says("ws", "ls"), r"(?m)^desk ")
        self.assertRegex(self.says("ws", "ls", "--deleted"), r"\ndesk +admin +deleted ")
        self.one_line(self.carrel("exec", "desk", "--", "true"), "trash")
        self.says("ws", "undelete", "desk")
        self.says("ws", "rm", "desk", "--purge")
        self.one_line(self.carrel("ws", "show", "desk"), "desk")

    def test_a_command_has_its_output_status_and_input(self):
        self.desk()
        done = self.carrel("exec", "desk", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((7, "out\n", "err\n"), (done.returncode, done.stdout, done.stderr))
        for status, args in [(0, ["--", "true"]), (137, ["-c", "kill -9 $$"]), (127, ["--", "nosuch"]), (126, ["--", "/etc"]),
                             (124, ["--timeout", "300ms", "--", "sleep", "60"])]:
            self.assertEqual(status, self.carrel("exec", "desk", *args).returncode, args)
        self.assertEqual("b c\n/tmp\n", self.says("exec", "--env", "A=b c", "--cwd", "/tmp", "desk", "-c", "echo $A; pwd"))
        data = random.Random(5).randbytes(3_000_000)
        right = hashlib.sha256(data).hexdigest().encode()
        done = self.carrel("exec", "--stdin", "-", "desk", "--", "sha256sum", input=data, text=False)
        self.assertEqual(right, done.stdout.split()[0], done.stderr)
        with open(self.path("in"), "wb") as file:
            file.write(data)
        done = self.carrel("exec", "--stdin", self.path("in"), "desk", "--", "sha256sum", text=False)
        self.assertEqual(right, done.stdout.split()[0], done.stderr)
        done = self.carrel("exec", "--stdin", "-", "desk", "--", "head", "-c", "5", input=data, text=False)
        self.assertEqual((0, data[:5]), (done.returncode, done.stdout), done.stderr)
        self.assertEqual("", self.says("exec", "desk", "--", "cat"), "it waits for our input without being asked to")
        done = self.carrel("exec", "--json", "--stdin", "-", "desk", "-c", "cat; exit 7", input="hi")
        self.assertEqual((7, "hi", 7), (done.returncode, *(self.object(done.stdout)[k] for k in ("stdout", "exit_code"))))
        with open("/dev/full", "wb") as full:
            self.one_line(self.carrel("exec", "desk", "--", "echo", "hi", stdout=full), "No space")

    def test_a_reader_that_leaves_and_a_person_who_presses_ctrl_c(self):
        self.desk()
        done = subprocess.run(["bash", "-c", '"$0" exec desk -- yes | head -c 10; echo ${PIPESTATUS[0]}', CARREL], env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, cwd=TMP, check=False)
        self.assertEqual(b"y\ny\ny\ny\ny\n141\n", done.stdout, done.stderr)
        process = self.begin("exec", "desk", "-c", "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.05; done")
        self.assertEqual(b"ready\n", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual((5, b"got\n"), (process.returncode, out), err)
        process = self.begin("exec", "desk", "-c", "trap '' INT; echo ready; while :; do sleep 0.05; done")
        self.assertEqual(b"ready\n", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)  # the second one ends it
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(137, process.returncode, out + err)
        self.wait_for(lambda: not self.object(self.says("ps", "--json"))["execs"], "the command goes on")

    def test_in_the_background_with_ps_logs_and_kill(self):
        self.desk()
        line = "echo one; echo err >&2; until [ -e go ]; do sleep 0.05; done; echo two; exec sleep 1000"
        one = self.says("exec", "--background", "desk", "-c", line).strip()
        self.assertRegex(one, r"^x[a-z2-7]{26}$")
        self.assertRegex(self.says("ps"), rf"^WORKSPACE +EXEC +STATE +STARTED +OUTPUT +COMMAND\ndesk +{one} +running ")
        self.assertEqual([one], [e["exec_id"] for e in self.object(self.says("ps", "--json", "desk"))["execs"]])
        follow = self.begin("logs", "-f", "desk", one)
        self.assertEqual(b"one\n", follow.stdout.readline())
        self.wait_for(lambda: self.carrel("logs", "desk", one).stderr == "err\n", "its standard error is not there")
        self.says("exec", "desk", "--", "touch", "go")
        self.assertEqual(b"two\n", follow.stdout.readline())
        done = self.carrel("logs", "desk", one)
        self.assertEqual((0, "one\ntwo\n", "err\n"), (done.returncode, done.stdout, done.stderr))
        self.assertEqual("two\n", self.says("logs", "--from", "8", "desk", one))
        pieces = [json.loads(piece) for piece in self.says("logs", "--json", "desk", one).splitlines()]
        self.assertEqual("one\ntwo\n", "".join(p["data"] for p in pieces if p["type"] == "stdout"))
        self.says("kill", "-s", "CONT", "desk", one)
        self.says("kill", "desk", one)
        out, err = follow.communicate(timeout=PATIENCE)
        self.assertEqual((0, b"", b"err\n"), (follow.returncode, out, err))
        self.one_line(self.carrel("kill", "desk", one))
        self.assertNotIn(one, self.says("ps"))
        self.assertRegex(self.says("ps", "--all", "desk"), rf"{one} +exit 137 ")

    def test_nothing_is_lost_when_the_front_is_killed_under_it(self):
        self.desk()
        process = self.begin("exec", "desk", "--", "python3", "-c", SEEDED.format(seed=7, pause=0.04))
        said = []
        readers = [threading.Thread(target=lambda f=f: said.append((f, f.read()))) for f in (process.stdout, process.stderr)]
        for reader in readers:
            reader.start()
        for _ in range(3):
            time.sleep(0.4)
            self.daemon.kill_front()
        self.assertEqual(0, process.wait(PATIENCE))
        for reader in readers:
            reader.join()
        said = dict(said)
        out, err = seeded(7)
        self.assertEqual(hashlib.sha256(out).digest(), hashlib.sha256(said[process.stdout]).digest(), len(said[process.stdout]))
        self.assertEqual(hashlib.sha256(err).digest(), hashlib.sha256(said[process.stderr]).digest(), len(said[process.stderr]))
        process.stdout.close()
        process.stderr.close()

    def test_a_shell_is_a_real_terminal(self):
        self.desk()
        shell = self.terminal("shell", "desk")
        shell.until(rb"desk(\x1b\[0m)?:~?/?[$#] ")
        self.assertNotEqual(shell.before, termios.tcgetattr(shell.slave), "the terminal here still edits lines itself")
        shell.type(b"echo A$((40+2)) $TERM; tty\r")
        shell.until(rb"[\r\n]A42 xterm\r\n/dev/pts/\d+\r\n")
        shell.type(b"stty size\r")
        shell.until(rb"[\r\n]24 80\r\n")
        shell.resize(30, 100)
        time.sleep(0.3)
        shell.type(b"stty size\r")
        shell.until(rb"[\r\n]30 100\r\n")
        shell.type(b"sleep 1000\r")
        shell.until(rb"sleep 1000\r\n")
        time.sleep(0.3)
        shell.type(b"\x03")
        shell.until(rb"\^C.*[$#] ")
        shell.type(b"echo B$?\r")
        shell.until(rb"[\r\n]B130\r\n")
        shell.type(b"sleep 1000\r")
        shell.until(rb"sleep 1000\r\n")
        time.sleep(0.3)
        shell.type(b"\x1a")
        shell.until(rb"Stopped")
        shell.type(b"kill -9 %1; wait %1; echo C$((1+1))\r")
        shell.until(rb"[\r\n]C2\r\n.*[$#] ")
        shell.type(b"exit 9\r")
        status, _, same = shell.end()
        self.assertEqual(9, status)
        self.assertTrue(same, "the terminal is not as it was")

    def test_a_shell_that_is_ended_from_outside_leaves_the_terminal_as_it_was(self):
        self.desk()
        for how, status in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            shell = self.terminal("shell", "desk")
            shell.until(rb"[$#] ")
            shell.process.send_signal(how)
            ended, _, same = shell.end()
            self.assertEqual((status, True), (ended, same))
            self.wait_for(lambda: not self.object(self.says("ps", "--json"))["execs"], f"its shell goes on after {how}")
        shell = self.terminal("shell", "desk")
        shell.until(rb"[$#] ")
        for number in range(5):
            shell.type(b"echo D%d_$((1+1))\r" % number)
            shell.until(rb"[\r\n]D%d_2\r\n" % number)
            if number == 2:
                self.daemon.kill_front()  # the shell lives on behind it
        shell.type(b"exit 3\r")
        self.assertEqual((3, True), shell.end()[::2])

    def test_whoever_leaves_a_terminal_takes_the_command_along(self):
        """Also one that misses the first signal, as a shell does that is just about to read; and at any instant."""
        self.desk()

        def is_gone():
            return not self.object(self.says("ps", "--json"))["execs"]
        deaf = self.terminal("exec", "--tty", "desk", "-c",
                             "n=0; trap 'n=$((n+1)); [ $n -lt 2 ] || exit' HUP; echo up; while :; do sleep 0.05; done")
        deaf.until(rb"up")
        deaf.process.send_signal(signal.SIGHUP)
        self.assertEqual(129, deaf.end()[0])
        self.wait_for(is_gone, "it missed one signal, and goes on")
        for delay in range(0, 60, 4):
            shell = self.terminal("shell", "desk")
            time.sleep(delay / 1000)
            shell.process.send_signal(signal.SIGHUP)
            self.assertIn(shell.end()[0], (129, -signal.SIGHUP))
            self.wait_for(is_gone, f"a shell goes on that was left after {delay} ms")

    def test_whoever_leaves_a_terminal_takes_the_command_along_also_from_a_slow_daemon(self):
        """The terminal is left before the daemon has said what the command is called, and then again before it takes a signal."""
        self.desk()
        front = self.daemon.front_pid()

        def hold(seconds):
            time.sleep(0.2)
            os.kill(front, signal.SIGSTOP)
            threading.Timer(seconds, os.kill, (front, signal.SIGCONT)).start()
        for started in (False, True):
            if not started:
                hold(4)
            shell = self.terminal("exec", "--tty", "desk", "-c", "trap '' TERM; echo up; sleep 1000")
            if started:
                shell.until(rb"up")
                hold(4)
            time.sleep(0.5)
            shell.process.send_signal(signal.SIGHUP)
            self.assertEqual(129, shell.end()[0])
            self.wait_for(lambda: not self.object(self.says("ps", "--json"))["execs"], f"a command goes on: {started}")

    def test_exec_with_a_terminal_and_shell_without_one(self):
        self.desk()
        terminal = self.terminal("exec", "--tty", "desk", "-c", "tty; stty size; exit 4", size=(17, 91))
        status, seen, same = terminal.end()
        self.assertEqual((4, True), (status, same), seen)
        self.assertRegex(seen, rb"/dev/pts/\d+\r\n17 91\r\n")
        self.assertEqual(125, self.carrel("shell", "desk").returncode, "a shell without a terminal")
        self.one_line(self.carrel("exec", "--tty", "--json", "desk", "--", "true"), "--tty")

    def test_what_others_have_named_does_not_reach_the_terminal(self):
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "desk", "labels": {f"l{HOSTILE}": HOSTILE}}).status)
        made = self.daemon.post("/v1/workspaces/desk/exec",
                                {"argv": ["sh", "-c", "sleep 1000", HOSTILE],
                                 "background": True})
        self.assertEqual(202, made.status, made.bytes)
        second = self.daemon.post("/v1/workspaces/desk/exec", {"command": f"sleep 1000 # {HOSTILE}", "background": True})
        self.assertEqual(202, second.status, second.bytes)
        self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"], "name": HOSTILE})
        self.daemon.execute("desk", f"cat '/etc/{HOSTILE}'; unshare -U '{HOSTILE}'")
        events = self.terminal("events", env={"NO_COLOR": "1"})
        time.sleep(0.5)
        self.daemon.execute("desk", f": {HOSTILE}")
        events.until(rb"exec.end")
        events.process.terminate()
        seen = {"events": events.end()[1]}
        for args in (["ps"], ["ps", "--all", "desk"], ["ws", "ls"], ["ws", "show", "desk"], ["key", "ls"],
                     ["audit", "tail", "-n", "100"], ["exec", "desk", "--", f"/no{HOSTILE}"], ["ws", "show", f"x{HOSTILE}"],
                     ["exec", f"x{HOSTILE}", "--", "true"], ["logs", "desk", f"x{HOSTILE}"]):
            seen[" ".join(args[:2])] = self.terminal(*args, env={"NO_COLOR": "1"}, size=(50, 400)).end()[1]
        for verb, text in seen.items():
            with self.subTest(verb=verb):
                self.assertTrue(text)
                plain = text.replace(b"\r\n", b"\n")
                self.assertNotRegex(plain, rb"[\x00-\x09\x0b-\x1f\x7f]", "a control byte")
                self.assertNotIn("\x9b", plain.decode())
                if not verb.startswith("exec"):  # what one has typed oneself is shown as it is
                    self.assertNotRegex(plain.decode(), "[\u202e\u200b]")
        self.assertEqual(3, len(seen["ps"].splitlines()), "a command made a line of its own")

    def test_keys_over_the_network(self):
        url = {**self.env, "CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}"}
        self.one_line(self.carrel("ws", "ls", env=url), "key")
        self.one_line(self.carrel("ws", "ls", env={**url, "CARREL_KEY": "ck_no"}), "key")
        with open(f"{self.daemon.state}/admin.key", encoding="ascii") as file:
            admin = {**url, "CARREL_KEY": file.read().strip()}
        self.assertEqual("desk\n", self.says("ws", "create", "desk", env=admin))
        made = self.object(self.says("key", "create", "--owner", "alice", "--name", "laptop", "--json", env=admin))
        alice = {**url, "CARREL_KEY": made["key"]}
        self.assertRegex(self.carrel("key", "create", "--owner", "bob").stdout, r"\Ack_[a-z2-7]{52}\n\Z")
        shown = self.terminal("key", "create", "--owner", "bob").end()[1].replace(b"\r\n", b"\n")
        self.assertRegex(shown, rb"\Aid   k[a-z2-7]{26}\nkey  ck_[a-z2-7]{52}\n.*only time")
        self.assertIn("laptop", self.says("key", "ls"))
        self.assertNotRegex(self.says("key", "ls", env=alice), r"\bbob\b")
        self.one_line(self.carrel("ws", "show", "desk", env=alice), "desk")
        self.one_line(self.carrel("key", "create", "--owner", "x", env=alice), "scope")
        self.assertEqual("mine\n", self.says("ws", "create", "mine", env=alice))
        self.assertEqual("/\n", self.says("exec", "mine", "--", "pwd", env=alice))
        self.says("key", "revoke", made["id"])
        self.one_line(self.carrel("ws", "ls", env=alice), "key")

    def test_events_and_the_record(self):
        self.desk()
        events = self.begin("events", "--json")
        tail = self.begin("audit", "tail", "-f", "-n", "1", "--json")
        self.assertEqual("workspace.create", json.loads(tail.stdout.readline())["operation"])
        time.sleep(0.5)
        self.assertEqual(3, self.carrel("exec", "desk", "-c", "exit 3").returncode)
        wanted = {"exec.start", "exec.end"}
        while wanted:
            wanted -= {json.loads(events.stdout.readline()).get("type")}
        wanted = {"sandbox.start", "exec.start", "exec.end"}
        while wanted:
            wanted -= {json.loads(tail.stdout.readline())["operation"]}
        for process in (events, tail):
            process.terminate()
            process.communicate(timeout=PATIENCE)
        self.assertRegex(self.says("audit", "tail", "-n", "2", "--operation", "exec.end"),
                         r"^ *\d+  \S+Z +socket +desk +exec\.end +exit ")
        done = self.carrel("audit", "verify", "--state", self.daemon.state)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"^records  \d+\nhead     [0-9a-f]{64}\n(.+\n)*no sink: .*\nthe chain is whole\n$")
        self.one_line(self.carrel("audit", "verify", "--state", "/nope"), "/nope")

    def test_archives_and_trees_that_are_there(self):
        self.desk()
        self.says("exec", "desk", "-c", "mkdir -p d; echo deep > d/f; printf 'x\\377' > bytes")
        archive = self.carrel("ws", "backup", "desk", text=False)
        self.assertEqual((0, b""), (archive.returncode, archive.stderr))
        self.says("ws", "create", "other")
        self.assertEqual(0, self.carrel("ws", "restore", "other", input=archive.stdout, text=False).returncode)
        self.assertEqual("deep\n", self.says("exec", "other", "--", "cat", "d/f"))
        self.assertNotEqual(0, self.carrel("ws", "restore", "other", input=b"nonsense", text=False).returncode)
        os.makedirs(f"{self.daemon.state}/agents/threads/t1/.solven/skills")
        os.makedirs(f"{self.daemon.state}/agents/skills/system")
        os.symlink(f"{self.daemon.state}/agents/skills/system", f"{self.daemon.state}/agents/threads/t1/.solven/skills/system")
        os.symlink("/etc", f"{self.daemon.state}/agents/threads/t1/.ticket")
        planned = self.says("ws", "adopt", "--dry-run", f"{self.daemon.state}/agents")
        self.assertRegex(planned, r"t1 +adopt +system +\.ticket: it leads to no skills")
        self.one_line(self.carrel("ws", "show", "t1"), "t1")
        self.says("ws", "adopt", "--owner", "ann", f"{self.daemon.state}/agents")
        self.assertEqual("ann", json.loads(self.says("ws", "show", "t1", "--json"))["owner"])
        self.assertIn("t1", self.says("ws", "ls"))

    def test_what_makes_no_sense_is_said_in_one_line(self):
        self.desk()
        for args in (["ws"], ["ws", "show"], ["ws", "dance"], ["ws", "ls", "--nope"], ["exec"], ["exec", "desk"],
                     ["exec", "desk", "-c", "x", "--", "y"], ["exec", "--timeout", "5", "desk", "--", "x"], ["key", "create"],
                     ["kill", "-s", "FOO", "desk", "x"], ["kill", "desk"], ["audit"], ["logs", "desk"], ["logs", "desk", "x"],
                     ["exec", "nobodys", "--", "true"], ["shell"], ["exec", "--env", "A", "desk", "--", "true"],
                     ["ws", "create", "../x"], ["ws", "create", "--label", "x"], ["key", "revoke", "k"], ["ps", "nobodys"]):
            with self.subTest(args=args):
                done = self.carrel(*args)
                self.one_line(done)
                self.assertEqual("", done.stdout)
        for verb in "ws exec shell ps logs kill key events audit".split():
            self.assertRegex(self.says(verb, "--help"), rf"^usage: carrel {verb} ")
        nobody = {**self.env, "CARREL_SOCKET": self.path("none.sock")}
        for args in (["ws", "ls"], ["exec", "desk", "--", "true"], ["events"], ["audit", "tail"], ["ps"]):
            self.one_line(self.carrel(*args, env=nobody), "none.sock")


if __name__ == "__main__":
    unittest.main(verbosity=0)
