#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# ATTACK 71: follow a redirect from an allowed name to one that is not, by its name and by the address that the first one has inside
# MUST: the second is refused
# CONTROL: net-names,net-rules
"""Each name is decided about by itself."""
import os
import sys

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
from nettest import Attack, Names, Web


SCRIPT = """
import subprocess, sys
for url in sys.argv[1:]:
    subprocess.run(['curl', '-sSL', '-m', '20', url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
attack = Attack()
web = Web()
names = Names({"api.example.org": ["127.0.0.1"], "evil.example.net": ["127.0.0.1"]})
options = ["--nameserver", names.address, "--allow", f"api.example.org:{web.port}", "--allow-private", "api.example.org",
           "--allow-private", "evil.example.net"]
attack.run(options, SCRIPT, f"http://api.example.org:{web.port}/to/evil.example.net:{web.port}/taken",
           f"http://evil.example.net:{web.port}/taken")
attack.must(not any(path == "/taken" for _, path in web.seen), "a name that no rule allows")
attack.must("evil.example.net" not in names.asked, "it was asked for")
attack.end(any(path.startswith("/to/") for _, path in web.seen), "not even the first was reached")
