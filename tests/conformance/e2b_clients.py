#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 90
"""E2B's packages as PyPI and npm have them, newest, unmodified, on a fresh daemon: every public method, in Python, with asyncio and in
JavaScript."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import TMP  # noqa: E402
from clienttest import SRC, run  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

HERE = f"{SRC}/tests/conformance/e2b"
VENV, NPM = f"{TMP}/venv", f"{TMP}/npm"
INSTALL = ["npm", "install", "--loglevel=error", "--no-fund", "--no-audit"]


def node():
    """One that the package can run on: the system's, or that of npm's package node."""
    said = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    if int(said.strip().lstrip("v").split(".")[0] or 0) > 20:
        return "node"
    run([*INSTALL, "node@22"], cwd=NPM, timeout=300)
    return f"{NPM}/node_modules/node/bin/node"


class Clients(DaemonTest):
    def drive(self, *argv):
        env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        here = f"http://127.0.0.1:{self.daemon.tcp_port()}"
        env.update(E2B_API_URL=here, E2B_SANDBOX_URL=here, E2B_VOLUME_API_URL=here, E2B_API_KEY=self.daemon.key("alice", ("owner",)),
                   PYTHONDONTWRITEBYTECODE="1")
        said = run(argv, env=env, timeout=300)
        self.assertNotIn("front_died", self.daemon.said())
        return said

    def python(self):
        if not os.path.exists(VENV):
            run(["python3", "-m", "venv", VENV])
            run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", "e2b"], timeout=300)
        return [f"{VENV}/bin/python", "-W", "ignore"]

    def test_python(self):
        self.assertRegex(self.drive(*self.python(), f"{HERE}/drive.py"), r"Ran \d+ tests")

    def test_python_with_asyncio(self):
        self.assertRegex(self.drive(*self.python(), f"{HERE}/drive_async.py"), r"Ran \d+ tests")

    def test_javascript(self):
        os.makedirs(NPM, exist_ok=True)
        run([*INSTALL, "e2b"], cwd=NPM, timeout=300)
        program = node()
        shutil.copy(f"{HERE}/drive.mjs", NPM)
        self.assertIn("all passed", self.drive(program, f"{NPM}/drive.mjs"))


if __name__ == "__main__":
    unittest.main()
