#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# AS: root
# WITH: QUOTA_POINT
"""`--disk SIZE` where the workspace has a project quota. Needs a file system that enforces them, mounted at $QUOTA_POINT:
the guest of tests/vm/run has one."""
import os
import shutil
import subprocess
import tempfile
import unittest

from carreltest import CarrelTest

MIB = 1 << 20
POINT = os.environ["QUOTA_POINT"]
PROJECT = "4711"


class DiskQuota(CarrelTest):
    def setUp(self):
        super().setUp()
        self.ws = tempfile.mkdtemp(dir=POINT)
        os.chown(self.ws, 54321, 54321)
        subprocess.run(["chattr", "-p", PROJECT, "+P", self.ws], check=True)
        self.allow(32)

    def tearDown(self):
        shutil.rmtree(self.ws, ignore_errors=True)
        self.allow(0)
        super().tearDown()

    def allow(self, mib):
        subprocess.run(["setquota", "-P", PROJECT, "0", str(mib * 1024), "0", "0", POINT], check=True)

    def quota(self):
        return subprocess.run(["quota", "-P", "-w", "-p", PROJECT], check=False, capture_output=True, text=True).stdout

    def test_a_quota_that_leaves_no_more_keeps_the_limit(self):
        before = self.quota()
        result, done = self.json("--disk", "48M", "-c", "head -c 100M /dev/zero >a; head -c 1M /dev/zero >b")
        self.assertEqual((1, "exit"), (done.returncode, result["reason"]))
        self.assertIn("quota exceeded", result["stderr"])
        self.assertEqual({"method": "quota", "overshoot_bytes": 0}, result["disk"])
        self.assertLessEqual(result["usage"]["added_bytes"], 32 * MIB)
        self.assertGreater(result["usage"]["added_bytes"], 30 * MIB)
        self.assertIn("disk", str(result["denials"]))
        self.assertEqual(before.split()[-6:-4], self.quota().split()[-6:-4], "the quota itself is left alone")

    def test_a_wider_quota_does_not(self):
        result, done = self.json("--disk", "8M", "-c", "for i in 1 2 3 4 5 6; do head -c 4M /dev/zero >$i; done; sleep 9")
        self.assertEqual((123, "disk"), (done.returncode, result["reason"]))
        self.assertEqual("polling", result["disk"]["method"])

    def test_nor_does_one_that_new_files_do_not_inherit(self):
        subprocess.run(["chattr", "-P", self.ws], check=True)
        result, _ = self.json("--disk", "48M", "--", "true")
        self.assertEqual("polling", result["disk"]["method"])

    def test_what_is_changed_in_a_layer_counts_to_the_quota(self):
        place = tempfile.mkdtemp(dir=POINT)
        try:
            for name, mode in (("below", 0o755), ("layer", 0o700)):
                os.mkdir(f"{place}/{name}", mode)
            with open(f"{place}/below/file", "w", encoding="ascii") as file:
                file.write("below")
            done = self.run_in("--layer", f"{place}/below:/.venv:{place}/layer", "-c",
                               "echo x >>/.venv/file; mkdir /.venv/d; mv /.venv/file /.venv/d; head -c 100M /dev/zero >/.venv/big")
            self.assertIn("quota exceeded", done.stderr)
            self.assertLessEqual(os.path.getsize(f"{place}/layer/upper/big"), 32 * MIB)
            self.assertTrue(os.path.exists(f"{place}/layer/upper/d/file"))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def test_the_command_cannot_leave_its_project(self):
        done = self.run_in("-c", "mkdir d && chattr -p 1 d; chattr -P d; lsattr -pd d")
        self.assertIn(PROJECT, done.stdout, done.stderr)
        self.assertRegex(done.stdout, r"P.* d")


if __name__ == "__main__":
    unittest.main()
