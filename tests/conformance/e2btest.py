# SPDX-License-Identifier: Apache-2.0
"""What the tests with E2B's own packages share: the packages, installed once, and the two ways to a daemon."""
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import ROOT, TMP  # noqa: E402
from clienttest import SRC, run  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

HERE = f"{SRC}/tests/conformance/e2b"
VENV, NPM = f"{TMP}/venv", f"{TMP}/npm"
DOMAIN = "desks.test"


def python(*packages):
    """With these of PyPI."""
    if not os.path.exists(VENV):
        run(["python3", "-m", "venv", VENV])
        run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", *packages], timeout=300)
    return [f"{VENV}/bin/python", "-W", "ignore"]


def node(*packages):
    """With these of npm; itself the system's, or that of npm's package node where that is too old for them."""
    if not os.path.exists(f"{NPM}/node_modules"):
        os.makedirs(NPM, exist_ok=True)
        said = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
        own = [] if int(said.strip().lstrip("v").split(".")[0] or 0) > 20 else ["node@22"]
        run(["npm", "install", "--loglevel=error", "--no-fund", "--no-audit", *packages, *own], cwd=NPM, timeout=300)
    own = f"{NPM}/node_modules/node/bin/node"
    return [own if os.path.exists(own) else "node"]


def script(name):
    """Where Node finds the packages beside it."""
    with open(f"{HERE}/{name}", encoding="utf-8") as source, open(f"{NPM}/{os.path.basename(name)}", "w", encoding="utf-8") as copy:
        copy.write(source.read())
    return f"{NPM}/{os.path.basename(name)}"


def unsupported():
    """What the table of docs/from-e2b.md has in its first column, without the classes."""
    with open(f"{SRC}/docs/from-e2b.md", encoding="utf-8") as file:
        table = file.read().split("## What there is not")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return " ".join(re.findall(r"`(?:\w+\.)*(\w+)`", " ".join(rows)))


class Sdk(DaemonTest):
    """By the two variables for addresses. What is below runs a program of HERE with a key of alice's."""

    def environment(self, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        env.update(E2B_API_KEY=more.pop("E2B_API_KEY", None) or self.daemon.key("alice", ("owner",)), PYTHONDONTWRITEBYTECODE="1", E2B_TEST_FREEZES="1" if ROOT else "", E2B_TEST_NOT=unsupported(), **more)
        return env

    def drive(self, *argv, timeout=300, **more):
        here = f"http://127.0.0.1:{self.daemon.tcp_port()}"
        return self.said(argv, timeout, self.environment(E2B_API_URL=here, E2B_SANDBOX_URL=here, E2B_VOLUME_API_URL=here, **more))

    def said(self, argv, timeout, env):
        said = run(argv, env=env, timeout=timeout)
        self.assertNotIn("front_died", self.daemon.said())
        return said


class SdkByDomain(Sdk):
    """By E2B_DOMAIN alone, over HTTPS with the daemon's own authority."""
    options = ("--tls-self-signed", "--set", "tls_listen=127.0.0.1:0", "--set", f"domain={DOMAIN}")

    def drive(self, *argv, timeout=300, **more):
        port = int(re.search(r"https://\S*?:(\d+)|tls\S* address='?127\.0\.0\.1:(\d+)", self.daemon.said()).expand(r"\1\2"))
        where, program = tempfile.mktemp(dir=TMP), [sys.executable, "-B", f"{HERE}/places.py"]
        authority = f"{self.daemon.state}/tls/ca.pem"
        env = self.environment(E2B_DOMAIN=DOMAIN, SSL_CERT_FILE=authority, NODE_EXTRA_CA_CERTS=authority, **more)
        relay = subprocess.Popen([*program, "--relay", where, str(port)])
        try:
            while not os.path.exists(where):
                self.assertIsNone(relay.poll())
                time.sleep(0.02)
            return self.said(["unshare", "--map-root-user", "--net", "--mount", *program, where, DOMAIN, *argv], timeout, env)
        finally:
            relay.terminate()
            relay.wait()
            os.unlink(where)
