#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 1200
# TAKES: 200
"""The TypeScript package, packed and installed into a project of its own, against a real daemon: on Node and on Bun, both as npm
brings them, since Debian's Node is older than what the package is for."""
import json
import os
import re
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, TMP  # noqa: E402
from clienttest import SRC, example, run  # noqa: E402

HERE = f"{SRC}/clients/typescript"
PACKAGE = f"{TMP}/typescript"
PROJECT = f"{PACKAGE}/project"  # below it, so that what only tests need (deepagents, types) is found above, and the package in itself alone
NODE = f"{PACKAGE}/node_modules/node/bin/node"
BUN = f"{PACKAGE}/node_modules/bun/bin/bun.exe"
ENV = {**os.environ, "CARREL": CARREL, "OPENAPI": f"{SRC}/docs/openapi.json", "npm_config_update_notifier": "false", "npm_config_fund": "false",
       "npm_config_audit": "false"}


def npm(*args, cwd=PACKAGE):
    return run(["npm", *args], cwd=cwd, env=ENV, timeout=300)


def tsc(*args):
    return run([NODE, f"{PACKAGE}/node_modules/typescript/bin/tsc", *args], cwd=PROJECT, env=ENV)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.copytree(HERE, PACKAGE, ignore=shutil.ignore_patterns("node_modules", "dist"), dirs_exist_ok=True)
        npm("ci")
        npm("pack", "--pack-destination", TMP)
        os.makedirs(PROJECT)
        with open(f"{PROJECT}/package.json", "w", encoding="ascii") as file:
            json.dump({"name": "project", "private": True, "type": "module"}, file)
        npm("install", "--offline", "--omit=peer", f"{TMP}/carrel-0.1.0.tgz", cwd=PROJECT)
        shutil.copytree(f"{HERE}/test", f"{PROJECT}/test")
        for name in ("tsconfig.json", "tsconfig.test.json", "operations.json"):
            shutil.copy(f"{HERE}/{name}", f"{PROJECT}/{name}")

    def node(self, *tests):
        said = run([NODE, "--expose-gc", "--test", "--test-reporter=spec", *(f"test/{name}" for name in tests)], cwd=PROJECT, env=ENV, timeout=600)
        self.assertRegex(said, r"(?m)^ℹ fail 0$")
        self.assertGreater(int(re.search(r"(?m)^ℹ pass (\d+)$", said).group(1)), 0)
        self.assertRegex(said, r"(?m)^ℹ skipped 0$")

    def bun(self, *tests):
        said = run([BUN, "test", "--timeout", "200000", *(f"./test/{name}" for name in tests)], cwd=PROJECT, env=ENV, timeout=600)
        self.assertRegex(said, r"(?m)^ *0 fail$")
        self.assertGreater(int(re.search(r"(?m)^ *(\d+) pass$", said).group(1)), 0)

    def test_it_needs_nothing_at_run_time(self):
        self.assertEqual([name for name in os.listdir(f"{PROJECT}/node_modules") if not name.startswith(".")], ["carrel"])
        self.assertEqual(sorted(os.listdir(f"{PROJECT}/node_modules/carrel")), ["README.md", "dist", "package.json"])

    def test_its_lock_file_names_no_registry(self):
        with open(f"{HERE}/package-lock.json", encoding="utf-8") as file:
            self.assertNotIn("http", re.sub(r'"(url|funding)": *"[^"]*"', "", file.read()))

    def test_who_uses_it_is_typed(self):
        tsc("-p", "tsconfig.test.json")

    def test_its_methods_are_the_operations_of_the_interface(self):
        self.node("surface.test.js")

    def test_the_client_on_node(self):
        self.node("client.test.js")

    def test_the_client_on_bun(self):
        self.bun("client.test.js")

    def test_what_goes_wrong_on_node(self):
        self.node("trouble.test.js")

    def test_what_goes_wrong_on_bun(self):
        self.bun("trouble.test.js")

    def test_the_examples_of_its_readme(self):
        self.node("readme.test.js")

    def test_the_programs_among_the_examples(self):
        for name in ("plain.mjs", "deepagents_agent.mjs", "offline_model.mjs"):
            shutil.copy(f"{SRC}/examples/{name}", f"{PROJECT}/{name}")  # beside what they import
        for program in (NODE, BUN):
            for name in ("plain", "deepagents_agent"):
                with self.subTest(program=program, example=name):
                    example([program], f"{PROJECT}/{name}.mjs", cwd=PROJECT, env=ENV)

    def test_the_sandbox_of_the_ai_sdk(self):
        self.node("ai.test.js")
        self.bun("ai.test.js")

    def test_the_deepagents_backend_on_node(self):
        self.node("deepagents.test.js")

    def test_the_deepagents_backend_on_bun(self):
        self.bun("deepagents.test.js")


if __name__ == "__main__":
    unittest.main()
