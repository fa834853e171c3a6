#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""What no client should send: smuggling shapes, garbage, wrong types, too much. A typed error or a clean close, and the
daemon goes on as if nothing had been."""
import contextlib
import json
import os
import re
import resource
import select
import socket
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from carreltest import PATIENCE, TMP
from daemontest import DaemonTest

HOST = b"Host: x\r\n"
SMUGGLING = {
    "both lengths": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length twice": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    "host twice": b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "bare LF": b"GET /healthz HTTP/1.1\n" + HOST + b"\r\n",
    "bare LF in headers": b"GET /healthz HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "NUL in a header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"A: b\0c\r\n\r\n",
    "space before the colon": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length : 5\r\n\r\nhello",
    "folded header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n",
    "encoding twice": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "unknown encoding": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
    "negative length": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
    "signed length": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: +5\r\n\r\nhello",
    "huge length": b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "absolute target": b"GET http://y/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "version 2": b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n",
    "garbage": bytes(range(256)) * 8 + b"\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300,
    "a head without end": b"GET /healthz HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 70000 + b"\r\n\r\n",
    "a thousand headers": b"GET /healthz HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 1000 + b"\r\n",
}
BODIES = [
    (b"{", "half an object"), (b"[]", "a list"), (b"null", "null"), (b'{"a":1,"a":2}', "a key twice"),
    (b'{"id":5}', "a number for a text"), (b'{"id":null,"nope":1}', "an unknown key"), (b"\xff\xfe{}", "not UTF-8"),
    (b'{"policy":[]}', "a list for a policy"), (b'{"policy":{"nope":1}}', "an unknown policy key"),
    (b'{"policy":{"limits":{"memory":0}}}', "no memory at all"), (b'{"policy":{"level":"dir"}}', "a weaker level"),
    (b'{"policy":{"network":"hosts"}}', "a network there is not"), (b'{"links":{"ticket_at":"../x"}}', "a link that climbs"),
    (b"[" * 100000, "a deep list"), (b'{"id":"' + b"a" * 300000 + b'"}', "a body that is too large"),
    (b'{"links":{"skills_at":"/etc"}}', "an absolute link"), (b'{"owner":"../a"}', "an owner that climbs"),
]
EXECS = [
    {}, {"command": "a", "argv": ["b"]}, {"argv": []}, {"argv": "ls"}, {"argv": [1]}, {"command": 5}, {"command": "a\0b"},
    {"command": "a", "timeout_ms": 0}, {"command": "a", "timeout_ms": -1}, {"command": "a", "timeout_ms": "5s"},
    {"command": "a", "env": []}, {"command": "a", "env": {"A=B": "c"}}, {"command": "a", "env": {"": "c"}},
    {"command": "a", "env": {"A": 5}}, {"command": "a", "pty": {"cols": 0}}, {"command": "a", "pty": 1},
    {"command": "a", "stream": "xml"}, {"command": "a", "user": "nobody"}, {"command": "a", "cwd": "relative"},
    {"command": "a", "cwd": "/proc/self/fd/7"}, {"command": "a", "cwd": "/proc/1/root"}, {"command": "a", "stdin": 5},
    {"command": "a", "stdin_b64": "!"}, {"command": "a", "limits": {"memory": "lots"}}, {"command": "a", "nope": 1},
    {"command": "a", "level": "dir"}, {"command": "a", "network": "host"}, {"command": "a", "policy": {}},
]


class BadInput(DaemonTest):
    def raw(self, data, wait=5):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.daemon.socket)
            try:
                s.sendall(data)
            except OSError:
                pass
            said = b""
            s.settimeout(wait)
            try:
                while piece := s.recv(65536):
                    said += piece
            except (TimeoutError, ConnectionResetError):
                pass
            return said

    def test_shapes_that_two_parsers_could_read_in_two_ways(self):
        for name, shape in SMUGGLING.items():
            with self.subTest(shape=name):
                # Were it taken for a request, the second one would be answered with 200.
                said = self.raw(shape + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertNotIn(b"HTTP/1.1 200", said)
                if said:
                    self.assertRegex(said, rb"^HTTP/1\.1 (4\d\d|501|505) ")
                    self.assertIn(b'{"error":{"code":"', said)
                    self.assertEqual(1, len(re.findall(rb"HTTP/1\.1 \d\d\d ", said)), said)
                    self.assertRegex(said, rb"\r\nX-Request-Id: r[a-z2-7]{26}\r\n")

    def test_bodies(self):
        for body, name in BODIES:
            with self.subTest(body=name):
                answer = self.daemon.request("POST", "/v1/workspaces", body)
                self.assertIn(answer.status, (400, 413), answer.bytes)
                self.assertIn(answer.code, ("invalid_request", "too_large"))
                self.assertTrue(answer.json["error"]["message"])
        self.assertEqual([], self.daemon.get("/v1/workspaces").json["workspaces"], "something was half-written")

    def test_exec_requests(self):
        ws = self.workspace()
        for body in EXECS:
            with self.subTest(body=body):
                answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", body)
                self.assertIn(answer.status, (400, 403), f"{answer.status} {answer.bytes!r}")
        self.assertEqual([], self.daemon.get(f"/v1/workspaces/{ws}/exec").json["execs"])

    def test_requests_larger_than_a_command_may_be_are_refused_and_end_nobody(self):
        ws = self.workspace()
        front = self.daemon.front_pid()
        for body in ({"argv": ["x"] * 40000}, {"argv": ["true"], "cwd": "/" + "a" * 4095}, {"argv": ["true", "y" * 5000000]},
                     {"argv": ["true"], "env": {f"V{i}": "1" for i in range(4096)}}):
            answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", body)
            self.assertIn(answer.status, (400, 413), f"{answer.status} {answer.bytes[:200]!r}")
        large = self.daemon.request("PATCH", f"/v1/workspaces/{ws}", {"policy": {"env": {"A": "z" * 70000}}})
        self.assertEqual(200, large.status, large.bytes[:200])
        self.assertEqual("70000\n", self.daemon.execute(ws, "echo -n $A | wc -c")["stdout"])
        self.assertEqual(front, self.daemon.front_pid(), "the front was ended")

    def test_what_a_command_leaves_behind_and_writes_for_ever_holds_up_nobody(self):
        ws = self.workspace()
        for more in ({}, {"background": True}, {"stream": "raw"}):
            self.assertIn(self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "yes & echo begun", **more}).status, (200, 202))
        self.assertEqual("ok\n", self.daemon.execute(self.workspace(), "echo ok")["stdout"])

    def test_a_stream_ends_with_its_command_though_its_reader_was_slow_and_others_hold_the_pipe(self):
        ws = self.workspace()
        size = 80 << 20  # more than the spool keeps ahead of a reader
        response = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {
            "command": f"sleep 1000 & head -c {size} /dev/zero", "stream": "raw"})
        time.sleep(1)
        total = 0
        while piece := response.read(1 << 20):
            total += len(piece)
        self.assertEqual(size, total)

    def test_nothing_in_an_exec_goes_beyond_the_policy(self):
        ws = self.workspace(policy={"limits": {"timeout": "2s", "pids": 50}})
        for body in ({"timeout_ms": 60000}, {"limits": {"pids": 500}}, {"user": "root"}):
            answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true", **body})
            self.assertEqual((403, "forbidden"), (answer.status, answer.code), body)
        done = self.daemon.execute(ws, "sleep 60")
        self.assertEqual("timeout", done["reason"])

    def test_a_workspace_whose_directory_has_vanished(self):
        import shutil
        ws = self.workspace()
        shutil.rmtree(f"{self.daemon.state}/main/threads/{ws}")
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"})
        self.assertEqual((404, "not_found"), (answer.status, answer.code))

    def test_slow_clients_do_not_hold_up_others(self):
        slow = []
        for _ in range(100):
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.daemon.socket)
            s.send(b"GET /healthz HTTP/1.1\r\nHost:")
            slow.append(s)
        self.assertEqual(200, self.daemon.get("/healthz").status)
        for s in slow:
            s.close()

    def test_a_client_that_hangs_up_does_not_end_its_command(self):
        ws = self.workspace()
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.daemon.socket)
            body = json.dumps({"command": "sleep 1; echo done > file"}).encode()
            s.sendall(f"POST /v1/workspaces/{ws}/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.3)
        deadline = time.monotonic() + PATIENCE
        while self.daemon.execute(ws, "cat file 2>/dev/null")["stdout"] != "done\n":
            self.assertLess(time.monotonic(), deadline, "the command ended with its client")
            time.sleep(0.1)

    def test_a_body_is_not_waited_for_before_it_is_known_who_sends_it(self):
        head = b"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer nobody\r\nContent-Length: 200000\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.daemon.socket)
            s.sendall(head)
            self.assertIn(b" 401 ", s.recv(4096).split(b"\r\n")[0])
            s.sendall(b"x" * 100000)
            self.assertIn("\ncarrel_http_body_bytes 0\n", self.daemon.get("/metrics").bytes.decode())

    def test_a_body_is_not_kept_while_its_command_runs(self):
        ws = self.workspace()
        body = {"command": "wc -c; touch read; sleep 1000", "stdin": "x" * 1000000}
        waiting = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", body, wait=False)
        deadline = time.monotonic() + PATIENCE
        while self.daemon.execute(ws, "ls read 2>/dev/null")["stdout"] != "read\n":
            self.assertLess(time.monotonic(), deadline)
        self.assertIn("\ncarrel_http_body_bytes 0\n", self.daemon.get("/metrics").bytes.decode())
        waiting.close()

    def test_half_requests_do_not_take_all_the_places(self):
        many = 7700  # all that strangers get
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < many + 100:
            self.skipTest("this user may not have so many connections")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many + 100), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        place = ("127.0.0.1", self.daemon.tcp_port())
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            for _ in range(many):
                stack.enter_context(socket.create_connection(place, PATIENCE)).sendall(b"GET /healthz HT")
            self.assertLess(time.monotonic() - began, 20, "they were to be fresh")
            began = time.monotonic()
            client = stack.enter_context(socket.create_connection(place, PATIENCE))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b" 200 ", client.recv(4096).split(b"\r\n")[0])
            self.assertLess(time.monotonic() - began, 10, "it waited until they were too slow")

    def test_adopting_and_creating_the_same_ids_at_once(self):
        ids = [f"tree{i}" for i in range(40)]
        self.workspace(id="first")  # makes the bucket
        for name in ids:
            os.mkdir(f"{self.daemon.state}/main/threads/{name}")
        with ThreadPoolExecutor(8) as pool:
            adopted = [pool.submit(self.daemon.post, "/v1/adopt", {"owner": "ann"}) for _ in range(3)]
            created = {name: pool.submit(self.daemon.post, "/v1/workspaces", {"id": name, "owner": "bob"}) for name in ids}
        self.assertEqual([200] * 3, [answer.result().status for answer in adopted], [a.result().bytes for a in adopted])
        for name, answer in created.items():
            self.assertIn(answer.result().status, (201, 409), answer.result().bytes)
        self.daemon.post("/v1/adopt", {"owner": "ann"})
        for name in ids:
            owner = self.daemon.get(f"/v1/workspaces/{name}").json["owner"]
            self.assertEqual("bob" if created[name].result().status == 201 else "ann", owner)

    def test_pipelined_requests_are_answered_in_order(self):
        said = self.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
                        b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertEqual([b"200", b"404", b"200"], [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]])

    def test_a_client_that_does_not_read_stalls_only_its_own_command(self):
        ws = self.workspace()
        stuck = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec",
                                   {"command": "yes 0123456789012345678901234567890123456789 | head -c 300000000; echo end >&2",
                                    "stream": "raw"})
        began = time.monotonic()
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])
        self.assertLess(time.monotonic() - began, PATIENCE / 2)
        state = self.daemon.get(f"/v1/workspaces/{ws}/exec?state=running").json["execs"]
        self.assertEqual(1, len(state), "it did not wait for its reader")
        total = 0
        while piece := stuck.read(1 << 20):
            total += len(piece)
        self.assertEqual(300000004, total)


class LargeBodies(DaemonTest):
    """They are parsed by a thread of their own."""

    def send(self, stack, ws, body, key=None):
        """All of it; the answer is yet to come."""
        s = stack.enter_context(socket.socket(socket.AF_UNIX))
        s.settimeout(PATIENCE)
        s.connect(self.daemon.socket)
        who = f"Authorization: Bearer {key}\r\n" if key else ""
        s.sendall(f"POST /v1/workspaces/{ws}/files-write HTTP/1.1\r\nHost: x\r\n{who}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return s

    def test_others_are_answered_meanwhile(self):
        ws = self.workspace()
        with contextlib.ExitStack() as stack:
            waiting = self.send(stack, ws, b'{"files":[{"path":"/a","content":"' + b"\\u00e4" * 5000000)  # without its end
            connection = stack.enter_context(contextlib.closing(self.daemon.connect()))
            answered = 0
            while not select.select([waiting], [], [], 0)[0]:
                self.assertEqual(200, self.daemon.get("/healthz", connection=connection).status)
                answered += 1
            self.assertIn(b" 400 ", waiting.recv(4096).split(b"\r\n")[0])
            self.assertGreater(answered, 10)

    def test_who_sends_many_keeps_others_waiting_for_one(self):
        large = b'{"files":[{"path":"/a","content":"' + b"\\u00e4" * 3000000
        crowd, his = [self.workspace(owner=name) for name in ("ann", "amy")], self.workspace(owner="bob")
        with contextlib.ExitStack() as stack:
            many = [self.send(stack, ws, large) for _ in range(3) for ws in crowd]
            one = self.send(stack, his, b'{"files":[' + b" " * 200000)
            self.assertIn(b" 400 ", one.recv(4096).split(b"\r\n")[0])
            self.assertLess(len(select.select(many, [], [], 0)[0]), len(many) - 1, "his came behind all the others")

    def test_who_keeps_many_from_their_ends_leaves_others_room(self):
        hers, his = self.workspace(owner="ann"), self.workspace(owner="bob")
        size = 60 << 20
        with contextlib.ExitStack() as stack:
            heads = []
            for _ in range(4):
                s = stack.enter_context(socket.socket(socket.AF_UNIX))
                s.settimeout(PATIENCE)
                s.connect(self.daemon.socket)
                heads.append(s)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who is refused in the middle of it
                    s.sendall(f"POST /v1/workspaces/{hers}/files-write HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + b" " * (size - 1))
            self.assertEqual(3, len(select.select(heads, [], [], 5)[0]), "several of hers are kept")
            answer = self.daemon.post(f"/v1/workspaces/{his}/files-write", b'{"files":[{"path":"/f","content":"x"}]' + b" " * 2000000 + b"}")
            self.assertEqual(200, answer.status, answer.bytes[:200])
        self.assertEqual("x", self.daemon.execute(his, "cat f")["stdout"])

    def test_what_is_wrong_with_one_is_told(self):
        ws = self.workspace()
        url, pad = f"/v1/workspaces/{ws}/files-write", b" " * 140000
        for body, status, words in ((b"[" + pad + b"]", 400, "must be a JSON object"), (b'{"files":[]' + pad, 400, "not proper JSON"),
                                    (b'{"files":[],' + pad + b'"files":[]}', 400, "duplicate"), (b"[" * 140000, 400, "depth"),
                                    (b'{"nope":1' + pad + b"}", 400, "nope"), (b'{"files":[' + b"[]," * 600000 + b"[]]}", 413, "values")):
            answer = self.daemon.post(url, body)
            self.assertEqual(status, answer.status, words)
            self.assertIn(words, answer.bytes.decode())
        answer = self.daemon.post(url, b'{"files":[{"path":"/f","content":"x"}]' + pad + b"}")
        self.assertEqual((200, "x"), (answer.status, self.daemon.execute(ws, "cat f")["stdout"]))

    def test_who_has_left_meanwhile_is_forgotten(self):
        ws, front = self.workspace(), self.daemon.front_pid()
        for _ in range(6):
            with contextlib.ExitStack() as stack:
                self.send(stack, ws, b'{"files":[{"path":"/left","content":"' + b"x" * 20000000 + b'"}]}')
        deadline = time.monotonic() + PATIENCE
        while "\ncarrel_http_body_bytes 0\n" not in self.daemon.get("/metrics").bytes.decode():
            self.assertLess(time.monotonic(), deadline, "bodies of nobody are kept")
        self.assertEqual(front, self.daemon.front_pid())
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])

    def test_a_key_that_is_revoked_meanwhile_opens_nothing(self):
        ws = self.workspace(owner="ann")
        made = self.daemon.post("/v1/keys", {"owner": "ann", "scopes": ["user"]}).json
        with contextlib.ExitStack() as stack:
            waiting = self.send(stack, ws, b'{"files":[{"path":"/late","content":"' + b"\\u00e4" * 5000000 + b'"}]}', made["key"])
            self.assertIn(self.daemon.request("DELETE", f"/v1/keys/{made['id']}").status, (200, 204))
            self.assertIn(b" 401 ", waiting.recv(4096).split(b"\r\n")[0])
        self.assertFalse(os.path.exists(f"{self.daemon.state}/main/threads/{ws}/late"))


class NoSandbox(DaemonTest):
    """A sandbox that cannot be made is no end of a command: the answer says what is in the way."""

    def setUp(self):
        self.options = ("--set", f"mount_roots={TMP}")
        super().setUp()

    def test_what_pid_1_refuses_is_a_conflict_that_names_the_path(self):
        os.mkdir(self.path("outer"))
        os.mkdir(self.path("inner"))
        mounts = [{"source": self.path("outer"), "target": "/data"}, {"source": self.path("inner"), "target": "/data/sub"}]
        ws = self.workspace(policy={"mounts": mounts})
        for more in ({}, {"background": True}, {"stream": True}):
            answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true", **more})
            self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
            self.assertIn("/data/sub", answer.json["error"]["message"])
        answer = self.daemon.get(f"/v1/workspaces/{ws}/files/?list=1")
        self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
        self.assertIn("/data/sub", answer.json["error"]["message"])
        os.mkdir(self.path("outer/sub"))
        self.assertEqual(0, self.daemon.execute(ws, "true")["exit_code"])

    def test_a_link_in_the_place_of_skills_is_a_conflict_that_names_it(self):
        ws = self.workspace()
        self.assertEqual(0, self.daemon.execute(ws, "mkdir -p .solven/skills && ln -s /etc .solven/skills/system")["exit_code"])
        os.makedirs(f"{self.daemon.state}/main/skills/system")
        self.daemon.post(f"/v1/workspaces/{ws}/sleep")
        for answer in (self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"}), self.daemon.get(f"/v1/workspaces/{ws}/files/?list=1")):
            self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
            self.assertIn("'.solven/skills/system' in the workspace is a symlink", answer.json["error"]["message"])


if __name__ == "__main__":
    unittest.main(verbosity=0)
