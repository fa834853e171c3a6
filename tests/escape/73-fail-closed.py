#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 73: be connected to nothing and everything: no rules at all, carrel-egress killed in the middle and many connections begun at once
# MUST: nothing opens
# CONTROL: ns-net,network
"""Without the one that connects there are no connections."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
import json
import signal
import subprocess
import time

from nettest import Attack, Listener, Names


SCRIPT = """
import os, socket, sys, time
port = int(sys.argv[1])
try: name = socket.gethostbyname('api.example.org')
except OSError: name = '198.18.0.2'
open('/ready', 'w').close()
while not os.path.exists('/killed'): time.sleep(0.01)
for _ in range(50):
    for host in (name, '127.0.0.1'):
        try:
            s = socket.create_connection((host, port), timeout=0.2)
            s.sendall(b'SSH-2.0-inside\\r\\n')
            s.close()
        except OSError:
            pass
"""


def children(pid):
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                with open(f"/proc/{child}/comm", encoding="ascii") as comm:
                    found[comm.read().strip()] = int(child)
    return found


attack = Attack()
listener = Listener(answer=lambda connection, got: connection.close())
names = Names({"api.example.org": ["127.0.0.1"]})
policy = f"{os.environ['TMP']}/policy.json"
with open(policy, "w", encoding="ascii") as file:
    json.dump({"network": {"allow": []}}, file)
CONNECT = "import socket, sys\ntry: socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5).sendall(b'x')\nexcept OSError: pass"
attack.run(["--policy", policy], CONNECT, listener.port)
attack.must(not listener.got, "an empty list")
listener.got.clear()
process = subprocess.Popen([attack.carrel, "run", "--workspace", attack.ws, "--timeout", "100s", "--nameserver", names.address, "--allow",
                            f"api.example.org:{listener.port} tls=opaque", "--allow-private", "api.example.org", "--", "/usr/bin/python3", "-c",
                            SCRIPT, str(listener.port)], stdin=subprocess.DEVNULL)
deadline = time.monotonic() + 60
while not os.path.exists(f"{attack.ws}/ready") and time.monotonic() < deadline:
    time.sleep(0.02)
egress = children(process.pid).get("carrel-egress")
if egress:
    os.kill(egress, signal.SIGKILL)
    time.sleep(0.2)
open(f"{attack.ws}/killed", "w", encoding="ascii").close()
process.wait(120)
attack.must(not listener.got, "connections without carrel-egress")
attack.end(egress is not None or bool(attack.escapes), "there was no carrel-egress")
