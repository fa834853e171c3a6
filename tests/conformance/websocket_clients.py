#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 400
# TAKES: 40
"""Commands over a WebSocket, with clients that nobody here wrote: websockets and websocket-client of PyPI, ws of npm. And with
frames that no such client sends."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import TMP  # noqa: E402
from clienttest import SRC, run  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

HERE = f"{SRC}/tests/conformance/websocket"
VENV, NPM = f"{TMP}/venv", f"{TMP}/npm"


class Clients(DaemonTest):
    def ask(self, *argv):
        alice = self.daemon.key("alice", ("owner",))
        return run(argv, env={**os.environ, "CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}", "CARREL_KEY": alice,
                              "CARREL_OTHER_KEY": self.daemon.key("bob"), "PYTHONDONTWRITEBYTECODE": "1"}, timeout=200)

    def test_those_of_pypi(self):
        run(["python3", "-m", "venv", VENV])
        run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", "websockets==16.*", "websocket-client==1.*"], timeout=200)
        self.assertRegex(self.ask(f"{VENV}/bin/python", f"{HERE}/attach.py"), r"Ran \d+ tests")

    def test_that_of_npm(self):
        os.makedirs(NPM, exist_ok=True)
        run(["npm", "install", "--loglevel=error", "--no-fund", "--no-audit", "ws@8"], cwd=NPM, timeout=200)
        with open(f"{HERE}/attach.mjs", encoding="utf-8") as source, open(f"{NPM}/attach.mjs", "w", encoding="utf-8") as copy:
            copy.write(source.read())
        self.assertEqual("done\n", self.ask("node", f"{NPM}/attach.mjs"))


if __name__ == "__main__":
    unittest.main()
