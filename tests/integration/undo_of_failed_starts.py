#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""A start that fails leaves nothing behind, and takes nothing from a run beside it.

INV-2: nothing is mounted, created or running after it."""
import os
import subprocess
import unittest

from carreltest import CARREL, PATIENCE, CarrelTest, carrel, read, tree, write

FAILING = ["--cwd", "/nope"]  # found out last of all, when everything is mounted
MOUNTED = ["/data/file", "/dev/null", "/etc/passwd", "/proc/self", "/usr/bin/env"]


class UndoOfFailedStarts(CarrelTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        os.mkdir(self.data)
        write(f"{self.data}/file", "data\n")

    def live(self, *options):
        """A run that says "ready", and at the end of its input whether it still sees all that is mounted."""
        return subprocess.Popen(
            [CARREL, "run", "--workspace", self.ws, "--ro", f"{self.data}:/data", *options,
             "-c", f"echo ready; read go; ls -d {' '.join(MOUNTED)}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_alone_it_leaves_the_workspace_as_it_was(self):
        for extra in ([], ["--ro", f"{self.data}:/a/b/c"], ["--rw", f"{self.data}/file:/a/b/file"],
                      ["--ro", f"{self.data}:/a/b/c", "--ro", f"{self.data}/file:/a/b/f", "--rw", f"{self.data}:/d"]):
            with self.subTest(extra=extra):
                self.refused("--workspace", self.ws, *extra, *FAILING, words=("/nope",))
                self.assertEqual([], os.listdir(self.ws))

    def test_what_was_there_before_stays(self):
        os.makedirs(f"{self.ws}/a/b")
        os.mkdir(f"{self.ws}/usr")
        write(f"{self.ws}/a/empty")
        self.refused("--workspace", self.ws, "--ro", f"{self.data}:/a/b/c", "--ro", f"{self.data}/file:/a/empty",
                     *FAILING, words=("/nope",))
        self.assertEqual({"a", "usr"}, set(os.listdir(self.ws)))

    def test_a_workspace_it_created_goes_again(self):
        new = self.path("new")
        self.refused("--workspace", new, "--create", "--ro", f"{self.data}:/a/b/c", *FAILING, words=("/nope",))
        self.assertFalse(os.path.exists(new))
        self.succeeded(carrel("run", "--workspace", new, "--create", "--", "true"))
        self.assertIn("usr", os.listdir(new), "a start that succeeds makes it, so the test can fail")

    def test_beside_a_live_run_it_takes_nothing_from_it(self):
        with self.live() as process:
            self.assertEqual("ready\n", process.stdout.readline())
            before = tree(self.ws)
            for _ in range(3):
                self.one_line(self.run_in("--ro", f"{self.data}:/data", "--ro", f"{self.data}:/more/d", *FAILING,
                                          "--", "true"), "/nope")
            self.assertLessEqual(set(before), set(tree(self.ws)))
            out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual((0, MOUNTED), (process.returncode, out.split()))

    def test_a_run_that_starts_between_its_making_and_its_undoing_keeps_its_mounts(self):
        # Both start on an empty workspace, so that either makes what the other needs; in all orders, by many tries.
        lost = []
        for turn in range(40):
            self.ws = self.path(f"ws{turn}")
            os.mkdir(self.ws)
            failing = subprocess.Popen([CARREL, "run", "--workspace", self.ws, "--ro", f"{self.data}:/data", *FAILING,
                                        "--", "true"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with self.live() as process:
                first = process.stdout.readline()
                self.assertEqual(125, failing.wait(timeout=PATIENCE))
                out, _ = process.communicate(timeout=PATIENCE)
            if (first + out).split() != ["ready", *MOUNTED]:
                lost.append((turn, process.returncode, first + out))
        self.assertEqual([], lost)

    def test_many_that_fail_leave_nothing_in_the_end(self):
        for _ in range(5):
            some = [subprocess.Popen([CARREL, "run", "--workspace", self.ws, *FAILING, "--", "true"],
                                     stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(4)]
            self.assertEqual([125] * 4, [process.wait(timeout=PATIENCE) for process in some])
        self.ok("--", "true")
        self.assertEqual("data\n", self.ok("--ro", f"{self.data}:/data", "--", "cat", "/data/file"))
        self.assertEqual("data\n", read(f"{self.data}/file"))


if __name__ == "__main__":
    unittest.main()
