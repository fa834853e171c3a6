#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""`--ro SRC[:DST]` and `--rw SRC[:DST]`: what was named and no more, writable only when said."""
import os
import stat
import unittest

from carreltest import ROOT, CarrelTest, mount, private_mounts, read, tree, write


class ExtraMounts(CarrelTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        os.makedirs(f"{self.data}/sub")
        write(f"{self.data}/f", "data\n")
        write(self.path("secret"), "secret\n")

    def test_ro_is_seen_and_cannot_be_changed(self):
        before = tree(self.data)
        self.assertEqual("data\n", self.ok("--ro", f"{self.data}:/data", "--", "cat", "/data/f"))
        for attempt in ("echo x > /data/f", "echo x > /data/new", "rm /data/f", "chmod 600 /data/f",
                        "mkdir /data/d", "touch /data/f", "echo x > /data/sub/f", "mv /data/f /data/g"):
            done = self.run_in("--ro", f"{self.data}:/data", "-c", attempt)
            self.assertNotEqual(0, done.returncode, attempt)
            self.assertIn("Read-only file system", done.stderr, attempt)
        self.assertEqual(before, tree(self.data))

    def test_without_a_target_it_is_where_it_is_outside(self):
        self.assertEqual("data\n", self.ok("--ro", self.data, "--", "cat", f"{self.data}/f"))
        done = self.run_in("--ro", self.data, "--", "cat", self.path("secret"))
        self.assertNotEqual(0, done.returncode, "the parent is not shown")

    def test_rw_writes_through_and_keeps_the_owner(self):
        owners = [(os.getuid(), os.getgid())] + ([(12345, 23456)] if ROOT else [])
        for uid, gid in owners:
            os.chown(self.data, uid, gid)
            self.ok("--rw", f"{self.data}:/data", "-c", f"mkdir /data/d{uid}; echo new > /data/d{uid}/g")
            st = os.stat(f"{self.data}/d{uid}/g")
            self.assertEqual((uid, gid), (st.st_uid, st.st_gid))
            self.assertEqual("new\n", read(f"{self.data}/d{uid}/g"))

    def test_single_files_can_be_shown(self):
        self.assertEqual("data\n", self.ok("--ro", f"{self.data}/f:/one/file", "--", "cat", "/one/file"))
        self.assertNotEqual(0, self.run_in("--ro", f"{self.data}/f:/f", "-c", "echo x > /f").returncode)
        self.ok("--rw", f"{self.data}/f:/f", "-c", "echo changed > /f")
        self.assertEqual("changed\n", read(f"{self.data}/f"))

    def test_several_and_nested_ones_apply_in_order(self):
        os.mkdir(self.path("inner"))
        write(self.path("inner", "i"), "inner\n")
        shown = self.ok("--ro", f"{self.data}:/a", "--rw", f"{self.path('inner')}:/a/sub", "-c",
                        "cat /a/f /a/sub/i; echo w > /a/sub/w; (echo no > /a/no) 2>/dev/null || echo kept")
        self.assertEqual("data\ninner\nkept\n", shown)
        self.assertEqual("w\n", read(self.path("inner", "w")))

    def test_a_colon_in_the_source_can_be_told_from_the_separator(self):
        odd = self.path("a:b")
        os.mkdir(odd)
        write(f"{odd}/f", "odd\n")
        self.assertEqual("odd\n", self.ok("--ro", odd, "--", "cat", f"{odd}/f"))
        self.assertEqual("odd\n", self.ok("--ro", f"{odd}:/c", "--", "cat", "/c/f"))

    def test_relative_sources_are_the_callers(self):
        self.assertEqual("data\n", self.ok("--ro", "data:/d", "--", "cat", "/d/f", cwd=self.dir))

    def test_a_mount_point_lies_where_the_workspace_says_and_nowhere_else(self):
        os.symlink(self.path("outside"), f"{self.ws}/link")
        os.mkdir(self.path("outside"))
        before = tree(self.path("outside"))
        done = self.run_in("--ro", f"{self.data}:/link/d", "--", "true")
        self.one_line(done)
        self.assertEqual(before, tree(self.path("outside")))
        done = self.run_in("--ro", f"{self.data}:/link", "--", "true")
        self.one_line(done, "link")

    def test_reserved_places_are_refused(self):
        for target in ("/usr", "/usr/local", "/proc", "/proc/1", "/dev", "/etc", "/etc/passwd", "/bin",
                       "/", "/lib/x", "/./usr", "/a/../usr", "relative", "//proc//self"):
            with self.subTest(target=target):
                self.refused("--workspace", self.ws, "--ro", f"{self.data}:{target}")

    def test_sources_that_cannot_be_shown_are_refused(self):
        os.mkfifo(self.path("fifo"))
        for source, word in ((self.path("none"), "none"), ("", "--ro"), (":/x", "--ro"),
                             (f"{self.data}:", "--ro"), ("/proc", "/proc"), ("/", "--ro")):
            with self.subTest(source=source):
                self.refused("--workspace", self.ws, "--ro", source if ":" in source or not source
                             else f"{source}:/x")

    def test_suid_and_devices_mean_nothing_there(self):
        write(f"{self.data}/suid", "#!/bin/sh\nid -u\n")
        os.chmod(f"{self.data}/suid", 0o4755)
        shown = self.ok("--rw", f"{self.data}:/data", "--", "grep", " /data ", "/proc/self/mountinfo")
        self.assertIn("nosuid", shown)
        self.assertIn("nodev", shown)
        self.assertTrue(os.stat(f"{self.data}/suid").st_mode & stat.S_ISUID, "left as it was")

    def test_ro_holds_for_mounts_below_the_source(self):
        def below():
            private_mounts()
            mount("tmpfs", f"{self.data}/sub", "tmpfs")
            write(f"{self.data}/sub/g", "below\n")
        shown = self.ok("--ro", f"{self.data}:/data", "-c",
                        "cat /data/sub/g; (echo x > /data/sub/new) 2>/dev/null || echo kept", preexec_fn=below)
        self.assertEqual("below\nkept\n", shown)


if __name__ == "__main__":
    unittest.main()
