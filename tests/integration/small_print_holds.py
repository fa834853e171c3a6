#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Options, policies, results and messages in the cases where they were once wrong."""
import fcntl
import json
import os
import re
import unittest

from carreltest import PYTHON, CarrelTest, carrel, read, write

SNOWMAN = "☃"  # three bytes in UTF-8
NOT_TEXT = "bad\udcff\udc80name"  # bytes that are not UTF-8, as Python passes them on


class SmallPrintHolds(CarrelTest):
    def policy(self, content):
        return write(self.path("policy.json"), json.dumps(content))

    # --- options and policies ---

    def test_options_are_taken_whole_or_not_at_all(self):
        for args, word in ((["-xy"], "-xy"), (["--json=1"], "--json"), (["--json="], "--json"),
                           (["--timeo", "1s"], "--timeo"), (["--timeo=1s"], "--timeo"), (["-jc", "true"], "-jc"),
                           (["-ctrue"], "-ctrue")):
            with self.subTest(args=args):
                self.refused("--workspace", self.ws, *args, words=(word,))
                self.one_line(carrel("run", *args), word)

    def test_an_empty_policy_keeps_the_default_size_of_tmp(self):
        policy = self.policy({})
        self.refused("--workspace", self.ws, "--policy", policy, "--tmp-size", "100G", words=("--tmp-size",))
        self.refused("--workspace", self.ws, "--policy", policy, "--tmp-size", "513M", words=("--tmp-size",))
        self.ok("--policy", policy, "--tmp-size", "512M", "--", "true")
        self.ok("--tmp-size", "1G", "--", "true")

    def test_a_policy_that_level_dir_cannot_keep_is_refused(self):
        for more in ({"network": "none"}, {"user": "root"}, {"limits": {"tmp_size": "1M"}},
                     {"mounts": [{"source": "/usr", "target": "/x"}]}):
            policy = self.policy({"level": "dir", **more})
            self.refused("--workspace", self.ws, "--policy", policy, words=("dir",))

    def test_auto_never_stands_for_dir(self):
        policy = self.policy({"level": "dir", "network": "host"})
        done = self.run_in("--policy", policy, "--level", "auto", "--json", "--", "true")
        self.assertEqual("ns", self.object(self.succeeded(done))["level"])
        done = self.run_in("--policy", policy, "--json", "--", "true")
        self.assertEqual("dir", self.object(self.succeeded(done))["level"], "what the policy says, unasked")

    # --- results ---

    def test_output_cut_within_a_character_is_still_text(self):
        for stream, redirect in (("stdout", ""), ("stderr", " >&2")):
            for size in range(1, 10):
                with self.subTest(stream=stream, size=size):
                    result, done = self.json("--max-output", size, "-c", f"printf {SNOWMAN * 4}{redirect}")
                    self.assertEqual((122, True), (done.returncode, result["truncated"]))
                    self.assertEqual(SNOWMAN * (size // 3), result[stream])
        result, _ = self.json("-c", r"printf 'a\342\230'")
        self.assertIn("stdout_b64", result, "output that ends so by itself is not cut")

    def test_explain_is_json_and_complete_whatever_the_bytes(self):
        odd = self.path(NOT_TEXT)
        os.mkdir(odd)
        usual = self.object(self.succeeded(carrel("run", "--explain", "--json", "--workspace", self.ws, "--", "true")))
        done = carrel("run", "--explain", "--json", "--workspace", odd, "--env", f"A={NOT_TEXT}", "--ro",
                      f"{odd}:/{NOT_TEXT}", "--cwd", f"/{NOT_TEXT}", "--", "echo", NOT_TEXT, "last", text=False)
        self.assertEqual((0, b""), (done.returncode, done.stderr))
        explained = self.object(done.stdout.decode("utf-8"))
        self.assertEqual(set(usual), set(explained))
        shown = "bad\\xff\\x80name"
        self.assertEqual(["echo", shown, "last"], explained["command"])
        self.assertTrue(explained["workspace"].endswith(shown), explained["workspace"])
        self.assertEqual((shown, f"/{shown}"), (explained["environment"]["A"], explained["cwd"]))
        self.assertEqual(len(usual["mounts"]) + 1, len(explained["mounts"]))
        self.assertTrue(all(mount["target"] for mount in explained["mounts"]))
        text = carrel("run", "--explain", "--workspace", odd, "--", "echo", NOT_TEXT, "last", text=False)
        self.assertIn(f"echo {shown} last\n".encode(), text.stdout)

    # --- messages ---

    def test_a_message_stays_one_line_whatever_it_names(self):
        odd_bits = (b"a\nb", b"a\rb", b"a\x1b[2Jb", b"a\x7fb", b"a\xc2\x9b2Jb", b"a\x9b2Jb", b"a\xc2\x85b",
                    b"a\xe2\x80\xa8b", b"a\xffb")
        for bits in odd_bits:
            name = os.fsdecode(bits)
            cases = [["--workspace", self.path(name), "--", "true"], ["--workspace", self.ws, "--", name],
                     ["--workspace", self.ws, "--ro", f"/{name}:/x", "--", "true"],
                     ["--workspace", self.ws, "--ro", f"{self.dir}:{name}", "--", "true"],
                     ["--workspace", self.ws, "--cwd", f"/{name}", "--", "true"],
                     ["--workspace", self.ws, "--timeout", name, "--", "true"], [f"--{name}", "--", "true"],
                     ["--workspace", self.ws, "--policy", self.path(name), "--", "true"],
                     ["--workspace", self.ws, "--stdin", self.path(name), "--", "true"],
                     ["--workspace", self.ws, "--level", name, "--", "true"]]
            for number, content in enumerate(({name: 1}, {"env": {name: 1}}, {"network": name})):
                policy = write(self.path(f"policy{number}"), json.dumps(content))
                cases.append(["--workspace", self.ws, "--policy", policy, "--", "true"])
            for args in cases:
                with self.subTest(args=args):
                    done = carrel("run", *args, text=False)
                    self.assertIn(done.returncode, (125, 127))
                    self.assertRegex(done.stderr, rb"\Acarrel: [^\n]{12,}\n\Z")
                    line = done.stderr[:-1].decode("utf-8", "replace")
                    self.assertIsNone(re.search("[\x00-\x1f\x7f-\x9f]", line), f"control characters in {line!r}")

    # --- what is seen inside ---

    def test_the_locks_of_the_host_are_not_seen(self):
        with open(self.path("locked"), "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.lockf(file, fcntl.LOCK_EX)
            inode = str(os.fstat(file.fileno()).st_ino)
            self.assertIn(inode, read("/proc/locks"), "there is something to see")
            look = "exec 9>/lock; flock 9; cat /proc/locks"
            for option in (["--workspace", self.ws], []):
                done = carrel("run", *option, "--cwd", "/tmp", "-c", look.replace("/lock;", "lock;"), cwd=self.ws)
                self.assertEqual("", self.succeeded(done))

    def test_terminals_made_inside_are_bounded(self):
        program = ("import os\nmade = []\n"
                   "try:\n    while len(made) < 2000: made.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))\n"
                   "except OSError as error: print(len(made), error.errno)\n"
                   "else: print(len(made), 'no end')\n")
        for option, most in (("--no-tty", 64), ("--tty", 64)):
            with self.subTest(option=option):
                done = self.run_in(option, "--", PYTHON, "-c", program)
                self.assertRegex(done.stdout, r"\A\d+ \d+\s*\Z", done.stderr)
                self.assertTrue(8 <= int(done.stdout.split()[0]) <= most, done.stdout)


if __name__ == "__main__":
    unittest.main()
