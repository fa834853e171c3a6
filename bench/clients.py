# SPDX-License-Identifier: Apache-2.0
"""Part "clients": what the Python and TypeScript packages add to a call, and a deepagents backend beside one that starts a process for each call."""

import shutil
import subprocess
import venv

from daemon import running
from measure import table
from place import Failed, ROOT

TITLE = "Clients"
ABOUT = """\
- Calls over TCP on loopback, one connection that is kept, in turns. Bare: the same request by the same httpx, its JSON read.
  "adds": what the package itself costs a call, in processor time of the client: the median of the differences. Likewise in Node, by bare
  node:http, over TCP and over a Unix socket.
- deepagents: `read`, `grep` and `edit` as an agent calls them, of a file of 4 KiB in a tree of 100. Beside them, deepagents' own `BaseSandbox`
  over a plain shell on the host, without any isolation: a process for each call, Python's for most."""
CALLS = (("n", "n", "d"), ("bare ms", "bare_ms", ".3f"), ("with the package ms", "client_ms", ".3f"), ("adds ms", "adds_ms", ".3f"))
BACKENDS = (("n", "n", "d"), ("a process each ms", "process_ms", ".2f"), ("Carrel ms", "carrel_ms", ".2f"), ("×", "x_process", ".3f"))
LABELS = {"stat": "stat of a file", "read": "read of 4 KiB", "write": "durable write of 4 KiB", "exec": "command `true`, to its end",
          "stat-node": "stat of a file", "read-node": "read of 4 KiB", "stat-node-socket": "stat of a file, over a Unix socket",
          "read-node-socket": "read of 4 KiB, over a Unix socket", "stat-async": "stat of a file, with await", "read-async": "read of 4 KiB, with await", "agent-read": "read", "agent-grep": "grep", "agent-edit": "edit"}


def prepare(base):
    """An environment of its own; the packages come from wherever pip is told to take them."""
    at = base / "venv"
    if not at.exists():
        venv.create(at, with_pip=True)
        source = base / "python"
        shutil.copytree(ROOT / "clients/python", source)
        done = subprocess.run([at / "bin/pip", "install", "-q", "--disable-pip-version-check", f"{source}[deepagents]"], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            shutil.rmtree(at)
            raise Failed(f"pip cannot install the package: {(done.stderr.strip().splitlines() or ['it does not say why'])[-1]}")
    return at / "bin/python"


def prepare_node(base):
    """The package, built; Node itself comes as npm has it."""
    at = base / "typescript"
    node = at / "node_modules/node/bin/node"
    if not at.exists():
        shutil.copytree(ROOT / "clients/typescript", at, ignore=shutil.ignore_patterns("node_modules", "dist"))
        for argv in (["npm", "ci", "--silent", "--no-audit", "--no-fund"], [node, "node_modules/typescript/bin/tsc", "-p", "."]):
            done = subprocess.run(argv, cwd=at, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(at)
                raise Failed(f"npm cannot build the package: {(done.stderr.strip().splitlines() or ['it does not say why'])[-1]}")
    return node, at / "dist/index.js"


def rows_of(lines):
    for name, count, *times in lines:
        base, ours, adds = map(float, times)
        row = {"row": name, "label": LABELS[name], "n": int(count)}
        if name.startswith("agent-"):
            yield {**row, "process_ms": base, "carrel_ms": ours, "x_process": ours / base}
        else:
            yield {**row, "bare_ms": base, "client_ms": ours, "adds_ms": adds}


def measured_as(bench, place, python):
    with running(place, "daemon-clients") as daemon:
        daemon.make_workspaces(0, 1)
        bench.say(f"the Python package {place.words}")
        count = 20 if bench.quick else 500 * bench.scale
        found = list(rows_of(place.lines([python, ROOT / "bench/clientcalls.py", daemon.port, daemon.key, count])))
    calls = [row for row in found if not row["row"].startswith("agent-")]
    agents = [row for row in found if row["row"].startswith("agent-")]
    yield table(f"{place.name}-package", f"{place.words}, the Python package", CALLS, calls)
    yield table(f"{place.name}-deepagents", f"{place.words}, a deepagents backend", BACKENDS, agents)


def measured_in_node(bench, place, node, package):
    socket = place.base / "clients.sock"
    with running(place, "daemon-node", socket=socket) as daemon:
        daemon.make_workspaces(0, 1)
        bench.say(f"the TypeScript package {place.words}")
        count = 20 if bench.quick else 500 * bench.scale
        found = list(rows_of(place.lines([node, ROOT / "bench/clientcalls.mjs", package, daemon.port, socket, daemon.key, count])))
    yield table(f"{place.name}-node", f"{place.words}, the TypeScript package", CALLS, found)


def measure(bench):
    place = bench.places[0]  # the client's own time is the same for both
    for name, prepared, measured in (("failed", lambda base: [prepare(base)], measured_as), ("node-failed", prepare_node, measured_in_node)):
        try:
            yield from measured(bench, place, *prepared(place.base.parent))
        except Failed as error:
            yield table(f"{place.name}-{name}", f"{place.words}, the rest", CALLS, [{"row": "failed", "label": "clients", "why": str(error)}])
