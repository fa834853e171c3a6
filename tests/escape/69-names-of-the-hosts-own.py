#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 69: have an allowed name lead to this host by its outer address, or to Carrel's own port
# MUST: refused
# CONTROL: net-addresses
"""An address of the host's is private, whatever range it is in, and Carrel's own port is nobody's."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
import socket

from nettest import Attack, Listener, Names


SCRIPT = """
import socket, sys
try:
    s = socket.create_connection(('api.example.org', int(sys.argv[1])), timeout=10)
    s.sendall(b'SSH-2.0-inside\\r\\n')
    s.settimeout(2)
    s.recv(10)
except OSError as error:
    print(error)
"""
attack = Attack()
listener = Listener("0.0.0.0", answer=lambda connection, got: connection.close())
addresses = ["127.0.0.1", "127.9.9.9"]
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    probe.connect(("192.0.2.1", 9))
    addresses.append(probe.getsockname()[0])
except OSError:
    pass
for address in addresses:
    names = Names({"api.example.org": [address]})
    attack.run(["--nameserver", names.address, "--allow", f"api.example.org:{listener.port} tls=opaque"], SCRIPT, listener.port)
    attack.must(not listener.got, f"the host by {address}")
    listener.got.clear()
    names.close()
try:
    own = Listener("127.0.0.1", 7070, answer=lambda connection, got: connection.close())
except OSError:
    own = None  # a daemon is there: its business is not disturbed
if own:
    names = Names({"api.example.org": ["127.0.0.1"]})
    attack.run(["--nameserver", names.address, "--allow", "api.example.org:7070 tls=opaque", "--allow-private", "api.example.org"], SCRIPT, 7070)
    attack.must(not own.got, "Carrel's own port, on a private address that was opened")
attack.end()
