#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Without `--workspace`: the current directory at /work (or `--at`) on an empty root; and `--cwd`."""
import os
import unittest

from carreltest import ROOT, CarrelTest, carrel, read, tree, write


class DirectoryAtWork(CarrelTest):
    def here(self, *args, **kwargs):
        return carrel("run", *args, cwd=self.path("repo"), **kwargs)

    def setUp(self):
        super().setUp()
        os.makedirs(self.path("repo", "bin"))
        os.makedirs(self.path("repo", "etc"))
        write(self.path("repo", "bin", "tool"), "#!/bin/sh\necho tool\n")
        os.chmod(self.path("repo", "bin", "tool"), 0o755)
        write(self.path("repo", "etc", "conf"), "mine\n")

    def test_a_directory_with_its_own_bin_and_etc_is_usable_as_it_is(self):
        before = tree(self.path("repo"))
        shown = self.succeeded(self.here("-c", "pwd; ls; cat etc/conf; bin/tool"))
        self.assertEqual("/work\nbin\netc\nmine\ntool\n", shown)
        self.assertEqual(before, tree(self.path("repo")), "no reserved names are made in it")

    def test_it_is_writable_and_files_belong_to_its_owner(self):
        owners = [(os.getuid(), os.getgid())] + ([(12345, 23456)] if ROOT else [])
        for uid, gid in owners:
            os.chown(self.path("repo"), uid, gid)
            self.succeeded(self.here("-c", f"mkdir d{uid}; echo x > d{uid}/f"))
            st = os.stat(self.path("repo", f"d{uid}", "f"))
            self.assertEqual((uid, gid), (st.st_uid, st.st_gid))

    def test_the_root_around_it_is_empty(self):
        shown = set(self.succeeded(self.here("--", "ls", "-A", "/")).split())
        self.assertFalse(shown & {"home", "root", "var", "srv", "opt", "mnt", "run", "boot", "sys"}, shown)
        self.assertLessEqual({"work", "usr", "bin", "etc", "proc", "dev", "tmp"}, shown)
        done = self.here("-c", "cat /work/../etc/conf")
        self.assertNotEqual("mine\n", done.stdout)

    def test_its_parent_and_siblings_are_not_there(self):
        write(self.path("sibling"), "secret")
        done = self.here("-c", f"cat ../sibling; cat {self.path('sibling')}; ls /work/..")
        self.assertNotIn("secret", done.stdout)

    def test_at_puts_it_elsewhere(self):
        for at in ("/src", "/home/me/project", "/work/deep", "/opt"):
            with self.subTest(at=at):
                self.assertEqual(f"{at}\nmine\n", self.succeeded(self.here("--at", at, "-c", "pwd; cat etc/conf")))

    def test_at_refuses_what_is_no_place(self):
        for at in ("relative", "", "/", "/usr", "/usr/x", "/proc", "/etc/x", "/dev", "/bin", "/a/../usr", "/lib/x"):
            with self.subTest(at=at):
                done = self.here("--at", at, "--", "true")
                self.one_line(done)

    def test_at_with_a_workspace_is_refused(self):
        self.refused("--workspace", self.ws, "--at", "/src", words=("--at",))

    def test_cwd_is_where_the_command_starts(self):
        os.makedirs(f"{self.ws}/a/b")
        self.assertEqual("/a/b\n/a/b\n", self.ok("--cwd", "/a/b", "-c", "pwd; echo $PWD"))
        self.assertEqual("/usr/bin\n", self.ok("--cwd", "/usr/bin", "--", "pwd"))
        self.assertEqual("/tmp\n", self.ok("--cwd", "/tmp", "--", "pwd"))
        self.assertEqual("/work/bin\n", self.succeeded(self.here("--cwd", "/work/bin", "--", "pwd")))

    def test_cwd_is_resolved_inside(self):
        os.symlink("/tmp", f"{self.ws}/link")
        os.symlink(self.dir, f"{self.ws}/outside")
        self.assertEqual("/tmp\n", self.ok("--cwd", "/link", "--", "pwd", "-P"))
        self.one_line(self.run_in("--cwd", "/outside", "--", "true"), "/outside")

    def test_cwd_that_is_no_directory_is_refused(self):
        write(f"{self.ws}/file")
        for cwd in ("/none", "/file", "", "/proc/self/fd/9", "/" + "x" * 300, self.dir):
            with self.subTest(cwd=cwd):
                self.one_line(self.run_in("--cwd", cwd, "--", "true"))

    def test_a_directory_that_is_gone_is_refused(self):
        gone = self.path("gone")
        os.mkdir(gone)
        done = carrel("run", "--", "true", cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        self.one_line(done)

    def test_the_current_directory_is_the_one_shown(self):
        os.symlink(self.path("repo"), self.path("link"))
        done = carrel("run", "--", "cat", "etc/conf", cwd=self.path("link"))
        self.assertEqual("mine\n", self.succeeded(done))
        self.succeeded(self.here("-c", "echo new > /work/new"))
        self.assertEqual("new\n", read(self.path("repo", "new")))


if __name__ == "__main__":
    unittest.main()
