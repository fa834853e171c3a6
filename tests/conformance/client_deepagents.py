#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 90
"""The deepagents backend and the LangChain tools of the Python package: LangChain's own sandbox suite, agents with a scripted model whose
planned changes a person approves, and the examples."""
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import TMP  # noqa: E402
from clienttest import SRC, example, python_blocks, run  # noqa: E402
from venvtest import VENV, VenvTest  # noqa: E402

# What that suite asserts of deepagents before 0.7.7, against the protocol as it is now.
CONTRADICTS = {
    "test_glob": "paths of glob are absolute", "test_glob_basic_pattern": "paths of glob are absolute",
    "test_glob_with_directories": "glob finds files only", "test_glob_hidden_files_explicitly": "paths of glob are absolute",
    "test_glob_with_character_class": "paths of glob are absolute", "test_glob_with_question_mark": "paths of glob are absolute",
    "test_write_existing_file_fails": "write replaces a file",
}


class Deepagents(VenvTest):
    EXTRAS = "[deepagents,langchain]"
    MORE = ("langchain-tests==1.1.9", "pytest", "pytest-asyncio", "ipython", "mcp==2.3.0", "mypy")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # For their interfaces; each needs a hundred packages more.
        cls.pip("--no-deps", "deepagents-code", "google-adk")

    def test_it_is_typed(self):
        run([f"{VENV}/bin/python", "-m", "mypy", "--strict", "--cache-dir", f"{TMP}/mypy", "-p", "carrel"], cwd=TMP, timeout=300)

    def test_langchains_sandbox_suite(self):
        said = subprocess.run([f"{VENV}/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--asyncio-mode=auto", "standard.py"],
                              cwd=f"{TMP}/python/tests", env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=200, check=False).stdout
        failed = set(re.findall(r"^FAILED \S+::(\w+)", said, re.M))
        self.assertEqual(failed, set(CONTRADICTS), said[-3000:])
        self.assertEqual(re.findall(r"(\d+) failed, (\d+) passed", said), [("7", "79")], said[-300:])

    def test_agents_and_people_who_approve(self):
        self.run_tests("test_deepagents")

    def test_the_environment_of_googles_kit(self):
        self.run_tests("test_adk")

    def test_the_examples_do_what_they_say(self):
        for name in ("deepagents_agent", "deepagents_plan", "langgraph_tools"):
            with self.subTest(example=name):
                example([f"{VENV}/bin/python"], f"{SRC}/examples/{name}.py", env=self.environment())

    def test_the_python_of_the_documents_runs(self):
        """Each block of a document by itself, against one daemon, with a scripted model in the place of `model`."""
        with open(f"{TMP}/blocks.py", "w", encoding="utf-8") as file:
            file.write(BLOCKS)
        for document in ("README.md", "clients/python/README.md", "docs/agents.md"):
            blocks = python_blocks(f"{SRC}/{document}")
            self.assertTrue(blocks, document)
            with open(f"{TMP}/blocks.json", "w", encoding="utf-8") as file:
                json.dump(blocks, file)
            with self.subTest(document=document):
                run([f"{VENV}/bin/python", f"{TMP}/blocks.py", f"{TMP}/blocks.json"], env=self.environment())


BLOCKS = """
import json, os, sys
sys.path.insert(0, os.environ["EXAMPLES"])
from offline_model import ScriptedModel
import carrel
with open(sys.argv[1], encoding="utf-8") as file:
    blocks = json.load(file)
local = carrel.Local()
try:
    os.environ["CARREL_SOCKET"] = local.socket
    os.environ["PATH"] = os.path.dirname(local.program) + ":" + os.environ["PATH"]
    for block in blocks:
        model = ScriptedModel(script=[[("write_file", {"file_path": "/a", "content": "1"})], "done"])
        exec(compile(block, block, "exec"), {"model": model})
finally:
    local.close()
"""


if __name__ == "__main__":
    unittest.main()
