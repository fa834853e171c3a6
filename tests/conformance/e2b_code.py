#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 120
"""E2B's code interpreter with its unmodified clients, of PyPI (sync and async) and npm, over the two variables for addresses."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, TMP  # noqa: E402
from clienttest import SRC, run  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

HERE = f"{SRC}/tests/conformance/e2b_code"
VENV, NPM, SITE = f"{TMP}/venv", f"{TMP}/npm", f"{TMP}/site"


class Sdk(DaemonTest):
    options = ("--tls-self-signed", "--set", "tls_listen=127.0.0.1:0", "--set", "domain=desks.test")

    def environment(self, **more):
        at = f"http://127.0.0.1:{self.daemon.tcp_port()}"
        return {**os.environ, "E2B_API_KEY": self.daemon.key("alice", ("owner",)), "E2B_API_URL": at, "E2B_SANDBOX_URL": at, "PYTHONDONTWRITEBYTECODE": "1", **more}

    def python(self):
        if not os.path.exists(VENV):
            run(["python3", "-m", "venv", VENV])
            run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", "e2b-code-interpreter==2.*"], timeout=300)
        return f"{VENV}/bin/python"

    def ready(self, key):
        """A sandbox in which there are matplotlib and pandas."""
        run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", SITE, "matplotlib", "pandas"], timeout=400)
        made = run([self.python(), "-c", "from e2b_code_interpreter import Sandbox; print(Sandbox.create(timeout=3000, envs={'PYTHONPATH': '/home/user/site'}).sandbox_id)"],
                   env=self.environment(E2B_API_KEY=key), timeout=100).strip()
        with subprocess.Popen(["tar", "c", "-C", TMP, "site"], stdout=subprocess.PIPE) as packed:
            subprocess.run([CARREL, "exec", "--stdin", "-", made, "--", "tar", "x", "-C", "/home/user"], stdin=packed.stdout, check=True, timeout=200,
                           env={**os.environ, "CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}", "CARREL_KEY": key})
        return made

    def test_python(self):
        key = self.daemon.key("alice", ("owner",))
        run([self.python(), f"{HERE}/sdk.py"], env=self.environment(E2B_API_KEY=key, E2B_READY=self.ready(key)), timeout=300)

    def test_javascript(self):
        os.makedirs(NPM, exist_ok=True)
        run(["npm", "install", "--loglevel=error", "--no-fund", "--no-audit", "@e2b/code-interpreter@2", "node@22"], cwd=NPM, timeout=300)
        with open(f"{HERE}/sdk.mjs", encoding="utf-8") as source, open(f"{NPM}/sdk.mjs", "w", encoding="utf-8") as copy:
            copy.write(source.read())
        self.assertEqual("done\n", run([f"{NPM}/node_modules/.bin/node", f"{NPM}/sdk.mjs"], env=self.environment(), timeout=200))


if __name__ == "__main__":
    unittest.main()
