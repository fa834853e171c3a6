#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Limits on memory, processes and processors: each is kept, with its own end and exit status, or refused in words.

As root cgroups keep them all (v1: but io). An ordinary user who was given none keeps a limit on processes only; what he
can do with a cgroup of his own is in limits_with_delegation.py."""
import os
import unittest

from carreltest import PYTHON, ROOT, CarrelTest, carrel, cgroup_dirs, host_state, read, v1

BOMB = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
HOG = "x = [bytearray(1 << 20) for i in range(200)]"
# Counts how many threads can be had, and gives them back.
THREADS = """
import threading
gate, threads = threading.Event(), []
try:
    for i in range(50):
        threads.append(threading.Thread(target=gate.wait)); threads[-1].start()
except RuntimeError: threads.pop()
print(len(threads) + 1); gate.set()
"""


def fix_of(controller):
    """What an ordinary user without a cgroup is told: systemd delegates only what is on v2."""
    return "run it as root, or boot with cgroup v2" if v1(controller) else "Delegate=yes"


class EveryHost(CarrelTest):
    """What works with and without cgroups."""

    def test_a_fork_bomb_is_ended_and_told(self):
        result, done = self.json("--pids", "12", "--timeout", "25s", "--", PYTHON, "-c", BOMB)
        self.assertEqual((121, 121, "pids", 9), (done.returncode, result["exit_code"], result["reason"],
                                                 result["signal"]))
        self.assertEqual(12, result["usage"]["processes"])
        self.assertGreater(result["usage"]["cpu_user_ms"] + result["usage"]["cpu_system_ms"], 20)
        self.assertTrue(any(d["rule"] == "pids 12" and "--pids 24" in d["fix"] for d in result["denials"]),
                        result["denials"])

    def test_at_the_limit_forks_fail_and_the_run_goes_on(self):
        script = """
import os, time
children, failed = [], 0
for i in range(20):
    try:
        pid = os.fork()
    except BlockingIOError:
        failed += 1
        continue
    if not pid:
        time.sleep(60)
    children.append(pid)
for pid in children:
    os.kill(pid, 9); os.waitpid(pid, 0)
print(len(children), failed)
"""
        self.assertEqual("9 11\n", self.ok("--pids", "10", "--", PYTHON, "-c", script))

    def test_threads_count_too(self):
        self.assertEqual("15\n", self.ok("--pids", "15", "--", PYTHON, "-c", THREADS))

    def test_one_process_is_enough_for_one_process(self):
        self.assertEqual("x\n", self.ok("--pids", "1", "--", "/bin/echo", "x"))

    def test_whoever_stays_within_the_limit_is_left_alone(self):
        result, done = self.json("--pids", "3", "-c", "sleep 3 & sleep 3 & wait")
        self.assertEqual((0, "exit", [], 3), (done.returncode, result["reason"], result["denials"],
                                              result["usage"]["processes"]), result)

    def test_what_was_not_asked_for_is_not_counted(self):
        result, _ = self.json("--", "true")
        self.assertEqual([None] * 3, [result["usage"][name] for name in ("peak_memory_bytes", "processes",
                                                                         "added_bytes")])
        self.assertNotIn("disk", result)

    def test_a_run_without_limits_makes_no_cgroup(self):
        inside = self.ok("-c", "cat /proc/self/cgroup")
        self.assertEqual({"/"}, {line.split(":", 2)[2] for line in inside.splitlines()}, inside)
        self.assertEqual(set(), {path for path in cgroup_dirs() if "/carrel-" in path})

    def test_limits_do_not_go_with_level_dir(self):
        for option in ("--memory=64M", "--pids=5", "--cpu=1", "--io=1M", "--disk=1G", "--files=10"):
            self.refused("--level", "dir", "--workspace", self.ws, option, words=("level dir", option.split("=")[0]))

    def test_numbers_are_checked(self):
        for option, values in {"--memory": ("0", "-1", "x", "", "1.5G", "1"), "--pids": ("0", "-1", "1K", "", "1000000"),
                               "--cpu": ("0", "-1", "x", "1.2345", "0.001", "inf", ""), "--io": ("0", "fast"),
                               "--disk": ("0", "image", "image:", "quota:1G"), "--files": ("0", "-3", "x", "10K", "1000000001")}.items():
            for value in values:
                self.refused("--workspace", self.ws, option, value, words=(option,))

    def test_the_range_and_the_units_are_told(self):
        for option, values, words in (
                ("--pids", ("4194305", "0", "10K"), ("from 1 to 999999",)),
                ("--cpu", ("0.001", ".5", "0.1255"), ("from 0.01", "three decimals")),
                ("--memory", ("64MB", "64m", "9999999T", "0"), ("from 1 to 1048576T", "K, M, G or T")),
                ("--disk", ("2g", "image:2GB"), ("from 1 to 1048576T", "K, M, G or T")),
                ("--files", ("10K",), ("from 1 to 1000000000",))):
            for value in values:
                self.refused("--workspace", self.ws, option, value, words=(f"{option} '{value}'", *words))

    def test_what_a_run_has_written_is_told_also_when_a_limit_ends_it(self):
        # Files in memory are not on a disk; the kernel counts the others when their pages become dirty.
        script = "dd if=/dev/zero of=/big bs=1M count=8 conv=fsync 2>/dev/null; echo done >&2; sleep 60"
        whole, _ = self.json("-c", script.replace("sleep 60", "true"))
        if whole["usage"]["written_bytes"] < 8 << 20:
            self.skipTest("the workspace is on no disk, or the kernel counts nothing")
        os.unlink(f"{self.ws}/big")
        result, _ = self.json("--timeout", "5s", "-c", script)
        self.assertEqual(("timeout", "done\n"), (result["reason"], result["stderr"]))
        self.assertGreaterEqual(result["usage"]["written_bytes"], 8 << 20)

    def test_tmp_must_fit_into_the_memory(self):
        self.refused("--workspace", self.ws, "--memory", "30M", "--tmp-size", "11M", words=("--tmp-size", "--memory"))

    def test_io_is_refused_where_it_cannot_be_kept(self):
        if not v1("blkio"):
            self.skipTest("cgroup v2 keeps it")
        self.refused("--workspace", self.ws, "--io", "1M", words=("--io", "unified_cgroup_hierarchy"))

    def test_explain_says_who_keeps_what_and_refuses_nothing(self):
        done = carrel("run", "--workspace", self.ws, "--explain", "--json", "--memory", "64M", "--pids", "5", "--cpu",
                      "1.5", "--io", "1M", "--disk", "1G", "--", "true")
        self.assertEqual(0, done.returncode, done.stderr)
        plan = self.object(done.stdout)
        kept = {name: limit["kept_by"] for name, limit in plan["asked_limits"].items()}
        self.assertEqual({"memory", "pids", "cpu_milli", "io", "disk"}, set(kept))
        self.assertTrue(kept["pids"] and kept["disk"])
        missing = " ".join(plan["not_given"])
        for name, option in (("memory", "--memory"), ("cpu_milli", "--cpu"), ("io", "--io")):
            self.assertEqual(kept[name] is None, f"{option} cannot be kept" in missing, plan)

    def test_doctor_says_the_same(self):
        features = self.object(carrel("doctor", "--json").stdout)["features"]
        for name, option in (("limit_memory", "--memory=64M"), ("limit_pids", "--pids=9"), ("limit_cpu", "--cpu=1"),
                             ("limit_io", "--io=1M")):
            done = self.run_in(option, "--", "true")
            self.assertEqual(features[name]["works"], done.returncode == 0, (name, done.stderr))
            if not features[name]["works"]:
                self.assertIn(features[name]["fix"], done.stderr)


@unittest.skipUnless(ROOT, "needs a cgroup")
class WithCgroups(CarrelTest):
    def test_a_memory_bomb_is_ended_and_told(self):
        before = host_state()
        result, done = self.json("--memory", "64M", "--", PYTHON, "-c", HOG)
        self.assertEqual((120, "oom", True, 9), (done.returncode, result["reason"], result["oom_killed"],
                                                 result["signal"]))
        self.assertTrue(32 << 20 < result["usage"]["peak_memory_bytes"] <= 64 << 20, result["usage"])
        self.assertIn(("memory 64M", "let it have more with --memory 128M", "kernel"),
                      [(d["rule"], d["fix"], d["source"]) for d in result["denials"]])
        self.unchanged(before)

    def test_the_fix_works(self):
        self.ok("--memory", "320M", "--", PYTHON, "-c", HOG)

    def test_the_whole_sandbox_ends_when_a_child_runs_out_of_memory(self):
        script = f"{PYTHON} -c '{HOG}' & sleep 300 & while :; do sleep 1; done"
        self.one_line(self.run_in("--memory", "64M", "-c", script), "--memory", code=120)

    def test_also_when_the_command_would_have_gone_on_to_succeed(self):
        result, done = self.json("--memory", "64M", "-c", f"{PYTHON} -c '{HOG}'; exit 0")
        self.assertEqual((120, "oom"), (done.returncode, result["reason"]))

    def test_temporary_files_are_counted_and_fit(self):
        look = "import os\nfor p in ('/tmp', '/.cache', '/dev/shm'): s = os.statvfs(p); print(s.f_blocks * s.f_frsize)"
        sizes = [int(line) for line in self.ok("--memory", "60M", "--", PYTHON, "-c", look).split()]
        self.assertEqual([10 << 20] * 3, sizes)

    def test_programs_see_the_limit_as_the_machines_memory(self):
        total = self.ok("--memory", "64M", "-c", "grep MemTotal /proc/meminfo")
        self.assertEqual(["MemTotal:", str(64 << 10), "kB"], total.split())

    def test_processors_are_bounded(self):
        spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
        free, _ = self.json("--", PYTHON, "-c", spin)
        bound, done = self.json("--cpu", "0.25", "--", PYTHON, "-c", spin)
        self.assertEqual(0, done.returncode)
        self.assertLess(bound["usage"]["cpu_user_ms"], 1200)  # 500 and what a period's rounding gives
        self.assertGreater(free["usage"]["cpu_user_ms"], bound["usage"]["cpu_user_ms"])

    def test_all_together(self):
        before = host_state()
        result, done = self.json("--memory", "128M", "--pids", "20", "--cpu", "1.5", "--", "true")
        self.assertEqual((0, "exit", []), (done.returncode, result["reason"], result["denials"]))
        self.assertGreaterEqual(result["usage"]["processes"], 1)
        self.unchanged(before)

    def test_groups_of_a_killed_engine_are_swept_by_the_next(self):
        before = cgroup_dirs()
        parent = next(path for path in self.folders("pids"))
        gone = os.spawnv(os.P_WAIT, "/bin/true", ["true"])  # any pid that has been and is no more
        self.assertEqual(0, gone)
        stale = f"{parent}/carrel-{self.free_pid()}-0"
        os.mkdir(stale)
        self.ok("--pids", "5", "--", "true")
        self.assertFalse(os.path.exists(stale))
        self.assertEqual(before, cgroup_dirs())

    def free_pid(self):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        return pid

    def folders(self, controller):
        """Our own group where the controller is."""
        own = dict((line.split(":")[1], line.split(":", 2)[2]) for line in read("/proc/self/cgroup").splitlines())
        for line in read("/proc/self/mountinfo").splitlines():
            left, right = line.split(" - ", 1)
            kind, _, options = right.split(" ", 2)
            if kind == "cgroup" and controller in options.split(","):
                yield left.split()[4] + own[controller].rstrip("/")
            elif kind == "cgroup2" and controller not in own:
                yield left.split()[4] + own[""].rstrip("/")


@unittest.skipIf(ROOT, "root has cgroups")
class WithoutCgroups(CarrelTest):
    def test_what_cannot_be_kept_is_refused_with_the_fix(self):
        for option in ("--memory=64M", "--cpu=1"):
            name = option.split("=")[0]
            self.refused("--workspace", self.ws, option, words=(name, fix_of(name.strip("-"))))

    def test_also_when_a_policy_asks(self):
        policy = self.path("policy.json")
        with open(policy, "w", encoding="ascii") as file:
            file.write('{"limits": {"memory": "64M"}}')
        self.refused("--workspace", self.ws, "--policy", policy, words=("--memory", fix_of("memory")))


if __name__ == "__main__":
    unittest.main()
