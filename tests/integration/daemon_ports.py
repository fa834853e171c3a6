#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""Ports: a server that listens inside is reached through the daemon, by whom its address is for, and nothing else is:
streams both ways, WebSockets, servers that misbehave, requests that two parsers could read in two ways."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import socket
import struct
import subprocess
import threading
import time
import unittest
import zlib

from carreltest import CARREL, PATIENCE, ROOT
from daemontest import Answer, DaemonTest

SERVER = r'''
import base64, hashlib, json, os, socket, struct, sys, threading, time, zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while True:
                size = int(self.rfile.readline(), 16)
                data = self.rfile.read(size)
                self.rfile.readline()
                if not size: return
                yield data
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            data = self.rfile.read1(min(left, 65536))
            if not data: return
            left -= len(data)
            yield data
    def say(self, what, status=200, headers=()):
        self.send_response(status)
        for one in headers: self.send_header(*one)
        self.send_header("Content-Length", str(len(what)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(what)
    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data)); self.wfile.flush()
    def do_GET(self):
        if self.path.startswith("/big/"):
            size = int(self.path.split("/")[2])
            self.send_response(200); self.send_header("Content-Length", str(size)); self.end_headers()
            piece = os.urandom(1 << 20); sha = hashlib.sha256()
            open("/sha", "w").write("")
            while size:
                some = piece[:min(size, len(piece))]
                sha.update(some); self.wfile.write(some); size -= len(some)
            open("/sha", "w").write(sha.hexdigest())
        elif self.path == "/drip":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for i in range(3): self.chunk(b"tick %d\n" % i); time.sleep(0.2)
            self.chunk(b"")
        elif self.path == "/none": self.send_response(204); self.end_headers()
        elif self.path == "/same": self.send_response(304); self.send_header("Content-Length", "5"); self.end_headers()
        elif self.path == "/go": self.say(b"", 302, [("Location", "/there"), ("Set-Cookie", "a=b; Domain=example.com; Path=/x; HttpOnly"),
                                                     ("Set-Cookie", "c=d"), ("Strict-Transport-Security", "max-age=9")])
        else: self.say(json.dumps({"method": self.command, "path": self.path, "headers": self.headers.items()}).encode())
    do_HEAD = do_DELETE = do_OPTIONS = do_PATCH = do_GET
    def do_POST(self):
        sha = hashlib.sha256(); n = 0
        if self.path == "/echo":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for data in self.body(): self.chunk(data)
            self.chunk(b""); return
        if self.path == "/early":
            self.close_connection = True; self.say(b"no", 413); return
        for data in self.body(): sha.update(data); n += len(data)
        self.say(json.dumps({"n": n, "sha": sha.hexdigest(), "headers": self.headers.items()}).encode())
    do_PUT = do_POST

def raw():
    """Answers with what the path says; then waits if told to."""
    s = socket.create_server(("127.0.0.1", 8001))
    def one(c):
        head = b""
        while b"\r\n\r\n" not in head:
            more = c.recv(65536)
            if not more: return
            head += more
        words = head.split(b" ")[1].split(b"/")
        c.sendall(zlib.decompress(base64.urlsafe_b64decode(words[2])))
        if words[1] == b"hang": time.sleep(1000)
        c.close()
    while True:
        c, _ = s.accept()
        threading.Thread(target=one, args=(c,), daemon=True).start()

def websocket():
    s = socket.create_server(("::1", 8002), family=socket.AF_INET6)
    def one(c):
        f = c.makefile("rwb")
        key = None
        while (line := f.readline().strip()):
            if line.lower().startswith(b"sec-websocket-key:"): key = line.split(b":")[1].strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        f.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        f.flush()
        while True:
            head = f.read(2)
            if len(head) < 2: break
            n = head[1] & 127
            if n == 126: n = struct.unpack("!H", f.read(2))[0]
            elif n == 127: n = struct.unpack("!Q", f.read(8))[0]
            mask = f.read(4); data = f.read(n)
            data = (int.from_bytes(data, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")
            if head[0] & 15 == 8: f.write(b"\x88\x00"); f.flush(); break
            size = bytes([n]) if n < 126 else b"\x7e" + struct.pack("!H", n) if n < 65536 else b"\x7f" + struct.pack("!Q", n)
            f.write(bytes([0x80 | (head[0] & 15)]) + size + data); f.flush()
        f.close(); c.close()
    while True:
        c, _ = s.accept()
        threading.Thread(target=one, args=(c,), daemon=True).start()

threading.Thread(target=raw, daemon=True).start()
threading.Thread(target=websocket, daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
server.daemon_threads = True
print("ready", flush=True)
server.serve_forever()
'''

LONG = os.environ.get("LONG") == "1"


def packed(raw):
    return base64.urlsafe_b64encode(zlib.compress(raw)).decode()


GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Ports(DaemonTest):
    def setUp(self):
        super().setUp()
        self.alice, self.bob = self.daemon.key("alice"), self.daemon.key("bob")
        self.ws = self.daemon.post("/v1/workspaces", {"id": "desk"}, key=self.alice).json["id"]
        self.serve()

    def serve(self):
        self.daemon.execute(self.ws, "cat >/server.py", stdin=SERVER)
        self.server = self.daemon.post(f"/v1/workspaces/{self.ws}/exec", {"command": "exec python3 /server.py",
                                                                          "background": True}).json["exec_id"]
        deadline = time.monotonic() + PATIENCE
        while b"ready" not in self.daemon.get(f"/v1/workspaces/{self.ws}/exec/{self.server}/output?format=raw").bytes:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def open(self, port=8000, access=None, key=None):
        answer = self.daemon.post(f"/v1/workspaces/{self.ws}/ports/{port}", {"access": access} if access else {},
                                  key=key or self.alice)
        self.assertEqual(201, answer.status, answer.bytes)
        return answer.json

    def tcp(self):
        return socket.create_connection(("127.0.0.1", self.daemon.tcp_port()), timeout=PATIENCE)

    def ask(self, path, method="GET", body=None, key=None, headers=None, **more):
        own = http.client.HTTPConnection("127.0.0.1", self.daemon.tcp_port(), timeout=PATIENCE)
        head = dict(headers or {})
        if key:
            head["Authorization"] = f"Bearer {key}"
        try:
            own.request(method, path, body=body, headers=head, **more)
            return Answer(own.getresponse())
        finally:
            own.close()

    def exchange(self, data, patience=PATIENCE):
        """Raw bytes there, and all that comes until the connection ends."""
        with self.tcp() as s:
            s.settimeout(patience)
            s.sendall(data)
            with contextlib.suppress(OSError):  # an answer that was cut off may have reset the connection by now
                s.shutdown(socket.SHUT_WR)
            got = b""
            while True:
                try:
                    more = s.recv(65536)
                except ConnectionResetError:
                    break
                if not more:
                    break
                got += more
            return got

    # --- the resource

    def test_open_list_close(self):
        one = self.open()
        self.assertEqual(("desk", 8000, "key"), (one["workspace"], one["port"], one["access"]))
        self.assertEqual(f"http://127.0.0.1:{self.daemon.tcp_port()}{one['path']}", one["url"])
        token = one["path"].split("/")[2]
        self.assertEqual(f"http://{token}.localhost:{self.daemon.tcp_port()}/", one["host_url"])
        two = self.open(8001, "token")
        listed = self.daemon.get("/v1/workspaces/desk/ports", key=self.alice).json["ports"]
        self.assertEqual([8000, 8001], [p["port"] for p in listed])
        self.assertEqual(one["url"], listed[0]["url"])
        self.assertIsNone(listed[1]["url"], "a secret is told once")
        self.assertNotIn(two["path"].split("/")[2], json.dumps(listed))
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk/ports/8000", key=self.alice).status)
        self.assertEqual(404, self.daemon.request("DELETE", "/v1/workspaces/desk/ports/8000", key=self.alice).status)
        self.assertEqual(404, self.ask(one["path"], key=self.alice).status)
        again = self.open(8001, "token")
        self.assertEqual(404, self.ask(two["path"]).status, "the old address")
        self.assertNotEqual(404, self.ask(again["path"] + "x/" + packed(b"x")).status)
        records = [(r["operation"], r["details"].get("port"), r["actor"][:4]) for r in self.daemon.audit()
                   if r["operation"].startswith("port.")]
        self.assertEqual([("port.open", 8000, "key:"), ("port.open", 8001, "key:"), ("port.close", 8000, "key:"),
                          ("port.open", 8001, "key:")], records)
        for path in (f"{self.daemon.state}/db", f"{self.daemon.state}/audit"):
            for name in os.listdir(path):
                with open(f"{path}/{name}", "rb") as file:
                    self.assertNotIn(again["path"].split("/")[2].encode(), file.read(), "the secret is on disk")

    def test_refusals(self):
        for port in ("0", "65536", "-1", "08", "8000x", "99999999999999999999", "1.5"):
            self.assertIn(self.daemon.post(f"/v1/workspaces/desk/ports/{port}", key=self.alice).status, (400, 404), port)
        for body in ({"access": "all"}, {"access": 5}, {"nope": 1}):
            self.assertEqual(400, self.daemon.post("/v1/workspaces/desk/ports/8000", body, key=self.alice).status)
        for method, path in (("GET", "ports"), ("POST", "ports/8000"), ("DELETE", "ports/8000")):
            body = {} if method == "POST" else None
            self.assertEqual(404, self.daemon.request(method, f"/v1/workspaces/desk/{path}", body, key=self.bob).status)
        for port in range(10000, 10064):
            self.open(port)
        answer = self.daemon.post("/v1/workspaces/desk/ports/9", key=self.alice)
        self.assertEqual((429, "quota_exceeded"), (answer.status, answer.code))

    def test_who_may(self):
        path = self.open()["path"]
        self.assertEqual((401, "unauthorized"), ((a := self.ask(path)).status, a.code))
        self.assertEqual("Bearer", self.ask(path).headers["WWW-Authenticate"])
        self.assertEqual(404, self.ask(path, key=self.bob).status)
        self.assertEqual(401, self.ask(path, key="ck_nope").status)
        self.assertEqual(200, self.ask(path, key=self.alice).status)
        self.assertEqual(404, self.ask("/p/p" + "a" * 26 + "/", key=self.alice).status)
        for odd in ("/p/", "/p", "/p//x", "/p/..%2f", "/p/" + path.split("/")[2][:-1] + "/"):
            self.assertIn(self.ask(odd, key=self.alice).status, (401, 404), odd)
        moved = self.ask(path[:-1] + "?q=1", key=self.alice)
        self.assertEqual((308, path + "?q=1"), (moved.status, moved.headers["Location"]))
        free = self.open(8000, "token")["path"]
        self.assertEqual(200, self.ask(free).status)
        self.assertEqual(404, self.ask(path, key=self.alice).status)
        self.daemon.request("DELETE", "/v1/workspaces/desk", key=self.alice)
        self.assertEqual(404, self.ask(free).status, "in the trash")

    def test_the_key_is_never_seen_inside(self):
        path = self.open()["path"]
        for spelled in ("Authorization", "AUTHORIZATION", "authorization"):
            seen = self.ask(path, headers={spelled: f"Bearer {self.alice}"})
            self.assertEqual(200, seen.status)
            self.assertNotIn(self.alice.encode(), seen.bytes)
            self.assertNotIn(b"uthorization", seen.bytes)
        free = self.open(8000, "token")["path"]
        with open(f"{self.daemon.state}/admin.key", encoding="ascii") as file:
            admin = file.read().strip()
        for key in (self.alice, self.bob, "ck_" + "a" * 52, admin):
            self.assertNotIn(key.encode(), self.ask(free, key=key).bytes)
        self.assertIn(b"Basic abcd", self.ask(free, headers={"Authorization": "Basic abcd"}).bytes, "the server's own")

    def test_what_the_server_sees(self):
        path = self.open()["path"]
        port = self.daemon.tcp_port()
        answer = self.ask(path + "a//b/../c%2f%00?x=%20&y", key=self.alice,
                          headers={"Connection": "close, X-Drop", "X-Drop": "1", "X-Keep": "2", "X-Forwarded-For": "9.9.9.9",
                                   "X_Forwarded_Host": "evil", "TE": "trailers", "Cookie": "a=b", "Upgrade": "h2c"}).json
        self.assertEqual("/a//b/../c%2f%00?x=%20&y", answer["path"])
        seen = {name.lower(): value for name, value in answer["headers"]}
        self.assertEqual("localhost:8000", seen["host"])
        self.assertEqual((f"127.0.0.1:{port}", "http", path[:-1]),
                         (seen["x-forwarded-host"], seen["x-forwarded-proto"], seen["x-forwarded-prefix"]))
        self.assertEqual(("2", "a=b", "close"), (seen["x-keep"], seen["cookie"], seen["connection"]))
        for gone in ("x-drop", "x-forwarded-for", "x_forwarded_host", "te", "upgrade", "authorization"):
            self.assertNotIn(gone, seen)
        for method in ("DELETE", "OPTIONS", "PATCH"):
            self.assertEqual(method, self.ask(path, method, key=self.alice).json["method"])
        head = self.ask(path, "HEAD", key=self.alice)
        self.assertEqual((200, b""), (head.status, head.bytes))
        self.assertGreater(int(head.headers["Content-Length"]), 0)
        self.assertEqual((204, 304), (self.ask(path + "none", key=self.alice).status,
                                      self.ask(path + "same", key=self.alice).status))
        go = self.ask(path + "go", key=self.alice)
        self.assertEqual(path + "there", go.headers["Location"])
        self.assertEqual([f"a=b; Path={path}x; HttpOnly", "c=d"], go.headers.get_all("Set-Cookie"))
        self.assertIsNone(go.headers["Strict-Transport-Security"])
        self.assertEqual(1, len(go.headers.get_all("Date")))

    def test_by_name(self):
        token = self.open(8000, "token")["path"].split("/")[2]
        host = f"{token}.localhost:{self.daemon.tcp_port()}"
        answer = self.ask("/v1/workspaces", headers={"Host": host})
        self.assertEqual("/v1/workspaces", answer.json["path"], "all of its paths are the server's")
        self.assertNotIn("x-forwarded-prefix", dict((n.lower(), v) for n, v in answer.json["headers"]))
        self.assertEqual("/there", self.ask("/go", headers={"Host": host}).headers["Location"])
        self.assertEqual(404, self.ask("/", headers={"Host": "p" + "a" * 26 + ".localhost"}).status)

    # --- bodies

    def test_bodies_stream(self):
        path = self.open(8000, "token")["path"]
        data = os.urandom(3 << 20)
        want = hashlib.sha256(data).hexdigest()
        sized = self.ask(path + "x", "POST", body=data).json
        self.assertEqual((len(data), want), (sized["n"], sized["sha"]))
        pieces = (data[i:i + 70000] for i in range(0, len(data), 70000))
        chunked = self.ask(path + "x", "PUT", body=pieces, headers={"Transfer-Encoding": "chunked"}, encode_chunked=True).json
        self.assertEqual((len(data), want), (chunked["n"], chunked["sha"]))
        self.assertEqual(0, self.ask(path + "x", "POST", body=b"").json["n"])
        expected = self.ask(path + "x", "POST", body=b"abc", headers={"Expect": "100-continue"})
        self.assertEqual((200, 3), (expected.status, expected.json["n"]))
        with self.tcp() as s:
            s.sendall(f"GET {path}drip HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            began, got, first = time.monotonic(), b"", None
            while b"\r\n0\r\n\r\n" not in got:
                got += s.recv(65536)
                if b"tick 0" in got and first is None:
                    first = time.monotonic() - began
            self.assertLess(first, time.monotonic() - began - 0.3, "not as it comes")

    def test_both_ways_at_once(self):
        path = self.open(8000, "token")["path"]
        size = 20 << 20
        sha_in, sha_out, got = hashlib.sha256(), hashlib.sha256(), 0
        with self.tcp() as s:
            def send():
                s.sendall(f"POST {path}echo HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
                for _ in range(size >> 16):
                    piece = os.urandom(65536)
                    sha_in.update(piece)
                    s.sendall(piece)
            thread = threading.Thread(target=send)
            thread.start()
            response = http.client.HTTPResponse(s)
            response.begin()
            self.assertEqual(200, response.status)
            while (piece := response.read(65536)):
                got += len(piece)
                sha_out.update(piece)
            thread.join()
        self.assertEqual((size, sha_in.hexdigest()), (got, sha_out.hexdigest()))

    def test_an_early_answer_arrives(self):
        path = self.open(8000, "token")["path"]
        with self.tcp() as s:
            s.sendall(f"POST {path}early HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\nabc".encode())
            self.assertIn(b" 413 ", s.recv(65536).split(b"\r\n")[0])

    def test_a_large_download_with_flat_memory(self):
        path = self.open(8000, "token")["path"]
        size = 100 << 20

        def resident():
            with open(f"/proc/{self.daemon.front_pid()}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096
        before, most, got, sha = resident(), 0, 0, hashlib.sha256()
        began = time.monotonic()
        with self.tcp() as s:
            s.sendall(f"GET {path}big/{size} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            response = http.client.HTTPResponse(s)
            response.begin()
            while (piece := response.read(1 << 20)):
                got += len(piece)
                sha.update(piece)
                most = max(most, resident())
        took = time.monotonic() - began
        self.assertEqual(size, got)
        deadline = time.monotonic() + PATIENCE
        while not (told := self.daemon.execute(self.ws, "cat /sha")["stdout"]):
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(told, sha.hexdigest())
        self.assertLess(most - before, 4 << 20, "the front grows with what passes through")
        print(f"100 MB through a port in {took:.2f} s, the front grew by {(most - before) >> 10} KiB")

    def test_a_client_that_does_not_read_holds_up_nobody(self):
        path = self.open(8000, "token")["path"]
        with self.tcp() as s:
            s.sendall(f"GET {path}big/{50 << 20} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            time.sleep(0.3)
            for _ in range(5):
                self.assertEqual(200, self.ask(path).status)

    # --- servers that misbehave

    def test_closed_and_asleep(self):
        path = self.open(9999)["path"]
        answer = self.ask(path, key=self.alice)
        self.assertEqual((502, "port_closed"), (answer.status, answer.code))
        self.assertIn("nothing listens on port 9999", answer.json["error"]["message"])
        self.daemon.post("/v1/workspaces/desk/sleep", key=self.alice)
        answer = self.ask(path, key=self.alice)
        self.assertEqual((502, "port_closed"), (answer.status, answer.code))
        self.assertIn("asleep", answer.json["error"]["message"])
        self.assertEqual("asleep", self.daemon.get("/v1/workspaces/desk").json["state"], "it was woken")

    def said(self, raw, how="say", method="GET", patience=PATIENCE):
        return self.exchange(f"{method} {self.raw}{how}/{packed(raw)} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), patience)

    def test_answers_that_are_none(self):
        self.raw = self.open(8001, "token")["path"]
        ok = b"HTTP/1.1 200 OK\r\n"
        for bad in (b"garbage\r\n\r\n", b"", b"\0" * 100, b"HTTP/2.0 200 OK\r\n\r\n", b"HTTP/1.1 99 X\r\n\r\n",
                    b"HTTP/1.1 2000 X\r\n\r\n", b"HTTP/1.1 700 X\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", ok + b"X: y\n\r\n\r\n", ok + b"X : y\r\n\r\n",
                    ok + b" folded: y\r\n\r\n", ok + b"X: a\0b\r\n\r\n", ok + b"noheader\r\n\r\n",
                    ok + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", ok + b"Content-Length: -1\r\n\r\n",
                    ok + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    ok + b"Transfer-Encoding: gzip, chunked\r\n\r\n", ok + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    ok + b"X: " + b"a" * 20000 + b"\r\n\r\n", ok + b"".join(b"H%d: x\r\n" % i for i in range(80)) + b"\r\n",
                    b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw"):
            with self.subTest(answer=bad[:60]):
                got = self.said(bad)
                self.assertTrue(got.startswith(b"HTTP/1.1 502 "), got[:200])
                self.assertIn(b"port_bad_answer", got)
                self.assertEqual(1, got.count(b"\r\nDate: "))

    def test_answers_that_are(self):
        self.raw = self.open(8001, "token")["path"]
        ok = b"HTTP/1.1 200 OK\r\n"
        got = self.said(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok + b"Content-Length: 2\r\n\r\nhi"
                        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        self.assertTrue(got.endswith(b"\r\n\r\nhi"), got)
        self.assertEqual(1, got.count(b"HTTP/1.1"))
        self.assertIn(b"0005\r\nuntil\r\n", self.said(b"HTTP/1.0 200 OK\r\n\r\nuntil"))
        self.assertIn(b"\r\n0005\r\nhello\r\n0\r\n\r\n", self.said(ok + b"Transfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nTrail: er\r\n\r\njunk"))
        self.assertIn(b" 200 ", self.said(b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"))
        cut = self.said(ok + b"Content-Length: 10\r\n\r\nabc")
        self.assertTrue(cut == b"" or cut.endswith(b"abc"), cut)
        self.assertNotIn(b"0\r\n\r\n", self.said(ok + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe").split(b"\r\n\r\n", 1)[1])
        bad = self.said(ok + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
        self.assertNotIn(b"\r\n0\r\n\r\n", bad)
        for status in (b"204 None", b"304 Same"):
            got = self.said(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\nhello")
            self.assertNotIn(b"hello", got)
        got = self.said(ok + b"Content-Length: 5\r\nConnection: close, X-Own\r\nX-Own: 1\r\nKeep-Alive: 9\r\nX-Kept: 2\r\n\r\nhello")
        self.assertNotIn(b"x-own", got.lower())
        self.assertNotIn(b"keep-alive: 9", got.lower())
        self.assertIn(b"x-kept: 2", got)

    @unittest.skipUnless(LONG, "takes a minute")
    def test_a_server_that_says_nothing(self):
        self.raw = self.open(8001, "token")["path"]
        began = time.monotonic()
        got = self.said(b"HTTP/1.1 200 OK\r\nX: half a head", "hang", patience=100)
        self.assertTrue(got.startswith(b"HTTP/1.1 504 "), got[:200])
        self.assertIn(b"port_timeout", got)
        self.assertTrue(55 < time.monotonic() - began < 75)

    def test_requests_that_could_be_two(self):
        path = self.open(8000, "token")["path"]
        line = f"POST {path}x HTTP/1.1\r\nHost: x\r\n".encode()
        for bad in (line + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                    line + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", line + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
                    line + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", line + b"X: a\nTransfer-Encoding: chunked\r\n\r\n",
                    line + b"Content-Length: +3\r\n\r\nabc", line + b"Authorization: a\r\nAuthorization: b\r\n\r\n"):
            got = self.exchange(bad)
            self.assertRegex(got[:13], rb"HTTP/1.1 (400|501)", bad)
            self.assertEqual(1, got.count(b"HTTP/1.1 "), got)
        # The body of one is not the next one to the server: it says how much it got.
        inner = b"GET /inner HTTP/1.1\r\nHost: y\r\n\r\n"
        got = self.exchange(line + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(inner) + inner)
        self.assertIn(b'"n": %d' % len(inner), got)
        self.assertEqual(1, got.count(b"HTTP/1.1 200"))
        got = self.exchange(line + b"Content_Length: 0\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        self.assertIn(b'"n": 3', got)
        self.assertNotIn(b"ontent_", got)
        # A body that breaks off is no whole request.
        self.exchange(line + b"Content-Length: 100\r\n\r\nabc")
        self.exchange(line + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        self.assertEqual(200, self.ask(path).status)
        # Two on one connection are two.
        get = f"GET {path}one HTTP/1.1\r\nHost: x\r\n\r\nGET {path}two HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        got = self.exchange(get)
        self.assertEqual(2, got.count(b"HTTP/1.1 200"))
        self.assertLess(got.index(b'"/one"'), got.index(b'"/two"'))

    # --- WebSockets

    def shake(self, path, headers=b""):
        s = self.tcp()
        key = base64.b64encode(os.urandom(16))
        s.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
                  b"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n%s\r\n" % (path.encode(), key, headers))
        file = s.makefile("rb")
        head = [file.readline()]
        while head[-1] not in (b"\r\n", b""):
            head.append(file.readline())
        self.assertIn(b" 101 ", head[0], head)
        said = dict(line.rstrip(b"\r\n").lower().split(b": ", 1) for line in head[1:-1])
        self.assertEqual((b"websocket", b"upgrade"), (said[b"upgrade"], said[b"connection"]))
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        self.assertEqual(accept.lower(), said[b"sec-websocket-accept"])
        return s, file

    def frame(self, data, op=2):
        n, mask = len(data), os.urandom(4)
        size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack("!H", n) if n < 65536 else b"\xff" + struct.pack("!Q", n)
        masked = int.from_bytes(data, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")
        return bytes([0x80 | op]) + size + mask + masked.to_bytes(n, "big")

    def receive(self, file):
        head = file.read(2)
        if len(head) < 2:
            return None
        n = head[1] & 127
        n = struct.unpack("!H", file.read(2))[0] if n == 126 else struct.unpack("!Q", file.read(8))[0] if n == 127 else n
        return file.read(n)

    def test_websocket_echo(self):
        path = self.open(8002)["path"]
        s, file = self.shake(path, b"Authorization: Bearer %s\r\n" % self.alice.encode())
        with s, file:
            for size in (0, 1, 125, 126, 65535, 65536, 5 << 20):
                data = os.urandom(size)
                thread = threading.Thread(target=s.sendall, args=(self.frame(data),))
                thread.start()
                self.assertEqual(data, self.receive(file))
                thread.join()
            time.sleep(1.5)  # nothing is said for a while
            s.sendall(self.frame(b"still there"))
            self.assertEqual(b"still there", self.receive(file))
            s.sendall(self.frame(b"", 8))
            self.assertEqual(b"", self.receive(file))
            self.assertIsNone(self.receive(file), "its end is passed on")
        s, file = self.shake(path, b"Authorization: Bearer %s\r\n" % self.alice.encode())
        with s, file:
            s.sendall(self.frame(b"last words"))
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(b"last words", self.receive(file))
            self.assertIsNone(self.receive(file))

    def test_a_websocket_ends_with_its_port_and_its_key(self):
        path = self.open(8002)["path"]
        s, file = self.shake(path, b"Authorization: Bearer %s\r\n" % self.alice.encode())
        with s, file:
            self.daemon.request("DELETE", "/v1/workspaces/desk/ports/8002", key=self.alice)
            with self.assertRaises((ConnectionResetError, AssertionError)):
                self.assertTrue(self.receive(file))
        path = self.open(8002)["path"]
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        s, file = self.shake(path, b"Authorization: Bearer %s\r\n" % made["key"].encode())
        with s, file:
            self.daemon.request("DELETE", f"/v1/keys/{made['id']}")
            time.sleep(1.1)
            with self.assertRaises((ConnectionResetError, BrokenPipeError, AssertionError)):
                for _ in range(3):
                    s.sendall(self.frame(b"x"))
                    self.assertTrue(self.receive(file))

    def test_what_is_connected_ends_with_the_sandbox(self):
        path = self.open(8000, "token")["path"]
        quiet, file = self.shake(self.open(8002, "token")["path"])
        with self.tcp() as s, quiet, file:
            s.sendall(f"GET {path}big/{50 << 20} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            s.recv(1000)  # and no more: the daemon has to wait
            self.daemon.post("/v1/workspaces/desk/sleep")
            with self.assertRaises((ConnectionResetError, AssertionError)):
                self.assertTrue(self.receive(file))
            with self.assertRaises(ConnectionResetError):
                while s.recv(1 << 20):
                    pass

    # --- the daemon

    def test_a_front_that_is_killed(self):
        path = self.open(8000, "token")["path"]
        with self.tcp() as s:
            s.sendall(f"GET {path}big/{50 << 20} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            s.recv(1000)
            self.daemon.kill_front()
        self.assertEqual(200, self.ask(path).status, "the same address, the same server")
        self.assertEqual(1, len(self.daemon.get("/v1/workspaces/desk/ports").json["ports"]))

    def test_over_the_unix_socket(self):
        path = self.open()["path"]
        self.assertEqual("GET", self.daemon.get(path).json["method"])

    def test_the_command_line(self):
        def carrel(*words):
            return subprocess.run([CARREL, "port", *words], capture_output=True, text=True, timeout=PATIENCE,
                                  env={**os.environ, "CARREL_SOCKET": self.daemon.socket})
        url = carrel("desk", "8000", "--access", "token").stdout
        self.assertRegex(url, rf"^http://127\.0\.0\.1:{self.daemon.tcp_port()}/p/p[a-z2-7]{{26}}/\n$")
        self.assertEqual(200, self.ask("/" + url.strip().split("/", 3)[3]).status)
        self.assertEqual("key", json.loads(carrel("--json", "desk", "9000").stdout)["access"])
        listed = carrel("--list", "desk").stdout
        self.assertRegex(listed, r"8000 +token .*\n9000 +key .*http://")
        self.assertNotIn(url.strip(), listed)
        self.assertEqual([8000, 9000], [p["port"] for p in json.loads(carrel("desk", "--list", "--json").stdout)["ports"]])
        self.assertEqual(0, carrel("--close", "desk", "8000").returncode)
        for words, said in ((("--close", "desk", "8000"), "is not open"), (("desk",), "name a workspace and a port"),
                            (("desk", "0"), "1 to 65535"), (("--list",), "name a workspace"), (("nope", "80"), "nope"),
                            (("--list", "--close", "desk"), "do not go together"), (("--access", "x", "desk", "80"), '"key" or "token"')):
            done = carrel(*words)
            self.assertEqual(125, done.returncode, words)
            self.assertIn(said, done.stderr)
        self.assertIn("examples:", carrel("--help").stdout)

    def test_many_at_once(self):
        path = self.open(8000, "token")["path"]
        wrong = []

        def some():
            for i in range(25):
                answer = self.ask(f"{path}{i}")
                if answer.status != 200 or answer.json["path"] != f"/{i}":
                    wrong.append(answer.bytes)
        threads = [threading.Thread(target=some) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], wrong)
        if not ROOT:
            return  # who else may look
        pid = self.daemon.front_pid()
        deadline = time.monotonic() + PATIENCE
        while len(os.listdir(f"/proc/{pid}/fd")) > 40 and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertLess(len(os.listdir(f"/proc/{pid}/fd")), 41, "descriptors are left")


class Idle(DaemonTest):
    options = ("--set", "idle=1s")

    def test_a_server_keeps_its_sandbox_awake(self):
        self.workspace(id="desk")
        self.daemon.execute("desk", "setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null & sleep 1; touch here")
        path = self.daemon.post("/v1/workspaces/desk/ports/8000").json["path"]
        time.sleep(4)
        answer = self.daemon.get(path)
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertIn(b"here", answer.bytes)


class Setting(DaemonTest):
    options = ("--set", "ports=key")

    def test_it_bounds_what_may_be_opened(self):
        self.workspace(id="desk")
        self.assertEqual(403, self.daemon.post("/v1/workspaces/desk/ports/80", {"access": "token"}).status)
        self.assertEqual(201, self.daemon.post("/v1/workspaces/desk/ports/80").status)


class HostNetwork(DaemonTest):
    options = ("--set", "allow_net_host=yes")

    def test_the_hosts_ports_stay_closed(self):
        self.workspace(id="desk", policy={"network": "host"})
        answer = self.daemon.post("/v1/workspaces/desk/ports/80")
        self.assertEqual((409, "unsupported"), (answer.status, answer.code))
        self.workspace(id="other")
        path = self.daemon.post("/v1/workspaces/other/ports/80").json["path"]
        self.daemon.request("PATCH", "/v1/workspaces/other", {"policy": {"network": "host"}})
        self.daemon.execute("other", "true")
        self.assertEqual(409, self.daemon.get(path).status)


if __name__ == "__main__":
    unittest.main()
