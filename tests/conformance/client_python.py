#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 90
"""The Python package, built and installed into an environment of its own, against a real daemon: what it does, what it does where things
go wrong, are large or many, and that it covers the whole interface."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from clienttest import SRC, example, run, surface  # noqa: E402
from venvtest import VENV, VenvTest  # noqa: E402


class Package(VenvTest):
    def test_the_sync_half_is_made_of_the_async_one(self):
        run(["python3", f"{SRC}/clients/python/tools/make_sync.py", "--check"])

    def test_methods_and_operations_are_the_same(self):
        asked = json.loads(self.python("surface.py", f"{SRC}/docs/openapi.json"))
        self.assertEqual([], surface("python", asked))
        # ... and the comparison finds what is not.
        self.assertTrue(surface("python", {**asked, "Carrel.more": "getHost"}))
        self.assertTrue(surface("python", {**asked, "Carrel.host": "getHealth"}))
        self.assertTrue(surface("python", {name: operation for name, operation in asked.items() if name != "Files.rm"}))

    def test_every_code_of_the_documentation_has_a_class(self):
        with open(f"{SRC}/docs/errors.md", encoding="utf-8") as file:
            text = file.read().split("## Over HTTP", 1)[1].split("## For code", 1)[0]
        rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ") and line.split("|")[1].strip().isdigit()]
        codes = {code for row in rows for code in row.replace("`", "").replace(",", " ").split()}
        self.assertGreater(len(codes), 50)
        known = json.loads(self.python("-c", "import json, carrel.errors; print(json.dumps(list(carrel.errors.BY_CODE)))"))
        self.assertEqual(codes - set(known), set())

    def test_it_does_against_a_daemon_what_it_says(self):
        self.run_tests("test_client", "-W", "error::ResourceWarning")

    def test_what_goes_wrong_is_large_slow_or_many(self):
        self.run_tests("test_rough", timeout=400)

    def test_the_examples_do_what_they_say(self):
        for name in ("plain", "asyncio_many"):
            with self.subTest(example=name):
                example([f"{VENV}/bin/python"], f"{SRC}/examples/{name}.py", env=self.environment())


if __name__ == "__main__":
    unittest.main()
