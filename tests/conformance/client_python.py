#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 400
# TAKES: 60
"""The Python package, built and installed into an environment of its own, against a real daemon; and the sandbox suite of
LangChain's against its deepagents backend."""
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, TMP  # noqa: E402
from clienttest import SRC, run  # noqa: E402

VENV = f"{TMP}/venv"
# What that suite asserts of deepagents before 0.7.7, against the protocol as it is now.
CONTRADICTS = {
    "test_glob": "paths of glob are absolute", "test_glob_basic_pattern": "paths of glob are absolute",
    "test_glob_with_directories": "glob finds files only", "test_glob_hidden_files_explicitly": "paths of glob are absolute",
    "test_glob_with_character_class": "paths of glob are absolute", "test_glob_with_question_mark": "paths of glob are absolute",
    "test_write_existing_file_fails": "write replaces a file",
}


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.copytree(f"{SRC}/clients/python", f"{TMP}/python", dirs_exist_ok=True)
        run(["python3", "-m", "venv", VENV])
        run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", f"{TMP}/python"])

    def python(self, *args):
        return run([f"{VENV}/bin/python", *args], cwd=f"{TMP}/python/tests", env={**os.environ, "CARREL": CARREL, "PYTHONDONTWRITEBYTECODE": "1"})

    def test_the_sync_half_is_made_of_the_async_one(self):
        run(["python3", f"{SRC}/clients/python/tools/make_sync.py", "--check"])

    def test_it_does_against_a_daemon_what_it_says(self):
        said = self.python("-W", "error::ResourceWarning", "-m", "unittest", "test_client")
        self.assertRegex(said, r"Ran \d+ tests")

    def test_langchains_sandbox_suite(self):
        run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", f"{TMP}/python[deepagents]", "langchain-tests==1.1.9", "pytest",
             "pytest-asyncio"], timeout=300)
        said = subprocess.run([f"{VENV}/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--asyncio-mode=auto", "standard.py"],
                              cwd=f"{TMP}/python/tests", env={**os.environ, "CARREL": CARREL}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=200, check=False).stdout
        failed = set(re.findall(r"^FAILED \S+::(\w+)", said, re.M))
        self.assertEqual(failed, set(CONTRADICTS), said[-3000:])
        self.assertEqual(re.findall(r"(\d+) failed, (\d+) passed", said), [("7", "79")], said[-300:])


if __name__ == "__main__":
    unittest.main()
