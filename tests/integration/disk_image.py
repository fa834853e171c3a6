#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# AS: root user
"""`--disk=image:SIZE`: the workspace lives in a file system image beside it, and the kernel keeps the limit."""
import glob
import os
import signal
import subprocess
import time
import unittest

from carreltest import CARREL, ROOT, CarrelTest, carrel, check, children, libc, private_mounts

MIB = 1 << 20
IMAGE = ("--disk=image:64M",)


def loops():
    """Loop devices in use."""
    return {os.path.dirname(path) for path in glob.glob("/sys/block/loop*/loop/backing_file")}


@unittest.skipIf(ROOT, "only for others")
class NotForOthers(CarrelTest):
    def test_an_ordinary_user_is_told_what_to_do(self):
        self.refused("--workspace", self.ws, *IMAGE, words=("root", "--disk"))


@unittest.skipUnless(ROOT, "only root may mount an image")
class DiskImage(CarrelTest):
    def setUp(self):
        super().setUp()
        os.chown(self.ws, 54321, 54321)
        self.image = self.ws + ".carrel-img"
        self.before = loops()

    def tearDown(self):
        try:
            deadline = time.monotonic() + 10
            while loops() - self.before and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(set(), loops() - self.before, "loop devices left")
            with open("/proc/self/mountinfo", encoding="utf-8") as file:
                self.assertNotIn("carrel-img", file.read())
        finally:
            super().tearDown()

    def test_the_kernel_keeps_the_limit(self):
        result, done = self.json(*IMAGE, "-c", "head -c 200M /dev/zero >big")
        self.assertEqual((1, "exit"), (done.returncode, result["reason"]))
        self.assertIn("No space left", result["stderr"])
        self.assertEqual("image", result["disk"]["method"])
        self.assertEqual(0, result["disk"]["overshoot_bytes"])
        self.assertGreater(result["usage"]["added_bytes"], 40 * MIB)
        self.assertLessEqual(result["usage"]["added_bytes"], 64 * MIB)
        self.assertLess(os.stat(self.image).st_blocks * 512, 65 * MIB)
        # Told once each, by the kernel's word and by the command's; never to give --disk more, or a larger /tmp.
        self.assertEqual({"disk image 64M"}, {denial["rule"] for denial in result["denials"]})
        for denial in result["denials"]:
            self.assertIn("new workspace with --disk=image:128M", denial["fix"])

    def test_a_full_image_is_told_though_room_was_made_again(self):
        result, _ = self.json(*IMAGE, "-c", "cat /dev/zero >big; rm big")
        self.assertEqual(["disk image 64M"], [denial["rule"] for denial in result["denials"]])

    def test_fallocate_works_in_it_and_is_bounded(self):
        self.assertEqual("ok\n", self.ok(*IMAGE, "-c", "fallocate -l 10M f && echo ok"))
        self.assertEqual(1, self.run_in(*IMAGE, "-c", "fallocate -l 100M g").returncode)

    def test_files_stay_in_the_image_and_belong_to_the_user_inside(self):
        self.ok(*IMAGE, "-c", "echo hello >file; mkdir -p d/e")
        self.assertEqual([], os.listdir(self.ws))
        self.assertEqual("hello\nuser\n", self.ok(*IMAGE, "-c", "cat file; stat -c %U file"))
        self.assertEqual("user 755\n", self.ok(*IMAGE, "-c", "stat -c '%U %a' /"))
        st = os.stat(self.image)
        self.assertEqual((0x6FFFFFFF, 0o100000, 64 * MIB), (st.st_uid, st.st_mode, st.st_size))

    def test_the_size_is_fixed(self):
        self.ok(*IMAGE, "--", "true")
        for other in ("32M", "128M"):
            self.refused("--workspace", self.ws, f"--disk=image:{other}", words=("image:64M",))
        self.refused("--workspace", self.path("new"), "--create", "--disk=image:1M", words=("at least 8M",))

    def test_only_an_image_of_carrels_is_mounted(self):
        self.ok(*IMAGE, "--", "true")
        copy = self.path("copy")
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        os.chmod(copy, 0)
        os.chown(copy, 0x6FFFFFFF, 0x6FFFFFFF)

        def refused(*words):
            self.refused("--workspace", self.ws, *IMAGE, words=words)
        os.chmod(self.image, 0o644)
        refused("0000")
        os.chmod(self.image, 0)
        os.link(self.image, self.path("second"))
        refused("one name")
        os.unlink(self.path("second"))
        os.chown(self.image, 54321, 0)
        refused("uid")
        os.rename(copy, self.image)
        refused("not made by Carrel")
        os.unlink(self.image)
        os.symlink("/etc/passwd", self.image)
        refused(self.image)
        os.unlink(self.image)
        os.mkfifo(self.image, 0o600)
        refused(self.image)

    def test_other_writable_places_are_not_in_it(self):
        os.mkdir(self.path("more"))
        self.refused("--workspace", self.ws, *IMAGE, "--rw", self.path("more") + ":/more", words=("--rw", "--ro", "--disk SIZE"))
        self.assertFalse(os.path.exists(self.image))
        self.ok(*IMAGE, "--ro", self.path("more") + ":/more", "--", "true")

    def test_without_the_option_its_files_are_not_taken_for_lost(self):
        self.ok(*IMAGE, "-c", "echo hello >file")
        for options in ((), ("--disk", "64M"), ("--explain",), ("--level", "dir")):
            self.refused("--workspace", self.ws, *options, words=(self.image, "--disk=image:64M"))
        self.refused(cwd=self.ws, words=(self.image, "--disk=image:64M"))
        self.assertEqual([], os.listdir(self.ws))
        os.rmdir(self.ws)
        self.refused("--workspace", self.ws, "--create", words=(self.image, "--disk=image:64M"))
        self.assertFalse(os.path.exists(self.ws))

    def test_what_others_put_beside_a_workspace_stops_nobody(self):
        with open(self.image, "w", encoding="ascii"):
            os.chown(self.image, 54321, 54321)
        self.ok("--", "true")

    def test_a_start_that_fails_leaves_nothing(self):
        new = self.path("new")
        for options in (("--ro", "/nonexistent:/x"), ("--cwd", "/nonexistent")):
            for workspace in (("--workspace", new, "--create"), ("--workspace", self.ws)):
                self.refused(*workspace, *IMAGE, *options)
                self.assertEqual(["ws"], os.listdir(self.dir), options)
                self.assertEqual([], os.listdir(self.ws))

    def test_a_start_that_fails_does_not_take_what_was_there(self):
        self.ok(*IMAGE, "-c", "echo hello >file")
        self.one_line(self.run_in(*IMAGE, "--ro", "/nonexistent:/x", "--", "true"), "/nonexistent")
        self.assertEqual("hello\n", self.ok(*IMAGE, "-c", "cat file"))

    def test_what_is_in_a_directory_is_not_covered_up(self):
        with open(self.path("ws", "precious"), "w", encoding="ascii"):
            pass
        self.refused("--workspace", self.ws, *IMAGE, words=("not empty",))

    def test_it_goes_with_a_workspace_only(self):
        self.refused(*IMAGE, cwd=self.ws, words=("--workspace",))

    def test_two_at_once_do_not_harm_it(self):
        first = subprocess.Popen([CARREL, "run", "--workspace", self.ws, *IMAGE, "-c", "echo up; sleep 8"],
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual("up\n", first.stdout.readline())
        self.one_line(self.run_in(*IMAGE, "--timeout", "100ms", "--", "true"), "another run")
        self.assertIsNone(first.poll(), "it waits no longer than its own deadline")
        self.one_line(self.run_in(*IMAGE, "--", "true"), "another run")
        self.assertEqual(0, first.wait())
        first.stdout.close()
        self.ok(*IMAGE, "--", "true")  # as soon as the first has gone

    def test_a_kill_at_any_moment_leaves_no_device_and_a_usable_image(self):
        for delay in (0.001, 0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1):
            run = subprocess.Popen([CARREL, "run", "--workspace", self.ws, *IMAGE, "-c", "echo x >>log; sleep 60"])
            time.sleep(delay)
            run.send_signal(signal.SIGKILL)
            run.wait()
        self.assertEqual("fine\n", self.ok(*IMAGE, "-c", "touch after && echo fine"))

    def test_files_is_kept_in_an_image_too(self):
        done = self.run_in(*IMAGE, "--files", "500", "-c", "i=0; while [ $i -lt 7000 ]; do : >f$i; i=$((i+1)); done; sleep 3")
        self.assertEqual(123, done.returncode, done.stderr)

    def test_more_files_than_allowed_are_told_though_it_ended_first(self):
        result, _ = self.json(*IMAGE, "--files", "5", "-c", "mkdir d && cd d && touch $(seq 200)")
        self.assertEqual([("add more files", "files 5")], [(one["what"], one["rule"]) for one in result["denials"]])

    def test_without_the_program_that_makes_it_its_package_is_named(self):
        def hide():
            private_mounts()
            for path in ("/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"):
                if os.path.lexists(path):
                    check(libc.mount(b"/dev/null", path.encode(), None, 4096, None), "hide mkfs")
        done = carrel("run", "--workspace", self.ws, *IMAGE, "--", "true", preexec_fn=hide)
        self.one_line(done, "e2fsprogs")
        self.assertEqual([], children())


if __name__ == "__main__":
    unittest.main()
