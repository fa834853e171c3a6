# SPDX-License-Identifier: Apache-2.0
"""What the tests with real packages share: one daemon with uv and bun for all tests of a class, and running things in its
workspaces. They are skipped only where a registry cannot be reached at all."""
import contextlib
import os
import subprocess
import sys
import tempfile
import unittest

from carreltest import CARREL, PATIENCE, TMP, reap_until_alone
from daemontest import Daemon
from envtest import registries

DOWNLOAD = 10 * PATIENCE  # what comes over the network
FULL = bool(os.environ.get("LONG"))
OPEN = {"network": {"allow": ["@python", "@node"]}}


def carrel(daemon, *args, timeout=DOWNLOAD):
    """Carrel's command line against that daemon; what it printed."""
    done = subprocess.run([CARREL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, check=False, cwd=TMP, env={**os.environ, "CARREL_SOCKET": daemon.socket, "HOME": TMP})
    if done.returncode:
        raise AssertionError(f"carrel {' '.join(args)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class PackagesTest(unittest.TestCase):
    maxDiff = 4000
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(dir=TMP)
        for above in (TMP, cls.dir):
            os.chmod(above, 0o711)  # as root the front is somebody else
        cls.addClassCleanup(cls.clean)
        cls.daemon = Daemon(os.path.join(cls.dir, "s"), *cls.options)
        cls.addClassCleanup(cls.daemon.stop)
        carrel(cls.daemon, "env", "setup", "--state", cls.daemon.state)

    @classmethod
    def clean(cls):
        left = reap_until_alone()
        subprocess.run(["rm", "-rf", cls.dir], check=False)
        assert left == [], f"processes left running: {left}"

    @classmethod
    def carrel(cls, *args):
        return carrel(cls.daemon, *args)

    @classmethod
    def post(cls, path, body):
        with contextlib.closing(cls.daemon.connect(DOWNLOAD)) as connection:
            return cls.daemon.request("POST", path, body, connection=connection)

    @classmethod
    def workspace(cls, name, **more):
        """A new one; with the names that have packages where `policy` is OPEN."""
        answer = cls.post("/v1/workspaces", {"id": name, **more})
        assert answer.status == 201, answer.bytes
        return name

    @classmethod
    def result(cls, ws, command, **more):
        answer = cls.post(f"/v1/workspaces/{ws}/exec", {"command": command, "timeout_ms": DOWNLOAD * 1000, **more})
        assert answer.status == 200, answer.bytes
        return answer.json

    @classmethod
    def inside(cls, ws, command, **more):
        """What a command that must succeed prints."""
        result = cls.result(ws, command, **more)
        assert result["exit_code"] == 0, (command, result)
        return result["stdout"]

    @classmethod
    def fails(cls, ws, command, **more):
        """What a command that must fail says."""
        result = cls.result(ws, command, **more)
        assert result["exit_code"] != 0, (command, result)
        return result["stderr"]

    @classmethod
    def put(cls, ws, path, text):
        answer = cls.daemon.request("PUT", f"/v1/workspaces/{ws}/files{path}", text.encode())
        assert answer.status in (200, 201), answer.bytes

    @classmethod
    def fetch(cls, ws, path):
        answer = cls.daemon.get(f"/v1/workspaces/{ws}/files{path}")
        assert answer.status == 200, answer.bytes
        return answer.bytes


def main():
    missing = registries()
    if missing:
        print(missing)
        sys.exit(77)
    unittest.main()
