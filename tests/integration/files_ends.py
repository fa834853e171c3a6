#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""File servers and their sandboxes end while calls are under way."""
import contextlib
import os
import signal
import socket
import unittest

from carreltest import PATIENCE
from filestest import FilesTest, processes_of, snapshot


class Ends(FilesTest):
    def unfinished(self):
        return [path for path in snapshot(self.host) if b".carrel-" in path]

    def begin_upload(self, stack, name, already=0):
        """Half of one, that the file server has begun to write."""
        s = stack.enter_context(socket.socket(socket.AF_UNIX))
        s.settimeout(PATIENCE)
        s.connect(self.daemon.socket)
        s.sendall(f"PUT {self.files.url}/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n".encode() + b"x" * 1000)
        self.until(lambda: len(self.unfinished()) > already, "the file server has not begun")
        return s

    def change_policy(self, number):
        policy = {"policy": {"limits": {"files": number}}}
        self.assertEqual(200, self.daemon.request("PATCH", f"/v1/workspaces/{self.space}", policy).status)
        self.assertEqual(7, self.daemon.execute(self.space, "exit 7")["exit_code"])  # in the next sandbox

    def test_an_upload_outlives_the_sandbox_that_another_policy_ends(self):
        self.files.put("/there", b"x")  # it is awake
        with contextlib.ExitStack() as stack:
            slow = self.begin_upload(stack, "slow")
            self.change_policy(100000)
            self.files.put("/there", b"z")  # by the next file server
            slow.sendall(b"y" * 1000)
            self.assertIn(b" 201 ", slow.recv(4096))
        self.assertEqual(b"x" * 1000 + b"y" * 1000, self.files.get("/slow").bytes)

    def test_who_puts_a_workspace_to_sleep_ends_what_an_earlier_sandbox_has_left(self):
        self.files.put("/there", b"x")
        with contextlib.ExitStack() as stack:
            slow = self.begin_upload(stack, "slow")
            self.change_policy(100000)
            for _ in range(2):  # also when no sandbox lives any more
                self.daemon.post(f"/v1/workspaces/{self.space}/sleep")
            self.until(lambda: len(processes_of(self.daemon, "carrel-files")) <= 2, "it is still at it")  # spare ones
            with contextlib.suppress(OSError):
                slow.sendall(b"y" * 1000)
                self.assertNotIn(b" 201 ", slow.recv(4096))
        self.assertEqual(404, self.files.get("/slow").status)

    def test_what_a_killed_server_has_left_the_next_one_clears_up(self):
        for _ in range(5):
            with contextlib.ExitStack() as stack:
                self.files.put("/there", b"x")
                self.begin_upload(stack, "half")
                for pid in processes_of(self.daemon, "carrel-files"):
                    os.kill(pid, signal.SIGKILL)
                self.until(lambda: self.files.put("/there", b"y").status == 200, "no other one comes")
                self.until(lambda: not self.unfinished(), "half a file is left")

    def test_few_servers_stay_behind_their_sandboxes(self):
        with contextlib.ExitStack() as stack:
            for i in range(8):
                self.files.put("/there", b"x")
                self.begin_upload(stack, f"slow{i}", already=min(i, 4))
                self.change_policy(100000 + i)
            self.assertLessEqual(len(processes_of(self.daemon, "carrel-files")), 4 + 2)  # and the spare one, and the next
        self.until(self.next_one_clears_up, "half a file is left")

    def next_one_clears_up(self):
        """One that begins when nobody is left at work."""
        self.daemon.post(f"/v1/workspaces/{self.space}/sleep")
        self.files.put("/there", b"x")
        return not self.unfinished()


if __name__ == "__main__":
    unittest.main(verbosity=0)
