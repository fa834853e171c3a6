#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""A full disk: what cannot be made is named, nothing half-made is left, and output is not lost in silence."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, CarrelTest, carrel, mount, private_mounts, reap_until_alone  # noqa: E402


class FullDisk(CarrelTest):
    def on_full(self, *args, inodes=2, **kwargs):
        """Runs carrel with self.ws on a file system with room for `inodes` files in all, its root being one."""
        def become_full():
            private_mounts()
            mount("tmpfs", self.ws, "tmpfs", f"size=64k,nr_inodes={inodes},mode=755")

        return carrel(*args, preexec_fn=become_full, **kwargs)

    def test_a_workspace_with_no_room_for_the_mount_points(self):
        done = self.on_full("run", "--workspace", self.ws, "--", "true")
        self.one_line(done, "No space left")
        self.assertEqual([], reap_until_alone())

    def test_a_new_workspace_with_no_room(self):
        done = self.on_full("run", "--create", "--workspace", f"{self.ws}/new", "--", "true", inodes=1)
        self.one_line(done, "No space left", "new")

    def test_at_no_number_of_free_inodes_anything_else_happens(self):
        """Room for 0, 1, 2 … mount points: refused in words until there is room for all, then it works."""
        worked = False
        for inodes in range(1, 40):
            done = self.on_full("run", "--workspace", self.ws, "--", "echo", "ran", inodes=inodes)
            if done.returncode == 0:
                self.assertEqual("ran\n", done.stdout)
                worked = True
            else:
                self.assertFalse(worked, f"fails with {inodes} inodes though fewer were enough")
                self.one_line(done, "No space left")
                self.assertEqual("", done.stdout)
        self.assertTrue(worked)

    def test_what_was_made_before_the_disk_was_full_is_taken_away_again(self):
        script = f"{CARREL} run --workspace {self.ws} -- true 2>/dev/null; echo $?; ls -A {self.ws}"
        done = self.on_full("-c", script, binary="/bin/sh", inodes=5)
        self.assertEqual("125\n", done.stdout, "status, then what is left in the workspace")

    def test_a_command_that_fills_the_disk_gets_the_error_itself(self):
        done = self.on_full("run", "--workspace", self.ws, "-c", "head -c 1M /dev/zero > /big; echo status $?",
                            inodes=100)
        self.assertEqual("status 1\n", done.stdout)
        self.assertIn("No space left", done.stderr)

    def test_a_full_disk_for_the_output(self):
        for options in ([], ["--json"], ["--max-output", "1M"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = self.run_in(*options, "--", "echo", "lost", stdout=full)
            self.assertEqual(125, done.returncode, options)
            self.assertIn("No space left", done.stderr, options)

    def test_explain_and_doctor_on_a_full_disk_for_the_output(self):
        for args in (["run", "--explain", "--workspace", self.ws, "--", "true"], ["doctor"], ["--help"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = carrel(*args, stdout=full)
            self.assertNotEqual(0, done.returncode, args)


if __name__ == "__main__":
    unittest.main()
