#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 480
# TAKES: 40
# ALONE: LONG
"""Connections: one owner, or one address without a key, opens as many as it can, of every kind, from two processes; the
calls of others go on as if they were alone, and whoever is over a limit is told which. LONG=1: 20,000 of them."""
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import time
import unittest
import unittest.mock

import daemontest
from carreltest import CARREL, PATIENCE, PYTHON, TMP
from daemontest import DaemonTest
from mcptest import Mcp
from websockettest import UPGRADE

FULL = os.environ.get("LONG") == "1"
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
MANY = 20000 if FULL else min(4000, FILES - 200)
CALLS = 200 if FULL else 30
# Opens its share, each with what it is given, and holds them; with "again" it opens anew what was refused, for ever, with
# "half" it ends its own side of each.
CROWD = r"""
import resource, select, socket, sys
family, where, n, sent, again = int(sys.argv[1]), eval(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4]), sys.argv[5]
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, waiting = {}, select.epoll()
def one():
    s = socket.socket(family); s.settimeout(60)
    try:
        s.connect(where); s.sendall(sent)
        if again == "half": s.shutdown(socket.SHUT_WR)
    except OSError: s.close(); return
    held[s.fileno()] = s; waiting.register(s, select.EPOLLIN)
codes = {}
def look(wait):
    found = waiting.poll(wait)
    for fd, what in found:
        if fd == 0: continue
        s = held[fd]
        try: bytes = s.recv(65536)
        except OSError: bytes = b""
        if bytes.startswith(b"HTTP/1.1 "): codes[bytes[9:12].decode()] = codes.get(bytes[9:12].decode(), 0) + 1
        if not bytes:
            waiting.unregister(fd); del held[fd]; s.close()
            if again == "again": one()
    return found
for i in range(n):
    one()
    if i % 16 == 15: look(0)
print("opened", flush=True)
waiting.register(0, select.EPOLLIN)
while True:
    if any(fd == 0 for fd, what in look(1)):
        if not sys.stdin.buffer.raw.read(1): break
        while look(0.3): pass
        print(len(held), codes, flush=True)
"""


def median(times):
    return sorted(times)[len(times) // 2]


class Connections(DaemonTest):
    def setUp(self):
        super().setUp()
        self.crowds = []
        made = self.daemon.post("/v1/keys", {"owner": "mallory", "scopes": ["user"]}).json
        self.id, self.key = made["id"], made["key"]
        self.other = self.daemon.key("bob")
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "bobs"}, key=self.other).status)
        self.assertEqual(0, self.daemon.execute("bobs", "echo kept > /file", key=self.other)["exit_code"])

    def tearDown(self):
        self.disperse()
        super().tearDown()

    def disperse(self):
        for process in self.crowds:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()
        self.crowds = []

    def gather(self, n, sent, overtcp=True, how="once"):
        """A process more that opens so many."""
        where = ("127.0.0.1", self.daemon.tcp_port()) if overtcp else self.daemon.socket
        family = socket.AF_INET if overtcp else socket.AF_UNIX
        self.crowds.append(subprocess.Popen(
            [PYTHON, "-S", "-c", CROWD, str(int(family)), repr(where), str(n), repr(sent), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def wait_for_crowds(self):
        for process in self.crowds:
            self.assertEqual("opened\n", process.stdout.readline())

    def held(self):
        """How many each of them has open, and what they were answered, a moment later."""
        found = []
        for process in self.crowds:
            process.stdin.write("?")
            process.stdin.flush()
            count, _, codes = process.stdout.readline().partition(" ")
            found.append((int(count), json.loads(codes.replace("'", '"'))))
        return found

    def connect(self, overtcp):
        if not overtcp:
            return self.daemon.connect()
        connection = self.daemon.connect()

        def connect():
            connection.sock = socket.create_connection(("127.0.0.1", self.daemon.tcp_port()), PATIENCE)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body come apart
        connection.connect = connect
        return connection

    def latencies(self):
        """Of a read and a command, over TCP and the socket, on a connection that is kept and on a new one each."""
        found = {}
        for overtcp in (True, False):
            for kept in (True, False):
                for what, call in (("read", lambda c: self.daemon.get("/v1/workspaces/bobs/files/file", key=self.other, connection=c)),
                                   ("exec", lambda c: self.daemon.post("/v1/workspaces/bobs/exec", {"argv": ["true"]}, key=self.other,
                                                                       connection=c))):
                    times, connection = [], self.connect(overtcp)
                    for _ in range(CALLS):
                        began = time.perf_counter()
                        if not kept:
                            connection.close()
                            connection = self.connect(overtcp)
                        answer = call(connection)
                        times.append(time.perf_counter() - began)
                        self.assertEqual(200, answer.status, answer.bytes)
                    connection.close()
                    found[f"{what} over {'TCP' if overtcp else 'the socket'}, {'one connection' if kept else 'a new one each'}"] = median(times)
        return found

    def compare(self, alone, among, name):
        worst = max(among[what] / alone[what] for what in alone)
        print(f"{name}: at most {worst:.2f} times the latency alone: " +
              ", ".join(f"{what} {1000 * alone[what]:.2f} -> {1000 * among[what]:.2f} ms" for what in alone))
        if FULL:  # beside other tests nothing can be said of milliseconds
            self.assertLess(worst, 3, name)
        self.assertLess(max(among.values()), PATIENCE / 10)

    def request(self, path, key=None, end="\r\n"):
        more = f"Authorization: Bearer {key}\r\n" if key else ""
        return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}{end}".encode()

    def test_one_owner_with_a_crowd_of_streams_keeps_nobody_out(self):
        alone = self.latencies()
        stream = self.request("/v1/events", self.key)
        for _ in range(2):
            self.gather(MANY // 2, stream)
        self.compare(alone, self.latencies(), "while they come")
        self.wait_for_crowds()
        (one, codes), (two, more) = self.held()
        limits = self.daemon.get("/v1/host").json["limits"]
        self.assertLessEqual(one + two, limits["owner_connections"] + 256)  # those that are told no
        self.assertGreaterEqual(one + two, limits["owner_streams"])
        self.assertEqual({"200", "429"}, set(codes) | set(more))
        self.compare(alone, self.latencies(), f"beside {MANY} connections")
        # Who gives up a place is told why, and a revoked key gives up all.
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{self.id}").status)
        while self.daemon.get("/v1/host").json["streams"]:
            self.assertLess(time.monotonic() - began, PATIENCE)
        self.disperse()
        self.compare(alone, self.latencies(), "afterwards")

    def a_crowd_of_streams(self, sent, what):
        """From two processes; how many the owner has is bounded, and the others are told so."""
        alone = self.latencies()
        for _ in range(2):
            self.gather(MANY // 2, sent)
        self.compare(alone, self.latencies(), f"while {what} come")
        self.wait_for_crowds()
        (one, codes), (two, more) = self.held()
        limits = self.daemon.get("/v1/host").json["limits"]
        self.assertLessEqual(one + two, limits["owner_connections"] + 256)
        self.assertGreaterEqual(one + two, limits["owner_streams"])
        self.compare(alone, self.latencies(), f"beside {MANY} {what}")
        return set(codes) | set(more)

    def test_a_crowd_of_websockets_keeps_nobody_out(self):
        """Clients of a command, each with a connection that was upgraded."""
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "mallorys"}, key=self.key).status)
        runs = self.daemon.post("/v1/workspaces/mallorys/exec", {"argv": ["sleep", "1000"], "background": True}, key=self.key).json["exec_id"]
        attach = self.request(f"/v1/workspaces/mallorys/exec/{runs}/attach", self.key, end=UPGRADE + "\r\n")
        self.assertEqual({"101", "429"}, self.a_crowd_of_streams(attach, "WebSockets"))
        began = time.monotonic()
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{self.id}").status)
        while self.daemon.get("/v1/host").json["streams"]:
            self.assertLess(time.monotonic() - began, PATIENCE)

    def test_a_crowd_of_streams_of_mcp_keeps_nobody_out(self):
        mcp = Mcp(self.daemon, key=self.key)
        message = mcp.message("subscriptions/listen", {"notifications": {}})
        body = json.dumps(message)
        head = "".join(f"{name}: {value}\r\n" for name, value in mcp.headers(message).items())
        sent = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        self.assertEqual({"200", "429"}, self.a_crowd_of_streams(sent, "streams of MCP"))

    def test_a_crowd_without_a_key_keeps_nobody_out(self):
        """Half heads, nothing at all, refused keys, requests that need none: of the address that others come from, too."""
        alone = self.latencies()
        for sent in (self.request("/v1/host", end=""), b"", self.request("/healthz"), self.request("/v1/events", "ck_x")):
            self.gather(MANY // 8, sent)
        self.wait_for_crowds()
        self.compare(alone, self.latencies(), f"beside {MANY // 2} connections without a key")
        limits = self.daemon.get("/v1/host").json["limits"]
        self.assertLessEqual(sum(count for count, _ in self.held()), limits["address_connections"] + 256)

    def test_who_reads_and_sends_nothing_more_keeps_nobody_out(self):
        """Half bodies, and streams whose clients have ended their side."""
        alone = self.latencies()
        body = self.request("/v1/workspaces", self.key).replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n{")
        self.gather(MANY // 4, body)
        self.gather(MANY // 4, self.request("/v1/events", self.key), how="half")
        self.wait_for_crowds()
        self.compare(alone, self.latencies(), f"beside {MANY // 2} half bodies and half closed streams")
        limits = self.daemon.get("/v1/host").json["limits"]
        self.assertLessEqual(sum(count for count, _ in self.held()), limits["owner_connections"] + 256)

    def test_who_comes_again_and_again_takes_time_and_no_places(self):
        alone = self.latencies()
        for _ in range(2):
            self.gather(MANY // 8, self.request("/v1/events", self.key), how="again")
        self.wait_for_crowds()
        among = self.latencies()
        print("beside two that connect as fast as they are refused: " + ", ".join(
            f"{what} {1000 * alone[what]:.2f} -> {1000 * among[what]:.2f} ms" for what in alone))
        self.assertLess(max(among.values()), PATIENCE / 10)

    def test_a_crowd_over_the_socket_keeps_nobody_out(self):
        alone = self.latencies()
        self.gather(MANY // 4, self.request("/v1/events", self.key), overtcp=False)
        self.gather(MANY // 4, self.request("/v1/workspaces", self.key), overtcp=False)
        self.wait_for_crowds()
        self.compare(alone, self.latencies(), f"beside {MANY // 2} connections over the socket")
        self.assertEqual(200, self.daemon.get("/v1/host").status)


class Descriptors(DaemonTest):
    """Where few files may be open: one owner's connections leave enough for the commands, files and plans of others."""

    def setUp(self):
        limited = f"{TMP}/limited-{os.getpid()}"
        with open(limited, "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\nulimit -n 1024\nexec {CARREL} "$@"\n')
        os.chmod(limited, 0o755)
        self.addCleanup(os.unlink, limited)
        with unittest.mock.patch.object(daemontest, "CARREL", limited):
            super().setUp()

    def test_connections_that_need_the_most_descriptors_leave_others_theirs(self):
        key, other = self.daemon.key("mallory"), self.daemon.key("bob")
        mine, theirs = self.workspace(owner="mallory"), self.workspace(owner="bob")
        self.assertEqual(0, self.daemon.execute(mine, "head -c 64M /dev/zero > /big")["exit_code"])
        done = self.daemon.execute(mine, "head -c 20M /dev/zero | base64")["exec_id"]
        runs = self.daemon.post(f"/v1/workspaces/{mine}/exec", {"argv": ["sleep", "1000"], "background": True}).json["exec_id"]
        paths = [f"/v1/workspaces/{mine}/exec/{done}/output?format=raw", f"/v1/workspaces/{mine}/files/big", "/v1/events",
                 f"/v1/workspaces/{mine}/exec/{runs}/output?follow=1", "/v1/audit?follow=1", f"/v1/workspaces/{mine}/files-watch?path=/"]
        for i in range(400):
            s = socket.create_connection(("127.0.0.1", self.daemon.tcp_port()), PATIENCE)
            self.addCleanup(s.close)
            with contextlib.suppress(OSError):
                s.sendall(f"GET {paths[i % len(paths)]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        deadline = time.monotonic() + PATIENCE
        while (host := self.daemon.get("/v1/host").json)["connections"] < 60:
            self.assertLess(time.monotonic(), deadline, host)
        self.assertEqual((256, 96), (host["limits"]["max_connections"], host["limits"]["owner_connections"]))
        for _ in range(3):
            began = [self.daemon.post(f"/v1/workspaces/{theirs}/exec", {"command": "sleep 1; echo ok", "background": True}, key=other)
                     for _ in range(20)]
            self.assertEqual({202}, {answer.status for answer in began}, began[-1].bytes)
            for answer in began:
                out = self.daemon.get(f"/v1/workspaces/{theirs}/exec/{answer.json['exec_id']}/output?follow=1&format=raw", key=other)
                self.assertEqual((200, b"ok\n"), (out.status, out.bytes))
        self.assertEqual(0, self.daemon.execute(theirs, "echo b > /b", key=other, mode="plan")["exit_code"])
        self.assertIn(self.daemon.request("PUT", f"/v1/workspaces/{theirs}/files/c", b"c", key=other).status, (200, 201, 204))
        self.assertEqual(b"c", self.daemon.get(f"/v1/workspaces/{theirs}/files/c", key=other).bytes)
        self.assertNotIn("too many open files", self.daemon.said().lower())


class Limited(DaemonTest):
    """Limits that are small enough to be seen one by one."""
    options = ("--set", "max_connections=160", "--set", "owner_connections=20", "--set", "owner_streams=6",
               "--set", "address_connections=10")

    def open(self, path, key=None, more="", source="127.0.0.1"):
        s = socket.create_connection(("127.0.0.1", self.daemon.tcp_port()), PATIENCE, (source, 0))
        self.addCleanup(s.close)
        auth = f"Authorization: Bearer {key}\r\n" if key else ""
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{auth}{more}\r\n".encode())
        return s

    def heard(self, s):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(4096)
            if not piece:
                break
            head += piece
        return head

    def rest(self, s):
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := s.recv(65536):
                found += piece
        return found

    def refused(self, s, setting):
        answer = self.heard(s)
        while b"}\n" not in answer and b"}}" not in answer:
            answer += s.recv(4096)
        self.assertTrue(answer.startswith(b"HTTP/1.1 429 "), answer)
        self.assertIn(b"\r\nRetry-After: 1\r\n", answer)
        error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
        self.assertEqual(("quota_exceeded", setting), (error["code"], error["details"]["reason"]))
        self.assertIn(setting, error["message"])


class Few(Limited):
    def test_each_limit_has_its_name_and_the_oldest_stream_makes_room(self):
        key, other = self.daemon.key("ann"), self.daemon.key("bob")
        streams = [self.open("/v1/events", key) for _ in range(6)]
        for s in streams:
            self.assertIn(b" 200 ", self.heard(s))
        self.refused(self.open("/v1/audit?follow=1", key), "owner_streams")
        self.assertIn(b" 200 ", self.heard(self.open("/v1/events", other)))
        time.sleep(10.1)  # what has lasted so long makes room
        late = self.open("/v1/events", key)
        self.assertIn(b" 200 ", self.heard(late))
        last = self.rest(streams[0])
        self.assertIn(b"event: error\ndata: ", last)
        error = json.loads(re.search(rb"event: error\ndata: (.*)", last).group(1))["error"]
        self.assertEqual(("quota_exceeded", "owner_streams"), (error["code"], error["details"]["reason"]))
        for s in streams[1:]:
            s.settimeout(0.05)
            self.assertRaises(TimeoutError, self.rest, s)

    def test_one_key_does_not_keep_out_another_of_its_owner(self):
        agent, person = self.daemon.key("ann"), self.daemon.key("ann")
        streams = [self.open("/v1/events", agent) for _ in range(6)]
        for s in streams:
            self.assertIn(b" 200 ", self.heard(s))
        self.assertIn(b" 200 ", self.heard(self.open("/v1/events", person)))
        self.assertIn(b'"owner_streams"', self.rest(streams[0]))

    def test_an_owner_and_an_address_have_no_more_than_their_share(self):
        key = self.daemon.key("ann")
        for _ in range(20):
            self.assertIn(b" 200 ", self.heard(self.open("/v1/workspaces", key)))
        self.refused(self.open("/v1/workspaces", key), "owner_connections")
        time.sleep(1.1)  # idle for so long they make room
        self.assertIn(b" 200 ", self.heard(self.open("/v1/workspaces", key)))
        unknown = [self.open("/healthz", more="X-Half: ") for _ in range(10)]  # heads that do not end
        time.sleep(0.5)
        last = self.open("/v1/workspaces", key)
        self.refused(unknown[0], "address_connections")
        self.assertIn(b" 200 ", self.heard(last))

    def test_who_reads_a_long_answer_slowly_without_a_key_keeps_nobody_out(self):
        """From one address, and from so many that all places without a key are taken."""
        key = self.daemon.key("ann")
        size = len(self.daemon.get("/openapi.json").bytes)
        for addresses in (1, 6):
            slow = [self.slow(f"127.0.0.{2 + i % addresses}", size) for i in range(10 * addresses)]
            for s in slow:
                with contextlib.suppress(ConnectionError):  # it had to make room
                    s.recv(1)
            for path, more in (("/healthz", None), ("/v1/workspaces", key)):
                for source in ("127.0.0.1", "127.0.0.2", "127.0.0.99"):
                    for _ in range(3):
                        self.assertIn(b" 200 ", self.heard(self.open(path, more, source=source)), (addresses, path, source))
            for s in slow:
                s.close()

    def slow(self, source, size):
        """Asks for so many long answers that no buffer takes them, and reads none."""
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(PATIENCE)
        s.bind((source, 0))
        s.connect(("127.0.0.1", self.daemon.tcp_port()))
        s.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * (1 + (8 << 20) // size))
        return s

    def test_limits_are_checked_and_shown(self):
        self.assertEqual({"max_connections": 160, "owner_connections": 20, "owner_streams": 6, "address_connections": 10},
                         {name: value for name, value in self.daemon.get("/v1/host").json["limits"].items()
                          if "connections" in name or "streams" in name})
        metrics = self.daemon.get("/metrics").bytes.decode()
        for name in ("carrel_http_connections", "carrel_http_streams", "carrel_http_evicted_total", "carrel_http_turned_away_total"):
            self.assertIn(f"\n{name} ", metrics)


class TrustedProxy(Limited):
    """What a proxy has open is its clients'; without a key it is counted by no address."""
    options = (*Limited.options, "--set", "trusted_proxies=192.0.2.1 127.0.0.0/8")

    def test_its_connections_are_not_counted_by_address(self):
        key = self.daemon.key("ann")
        half = [self.open("/healthz", more="X-Half: ") for _ in range(25)]
        self.assertIn(b" 200 ", self.heard(self.open("/v1/workspaces", key)))
        for s in half:
            s.settimeout(0.01)
            self.assertRaises(TimeoutError, s.recv, 1)


if __name__ == "__main__":
    unittest.main(verbosity=0)
