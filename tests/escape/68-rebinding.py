#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 68: have an allowed name lead to the host: by an answer that changes, by one private address among public ones, by mapped and translated forms
# MUST: no private address is dialled
# CONTROL: net-addresses
"""The addresses of a name are all looked at, each time, and the one that was looked at is dialled."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
from nettest import Attack, Listener, Names


SCRIPT = """
import socket, sys
for _ in range(6):
    try:
        s = socket.create_connection(('api.example.org', int(sys.argv[1])), timeout=5)
        s.sendall(b'SSH-2.0-inside\\r\\n')
        s.settimeout(2)
        s.recv(10)
        s.close()
    except OSError as error:
        print(error)
"""
attack = Attack()
listener = Listener(answer=lambda connection, got: connection.close())
six = Listener("::1", listener.port, answer=lambda connection, got: connection.close())
turns = []


def changing():
    turns.append(1)
    return ["192.0.2.1"] if len(turns) % 2 else ["127.0.0.1"]


for what, table in (("an answer that changes", changing), ("one of several", ["192.0.2.1", "127.0.0.1"]), ("mapped", ["::ffff:127.0.0.1"]),
                    ("loopback", ["127.0.0.1"]), ("of the whole host", ["0.0.0.0"]), ("IPv6", ["::1"])):
    names = Names({"api.example.org": table})
    attack.run(["--nameserver", names.address, "--allow", f"api.example.org:{listener.port} tls=opaque"], SCRIPT, listener.port)
    attack.must(not listener.got and not six.got, what)
    listener.got.clear()
    six.got.clear()
    names.close()
names = Names({"api.example.org": ["127.0.0.1"]})
attack.run(["--nameserver", names.address, "--allow", f"api.example.org:{listener.port} tls=opaque", "--allow-private", "api.example.org"], SCRIPT,
           listener.port)
attack.end(bool(listener.got), "not even the address that was opened was reached")
