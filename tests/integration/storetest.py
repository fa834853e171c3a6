# SPDX-License-Identifier: Apache-2.0
"""What the tests of stores share: servers of several kinds on loopback, and rclone as a person uses it.

    webdav   rclone's own server, with a name and a password
    s3       moto (PyPI), in an environment of its own that is kept between runs; it looks at signatures, and writes on conditions
"""
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.request

from carreltest import PATIENCE, TMP
from daemontest import DaemonTest

CACHE = f"/var/tmp/carrel-tests-{os.geteuid()}"
MOTO = "moto[server,s3]==5.1.22"
CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/proc/nowhere", "LC_ALL": "C.UTF-8"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def moto():
    """The path of moto_server, installed once."""
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    place = f"{CACHE}/{MOTO.replace('[', '-').replace(']', '').replace(',', '-')}"
    with open(f"{place}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(f"{place}/whole"):
            shutil.rmtree(place, ignore_errors=True)
            for command in (["/usr/bin/python3", "-m", "venv", place], [f"{place}/bin/pip", "install", "-q", "--disable-pip-version-check", MOTO]):
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20 * PATIENCE, check=False)
                assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            with open(f"{place}/whole", "w", encoding="ascii"):
                pass
    return f"{place}/bin/moto_server"


class Server:
    """Started anew it has what it had, at the same port; but for moto, which keeps nothing."""
    process = None

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def run(self, argv, env=None):
        with open(f"{TMP}/server-{self.port}.log", "ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**CLEAN, **(env or {})}, cwd=TMP)
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            assert time.monotonic() < until and self.process.poll() is None, "the server does not start"
            time.sleep(0.02)

    def kill(self, how=signal.SIGKILL):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
        self.process = None

    def config(self, **other):
        return {**self.settings(), **other}

    def rclone(self, *args, check=True, text=True):
        """rclone by hand, with a configuration of its own: the remote is "there"."""
        path = f"{TMP}/rclone-{self.port}.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write("[there]\n" + "".join(f"{key} = {value}\n" for key, value in self.plain().items()))
        done = subprocess.run(["rclone", "--config", path, *args], stdin=subprocess.DEVNULL, capture_output=True, text=text, env=CLEAN, cwd=TMP,
                              timeout=4 * PATIENCE, check=False)
        assert not check or done.returncode == 0, (args, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def plain(self):
        return self.settings()

    def objects(self, path):
        """{name: bytes} of all that is below the path."""
        out = f"{TMP}/objects-{self.port}"
        shutil.rmtree(out, ignore_errors=True)
        self.rclone("copy", f"there:{path}", out)
        found = {}
        for folder, _, files in os.walk(out):
            for name in files:
                with open(os.path.join(folder, name), "rb") as file:
                    found[os.path.relpath(os.path.join(folder, name), out)] = file.read()
        return found


class Webdav(Server):
    kind = "webdav"
    user, password = "desk", "opensesame"

    def start(self):
        root = f"{TMP}/webdav-{self.port}"
        os.makedirs(root, exist_ok=True)
        self.run(["rclone", "serve", "webdav", root, "--addr", f"127.0.0.1:{self.port}", "--user", self.user, "--pass", self.password,
                  "--vfs-cache-mode", "off", "--dir-cache-time", "0s"])
        return self

    def settings(self):
        hidden = subprocess.run(["rclone", "obscure", self.password], capture_output=True, text=True, env=CLEAN, check=True).stdout.strip()
        return {"type": "webdav", "url": self.url, "vendor": "other", "user": self.user, "pass": hidden}


class S3(Server):
    kind = "s3"

    def start(self):
        self.run([moto(), "-H", "127.0.0.1", "-p", str(self.port)], {"HOME": TMP})
        self.rclone("mkdir", "there:bucket")
        return self

    def settings(self):
        return {"type": "s3", "provider": "Other", "endpoint": self.url, "region": "us-east-1", "access_key_id": "carreltest",
                "secret_access_key": "carreltestsecret"}

    def count(self):
        with urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=PATIENCE) as answer:
            return len(json.load(answer)["s3"]["FakeKey"])


class StoreTest(DaemonTest):
    """A daemon, and the servers that a test asks for."""

    def setUp(self):
        if not shutil.which("rclone"):
            raise unittest.SkipTest("rclone is not installed: apt-get install rclone")
        self.servers = []
        super().setUp()

    def tearDown(self):
        for server in self.servers:
            server.kill()
        super().tearDown()

    def serve(self, kind):
        server = kind()
        self.servers.append(server)
        return server.start()

    def store(self, server, name="work", path="bucket/desks", **other):
        answer = self.daemon.post("/v1/stores", {"name": name, "path": path, "config": server.config(**other)})
        self.assertEqual(201, answer.status, answer.bytes)
        return name

    def check(self, name="work", **body):
        return self.daemon.post(f"/v1/stores/{name}/check", body)
