#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 70: on a connection to an allowed name, ask the server behind it for another: in Host, in the second request, pipelined, as an absolute address, by CONNECT, behind a body whose length can be read in two ways
# MUST: the server never sees the other name
# CONTROL: net-looks
"""HTTP is looked at request by request."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
from nettest import Attack, Listener, Names


EVIL, GOOD = "evil.example.net", "api.example.org"
SCRIPT = """
import socket, sys, time
s = socket.create_connection(('api.example.org', int(sys.argv[1])), timeout=10)
try:
    for word in sys.argv[2:]:
        s.sendall(bytes.fromhex(word))
        s.settimeout(2)
        s.recv(4096)
except OSError:
    pass
"""


def answer(connection, got):
    if got.endswith(b"\r\n\r\n"):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


attack = Attack()
listener = Listener(answer=answer)
names = Names({GOOD: ["127.0.0.1"]})
options = ["--nameserver", names.address, "--allow", f"{GOOD}:{listener.port}", "--allow-private", GOOD]
here = f"{GOOD}:{listener.port}"
good = f"GET / HTTP/1.1\r\nHost: {here}\r\n\r\n"
evil = f"GET / HTTP/1.1\r\nHost: {EVIL}:{listener.port}\r\n\r\n"
attack.run(options, SCRIPT, listener.port, good.encode().hex())
works = listener.has(here.encode())
for what, pieces in (
        ("Host", [evil]), ("the second request", [good, evil]), ("pipelined", [good + evil]),
        ("two of them", [f"GET / HTTP/1.1\r\nHost: {here}\r\nHost: {EVIL}\r\n\r\n"]),
        ("an absolute address", [f"GET http://{EVIL}/ HTTP/1.1\r\nHost: {here}\r\n\r\n"]),
        ("CONNECT", [f"CONNECT {EVIL}:443 HTTP/1.1\r\nHost: {here}\r\n\r\n"]),
        ("a line that goes on", [f"GET / HTTP/1.1\r\nHost: {here}\r\nX: y\r\n Host: {EVIL}\r\n\r\n"]),
        ("bare line feeds", [f"GET / HTTP/1.1\nHost: {EVIL}\n\n"]),
        ("two lengths", [f"POST / HTTP/1.1\r\nHost: {here}\r\nContent-Length: {len(evil)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{evil}"]),
        ("a strange coding", [f"POST / HTTP/1.1\r\nHost: {here}\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{evil}"]),
        ("an upgrade", [f"GET / HTTP/1.1\r\nHost: {here}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", evil])):
    listener.got.clear()
    attack.run(options, SCRIPT, listener.port, *(piece.encode().hex() for piece in pieces))
    attack.must(not listener.has(EVIL.encode()), what)
attack.end(works, "not even the right name got through")
