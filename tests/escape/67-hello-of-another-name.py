#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 67: on a connection to an allowed name, say another one to the server behind it: in the hello, without one, cut into bytes and records, after another message in one record, in a second hello; say one in an encrypted part, where the rule refuses that
# MUST: the server never sees the other name, nor an encrypted one
# CONTROL: net-looks
"""A server that has many names behind one address is reached by the allowed one alone."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
import socket
import ssl
import struct

from nettest import Attack, Listener, Names


EVIL, GOOD = "evil.example.net", "api.example.org"
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def hello(name):
    """A whole record, as a client would send it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def record(body):
    return b"\x16\x03\x01" + struct.pack(">H", len(body)) + body


def encrypted(whole):
    """The hello with an extension of an encrypted one, last."""
    body = whole[9:]
    at = 35 + body[34]
    at += 2 + struct.unpack(">H", body[at:at + 2])[0]
    at += 1 + body[at]
    more = struct.pack(">HH", 0xFE0D, 42) + b"\0\0\1\0\1\0\0\x20" + bytes(34)
    body = body[:at] + struct.pack(">H", struct.unpack(">H", body[at:at + 2])[0] + len(more)) + body[at + 2:] + more
    return record(b"\1" + struct.pack(">I", len(body))[1:] + body)


def retry(connection, got):
    """The server asks for a second hello, once."""
    if len(got) > 100 and not hasattr(connection, "asked") and got.count(b"\x16\x03") < 2:
        body = b"\x03\x03" + RETRY + b"\x00" + b"\x13\x01" + b"\x00" + struct.pack(">H", 12)
        body += b"\x00\x2b\x00\x02\x03\x04" + b"\x00\x33\x00\x02\x00\x17"
        connection.sendall(record(b"\x02" + struct.pack(">I", len(body))[1:] + body))


SCRIPT = """
import socket, sys, time
port, way = int(sys.argv[1]), sys.argv[2]
pieces = [bytes.fromhex(word) for word in sys.argv[3:]]
s = socket.create_connection(('api.example.org', port), timeout=10)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
try:
    for piece in pieces:
        if way == 'bytes':
            for at in range(len(piece)): s.sendall(piece[at:at + 1])
        else:
            s.sendall(piece)
            if way == 'answered':
                s.settimeout(5); s.recv(4096)
    s.settimeout(1)
    s.recv(100)
except OSError:
    pass
"""
good, evil = hello(GOOD), hello(EVIL)
attack = Attack()
listener = Listener(answer=retry)
names = Names({GOOD: ["127.0.0.1"]})
options = ["--nameserver", names.address, "--allow", f"{GOOD}:{listener.port}", "--allow-private", GOOD]


def send(way, *pieces):
    attack.run(options, SCRIPT, listener.port, way, *(piece.hex() for piece in pieces))
    found = listener.has(EVIL.encode()) or listener.has(EVIL[4:].encode())
    listener.got.clear()
    return found


attack.run(options, SCRIPT, listener.port, "whole", good.hex())
works = listener.has(GOOD.encode())
listener.got.clear()
for what, way, pieces in (
        ("another name", "whole", [evil]),
        ("another name in single bytes", "bytes", [evil]),
        ("another name in records of one byte", "whole", [b"".join(record(evil[5:][at:at + 1]) for at in range(len(evil) - 5))]),
        ("another name behind the first, in one record", "whole", [record(good[5:] + evil[5:])]),
        ("another name in the next record", "whole", [good + evil]),
        ("another name in a second hello", "answered", [good, evil]),
        ("another name in plain words", "whole", [f"GET / HTTP/1.1\r\nHost: {EVIL}\r\n\r\n".encode()])):
    attack.must(not send(way, *pieces), what)
strict = ["--nameserver", names.address, "--allow", f"{GOOD}:{listener.port} ech=refuse", "--allow-private", GOOD]
attack.run(strict, SCRIPT, listener.port, "whole", hello(GOOD).hex())
works = works and listener.has(GOOD.encode())
listener.got.clear()
attack.run(strict, SCRIPT, listener.port, "whole", encrypted(good).hex())
attack.must(not listener.has(GOOD.encode()), "a hello with an encrypted part")
listener.got.clear()
nameless = hello(None)
attack.run(options, SCRIPT, listener.port, "whole", nameless.hex())
attack.must(not listener.has(nameless[11:43]), "no name at all")
attack.end(works, "not even the right name got through")
