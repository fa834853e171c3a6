#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# TAKES: 15
"""Whatever lasts ends within a second of the revocation of its key, or the deletion of its workspace, and says why:
every kind of stream, upload, download and waiting call that there is, over TCP and the Unix socket."""
import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import time
import unittest

from carreltest import CARREL, PATIENCE, read
from daemonplantest import PlanTest
from daemontest import DaemonTest
from mcptest import META, MODERN, Mcp
from websockettest import CLOSE, TEXT, UPGRADE, frames

SECOND = 1.0 * int(os.environ.get("SLOWER", "1"))
SERVER = r"""
import socket, threading, time
def serve(c):
    head = b""
    while b"\r\n\r\n" not in head: head += c.recv(4096)
    if b"/drip" in head:
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True: c.sendall(b"5\r\ndrip\n\r\n"); time.sleep(0.1)
    if b"/ws" in head:
        c.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
    time.sleep(1000)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8000)); s.listen(64)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


class Ask(dict):
    """A request of MCP, which repeats in its head what its body says."""

    def __init__(self, method, **params):
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, "progressToken": 1}
        super().__init__(jsonrpc="2.0", id=1, method=method, params={**params, "_meta": meta})
        name = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
        self.head = f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}"


def tool(name, **arguments):
    return Ask("tools/call", name=name, arguments={"workspace": "{ws}", **arguments})


# What is asked, what has to have come before anything is revoked, and how it ends: with an error event, with an event of
# another protocol that says why, with a last frame, with an answer of that class, or cut off. {ws}, {exec} and {port} are
# filled in.
WS = "/v1/workspaces/{ws}"
S = "/v1/sandbox/{ws}"
SLEEP = {"argv": ["sleep", "1000"]}
STREAMS = [
    ("GET", "/v1/events", None, b"carrel", "event"),
    ("GET", "/v1/events?workspace={ws}", None, b"carrel", "event"),
    ("GET", "/v1/audit?follow=1", None, b"workspace.create", "event"),
    ("GET", WS + "/files-watch?path=/", None, b"ready", "event"),
    ("GET", WS + "/exec/{exec}/output?follow=1", None, b"out", "event"),
    ("GET", WS + "/exec/{exec}/output?follow=1&format=sse", None, b"out", "event"),
    ("GET", WS + "/exec/{exec}/output?follow=1&format=raw", None, b"out", "cut"),
    ("POST", WS + "/exec", {"command": "echo out; sleep 1000", "stream": True}, b"out", "event"),
    ("POST", WS + "/exec", SLEEP, b"", "answer"),
    ("GET", WS + "/files/huge", None, b"200", "cut"),
    ("GET", WS + "/files/?archive=tar", None, b"200", "cut"),
    ("GET", WS + "/backup", None, b"200", "cut"),
    ("POST", WS + "/files-inventory", {"path": "/"}, b"ndjson", "event"),
    ("PUT", WS + "/files/new", 1 << 20, b"", "answer"),
    ("POST", WS + "/files-unpack", 1 << 20, b"", "answer"),
    ("POST", WS + "/files-write", 1 << 20, b"", "answer"),
    ("POST", WS + "/restore", 1 << 20, b"", "answer"),
    ("GET", "{port}drip", None, b"drip", "cut"),
    ("GET", "{port}ws", UPGRADE, b"hello", "cut"),
    ("GET", "{port}silent", None, b"", "answer"),
    ("POST", "{port}silent", 1 << 20, b"", "answer"),
    ("GET", WS + "/exec/{exec}/attach", UPGRADE, b"out", "frame"),
    ("GET", S + "/pty", UPGRADE, b"$ ", "frame"),
    ("POST", S + "/exec", {"argv": ["sh", "-c", "echo out; sleep 2000"]}, b"stdout", "says"),
    ("POST", S + "/persist", b"", b"200", "cut"),
    ("PUT", S + "/file/workspace/new", 1 << 20, b"", "answer"),
    ("POST", S + "/hydrate", 1 << 20, b"", "answer"),
    ("POST", "/mcp", tool("execute", command="echo out; sleep 2000"), b"out", "says"),
    ("POST", "/mcp", tool("read_process", process_id="{exec}", offset=4, wait_ms=300000), b"event-stream", "says"),
    ("POST", "/mcp", Ask("subscriptions/listen", notifications={}), b"acknowledged", "says"),
]


class Stream:
    def __init__(self, test, overtcp, row, key, names):
        self.row = row
        method, path, body, ready, self.ends = row
        self.socket = socket.socket(socket.AF_INET if overtcp else socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        test.addCleanup(self.socket.close)
        self.socket.connect(("127.0.0.1", test.daemon.tcp_port()) if overtcp else test.daemon.socket)
        head = f"{method} {path.format(**names)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n" + getattr(body, "head", "")
        if isinstance(body, int):  # a part of it
            sent = head + f"Content-Length: {body}\r\n\r\n"
            sent = sent.encode() + names["tar"][:4096]
        elif isinstance(body, dict):
            text = json.dumps(body).replace("{ws}", names["ws"]).replace("{exec}", names["exec"])
            sent = (head + f"Content-Length: {len(text)}\r\n\r\n{text}").encode()
        elif isinstance(body, bytes):
            sent = (head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        else:
            sent = (head + (body or "") + "\r\n").encode()
        self.socket.sendall(sent)
        self.heard = b""
        while ready not in self.heard:
            try:
                piece = self.socket.recv(4096)
            except TimeoutError:
                piece = b""
            assert piece, (row, self.heard)
            self.heard += piece

    def has_answer(self):
        head, gap, body = self.heard.partition(b"\r\n\r\n")
        length = [line.split()[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return gap and length and len(body) >= int(length[0])

    def finish(self, deadline):
        """All that comes until the end: of an answer that was waited for, or of the connection, in order or by a reset."""
        self.was_reset = False
        try:
            while self.ends != "answer" or not self.has_answer():
                self.socket.settimeout(max(0.01, deadline - time.monotonic()))
                piece = self.socket.recv(1 << 20)
                if not piece:
                    return
                self.heard += piece
        except ConnectionResetError:
            self.was_reset = True

    def __str__(self):
        return f"{self.row[:2]}: …{self.heard[-300:]!r}"


class Revoked(DaemonTest):
    def setUp(self):
        super().setUp()
        self.streams = []
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo("unpacked")
            entry.size = 1 << 19
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
        self.names = {"tar": packed.getvalue()}
        self.names["ws"] = self.workspace(owner="alice")
        self.names["exec"] = self.background("echo out; sleep 1000")
        self.background("cat > /server.py; exec python3 /server.py", SERVER)
        inside = self.daemon.execute(self.names["ws"], "truncate -s 1T /huge; head -c 64M /dev/zero > /big; mkdir /workspace; "
                                     "ln /big /workspace; until python3 -c 'import socket; "
                                     "socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null; do sleep 0.1; done")
        self.assertEqual(0, inside["exit_code"], inside)
        port = self.daemon.post(f"/v1/workspaces/{self.names['ws']}/ports/8000", {"access": "key"})
        self.assertIn(port.status, (200, 201), port.bytes)
        self.names["port"] = "/p/" + port.json["url"].split("/p/")[1]

    def background(self, command, stdin=None):
        body = {"command": command, "background": True}
        if stdin:
            body["stdin"] = stdin
        answer = self.daemon.post(f"/v1/workspaces/{self.names['ws']}/exec", body)
        self.assertIn(answer.status, (200, 201, 202), answer.bytes)
        return answer.json["exec_id"]

    def key(self, scopes=("user",), **more):
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": list(scopes), **more}).json
        return made["id"], made["key"]

    def begin(self, key, rows=STREAMS):
        """One stream of each kind over TCP, and one over the socket."""
        return [Stream(self, overtcp, row, key, self.names) for row in rows for overtcp in (True, False)]

    def check(self, stream, status, words):
        if stream.ends == "event":
            last = stream.heard.removesuffix(b"\r\n0\r\n\r\n")
            self.assertNotEqual(last, stream.heard, f"it does not end in good order: {stream}")
            line = last[last.rindex(b'{"type":"error"'):]
            self.assertIn(words, json.loads(line)["error"]["message"], stream)
        elif stream.ends == "says":
            last = stream.heard.removesuffix(b"\r\n0\r\n\r\n")
            self.assertNotEqual(last, stream.heard, f"it does not end in good order: {stream}")
            self.assertIn(words, json.dumps(json.loads(last[last.rindex(b"data: ") + 6:])), stream)
        elif stream.ends == "frame":
            found, _ = frames(stream.heard.partition(b"\r\n\r\n")[2])
            self.assertEqual([TEXT, CLOSE], [opcode for opcode, _ in found[-2:]], stream)
            self.assertEqual("error", json.loads(found[-2][1])["type"], stream)
            self.assertIn(words, json.loads(found[-2][1])["message"], stream)
            self.assertEqual(1008, int.from_bytes(found[-1][1][:2], "big"), stream)
        elif stream.ends == "answer":
            self.assertTrue(stream.heard.startswith(b"HTTP/1.1 %d " % status), stream)
            self.assertIn(words.encode(), stream.heard)
        else:
            self.assertFalse(stream.heard.endswith(b"0\r\n\r\n"), f"it ended as if that were all: {stream}")

    def all_end(self, streams, began, status, words):
        for stream in streams:
            try:
                stream.finish(began + SECOND)
            except TimeoutError:
                self.fail(f"it goes on: {stream}")
        for stream in streams:
            self.check(stream, status, words)

    def none_is_left(self):
        self.daemon.get("/readyz")
        deadline = time.monotonic() + PATIENCE
        while (host := self.daemon.get("/v1/host").json)["streams"]:
            self.assertLess(time.monotonic(), deadline, host)

    def no_client_is_waited_for(self):
        """Commands that are there for their client only have ended with it; the others go on."""
        deadline = time.monotonic() + PATIENCE
        while True:
            running = json.dumps(self.daemon.get(f"/v1/workspaces/{self.names['ws']}/exec?state=running").json["execs"])
            if not any(words in running for words in ("norc", "2000", '"tar"')):
                break
            self.assertLess(time.monotonic(), deadline, running)
            time.sleep(0.05)
        self.assertEqual(2, running.count("echo out; sleep 1000\"") - 1, running)

    def test_all_that_a_key_has_open_ends_when_an_administrator_revokes_it(self):
        ident, key = self.key()
        streams = self.begin(key)
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{ident}").status)
        self.all_end(streams, began, 401, "no longer valid")
        self.none_is_left()
        self.no_client_is_waited_for()

    def test_what_another_key_of_the_owner_revokes_ends_and_its_own_goes_on(self):
        (ident, key), (_, other) = self.key(("agent",), workspaces=[self.names["ws"]]), self.key(("owner",))
        streams = self.begin(key, [row for row in STREAMS if not row[1].endswith(("/backup", "/restore"))])  # an owner's
        kept = self.begin(other, STREAMS[:7])
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{ident}", key=other).status)
        self.all_end(streams, began, 401, "no longer valid")
        for stream in kept:
            with self.assertRaises(TimeoutError, msg=str(stream)):
                stream.finish(time.monotonic() + 0.05)

    def test_a_key_may_revoke_itself_and_hears_so(self):
        ident, key = self.key()
        streams = self.begin(key, STREAMS[:5])
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{ident}", key=key).status)
        self.all_end(streams, began, 401, "no longer valid")

    def test_an_administrators_key_as_well(self):
        ident, key = self.key(("admin",))
        rows = [("GET", "/v1/audit?follow=1", None, b"workspace.create", "event"), ("GET", "/v1/events", None, b"carrel", "event")]
        streams = self.begin(key, rows)
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{ident}").status)
        self.all_end(streams, began, 401, "no longer valid")

    def test_a_verb_that_follows_says_what_ended_it(self):
        ident, key = self.key()
        ws, env = self.names["ws"], {**os.environ, "CARREL_SOCKET": self.daemon.socket, "CARREL_KEY": key, "HOME": self.dir}
        verbs = [["events"], ["audit", "tail", "-f"], ["watch", f"{ws}:/"], ["logs", "-f", ws, self.names["exec"]],
                 ["exec", ws, "--", "sh", "-c", "echo out; sleep 1000"]]
        running = []
        for verb in verbs:
            process = subprocess.Popen([CARREL, *verb], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, cwd=self.dir)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.stderr.close)
            running.append(process)
        deadline = time.monotonic() + PATIENCE
        while self.daemon.get("/v1/host").json["streams"] < 4 or running[4].stdout.peek(1)[:3] != b"out":
            self.assertLess(time.monotonic(), deadline, self.daemon.get("/v1/host").json)
            time.sleep(0.05)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{ident}").status)
        for verb, process in zip(verbs, running):
            _, said = process.communicate(timeout=PATIENCE)
            self.assertEqual(125, process.returncode, (verb, said))
            self.assertIn(b"the daemon ended the stream: the key is no longer valid", said, verb)

    def test_what_is_open_in_a_workspace_ends_when_it_is_deleted(self):
        """A command, and who follows it, ends as commands do."""
        _, key = self.key()
        of_files = [row for row in STREAMS if "/files" in row[1] and row[0] != "POST"]
        commands = [row for row in STREAMS if "/exec" in row[1] and row[4] == "event"]
        tunnels = [row for row in STREAMS if "{port}" in row[1] and row[4] == "cut"]
        streams, ran = self.begin(key, of_files + tunnels), self.begin(key, commands)
        terminals = self.begin(key, [row for row in STREAMS if row[4] == "frame"])
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{self.names['ws']}").status)
        self.all_end(streams, began, 404, "no workspace")
        for stream in ran:
            stream.finish(began + SECOND)
            self.assertIn(b'"type":"end"', stream.heard, stream)
        for stream in terminals:
            stream.finish(began + SECOND)
            self.assertIn(b'"type":"exit"', stream.heard, stream)
        self.none_is_left()


def is_apply(pid):
    try:
        return read(f"/proc/{pid}/cmdline").startswith("carrel-plan\0apply")
    except OSError:
        return False


class BeforeTheStart(PlanTest):
    """A command that the broker has been asked for and has not begun: the tree is a plan's at that time."""

    def test_who_hears_that_the_key_is_revoked_has_started_nothing(self):
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        self.make(owner="alice")
        root, before = self.root(), len(os.listdir(self.root()))
        plan = self.submit([{"op": "create", "path": f"d{i % 50}/f{i}", "content": str(i)} for i in range(10000)])["id"]
        applying = self.daemon.stream("POST", f"/v1/workspaces/{self.ws}/plans/{plan}/apply", {}, wait=False)
        deadline = time.monotonic() + PATIENCE
        while len(os.listdir(root)) == before:
            self.assertLess(time.monotonic(), deadline, "it is not applied")
            time.sleep(0.01)
        pid, = (p for p in self.children() if is_apply(p))
        os.kill(pid, signal.SIGSTOP)
        client = Mcp(self.daemon, key=made["key"])
        message = client.message("tools/call", {"name": "execute", "arguments": {"command": "sleep 1000", "workspace": self.ws}})
        asked = [client.post(message, wait=False)]
        for more in ({}, {"stream": True}, {"background": True}):
            asked.append(self.daemon.connect())
            asked[-1].request("POST", f"/v1/workspaces/{self.ws}/exec", json.dumps({"command": "sleep 1000", **more}),
                              {"Authorization": f"Bearer {made['key']}"})
        time.sleep(0.5)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{made['id']}").status)
        said = [connection.getresponse() for connection in asked]
        self.assertEqual([200, 401, 401, 401], [answer.status for answer in said])  # the first one's is a stream already
        self.assertIn(b"no longer valid", said[0].read())
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(200, applying.getresponse().status)
        self.until_ended(4)
        for connection in asked:
            connection.close()
        applying.close()

    def children(self):
        with open(f"/proc/{self.daemon.process.pid}/task/{self.daemon.process.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def until_ended(self, count):
        """So many commands were begun, and none is left."""
        deadline = time.monotonic() + PATIENCE
        while True:
            started = [r for r in self.operations("exec.start") if r["workspace"] == self.ws]
            ended = [r for r in self.operations("exec.end") if r["workspace"] == self.ws]
            if len(started) == len(ended) == count:
                return
            self.assertLess(time.monotonic(), deadline, (len(started), len(ended)))
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(verbosity=0)
