# SPDX-License-Identifier: Apache-2.0
"""Part "environments": workspaces on the template `office`, and packages installed in one, against the same on the host."""

import contextlib
import http.client
import json
import os
import resource
import shutil
import statistics
import subprocess
import time

from daemon import MIB_EACH, SPARE_MIB, running
from live import memory_available, settled_memory
from measure import SEED, table
from place import Failed, ORDINARY_USER, PATIENCE, ROOT

TITLE = "Environments"
ABOUT = """\
- Import: a workspace is created on the template `office` and runs `python -c "import pandas"` as its first command, over
  HTTP. Bare: the same import by the same interpreter in a virtual environment on the host with the same version of pandas,
  also compiled, in turns. Both read from the page cache.
- Install: `uv venv` and `uv pip install` of five packages and what they need, offline, from a cache that has them, with
  bytecode compiled and files copied: inside, in a workspace that has done nothing but start, with the cache that all share;
  on the host, by the same uv with the same settings and a copy of that cache, in turns.
- Many: workspaces created on the template, each with one command run; all are awake, or the last so many where memory or the
  limit of open files allows no more. Disk is what the state directory takes in all, less tools, templates and the shared
  cache; memory is the fall of MemAvailable since there was none.
- With `--quick` the template has an empty virtual environment and nothing is fetched."""
PACKAGES = ("requests", "openpyxl", "pypdf", "beautifulsoup4", "python-dateutil")
LEVELS = (10, 100, 1000)
QUICK = 50
FILES_EACH = 26  # descriptors that the daemon holds for a live sandbox, generously
NOT_QUICK = "not measured: --quick fetches no packages"
PYTHON = "/usr/bin/python3"
# What inside is set for every command, as far as it has to do with this.
SETTINGS = {"UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON_PREFERENCE": "only-system", "UV_COMPILE_BYTECODE": "1", "UV_LINK_MODE": "copy",
            "UV_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


class Api:
    """The daemon over HTTP, on one connection, timed."""

    def __init__(self, daemon):
        self.connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=PATIENCE)
        self.headers = {"Authorization": f"Bearer {daemon.key}"}

    def post(self, path, body):
        """(ms, answer)"""
        begin = time.monotonic()
        self.connection.request("POST", path, json.dumps(body), self.headers)
        response = self.connection.getresponse()
        data = response.read()
        ms = (time.monotonic() - begin) * 1e3
        answer = json.loads(data)
        if response.status >= 300:
            raise Failed(answer["error"]["message"])
        return ms, answer

    def create(self, name, **more):
        return self.post("/v1/workspaces", {"id": name, **more})[0]

    def run(self, name, *argv):
        """(ms, what it printed)"""
        ms, answer = self.post(f"/v1/workspaces/{name}/exec", {"argv": argv})
        if answer["exit_code"] != 0:
            said = answer["stderr"].strip().splitlines()
            raise Failed(f"'{argv[0]}' inside: {said[-1] if said else answer['exit_code']}")
        return ms, answer["stdout"]


class Host:
    """The same without Carrel: uv, a cache of its own, virtual environments in a directory."""

    def __init__(self, place):
        self.place = place
        self.top = place.directory(place.base / "host-env")
        self.uv = None
        self.environment = {**place.environment, **SETTINGS, "UV_CACHE_DIR": str(self.top / "cache")}

    def copy_cache(self, state):
        self.uv = state / ".carrel/tools/libexec/uv"
        generation = max((state / ".carrel/cache").iterdir(), key=lambda path: int(path.name))
        shutil.copytree(generation / "uv", self.top / "cache", symlinks=True)
        if self.place.identity:  # uv writes into it, too
            for where, _, files in os.walk(self.top / "cache"):
                for name in (".", *files):
                    os.chown(f"{where}/{name}", ORDINARY_USER, ORDINARY_USER, follow_symlinks=False)

    def run(self, *argv):
        begin = time.monotonic()
        self.place.run(argv, env=self.environment)
        return (time.monotonic() - begin) * 1e3

    def install(self, name, *packages):
        """ms of a virtual environment with these."""
        where = self.top / name
        script = f"{self.uv} venv -q --python {PYTHON} {where} && {self.uv} pip install -q --python {where}/bin/python {' '.join(packages)}"
        return self.run("/bin/sh", "-c", script)

    def starts(self, count, seed, *argv):
        """ms of each start, the first left out."""
        lines = self.place.lines([self.place.programs / "spawnbench", 1, count + 1, 0, seed, ":::", *argv], env=self.environment)
        starts = [line for line in lines if line[0] == "start" and line[2] != "0"]
        if any(line[6] != "0" for line in starts):
            raise Failed(f"'{argv[0]}' fails on the host")
        return [int(line[3]) / 1e6 for line in starts]

    def remove(self, name=""):
        shutil.rmtree(self.top / name, ignore_errors=True)


def build_office(place, daemon):
    """The template as it is shipped, with all that it needs from the registries."""
    environment = {**os.environ, "CARREL_SOCKET": str(socket_of(place)), "CARREL_TEMPLATES": str(ROOT / "packaging/templates"),
                   "HOME": str(place.base)}
    for words in (("env", "setup", "--state", daemon.state), ("template", "build", "office", "--quiet")):
        place.run([place.programs / "carrel", *words], env=environment)


def build_empty(api):
    api.create("base")
    api.run("base", PYTHON, "-m", "venv", "--without-pip", "/.venv")
    api.post("/v1/templates", {"name": "office", "workspace": "base", "spec": {}})


def bare_python(bench, host, daemon, api):
    """The interpreter of a virtual environment on the host that can import what is measured."""
    if bench.quick:
        host.run(PYTHON, "-m", "venv", "--without-pip", host.top / "bare")
    else:
        api.create("first", template="office")
        version = api.run("first", "python", "-c", "import pandas; print(pandas.__version__)")[1].strip()
        host.copy_cache(daemon.state)
        host.install("bare", f"pandas=={version}")
    return host.top / "bare/bin/python"


def imports(bench, place, host, daemon, api):
    """Workspaces made and used at once, beside bare starts of the same import."""
    module = "json" if bench.quick else "pandas"
    python = bare_python(bench, host, daemon, api)
    words = ["-c", f"import {module}"]
    wall = {"bare": [], "create": [], "first": [], "again": []}
    for lap in range(2 if bench.quick else 9 * bench.scale):
        wall["bare"] += host.starts(2, SEED + lap, python, *words)
        wall["create"].append(api.create(f"i{lap}", template="office"))
        wall["first"].append(api.run(f"i{lap}", "python", *words)[0])
        wall["again"].append(api.run(f"i{lap}", "python", *words)[0])
    wall["both"] = [one + other for one, other in zip(wall["create"], wall["first"])]
    labels = {"bare": f"import {module}, no sandbox", "create": "workspace on the template created",
              "first": f"first command: import {module}", "both": "both together", "again": f"second command: import {module}"}
    bare = statistics.median(wall["bare"])
    found = [{"row": name, "label": label, "n": len(wall[name]), "p50_ms": statistics.median(wall[name]), "most_ms": max(wall[name]),
              "vs_bare": statistics.median(wall[name]) / bare} for name, label in labels.items()]
    columns = (("n", "n", "d"), ("p50 ms", "p50_ms", ".1f"), ("most ms", "most_ms", ".1f"), ("× bare", "vs_bare", ".2f"))
    return table(f"{place.name}-import", f"{place.words}, a workspace on `office`", columns, found)


def installs(bench, place, host, api):
    columns = (("n", "n", "d"), ("p50 ms", "p50_ms", ".0f"), ("× host", "vs_host", ".2f"))
    title = f"{place.words}, {len(PACKAGES)} packages from a warm cache"
    if bench.quick:
        return table(f"{place.name}-install", title, columns, [{"row": "inside", "label": "venv and packages", "why": NOT_QUICK}])
    wall = {"host": [], "inside": []}
    script = f"uv venv -q --python {PYTHON} /own && uv pip install -q --python /own/bin/python {' '.join(PACKAGES)}"
    host.install("warm", *PACKAGES)
    for lap in range(5 * bench.scale):
        wall["host"].append(host.install(f"h{lap}", *PACKAGES))
        host.remove(f"h{lap}")
        api.create(f"p{lap}")
        api.run(f"p{lap}", "/bin/true")
        wall["inside"].append(api.run(f"p{lap}", "/bin/sh", "-c", script)[0])
    median = {name: statistics.median(times) for name, times in wall.items()}
    found = [{"row": name, "label": label, "n": len(wall[name]), "p50_ms": median[name], "vs_host": median[name] / median["host"]}
             for name, label in (("host", "venv and packages, plain uv"), ("inside", "venv and packages, in a workspace"))]
    return table(f"{place.name}-install", title, columns, found)


def disk_mib(top):
    """What the files below take, each once however many names it has."""
    shared = [f"--exclude={top}/.carrel/{name}" for name in ("tools", "cache", "templates")]
    said = subprocess.run(["du", "-s", "--block-size=1024", *shared, top], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return int(said.split()[0]) / 1024


def levels_of(bench, place):
    """(how many to make, why not more)."""
    if bench.quick:
        return [QUICK if place is bench.places[0] else LEVELS[0]], "not measured: --quick"
    if place is not bench.places[0]:
        return LEVELS[:2], f"not measured: only {bench.places[0].words}"
    return [level for level in LEVELS if level <= max(bench.most_live, LEVELS[0])], f"not measured: --live {bench.most_live}"


def room_awake():
    """How many live sandboxes the memory and the open files of one process allow."""
    memory = int((memory_available() - SPARE_MIB) / MIB_EACH)
    return max(LEVELS[0], min(memory, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // FILES_EACH))


def fill_up(bench, daemon, api, numbers, awake, began):
    """One row: these workspaces beside those that there are, and no more than `awake` of them awake."""
    created, ran = [], []
    for n in numbers:
        if n >= awake:
            api.post(f"/v1/workspaces/m{n - awake}/sleep", {})
        created.append(api.create(f"m{n}", template="office"))
        ran.append(api.run(f"m{n}", "python", "-c", "pass")[0])
    level = numbers[-1] + 1
    live = min(level, awake)
    disk, memory = disk_mib(daemon.state) - began[0], began[1] - settled_memory(bench)
    return {"row": str(level), "label": f"{level} workspaces", "awake": live, "create_ms": statistics.median(created[-50:]),
            "first_ms": statistics.median(ran[-50:]), "disk_mib": disk, "disk_each_mib": disk / level, "memory_mib": memory,
            "memory_each_mib": memory / live}


def many(bench, place, daemon, api):
    levels, why = levels_of(bench, place)
    awake, began = room_awake(), (disk_mib(daemon.state), settled_memory(bench))
    found, made = [], 0
    try:
        for level in levels:
            found.append(fill_up(bench, daemon, api, range(made, level), awake, began))
            made = level
    except Failed as error:
        why = str(error)
    for row in found:
        for key in ("create", "first"):
            row["x_" + key] = row[key + "_ms"] / found[0][key + "_ms"]
    if made < LEVELS[-1]:
        found.append({"row": "more", "label": f"more than {made} workspaces", "why": why})
    columns = (("awake", "awake", "d"), ("create ms", "create_ms", ".1f"), (f"× {LEVELS[0]}", "x_create", ".2f"),
               ("first command ms", "first_ms", ".1f"), (f"× {LEVELS[0]}", "x_first", ".2f"), ("disk MiB", "disk_mib", ".1f"),
               ("MiB each", "disk_each_mib", ".2f"), ("memory MiB", "memory_mib", ".0f"), ("MiB each awake", "memory_each_mib", ".2f"))
    return table(f"{place.name}-many", f"{place.words}, many workspaces on `office`", columns, found)


def socket_of(place):
    return place.base / "environments.sock"


def measured_as(bench, place):
    with running(place, "environments", socket=socket_of(place), allow_net_host="yes", max_sandboxes=0, idle="1h") as daemon:
        api = Api(daemon)
        with contextlib.closing(api.connection):
            bench.say(f"environments {place.words}")
            if bench.quick:
                build_empty(api)
            else:
                build_office(place, daemon)
            host = Host(place)
            yield imports(bench, place, host, daemon, api)
            yield installs(bench, place, host, api)
            bench.say(f"many workspaces on a template {place.words}")
            yield many(bench, place, daemon, api)
            host.remove()


def measure(bench):
    for place in bench.places:
        try:
            yield from measured_as(bench, place)
        except Failed as error:
            failed = {"row": "failed", "label": "environments", "why": str(error)}
            yield table(f"{place.name}-failed", f"{place.words}, the rest", (("ms", "ms", ".1f"),), [failed])
