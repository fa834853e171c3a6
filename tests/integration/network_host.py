#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""The host's network works as ever, but for cloud metadata addresses and Carrel's own port."""
import contextlib
import json
import os
import re
import socket
import threading
import time
import unittest

from carreltest import PATIENCE, PYTHON, CarrelTest, carrel
from daemontest import Daemon

HEAD = """
import asyncio, errno, fcntl, os, select, signal, socket, struct, subprocess, sys, threading, time
def outcome(*address, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(family, kind) as s:
            s.connect(address)
        return "connected"
    except OSError as error:
        return errno.errorcode[error.errno]
"""


class HostNetwork(CarrelTest):
    def setUp(self):
        super().setUp()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.server.close)
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.echo, daemon=True).start()

    def echo(self):
        while True:
            try:
                client = self.server.accept()[0]
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")
                client.shutdown(socket.SHUT_WR)
                client.recv(4096)

    def deaf(self):
        """A port where nobody answers: its queue is full, so the kernel drops whoever knocks."""
        server = socket.socket()
        self.addCleanup(server.close)
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            client = socket.socket()
            self.addCleanup(client.close)
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        time.sleep(0.1)
        return server.getsockname()[1]

    def python(self, script, *options):
        return self.ok("--net", "host", *options, "--", PYTHON, "-c", HEAD + script)

    def test_metadata_addresses_are_refused_and_told(self):
        script = HEAD + ("print(outcome('169.254.169.254', 80), outcome('100.100.100.200', 80),"
                         " outcome('::ffff:169.254.169.254', 80, family=socket.AF_INET6))")
        done = self.object(carrel("run", "--json", "--net", "host", "--", PYTHON, "-c", script, cwd=self.dir).stdout)
        self.assertEqual("EACCES EACCES EACCES\n", done["stdout"], done)
        told = {denial["what"]: denial for denial in done["denials"]}
        self.assertEqual({"connect 169.254.169.254:80", "connect 100.100.100.200:80"}, set(told))
        for denial in told.values():
            self.assertEqual(("metadata address", "kernel"), (denial["rule"], denial["source"]))
            self.assertTrue(denial["fix"])
        self.assertEqual(2, told["connect 169.254.169.254:80"]["count"])

    def test_the_port_where_a_daemon_listens_by_default_is_refused(self):
        self.assertEqual("EACCES EACCES\n", self.python("print(outcome('127.0.0.1', 7070), outcome('0.0.0.0', 7070))"))

    def test_programs_connect_as_ever(self):
        self.assertEqual("connected\n", self.python(f"print(outcome('127.0.0.1', {self.port}))"))
        self.assertEqual("ECONNREFUSED\n", self.python("print(outcome('127.0.0.1', 1))"))
        self.assertEqual("hello\n", self.ok("--net", "host", "--", "bash", "-c", f"tail -n 1 </dev/tcp/127.0.0.1/{self.port}"))
        script = f"""
async def main():
    reader, writer = await asyncio.open_connection("127.0.0.1", {self.port})
    print((await reader.read()).split()[-1].decode())
asyncio.run(main())
s = socket.socket()
s.setblocking(False)
print(errno.errorcode[s.connect_ex(("127.0.0.1", {self.port}))], select.select([], [s], [], 5)[1] == [s], s.getsockopt(1, 4))
print(outcome("127.0.0.1", 53, kind=socket.SOCK_DGRAM))
s = socket.create_connection(("127.0.0.1", {self.port}))
print(s.getblocking(), os.get_blocking(s.fileno()), s.getpeername()[1] == {self.port}, errno.errorcode[s.connect_ex(s.getpeername())])
print(errno.errorcode[socket.socket().connect_ex(("127.0.0.1", {self.port})) or 1])
"""
        want = "hello\nEINPROGRESS True 0\nconnected\nTrue True True EISCONN\nEPERM\n"
        self.assertEqual(want, self.python(script))

    def test_wrong_calls_get_the_kernels_errors(self):
        script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack("<H14x", socket.AF_INET)
tcp, file = socket.socket(), os.open("/etc/passwd", os.O_RDONLY)
for call in ((99, address, 16), (file, address, 16), (tcp.fileno(), None, 16), (tcp.fileno(), address, 4), (tcp.fileno(), address, -1),
             (tcp.fileno(), address, 4096)):
    libc.connect(*call)
    print(errno.errorcode[ctypes.get_errno()], end=" ")
"""
        self.assertEqual("EBADF ENOTSOCK EFAULT EINVAL EINVAL EINVAL ", self.python(script))

    def test_unix_sockets_of_its_own_work_where_there_are_any(self):
        script = """
try:
    server = socket.socket(socket.AF_UNIX)
except OSError:
    print("none")
    sys.exit()
for name in ("/tmp/s", "\\0carrel-test-%d" % os.getpid(), "relative"):
    server = socket.socket(socket.AF_UNIX)
    os.chdir("/tmp")
    server.bind(name)
    server.listen()
    socket.socket(socket.AF_UNIX).connect(name)
    peer = server.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    assert struct.unpack("3i", peer) == (os.getpid(), os.getuid(), os.getgid()), peer
print("all")
"""
        self.assertIn(self.python(script), ("all\n", "none\n"))

    def test_who_waits_for_a_connection_is_ended_at_once(self):
        script = f"print('begins', flush=True); outcome('127.0.0.1', {self.deaf()})"
        began = time.monotonic()
        done = carrel("run", "--net", "host", "--timeout", "1s", "--", PYTHON, "-c", HEAD + script, cwd=self.dir)
        self.assertEqual((124, "begins\n"), (done.returncode, done.stdout))
        self.assertLess(time.monotonic() - began, PATIENCE / 2)

    def test_waiting_has_its_bounds(self):
        script = f"""
deaf, port = {self.deaf()}, {self.port}
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300000))
began = time.monotonic()
print(errno.errorcode[s.connect_ex(("127.0.0.1", deaf))], time.monotonic() - began < 5)
child = subprocess.Popen([sys.executable, "-c", "import socket; socket.socket().connect(('127.0.0.1', %d))" % deaf])
time.sleep(0.5)
began = time.monotonic()
child.terminate()
print(child.wait(), time.monotonic() - began < 5)
refused = []
def knock():
    code = socket.socket().connect_ex(("127.0.0.1", deaf))
    refused.append(errno.errorcode[code])
for i in range(200):
    threading.Thread(target=knock, daemon=True).start()
while len(refused) < 200 - 128:
    time.sleep(0.05)
print(set(refused), outcome("127.0.0.1", port), flush=True)
os._exit(0)
"""
        self.assertEqual("EINPROGRESS True\n-15 True\n{'EAGAIN'} connected\n", self.python(script))

    def test_other_protocols_have_no_sockets(self):
        script = """
for kind, protocol in ((1, 262), (1, 132), (5, 0), (6, 0)):
    try:
        socket.socket(socket.AF_INET, kind, protocol)
        print("made", end=" ")
    except OSError as error:
        print(errno.errorcode[error.errno], end=" ")
"""
        self.assertEqual("EPROTONOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT ESOCKTNOSUPPORT ", self.python(script))

    def test_explain_says_so(self):
        self.assertIn("metadata", self.ok("--explain", "--net", "host", "--", "true"))
        self.assertNotIn("metadata", self.ok("--explain", "--", "true"))


class DaemonPort(CarrelTest):
    def test_a_workspace_with_the_hosts_network_does_not_reach_the_daemon(self):
        os.chmod(self.dir, 0o711)
        daemon = Daemon(self.path("d"), "--set", "allow_net_host=yes")
        try:
            own = int(re.search(r"event=listening address='127\.0\.0\.1:(\d+)'", daemon.said())[1])
            with socket.create_server(("127.0.0.1", 0)) as other:
                self.ask(daemon, own, other.getsockname()[1])
        finally:
            daemon.process.terminate()
            daemon.process.wait(PATIENCE)

    def ask(self, daemon, own, other):
        answer = daemon.post("/v1/workspaces", {"id": "w", "policy": {"network": "host"}})
        self.assertEqual(201, answer.status, answer.bytes)
        script = HEAD + (f"print(outcome('127.0.0.1', {own}), outcome('127.7.7.7', {own}), outcome('169.254.169.254', 80),"
                         f" outcome('127.0.0.1', {other}), outcome('127.0.0.1', 7070))")
        done = daemon.post("/v1/workspaces/w/exec", {"argv": [PYTHON, "-c", script]}).json
        self.assertEqual("EACCES EACCES EACCES connected ECONNREFUSED\n", done["stdout"], done)
        rules = {denial["what"]: denial["rule"] for denial in done["denials"]}
        self.assertEqual({f"connect 127.0.0.1:{own}": "Carrel's own port", f"connect 127.7.7.7:{own}": "Carrel's own port",
                          "connect 169.254.169.254:80": "metadata address"}, rules)
        record = json.dumps(daemon.get("/v1/audit").json)
        for what in rules:
            self.assertIn(what, record)


if __name__ == "__main__":
    unittest.main()
