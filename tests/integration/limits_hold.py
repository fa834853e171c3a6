#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""`--timeout`, `--max-output` and `--tmp-size` hold for the whole tree, whatever it does against it."""
import time
import unittest

from carreltest import PATIENCE, PYTHON, CarrelTest

# Each of these would run for a quarter of an hour, and does something so as not to be ended.
STUBBORN = {
    "sleeps": "sleep 1000",
    "ignores every signal it can": "trap '' TERM INT HUP QUIT USR1 USR2; while :; do sleep 1000; done",
    "double forks": "(setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &); (sleep 1000 &); sleep 1000",
    "holds the pipes": "sleep 1000 & sleep 1000 >&2 & exec sleep 1000",
    "stops itself": "kill -STOP $$; sleep 1000",
    "forks without end": "while :; do sh -c 'sleep 0.01' & wait $!; done",
    "changes its session and group":
        f"{PYTHON} -c 'import os, time\nos.fork() or (os.setsid(), os.fork())\ntime.sleep(1000)'",
    "spins": "while :; do :; done",
    "stops its children": "sleep 1000 & kill -STOP $!; wait",
}


class LimitsHold(CarrelTest):
    def test_a_timeout_ends_the_whole_tree(self):
        for what, script in STUBBORN.items():
            with self.subTest(what=what):
                start = time.monotonic()
                done = self.run_in("--timeout", "300ms", "-c", script)
                self.assertEqual(124, done.returncode, done.stderr)
                self.assertLess(time.monotonic() - start, PATIENCE / 2)
                self.assertGreaterEqual(time.monotonic() - start, 0.3)
                # tearDown sees that no process is left.

    def test_json_says_timed_out_and_keeps_the_output_so_far(self):
        result, done = self.json("--timeout", "1s", "-c", "echo before; sleep 1000")
        self.assertEqual(124, done.returncode)
        self.assertEqual((124, True, "timeout", "before\n"),
                         (result["exit_code"], result["timed_out"], result["reason"], result["stdout"]))
        self.assertGreaterEqual(result["duration_ms"], 1000)

    def test_a_command_that_ends_in_time_is_not_touched(self):
        self.assertEqual("x\n", self.ok("--timeout", "1m", "--", "echo", "x"))
        self.assertEqual(5, self.run_in("--timeout", "59s", "-c", "exit 5").returncode)

    def test_times_are_written_in_the_usual_ways(self):
        for text in ("1s", "1500ms", "2m", "1h", "30s"):
            self.ok("--timeout", text, "--", "true")
        for text in ("", "0", "0s", "-1s", "s", "1x", "1s2", " 1s", "1 s", "inf", "nan", "0x10s", "1e3s",
                     "99999999999999999999s", "9223372036854775807h", "18446744073709551616ms", "+1s", "--"):
            self.refused("--workspace", self.ws, "--timeout", text, words=("--timeout",))

    def test_max_output_is_exact(self):
        for size in (1, 999, 1000, 65536, 65537):
            with self.subTest(size=size):
                exact = self.run_in("--max-output", str(size), "--",
                                    "head", "-c", str(size), "/dev/zero", text=False)
                self.assertEqual((0, size), (exact.returncode, len(exact.stdout)))
                for _ in range(10):  # its end and its excess are seen in either order
                    over = self.run_in("--max-output", str(size), "--",
                                       "head", "-c", str(size + 1), "/dev/zero", text=False)
                    self.assertEqual((122, size), (over.returncode, len(over.stdout)), over.stderr)

    def test_max_output_ends_a_flood_and_its_tree(self):
        for script in ("yes", "yes >&2", "yes & yes >&2 & wait", "trap '' TERM PIPE; while :; do echo x; done",
                       "(setsid yes &) ; sleep 1000", f"{PYTHON} -c 'print(\"x\" * 10000000)'; sleep 1000"):
            with self.subTest(script=script):
                done = self.run_in("--max-output", "100K", "-c", script, text=False)
                self.assertEqual(122, done.returncode, done.stderr[:200])
                message = done.stderr.rfind(b"carrel: ")
                own = len(done.stderr) - message if message >= 0 else 0
                total = len(done.stdout) + len(done.stderr) - own
                self.assertEqual(100 * 1024, total)

    def test_json_says_truncated(self):
        result, done = self.json("--max-output", "10", "-c", "printf 0123456789abc; sleep 1000")
        self.assertEqual(122, done.returncode)
        self.assertEqual((122, True, "output", "0123456789", False),
                         (result["exit_code"], result["truncated"], result["reason"], result["stdout"],
                          result["timed_out"]))
        result, done = self.json("--max-output", "10", "-c", "printf 0123456789")
        self.assertEqual((0, False, "exit"), (done.returncode, result["truncated"], result["reason"]))

    def test_sizes_are_written_in_the_usual_ways(self):
        for text in ("1", "1K", "2M", "1G"):
            self.ok("--max-output", text, "--tmp-size", "1M", "--", "true")
        for option in ("--max-output", "--tmp-size"):
            for text in ("", "0", "-1", "K", "1Q", "1K1", " 1", "1 K", "0x10", "1e3", "99999999999999999999",
                         "18446744073709551616", "17179869184G", "+1"):
                self.refused("--workspace", self.ws, option, text, words=(option,))

    def test_tmp_size_bounds_tmp(self):
        fill = "head -c 100M /dev/zero > {0}/f 2>/dev/null; stat -c %s {0}/f"
        size = int(self.ok("--tmp-size", "2M", "-c", fill.format("/tmp")))
        self.assertLessEqual(size, 2 << 20)
        self.assertGreaterEqual(size, 1 << 20)
        for place in ("/.cache", "/dev/shm"):
            self.assertLess(int(self.ok("--tmp-size", "2M", "-c", fill.format(place))), 100 << 20, place)

    def test_tmp_is_bounded_without_being_asked_in_bytes_and_in_files(self):
        for place in ("/tmp", "/.cache", "/dev/shm"):
            look = f"import os; s = os.statvfs('{place}'); print(s.f_blocks * s.f_frsize, s.f_files)"
            size, files = map(int, self.ok("--", PYTHON, "-c", look).split())
            self.assertTrue(0 < size < 1 << 40, place)
            self.assertTrue(0 < files < 1 << 30, place)


if __name__ == "__main__":
    unittest.main()
