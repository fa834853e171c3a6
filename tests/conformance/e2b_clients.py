#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 90
"""E2B's packages as PyPI and npm have them, newest, unmodified, on a fresh daemon: every public method, in Python, with asyncio and in
JavaScript; by the variables for addresses, and by E2B_DOMAIN over HTTPS."""
import os
import re
import unittest

from e2btest import HERE, Sdk, SdkByDomain, node, python, script


LONG = os.environ.get("LONG")


class Programs:
    def test_python(self):
        self.assertRegex(self.drive(*python("e2b"), f"{HERE}/drive.py"), r"Ran \d+ tests")

    def test_python_with_asyncio(self):
        self.assertRegex(self.drive(*python("e2b"), f"{HERE}/drive_async.py"), r"Ran \d+ tests")

    def test_javascript(self):
        program = node("e2b")
        self.assertIn("all passed", self.drive(*program, script("drive.mjs")))


class Clients(Programs, Sdk):
    pass


class ClientsByDomain(Programs, SdkByDomain):
    pass


class Streams(Sdk):
    def memory(self):
        """The most that the front has had, in KiB."""
        with open(f"/proc/{self.daemon.front_pid()}/status", encoding="ascii") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])

    def test_large_files_and_a_storm(self):
        before = self.memory()
        self.assertIn("done", self.drive(*python("e2b"), f"{HERE}/streams.py"))
        self.assertLess(self.memory() - before, 48 * 1024, "of 100 MB")

    @unittest.skipUnless(LONG, "LONG")
    def test_ten_minutes_of_printing(self):
        self.assertIn("done", self.drive(*python("e2b"), f"{HERE}/programs/stream.py", STREAM_LINES="12000", timeout=900))


if __name__ == "__main__":
    unittest.main()
