#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 65: with one name allowed, get out without a name: TCP to addresses of the host, UDP, IPv6, sockets of the host
# MUST: nothing arrives; ENETUNREACH or ECONNREFUSED
# CONTROL: ns-net,network
"""What is sent to an address leads nowhere, whatever names are allowed."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
import socket
import threading

from nettest import Attack, Listener


SCRIPT = """
import socket, sys
for address, port in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            s = socket.socket(family, kind)
            s.settimeout(5)
            s.connect((address, port))
            s.sendall(b'outside')
            s.close()
        except OSError as error:
            print(address, error)
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('raw')
except OSError:
    pass
"""
attack = Attack()
listeners = [Listener(), Listener("::1"), Listener("0.0.0.0")]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
came = []
threading.Thread(target=lambda: came.append(datagrams.recv(100)), daemon=True).start()
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
places = ["127.0.0.1", listeners[0].port, "::1", listeners[1].port, "127.0.0.1", datagrams.getsockname()[1]]
try:
    probe.connect(("192.0.2.1", 9))
    places += [probe.getsockname()[0], listeners[2].port]
except OSError:
    pass  # no other address of this host
said = attack.run(["--allow", "example.org", "--allow", f"example.org:{places[5]} udp"], SCRIPT, *places)
attack.must(not any(listener.got for listener in listeners), "a connection to an address of the host's")
attack.must(not came, "a datagram to the host")
attack.must("raw" not in said, "a raw socket")
attack.end()
