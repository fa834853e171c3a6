#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# BASE
"""sudo inside a system of the workspace's own, as agents type it; and where it is not to be had."""
import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from carreltest import CARREL, PATIENCE
from systemtest import BASE, SystemTest


class Sudo(SystemTest):
    def line(self, script, **kwargs):
        done = self.user(script, **kwargs)
        return done.returncode, done.stdout + done.stderr

    def test_the_common_ways_to_ask(self):
        wanted = {
            "sudo id -u": (0, "0\n"),
            "sudo -n true": (0, ""),
            "sudo -v && sudo -k && sudo -K": (0, ""),
            "sudo -u root id -un": (0, "root\n"),
            "sudo -u www-data id -un": (0, "www-data\n"),
            "sudo -u user id -un": (0, "user\n"),
            "sudo -u '#33' -g '#4' id -g": (0, "4\n"),
            "sudo bash -c 'echo $HOME $USER; exit 7'": (7, "/root root\n"),
            "FOO=1 sudo sh -c 'echo -$FOO-'": (0, "--\n"),
            "FOO=1 sudo -E sh -c 'echo -$FOO-'": (0, "-1-\n"),
            "FOO=1 sudo --preserve-env=FOO sh -c 'echo -$FOO-'": (0, "-1-\n"),
            "sudo FOO=2 sh -c 'echo -$FOO-'": (0, "-2-\n"),
            "sudo -H -S -p x sh -c 'echo $HOME' </dev/null": (0, "/root\n"),
            "sudo su -c 'id -u'": (0, "0\n"),
            "sudo su - -c 'id -u; pwd'": (0, "0\n/root\n"),
            "sudo -i sh -c 'pwd; id -u'": (0, "/root\n0\n"),
            "sudo -s id -u": (0, "0\n"),
            "sudo sudo -u www-data sudo id -u": (0, "0\n"),
            "cd /usr/share && sudo pwd": (0, "/usr/share\n"),
            "sudo -D /var/lib pwd": (0, "/var/lib\n"),
            "echo text | sudo tee /etc/of-root; stat -c %U /etc/of-root": (0, "text\nroot\n"),
            "sudo cat /etc/shadow | grep -c ^root:": (0, "1\n"),
            "sudo no-such-program": (1, "sudo: no-such-program: command not found\n"),
            "sudo -u nobody-here id": (1, "sudo: unknown user nobody-here\n"),
            "sudo sh -c 'kill -TERM $$'; echo $?": (0, "143\n"),
        }
        for script, result in wanted.items():
            with self.subTest(script=script):
                code, said = self.line(script)
                self.assertEqual(result, (code, said.replace("Terminated\n", "")))

    def test_who_has_asked_is_told(self):
        code, said = self.line("sudo env")
        self.assertEqual(0, code)
        self.assertLessEqual({"SUDO_USER=user", "SUDO_UID=1000", "SUDO_COMMAND=env"}, set(said.splitlines()))

    def test_root_is_no_more_than_with_user_root(self):
        script = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status"
        self.assertEqual(self.root(script).stdout, self.user(f"sudo {script}").stdout)

    def test_signals_and_the_end_of_who_asks_arrive(self):
        for way, number in (("-TERM", 143), ("-INT", 130), ("-KILL", 137)):
            with self.subTest(way=way):
                done = self.user("sudo sh -c 'touch /run/there; exec sleep 1000' & until test -e /run/there; do sleep 0.02; done; "
                                       f"kill {way} $!; wait $!; echo $?; "
                                       "for i in $(seq 500); do sudo pidof sleep >/dev/null || { echo gone; break; }; sleep 0.02; done")
                self.assertEqual((0, f"{number}\ngone\n"), (done.returncode, done.stdout))

    def test_a_timeout_ends_what_it_has_started(self):
        self.user("sudo sh -c 'setsid sleep 1000 & exec sleep 1000'", options=["--timeout", "1s"])
        self.assertEqual("", self.user("sudo pidof sleep").stdout)

    def test_many_at_once_are_bounded_and_work_again(self):
        code, said = self.line("sudo true; for i in $(seq 40); do sudo sleep 3 2>&1 & done; wait; sudo id -u")
        self.assertEqual(0, code, said)
        self.assertIn("too many commands of root's", said)
        self.assertTrue(said.endswith("\n0\n"), said)

    def test_a_terminal(self):
        pid, master = pty.fork()
        if pid == 0:
            os.execv(CARREL, [CARREL, "run", "--tty", "--workspace", self.ws, "--system", f"{BASE}:{self.layer}", "--", "sudo",
                              "sh", "-c", "tty; echo ready; read x; echo got $x; exec sleep 1000"])
        self.expect(master, b"ready")
        os.write(master, b"word\n")
        seen = self.expect(master, b"got word")
        self.assertIn(b"/dev/pts/", seen)
        os.write(master, b"\x03")  # for the terminal inside
        self.assertEqual(130, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) % 256)
        os.close(master)

    seen = b""

    def expect(self, fd, text):
        end = time.monotonic() + PATIENCE
        while text not in self.seen and time.monotonic() < end:
            if select.select([fd], [], [], 1)[0]:
                self.seen += os.read(fd, 4096)
        self.assertIn(text, self.seen)
        return self.seen

    def test_a_policy_that_has_no_root_has_no_sudo(self):
        policy = self.path("policy.json")
        with open(policy, "w", encoding="utf-8") as file:
            json.dump({"user": "user"}, file)
        code, said = self.line("sudo id -u", options=["--policy", policy])
        self.assertEqual(1, code)
        self.assertIn("no command of this workspace can be root's", said)

    def test_a_planned_command_has_none(self):
        done = subprocess.run([CARREL, "run", "--workspace", self.ws, "--system", f"{BASE}:{self.layer}", "--plan", "--", "sudo", "id", "-u"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertIn("no command of this workspace can be root's", done.stdout + done.stderr)

    def test_a_command_that_is_killed_takes_it_along(self):
        run = subprocess.Popen([CARREL, "run", "--workspace", self.ws, "--system", f"{BASE}:{self.layer}", "--", "sudo", "sh", "-c",
                                "echo there; exec sleep 1000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(b"there\n", run.stdout.readline())
        run.send_signal(signal.SIGTERM)
        self.assertEqual(b"", run.stdout.read())
        run.wait(PATIENCE)
        run.stdout.close()


if __name__ == "__main__":
    unittest.main()
