#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 120
"""E2B's code interpreter with its unmodified clients, of PyPI (sync and async) and npm, by the two variables for addresses and by
E2B_DOMAIN over HTTPS."""
import os
import subprocess
import unittest

from e2btest import Sdk, SdkByDomain, TMP, node, python, run, script
from carreltest import CARREL

HERE = f"{os.environ['SRC']}/tests/conformance/e2b_code"
SITE = f"{TMP}/site"
PYPI, NPM = "e2b-code-interpreter==2.*", "@e2b/code-interpreter@2"


def ready(test, key):
    """A sandbox in which there are matplotlib and pandas."""
    if not os.path.exists(SITE):
        run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", SITE, "matplotlib", "pandas"], timeout=400)
    make = "from e2b_code_interpreter import Sandbox; print(Sandbox.create(timeout=3000, envs={'PYTHONPATH': '/home/user/site'}).sandbox_id)"
    made = test.drive(*python(PYPI), "-c", make, E2B_API_KEY=key).strip()
    with subprocess.Popen(["tar", "c", "-C", TMP, "site"], stdout=subprocess.PIPE) as packed:
        subprocess.run([CARREL, "exec", "--stdin", "-", made, "--", "tar", "x", "-C", "/home/user"], stdin=packed.stdout, check=True, timeout=200,
                       env={**os.environ, "CARREL_URL": f"http://127.0.0.1:{test.daemon.tcp_port()}", "CARREL_KEY": key})
    return made


class Programs:
    def test_javascript(self):
        program = node(NPM)
        self.assertEqual("done\n", self.drive(*program, script("../e2b_code/sdk.mjs")))


class Code(Programs, Sdk):
    def test_python(self):
        key = self.daemon.key("alice", ("owner",))
        self.drive(*python(PYPI), f"{HERE}/sdk.py", E2B_API_KEY=key, E2B_READY=ready(self, key))


class CodeByDomain(Programs, SdkByDomain):
    def test_python(self):
        self.drive(*python(PYPI), f"{HERE}/sdk.py")


if __name__ == "__main__":
    unittest.main()
