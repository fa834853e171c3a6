# SPDX-License-Identifier: Apache-2.0
"""An environment of its own, with the Python package built and installed into it."""
import os
import shutil
import unittest

from carreltest import CARREL, TMP
from clienttest import SRC, run

VENV = f"{TMP}/venv"


class VenvTest(unittest.TestCase):
    EXTRAS = ""
    MORE = ()

    @classmethod
    def setUpClass(cls):
        os.chmod(TMP, 0o755)
        shutil.copytree(f"{SRC}/clients/python", f"{TMP}/python", dirs_exist_ok=True)
        run(["python3", "-m", "venv", VENV])
        cls.pip(f"{TMP}/python{cls.EXTRAS}", *cls.MORE)

    @staticmethod
    def pip(*what):
        run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", *what], timeout=300)

    @staticmethod
    def environment():
        return {**os.environ, "CARREL": CARREL, "EXAMPLES": f"{SRC}/examples", "PYTHONDONTWRITEBYTECODE": "1"}

    def python(self, *args, timeout=120):
        return run([f"{VENV}/bin/python", *args], cwd=f"{TMP}/python/tests", env=self.environment(), timeout=timeout)

    def run_tests(self, name, *flags, timeout=300):
        self.assertRegex(self.python(*flags, "-m", "unittest", name, timeout=timeout), r"Ran \d+ tests")
