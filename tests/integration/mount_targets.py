#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Where `--ro` and `--rw` put things, and which directories are given away as a workspace."""
import os
import unittest

from carreltest import CarrelTest, carrel, write


class MountTargets(CarrelTest):
    def setUp(self):
        super().setUp()
        for name in ("a", "b"):
            os.makedirs(self.path(name, "x"))
            write(self.path(name, "x", "file"), f"{name}\n")
            write(self.path(name, "file"), f"{name}\n")
        self.a, self.b = self.path("a"), self.path("b")

    def test_one_that_would_hide_an_earlier_one_is_refused(self):
        for first, second in (("--ro", "--rw"), ("--rw", "--ro")):
            for outer in ("/data", "/data/"):
                options = [first, f"{self.a}:/data/x", second, f"{self.b}:{outer}"]
                self.refused("--workspace", self.ws, *options, words=("/data/x",))
                self.refused(*options, words=("/data/x",), cwd=self.ws)
        self.refused("--ro", f"{self.a}:/work", words=("/work",), cwd=self.ws)

    def test_the_outer_one_first_shows_both(self):
        for place in (["--workspace", self.ws], []):
            done = carrel("run", *place, "--rw", f"{self.b}:/data", "--ro", f"{self.a}:/data/x",
                          "-c", "cat /data/file /data/x/file; echo w > /data/w; echo no > /data/x/no", cwd=self.ws)
            self.assertEqual("b\na\n", done.stdout)
            self.assertIn("Read-only", done.stderr)
            self.assertEqual({"x", "file", "w"}, set(os.listdir(self.b)))

    def test_neighbours_with_a_common_beginning_are_no_conflict(self):
        self.assertEqual("a\nb\n", self.ok("--ro", f"{self.a}:/data/xy", "--ro", f"{self.b}:/data/x",
                                           "-c", "cat /data/xy/file /data/x/file"))

    def test_a_slash_at_the_end_is_accepted(self):
        for target in ("/data/", "/data///", "/deep/down/"):
            for place in (["--workspace", self.ws], []):
                done = carrel("run", *place, "--ro", f"{self.a}/:{target}", "--", "cat", f"{target}file", cwd=self.ws)
                self.assertEqual("a\n", self.succeeded(done))
        self.assertEqual("a\n", self.ok("--ro", f"{self.a}/", "--", "cat", f"{self.a}/file"))
        self.assertEqual("/src\n", self.succeeded(carrel("run", "--at", "/src/", "--", "pwd", cwd=self.a)))

    def test_what_stands_where_a_directory_should_be_is_named(self):
        kinds = {"a symlink": lambda path: os.symlink(self.b, path), "a file": write, "a FIFO": os.mkfifo}
        for kind, plant in kinds.items():
            for place in ("data", "deep/data", "deep"):
                with self.subTest(kind=kind, place=place):
                    path = os.path.join(self.ws, place)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    plant(path)
                    self.refused("--workspace", self.ws, "--ro", f"{self.a}:/{place}", words=(f"'{place}'", kind, "rename it"))
                    self.refused("--workspace", self.ws, "--ro", f"{self.a}:/{place}/x", words=(f"'{place}'", kind))
                    os.unlink(path)
                    if place.startswith("deep/"):
                        os.rmdir(os.path.dirname(path))
        os.mkdir(os.path.join(self.ws, "data"))
        self.refused("--workspace", self.ws, "--ro", f"{self.a}/file:/data", words=("'data'", "a directory"))

    def test_directories_of_the_system_are_not_given_away(self):
        link = self.path("link")
        for place in ("/", "/etc", "/usr", "/dev", "/run", "/var", "/proc", "/proc/self", "/proc/self/fd"):
            with self.subTest(place=place):
                self.refused(cwd=place, words=("belongs to the system", "--workspace"))
                self.refused("--workspace", place, "--create", words=("belongs to the system",))
                os.symlink(place, link)
                self.refused("--workspace", link, words=("belongs to the system",))
                os.unlink(link)


if __name__ == "__main__":
    unittest.main()
