#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
# TAKES: 40
# ATTACK 43: output without end: 10 GB, no newline, NUL bytes, what is not UTF-8, a terminal's commands (OSC 52) on both
# streams, also in what a denial says; a reader who never reads
# MUST: capped at the limit asked for and told so; JSON stays JSON; the engine does not grow with it; nothing is left
# CONTROL: output
"""Every flood goes through --json, where the engine keeps it, and straight through, where it passes it on."""
import json
import os
import resource
import subprocess
import sys

CARREL, TMP = os.environ["CARREL"], os.environ["TMP"]
WS = f"{TMP}/ws"
LIMIT = 1 << 20
GROWTH = 64 << 20  # of the engine, whatever the flood: several times the limit, and far less than any flood

FLOODS = {
    "ten gigabytes": "head -c 10000000000 /dev/zero",
    "no newline": "tr '\\0' x </dev/zero",
    "NUL bytes on stderr": "cat /dev/zero >&2",
    "what is not UTF-8": "tr '\\0' '\\377' </dev/zero",
    "commands to a terminal": "yes \"$(printf '\\033]52;c;cm0gLXJm\\007')\"",
    "both at once": "cat /dev/zero & cat /dev/zero >&2",
}
escapes = []


def must(true, what):
    if not true:
        escapes.append(what)


def carrel(*options, command, stdout=subprocess.PIPE):
    return subprocess.Popen([CARREL, "run", "--no-tty", "--workspace", WS, *options, "-c", command],
                            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)


def kept(name, command):
    """The engine's own memory: it is the only child waited for."""
    process = carrel("--max-output", str(LIMIT), "--timeout", "30s", "--json", command=command)
    out, _ = process.communicate()
    result = json.loads(out)  # whatever bytes it was given
    size = sum(len(result.get(stream, "")) + len(result.get(f"{stream}_b64", "")) for stream in ("stdout", "stderr"))
    must(process.returncode == 122 and result["reason"] == "output" and result["truncated"], f"{name}: not ended for it")
    must(size <= 2 * LIMIT, f"{name}: {size} characters were kept")
    must(b"\x1b" not in out, f"{name}: a terminal's command got into the JSON")


def passed_on(name, command):
    process = carrel("--max-output", str(LIMIT), "--timeout", "30s", command=command)
    out, err = process.communicate()
    must(process.returncode == 122, f"{name}: passed on, ended with {process.returncode}")
    must(len(out) + len(err) <= LIMIT + 4096, f"{name}: {len(out) + len(err)} bytes passed on")


def never_read():
    """Nobody reads: the deadline ends it all the same."""
    reading, writing = os.pipe()
    process = carrel("--timeout", "2s", command="cat /dev/zero", stdout=writing)
    os.close(writing)
    process.stderr.read()
    must(process.wait(60) == 124, "a reader who never reads holds a run past its deadline")
    os.close(reading)


def denials_are_printable():
    command = "mkdir \"/usr/$(printf '\\033]52;c;cm0gLXJm\\007')\""
    out, _ = carrel("--json", command=command).communicate()
    texts = json.dumps(json.loads(out)["denials"], ensure_ascii=False)
    must("\x1b" not in json.loads(json.dumps(texts)) and "\\u001b" not in texts, "a denial carries a terminal's command")


os.makedirs(WS, exist_ok=True)
try:
    for name, command in FLOODS.items():
        kept(name, command)
        passed_on(name, command)
    never_read()
    denials_are_printable()
except (subprocess.TimeoutExpired, ValueError) as error:
    escapes.append(str(error))
grown = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
must(grown <= GROWTH, f"the engine grew to {grown >> 20} MiB")
for what in escapes:
    print(f"ESCAPED: {what}")
print("contained" if not escapes else f"{len(escapes)} escapes")
sys.exit(1 if escapes else 0)
