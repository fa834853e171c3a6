# SPDX-License-Identifier: Apache-2.0
"""The environment of Google's Agent Development Kit, against a real daemon. CARREL names the program."""
import os
import unittest
from pathlib import Path

from google.adk.environment import BaseEnvironment

import carrel
from carrel.adk import CarrelEnvironment


class Environment(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.local = carrel.Local()
        self.addCleanup(self.local.close)

    async def test_it_is_one_of_theirs(self):
        environment = CarrelEnvironment("adk", url=self.local.socket)
        self.assertIsInstance(environment, BaseEnvironment)
        await environment.initialize()
        self.assertTrue(environment.is_initialized)
        done = await environment.execute("pwd; echo err >&2; exit 3")
        self.assertEqual((done.exit_code, done.stdout, done.stderr, done.timed_out), (3, f"{environment.working_dir}\n", "err\n", False))
        self.assertTrue((await environment.execute("sleep 100", timeout=0.3)).timed_out)
        much = await environment.execute("seq 1000000")
        self.assertTrue(much.stdout.startswith("1\n2\n") and "left out" in much.stdout and much.stdout.endswith("1000000\n"))
        await environment.close()

    async def test_files_stay_when_it_is_closed(self):
        environment = CarrelEnvironment("adk", url=self.local.socket)
        await environment.write_file(Path("a/b.txt"), "text")
        await environment.write_file(Path("/a/c"), b"\xff")
        self.assertEqual((await environment.read_file(Path("/a/b.txt")), await environment.read_file(Path("a/c"))), (b"text", b"\xff"))
        with self.assertRaises(FileNotFoundError):
            await environment.read_file(Path("none"))
        await environment.close()
        await environment.close()
        self.assertFalse(environment.is_initialized)
        again = CarrelEnvironment("adk", url=self.local.socket)
        self.assertEqual(await again.read_file(Path("a/b.txt")), b"text")
        await again.close()


if __name__ == "__main__":
    unittest.main()
