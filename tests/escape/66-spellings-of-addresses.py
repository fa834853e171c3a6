#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 66: reach an address by a spelling that passes for a name: octal, hexadecimal, short, mapped, with a dot behind, with a user in front
# MUST: refused, whether connected to, looked up, or asked for as a rule
# CONTROL: ns-net,network
"""No spelling of an address is a name."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
import subprocess

from nettest import Attack, Listener


SPELLINGS = ["127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]",
             "[::1]", "0", "user@127.0.0.1", "127.0.0.1.example.org@127.0.0.1"]
SCRIPT = """
import subprocess, sys
for url in sys.argv[1:]:
    subprocess.run(['curl', '-gsS', '-m', '10', '--noproxy', '*', url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
attack = Attack()
listener = Listener(answer=lambda connection, got: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n") or connection.close())
attack.run(["--allow", "example.org"], SCRIPT, *(f"http://{spelling}:{listener.port}/{at}" for at, spelling in enumerate(SPELLINGS)))
attack.must(not listener.got, f"{len(listener.got)} spellings of an address led there")
for spelling in SPELLINGS[:9] + ["*", "*.com", "a b.org", "ex\tample.org", "example.org\r\nHost: x"]:
    done = subprocess.run([attack.carrel, "run", "--workspace", attack.ws, "--allow", spelling, "--", "true"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    attack.must(done.returncode == 125, f"{spelling!r} is taken as a rule")
attack.end()
