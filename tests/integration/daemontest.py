# SPDX-License-Identifier: Apache-2.0
"""What the tests of the daemon share: one carrel serve on a state directory of its own, and talking to it."""
import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

from carreltest import CARREL, PATIENCE, TMP, CarrelTest

ANSWERS = 3 * PATIENCE  # seconds: an answer waits for the disk, which others may fill at that time


class Connection(http.client.HTTPConnection):
    """HTTP over the daemon's Unix socket."""

    def __init__(self, path, timeout=ANSWERS):
        super().__init__("carrel", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self.path)
        except OSError:
            self.close()
            raise


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.bytes = response.read()

    @property
    def json(self):
        return json.loads(self.bytes)

    @property
    def code(self):
        return self.json["error"]["code"]


class Daemon:
    def __init__(self, state, *options, env=None):
        self.state = state
        self.options = options
        self.env = env
        self.process = None
        self.start()

    def start(self):
        self.log = f"{self.state}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([CARREL, "serve", "--state", self.state, "--listen", "127.0.0.1:0",
                                             "--set", "socket=" + self.socket, "--set", "disk_floor=1M", *self.options],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, cwd=TMP)
        self.wait_ready()

    @property
    def socket(self):
        return f"{self.state}.sock"  # short: the name of a Unix socket has 107 bytes

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self.get("/readyz").status == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the daemon does not get ready: {self.process.poll()}\n{self.said()[-3000:]}")
            time.sleep(0.02)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def connect(self, timeout=ANSWERS):
        return Connection(self.socket, timeout)

    def request(self, method, path, body=None, key=None, headers=None, connection=None):
        """One request; a dict or list is sent as JSON."""
        own = connection or self.connect()
        head = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        if key:
            head["Authorization"] = f"Bearer {key}"
        try:
            own.request(method, path, body=body, headers=head)
            return Answer(own.getresponse())
        finally:
            if not connection:
                own.close()

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body=None, **kwargs):
        return self.request("POST", path, body if body is not None else {}, **kwargs)

    def stream(self, method, path, body=None, key=None, wait=True):
        """An open response, to be read as it comes; without `wait` the connection it will come on."""
        own = self.connect()
        head = {"Authorization": f"Bearer {key}"} if key else {}
        own.request(method, path, body=json.dumps(body).encode() if body is not None else None, headers=head)
        if not wait:
            return own
        response = own.getresponse()
        response.keep = own
        return response

    def execute(self, workspace, command, **kwargs):
        """Runs a line in a workspace and returns the result object."""
        key = kwargs.pop("key", None)
        answer = self.post(f"/v1/workspaces/{workspace}/exec", {"command": command, **kwargs}, key=key)
        if answer.status != 200:
            raise AssertionError(f"exec: {answer.status} {answer.bytes!r}")
        return answer.json

    def key(self, owner, scopes=("user",), **more):
        answer = self.post("/v1/keys", {"owner": owner, "scopes": list(scopes), **more})
        assert answer.status == 201, answer.bytes
        return answer.json["key"]

    def front_pid(self):
        """The front is the broker's child of that name."""
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    stat = file.read()
            except OSError:
                continue
            name, rest = stat[stat.index("(") + 1:].rsplit(")", 1)
            if name.startswith("carrel-front") and int(rest.split()[1]) == self.process.pid:
                return int(pid)
        return None

    def kill_front(self):
        pid = self.front_pid()
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while self.front_pid() in (None, pid):
            assert time.monotonic() < deadline, self.said()[-3000:]
            time.sleep(0.01)
        self.wait_ready()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def tcp_port(self):
        return int(re.search(r"address='?127\.0\.0\.1:(\d+)", self.said()).group(1))

    def audit(self):
        """All records, in order."""
        records = []
        for name in sorted(os.listdir(f"{self.state}/audit")):
            with open(f"{self.state}/audit/{name}", encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        return records


def data_of(event):
    if "data_b64" in event:
        return base64.b64decode(event["data_b64"])
    return event["data"].encode()


def events_of(response):
    """The events of an NDJSON stream, as they come."""
    for line in response:
        yield json.loads(line)


class DaemonTest(CarrelTest):
    """A daemon for each test; it must end in good order, and leave nothing running."""
    options = ()

    def setUp(self):
        super().setUp()
        for above in (TMP, self.dir):
            os.chmod(above, 0o711)  # as root the front is somebody else
        self.daemon = Daemon(self.path("s"), *self.options)

    def tearDown(self):
        self.daemon.stop()
        super().tearDown()  # nothing may be left

    def workspace(self, **body):
        answer = self.daemon.post("/v1/workspaces", body)
        self.assertEqual(201, answer.status, answer.bytes)
        return answer.json["id"]
