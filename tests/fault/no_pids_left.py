#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""No process ids left, at each point where one more would be needed: said in words, nothing left running."""
import os
import resource
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import ROOT, CarrelTest, mount, own_users, private_mounts  # noqa: E402


def pids_hierarchy():
    """Where a control group can bound process ids; mounted for us alone where the host shows none."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            left, right = line.split(" - ", 1)
            kind, _, options = right.split(" ", 2)
            point = left.split()[4]
            if kind == "cgroup" and "pids" in options.strip().split(","):
                return point
            if kind == "cgroup2":
                with open(f"{point}/cgroup.controllers", encoding="ascii") as controllers:
                    if "pids" in controllers.read().split():
                        return point
    return None


class NoPidsLeft(CarrelTest):
    def with_pids(self, count):
        return self.run_in("--", "/bin/echo", "ran", preexec_fn=lambda: self.allow(count))

    def allow(self, count):
        """In the child: itself and `count - 1` more processes."""
        if ROOT:  # whom RLIMIT_NPROC does not bind
            with open(f"{self.group}/pids.max", "w", encoding="ascii") as file:
                file.write(str(count))
            with open(f"{self.group}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
        else:
            own_users()  # in which nobody else's processes are counted
            resource.setrlimit(resource.RLIMIT_NPROC, (count, count))

    def setUp(self):
        super().setUp()
        if ROOT:
            point = pids_hierarchy()
            if point is None:
                private_mounts()
                point = self.path("pids")
                os.mkdir(point)
                mount("pids", point, "cgroup", "pids")
            # Next to whatever holds us, not below: a v2 group with processes can have no limited children.
            self.group = f"{point}/carrel-no-pids.{os.getpid()}"
            os.mkdir(self.group)
            self.addCleanup(lambda: os.rmdir(self.group))

    def test_each_missing_process_is_an_error_in_words(self):
        refused, worked = 0, False
        for count in range(1, 12):
            done = self.with_pids(count)
            if done.returncode == 0:
                self.assertEqual("ran\n", done.stdout)
                worked = True
            else:
                refused += 1
                self.assertEqual("", done.stdout)
                self.one_line(done)
                self.assertRegex(done.stderr, r"(?i)process|pids|Resource temporarily unavailable")
        self.assertTrue(worked, "it works with enough of them")
        self.assertGreaterEqual(refused, 2)

    def test_a_command_that_runs_out_gets_the_error_itself(self):
        done = self.run_in("--", "bash", "-c", "for i in {1..20}; do sleep 100 & done; wait",
                           preexec_fn=lambda: self.allow(10))
        self.assertNotEqual(0, done.returncode)
        self.assertNotEqual(125, done.returncode, done.stderr)


if __name__ == "__main__":
    unittest.main()
