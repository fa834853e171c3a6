#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 120
"""E2B's code interpreter with its unmodified clients, of PyPI (sync and async) and npm, by the two variables for addresses and by
E2B_DOMAIN over HTTPS."""
import concurrent.futures
import os
import subprocess
import unittest

from e2btest import Sdk, SdkByDomain, TMP, node, python, run, script
from carreltest import CARREL

HERE = f"{os.environ['SRC']}/tests/conformance/e2b_code"
PROGRAMS = f"{os.environ['SRC']}/tests/conformance/e2b/programs"
SITE = f"{TMP}/site"
MANY = "50" if os.environ.get("LONG") else "8"
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
        sandbox = ready(self, key)
        self.drive(*python(PYPI), f"{HERE}/sdk.py", E2B_API_KEY=key, E2B_READY=sandbox)
        self.assertIn("done\n", self.drive(*python(PYPI), f"{PROGRAMS}/analysis.py", E2B_API_KEY=key, ANALYSIS_SANDBOX=sandbox))


class CodeByDomain(Programs, SdkByDomain):
    def test_python(self):
        self.drive(*python(PYPI), f"{HERE}/sdk.py")


class AsUsersWriteThem(SdkByDomain):
    """Unchanged programs, some beside each other: a server opened by getHost, a long stream that is lost and found again, uploads, workers, a
    notebook that is paused, candidates that are judged, an agent's loop, many sandboxes (LONG: 50), a terminal, a watch."""

    def test_programs(self):
        in_python, in_node = python(PYPI), node(NPM, "e2b")
        programs = [[*in_python, f"{PROGRAMS}/{name}.py"] for name in ("server", "stream", "uploads", "background", "session", "checks")]
        programs += [[*in_node, script(f"programs/{name}.mjs")] for name in ("agent", "many", "terminal", "watch")]
        key = self.daemon.key("alice", ("owner",))
        with concurrent.futures.ThreadPoolExecutor(3) as beside:
            said = list(beside.map(lambda argv: self.drive(*argv, MANY=MANY, E2B_API_KEY=key), programs))
        self.assertEqual(["done"] * len(programs), [text.strip().splitlines()[-1] for text in said])


if __name__ == "__main__":
    unittest.main()
