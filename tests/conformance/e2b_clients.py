#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 90
"""E2B's packages as PyPI and npm have them, newest, unmodified, on a fresh daemon: every public method, in Python, with asyncio and in
JavaScript; by the variables for addresses, and by E2B_DOMAIN over HTTPS."""
import unittest

from e2btest import HERE, Sdk, SdkByDomain, node, python, script


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


if __name__ == "__main__":
    unittest.main()
