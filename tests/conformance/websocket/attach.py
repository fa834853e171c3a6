# SPDX-License-Identifier: Apache-2.0
"""…/exec/{exec}/attach with websockets and websocket-client, and with frames of our own: websocket_clients.py runs it."""
import base64
import json
import os
import socket
import struct
import unittest
import urllib.request
from urllib.error import HTTPError
from urllib.parse import urlsplit

import websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

URL, KEY, OTHER = os.environ["CARREL_URL"], os.environ["CARREL_KEY"], os.environ["CARREL_OTHER_KEY"]
SOCKETS = URL.replace("http", "ws")
PATIENCE = 60


def ask(method, path, body=None, key=KEY):
    request = urllib.request.Request(URL + path, json.dumps(body).encode() if body is not None else None, method=method,
                                     headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read() or b"null")


class Attach(unittest.TestCase):
    def setUp(self):
        self.ws = self.id().rsplit(".", 1)[-1].replace("_", "-")[:60]
        ask("POST", "/v1/workspaces", {"id": self.ws})

    def begin(self, *argv, **how):
        """The path of a command that runs."""
        how = {"pty": {}, "stdin_open": True, **how}
        made = ask("POST", f"/v1/workspaces/{self.ws}/exec", {"argv": list(argv), "background": True, **how})
        return f"/v1/workspaces/{self.ws}/exec/{made['exec_id']}"

    def attach(self, path, query="", key=KEY):
        return connect(f"{SOCKETS}{path}/attach{query}", additional_headers={"Authorization": f"Bearer {key}"}, open_timeout=PATIENCE,
                       max_size=None)

    def talk(self, client, until="exit"):
        """What came as bytes, and the texts, up to one of that type."""
        data, texts = b"", []
        while not texts or texts[-1]["type"] != until:
            message = client.recv(PATIENCE)
            if isinstance(message, str):
                texts.append(json.loads(message))
            else:
                data += message
        return data, texts

    def say(self, client, **control):
        client.send(json.dumps(control))

    def test_a_terminal_both_ways(self):
        with self.attach(self.begin("bash", "--norc")) as client:
            self.talk(client, "ready")
            self.say(client, type="resize", cols=123, rows=45)
            client.send(b"stty size; echo $((6*7)); exit 9\n")
            data, texts = self.talk(client)
            with self.assertRaises(ConnectionClosed) as closed:
                client.recv(PATIENCE)
        self.assertIn(b"45 123\r\n42\r\n", data)
        self.assertEqual((texts[-1]["code"], texts[-1]["result"]["reason"]), (9, "exit"))
        self.assertEqual(closed.exception.rcvd.code, 1000)

    def test_signals_and_the_end_of_input(self):
        path = self.begin("sh", "-c", "trap 'echo caught' INT; while :; do sleep 0.05; done", pty=None)
        with self.attach(path) as client:
            self.say(client, type="signal", signal="INT")
            data = b""
            while b"caught" not in data:
                message = client.recv(PATIENCE)
                data += message if isinstance(message, bytes) else b""
            self.say(client, type="signal", signal="KILL")
            self.assertEqual(self.talk(client)[1][-1]["result"]["signal"], 9)
        actions = [r["operation"] for r in ask("GET", f"/v1/audit?workspace={self.ws}&limit=100")["records"]]
        self.assertEqual(actions.count("exec.signal"), 2)
        with self.attach(self.begin("cat", pty=None)) as client:
            client.send(b"one\n")
            self.say(client, type="eof")
            self.assertEqual(self.talk(client)[0], b"one\n")

    def test_much_in_both_directions(self):
        content = os.urandom(3 << 20)
        with self.attach(self.begin("sh", "-c", "head -c 3145728 | sha256sum; head -c 20000000 /dev/zero", pty=None)) as client:
            for at in range(0, len(content), 1 << 20):
                client.send([content[at:at + 300000], content[at + 300000:at + (1 << 20)]])  # in two fragments
            data, _ = self.talk(client)
        import hashlib
        self.assertEqual(data[:64].decode(), hashlib.sha256(content).hexdigest())
        self.assertEqual(len(data), 64 + len("  -\n") + 20000000)

    def test_a_client_that_left_comes_back(self):
        path = self.begin("sh", "-c", "echo before; read x; echo after $x", pty=None)
        with self.attach(path) as client:
            data = b""
            while data != b"before\n":
                message = client.recv(PATIENCE)
                data += message if isinstance(message, bytes) else b""
        self.assertEqual(ask("GET", path)["state"], "running")
        with self.attach(path, f"?from={len(data)}") as client, self.attach(path) as second:
            client.send(b"word\n")
            self.assertEqual(self.talk(client)[0], b"after word\n")
            self.assertEqual(self.talk(second)[0], b"before\nafter word\n")

    def test_websocket_client_does_too(self):
        path = self.begin("bash", "--norc")
        client = websocket.create_connection(f"{SOCKETS}{path}/attach", header=[f"Authorization: Bearer {KEY}"], timeout=PATIENCE)
        client.ping("are you there")
        client.send_binary(b"exit 3\n")
        texts, kinds = [], set()
        while True:
            kind, data = client.recv_data(control_frame=True)
            kinds.add(kind)
            if kind == websocket.ABNF.OPCODE_PONG:
                self.assertEqual(data, b"are you there")
            if kind == websocket.ABNF.OPCODE_TEXT:
                texts.append(json.loads(data))
            if kind == websocket.ABNF.OPCODE_CLOSE:
                break
        self.assertIn(websocket.ABNF.OPCODE_PONG, kinds)
        self.assertEqual([(t["type"], t.get("code")) for t in texts], [("ready", None), ("exit", 3)])

    def test_what_is_refused_before_it_begins(self):
        path = self.begin("sleep", "1000")
        for query, key, status in (("", OTHER, 404), ("", "ck_no", 401), ("?from=99", KEY, 400), ("?nope=1", KEY, 400)):
            with self.assertRaises(InvalidStatus) as refused:
                self.attach(path, query, key)
            self.assertEqual(refused.exception.response.status_code, status, (query, refused.exception.response.body))
        with self.assertRaises(HTTPError) as refused:
            ask("GET", f"{path}/attach")
        self.assertEqual((refused.exception.code, refused.exception.headers["Sec-WebSocket-Version"]), (426, "13"))
        refused.exception.close()
        ended = self.begin("true")
        while ask("GET", ended)["state"] != "ended":
            pass
        with self.assertRaises(InvalidStatus) as refused:
            self.attach(ended)
        self.assertEqual(refused.exception.response.status_code, 409)

    def test_texts_that_mean_nothing(self):
        path = self.begin("sleep", "1000", pty=None)
        for text in ("{}", "[]", "no", json.dumps({"type": "resize", "cols": 80, "rows": 24}), json.dumps({"type": "signal", "signal": "NOPE"}),
                     json.dumps({"type": "resize", "cols": 0, "rows": "x"})):
            with self.attach(path) as client:
                client.send(text)
                self.assertTrue(self.talk(client, "error")[1][-1]["message"], text)
                with self.assertRaises(ConnectionClosed) as closed:
                    client.recv(PATIENCE)
                self.assertEqual(closed.exception.rcvd.code, 1008)
        self.assertEqual(ask("GET", path)["state"], "running")

    def test_a_key_that_is_revoked(self):
        made = ask("POST", "/v1/keys", {"scopes": ["agent"], "workspaces": [self.ws]})
        path = self.begin("sleep", "1000")
        with self.attach(path, key=made["key"]) as client:
            self.talk(client, "ready")
            ask("DELETE", f"/v1/keys/{made['id']}")
            self.assertEqual(self.talk(client, "error")[1][-1]["code"], "unauthorized")
        self.assertEqual(ask("GET", path)["state"], "running")

    # --- frames of our own ---

    def raw(self, path, *more):
        where = urlsplit(URL)
        client = socket.create_connection((where.hostname, where.port), timeout=PATIENCE)
        self.addCleanup(client.close)
        lines = [f"GET {path}/attach HTTP/1.1", f"Host: {where.netloc}", "Upgrade: websocket", "Connection: keep-alive, Upgrade",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", f"Authorization: Bearer {KEY}",
                 "Sec-WebSocket-Extensions: permessage-deflate", *more, "", ""]
        client.sendall("\r\n".join(lines).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        return client, head.decode()

    @staticmethod
    def frame(first, payload=b"", masked=True, length=None):
        n = len(payload) if length is None else length
        size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
        mask = b"\x11\x22\x33\x44"
        head = bytes([first, size[0] | (0x80 if masked else 0)]) + size[1:]
        return head + (mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)) if masked else payload)

    def closing_code(self, client):
        """Of the Close that ends it; the daemon ends its side then."""
        data = b""
        while True:
            piece = client.recv(65536)
            if not piece:
                break
            data += piece
        at, code = 0, None
        while at < len(data):
            n, head = data[at + 1], 2
            self.assertFalse(n & 0x80, "a masked frame of a server")
            if n == 126:
                n, head = struct.unpack(">H", data[at + 2:at + 4])[0], 4
            if data[at] == 0x88:
                code = struct.unpack(">H", data[at + 2:at + 4])[0] if n else 1005
                self.assertEqual(at + head + n, len(data), "something after the Close")
            at += head + n
        return code

    def test_the_handshake(self):
        path = self.begin("sleep", "1000")
        _, head = self.raw(path)
        self.assertTrue(head.startswith("HTTP/1.1 101 "))
        self.assertIn("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", head)  # of RFC 6455, 1.3
        self.assertNotIn("Extensions", head)

    def test_frames_that_break_the_rules(self):
        path, frame = self.begin("sleep", "1000", pty=None), self.frame
        for name, sent, code in (
                ("unmasked", frame(0x82, b"x", masked=False), 1002), ("reserved bit", frame(0xC2, b"x"), 1002),
                ("reserved opcode", frame(0x83, b"x"), 1002), ("reserved control", frame(0x8B), 1002),
                ("no start", frame(0x80, b"x"), 1002), ("two starts", frame(0x02, b"x") + frame(0x82, b"y"), 1002),
                ("a cut ping", frame(0x09, b"x"), 1002), ("a long ping", frame(0x89, b"x" * 126), 1002),
                ("not shortest", b"\x82\xfe\x00\x01\x11\x22\x33\x44x", 1002), ("not utf-8", frame(0x81, b"\xff"), 1007),
                ("too long a text", frame(0x81, b"", length=70000), 1009), ("a close of one byte", frame(0x88, b"x"), 1002),
                ("a close that may not be", frame(0x88, struct.pack(">H", 1005)), 1002),
                ("an ordinary close", frame(0x88, struct.pack(">H", 1000) + b"bye"), 1000), ("an empty close", frame(0x88), 1005)):
            with self.subTest(name):
                client, _ = self.raw(path)
                client.sendall(sent)
                self.assertEqual(self.closing_code(client), code)
        self.assertEqual(ask("GET", path)["state"], "running")

    def test_pings_without_end_and_byte_by_byte(self):
        path = self.begin("sh", "-c", "read x; echo got $x", pty=None)
        client, _ = self.raw(path)
        client.sendall(self.frame(0x89, b"hello") * 20000)
        for byte in self.frame(0x02, b"wo") + self.frame(0x89, b"between") + self.frame(0x00, b"") + self.frame(0x80, b"rd\n"):
            client.sendall(bytes([byte]))
        self.assertEqual(self.closing_code(client), 1000)


if __name__ == "__main__":
    unittest.main()
