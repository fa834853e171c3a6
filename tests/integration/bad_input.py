#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Bad input: one line that says what to do, exit 125, nothing mounted, created or left running."""
import os
import shutil
import socket
import unittest

from carreltest import ROOT, CarrelTest, carrel, write

MUST_BE_EMPTY = [name for name in ("usr", "bin", "sbin", "lib", "lib64", "etc", "proc", "dev")
                 if os.path.exists("/" + name)]
MUST_BE_DIRECTORY = [*MUST_BE_EMPTY, "tmp", ".cache"]


class BadInput(CarrelTest):
    def test_a_workspace_that_is_missing(self):
        for name in (self.path("none"), self.path("none", "deeper"), "", "/dev/null", "/" + "x" * 300, "/x" * 3000):
            with self.subTest(name=name[:40]):
                self.refused("--workspace", name)
        done = carrel("run", "--create", "--workspace", self.path("none", "deeper"), "--", "true")
        self.one_line(done, "none")
        self.assertFalse(os.path.exists(self.path("none")), "parents are not made")

    def test_a_workspace_that_is_no_directory(self):
        write(self.path("file"))
        os.mkfifo(self.path("fifo"))
        os.symlink("nowhere", self.path("dangling"))
        os.symlink("loop", self.path("loop"))
        for name in ("file", "fifo", "dangling", "loop"):
            with self.subTest(name=name):
                self.refused("--workspace", self.path(name), words=(name,))
                self.refused("--workspace", self.path(name), "--create", words=(name,))

    def test_a_workspace_that_may_not_be_read(self):
        if not ROOT:
            os.chmod(self.ws, 0)
            done = carrel("run", "--workspace", self.ws, "--", "true")
            os.chmod(self.ws, 0o755)
            self.one_line(done, self.ws)
            self.refused("--workspace", "/root", words=("/root",))
            self.refused("--workspace", "/etc", words=("/etc",))
        else:
            # Nobody inside could use it: it says who owns it and that the mode shuts him out.
            os.chmod(self.ws, 0)
            done = carrel("run", "--workspace", self.ws, "--", "true")
            os.chmod(self.ws, 0o755)
            self.one_line(done, self.ws)

    def test_the_hosts_own_root_is_no_workspace(self):
        self.refused("--workspace", "/")

    def obstacles(self):
        def fill(path):
            os.mkdir(path)
            write(f"{path}/something")

        def sock(path):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)

        yield "symlink", lambda path: os.symlink("/usr", path)
        yield "symlink to an empty directory", lambda path: os.symlink(self.path("empty"), path)
        yield "dangling symlink", lambda path: os.symlink("nowhere", path)
        yield "file", lambda path: write(path, "x")
        yield "FIFO", os.mkfifo
        yield "socket", sock
        yield "full directory", fill

    def test_a_system_name_that_is_not_an_empty_directory(self):
        os.mkdir(self.path("empty"))
        for what, make in self.obstacles():
            for name in MUST_BE_EMPTY if what == "full directory" else MUST_BE_DIRECTORY:
                with self.subTest(what=what, name=name):
                    ws = self.path("w")
                    os.mkdir(ws)
                    make_in(ws, lambda make=make, name=name: make(name))
                    self.refused("--workspace", ws, words=(name,))
                    shutil.rmtree(ws)

    def test_the_hint_names_the_way_out(self):
        os.mkdir(f"{self.ws}/bin")
        write(f"{self.ws}/bin/tool")
        done = self.refused("--workspace", self.ws, words=("bin",))
        self.assertRegex(done.stderr, r"--at|/work|without --workspace|move|remove|rename|empty")

    def test_a_policy_that_forbids(self):
        policy = write(self.path("policy.json"), '{"network": "none"}')
        self.refused("--workspace", self.ws, "--policy", policy, "--net", "host", words=("--net",))

    def test_create_makes_nothing_when_something_else_is_wrong(self):
        new = self.path("new")
        for options in (["--timeout", "never"], ["--net", "some"], ["--ro", f"{self.path('none')}:/x"],
                        ["--policy", self.path("none")], ["--stdin", self.path("none")], ["--level", "none"],
                        ["--env", "bad"]):
            with self.subTest(options=options):
                self.refused("--workspace", new, "--create", *options)

    def test_a_command_that_does_not_exist_leaves_nothing_running(self):
        done = self.run_in("--", "no-such-command")
        self.one_line(done, "no-such-command", code=127)

    def test_messages_do_not_carry_control_bytes_of_names(self):
        done = carrel("run", "--workspace", self.path("a\x1b[31mb\nc"), "--", "true")
        self.one_line(done)


def make_in(directory, make):
    """Runs make in the directory: a socket's path may not be long."""
    here = os.getcwd()
    os.chdir(directory)
    try:
        make()
    finally:
        os.chdir(here)


if __name__ == "__main__":
    unittest.main()
