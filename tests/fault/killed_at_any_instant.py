#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""`kill -9` of carrel at 200 random instants, from before its first line to after full start-up, leaves nothing."""
import os
import random
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, CarrelTest, host_state, reap_until_alone  # noqa: E402

INSTANTS = 200
# Ends by itself only after all instants: what is gone before was killed. At level dir "/" is not ours.
COMMAND = "cd $HOME; echo up > up; (setsid sleep 1000 &); trap '' TERM HUP INT; sleep 1000; sleep 1000"


class KilledAtAnyInstant(CarrelTest):
    def start(self, *options):
        return subprocess.Popen([CARREL, "run", *options, "-c", COMMAND], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.dir)

    def seconds_to_start(self, *options):
        """From the call to the command's first act, in the middle of a few."""
        times = []
        for _ in range(9):
            start = time.monotonic()
            process = self.start(*options)
            while not os.path.exists(f"{self.ws}/up"):
                self.assertIsNone(process.poll(), "the command ended by itself")
                time.sleep(0.0005)
            times.append(time.monotonic() - start)
            process.kill()
            process.wait()
            os.unlink(f"{self.ws}/up")
        self.assertEqual([], reap_until_alone())
        return sorted(times)[len(times) // 2]

    def kill_at_random(self, count, *options):
        whole = self.seconds_to_start(*options)
        random.seed(seed := int(os.environ.get("SEED", random.randrange(1 << 30))))
        print(f"SEED={seed}; start-up takes {whole * 1000:.1f} ms")
        state, early = host_state(), 0
        for number in range(count):
            delay = random.uniform(0, 1.6 * whole)
            process = self.start(*options)
            pause_until(time.monotonic() + delay)
            process.kill()
            self.assertEqual(-signal.SIGKILL, process.wait(timeout=60), "it ended by itself")
            self.assertEqual([], reap_until_alone(), f"instant {number}, after {delay * 1000:.2f} ms, seed {seed}")
            started = os.path.exists(f"{self.ws}/up")  # asked when nobody is left who could make it
            early += not started
            if started:
                os.unlink(f"{self.ws}/up")
        print(f"{early} of {count} before the command had started")
        # The instants are spread over the start-up, and past it.
        self.assertGreater(early, count // 20)
        self.assertGreater(count - early, count // 50)
        self.unchanged(state)

    def test_nothing_is_left_and_the_workspace_is_usable(self):
        self.kill_at_random(INSTANTS, "--workspace", self.ws)
        self.assertEqual("fine\n", self.ok("--", "echo", "fine"))
        self.assertLessEqual(set(os.listdir(self.ws)), {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc",
                                                        "proc", "dev", "tmp", ".cache"})

    def test_nothing_is_left_with_streams_relayed(self):
        self.kill_at_random(INSTANTS // 4, "--workspace", self.ws, "--timeout", "10m", "--max-output", "1M", "--json")

    def test_nothing_is_left_at_level_dir(self):
        self.kill_at_random(INSTANTS // 4, "--workspace", self.ws, "--level", "dir")

    def test_a_kill_between_any_two_system_calls_of_carrel_leaves_nothing(self):
        """Exact instants: carrel gets SIGKILL on entering its nth system call."""
        trace = self.path("trace")
        done = subprocess.run(["strace", "-qq", "-o", trace, CARREL, "run", "--workspace", self.ws, "--", "true"],
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(0, done.returncode)
        with open(trace, encoding="utf-8", errors="replace") as file:
            total = sum("(" in line for line in file)
        step = 1 if os.environ.get("LONG") else max(1, total // 60)
        state = host_state()
        for number in range(2, total + 1, step):
            subprocess.run(["strace", "-qq", "-o", "/dev/null", "-e", f"inject=all:signal=KILL:when={number}",
                            CARREL, "run", "--workspace", self.ws, "-c", "(setsid sleep 1000 &)"], timeout=60,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self.assertEqual([], reap_until_alone(), f"call {number} of {total}")
        self.unchanged(state)

    def test_what_carrel_started_dies_even_if_its_whole_group_is_killed_in_any_order(self):
        for seed in range(20):
            random.seed(seed)
            process = self.start("--workspace", self.ws)
            pause_until(time.monotonic() + random.uniform(0, 0.02))
            victims = family(process.pid)
            random.shuffle(victims)
            for pid in victims[: random.randint(1, len(victims))]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if process.poll() is None and process.pid not in victims[:1]:
                process.kill()
            process.wait(timeout=60)
            self.assertEqual([], reap_until_alone(), f"seed {seed}")


def family(pid):
    found = [pid]
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += family(int(child))
    except OSError:
        pass
    return found


def pause_until(deadline):
    """Sleeps most of it and spins the rest: the instants must be finer than a timer tick."""
    while (rest := deadline - time.monotonic()) > 0:
        if rest > 0.002:
            time.sleep(rest - 0.001)


if __name__ == "__main__":
    unittest.main()
