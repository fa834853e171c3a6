# SPDX-License-Identifier: Apache-2.0
"""Part "daemon": commands through `carrel serve`, over HTTP on loopback, against bare starts and a plain pipe."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import time

from live import memory_available, settled_memory
from measure import SEED, machine_time, percentile, table
from place import Failed
from rows import TRUE

TITLE = "The daemon"
ABOUT = """\
- Commands are `/bin/true`, by `POST /v1/workspaces/{id}/exec` with `argv`, over TCP on loopback, each client with one
  connection that it keeps; the answer is the whole result. In turns with bare starts within one run. Every command's
  start and end is in the file of the audit record before the answer, and on disk within 20 ms (`audit_sync = grouped`).
- The client writes to a bare socket; in the row "Python's http.client" it is a program in Python, whose own time counts.
- cpu: of the daemon, its sandboxes and the commands in them, mean per command; of a bare start, its own.
- asleep: the workspace's sandbox is ended by `POST .../sleep` before each command, outside the measured time.
- A stream is a command's standard output to a client that throws it away, from before the request until the end;
  × pipe: against the same bytes through a plain pipe between two processes. Rates count the command's bytes, not the framing.
- Several clients: each has a workspace of its own; per second: all that were done by all in the whole time.
- Growth: "one" goes to the same workspace each time, "each in turn" to all live ones one after the other. Memory is the
  fall of MemAvailable since the daemon was started.
- What the record adds: two daemons in turns; in one the call that waits for the disk returns at once. So it is the
  flush to the disk that is compared, which no command waits for; both make and write the lines."""
EXEC = json.dumps({"argv": [TRUE]})
PATIENCE = 30
LEVELS = (1, 100, 1000)
SPARE_MIB = 1024  # left to the machine beside live sandboxes
MIB_EACH = 1.2  # of a live sandbox, generously
LATENCY = (("n", "n", "d"), ("p50 ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"), ("cpu ms", "cpu_ms", ".2f"),
           ("× bare", "vs_bare", ".2f"))
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class Daemon:
    """One `carrel serve` with a state directory of its own."""

    def __init__(self, place, name, synced=True, **settings):
        self.place = place
        self.state = place.directory(place.base / name)
        self.log = place.base / f"{name}.log"
        argv = [place.programs / "carrel", "serve", "--state", self.state, "--listen", "127.0.0.1:0",
                "--set", "socket=", "--set", "disk_floor=1M"]
        for key, value in settings.items():
            argv += ["--set", f"{key}={value}"]
        environment = dict(place.environment)
        if not synced:
            environment["LD_PRELOAD"] = str(place.programs / "nosync.so")
        with open(self.log, "wb") as log:
            self.process = place.popen(argv, stdout=log, stderr=log, env=environment)
        try:
            self.port = self.wait_ready()
            self.key = (self.state / "admin.key").read_text(encoding="ascii").strip()
            if not synced and "nosync.so" not in pathlib.Path(f"/proc/{self.process.pid}/maps").read_text():
                raise Failed("the daemon does not take what is preloaded into it")
        except BaseException:
            self.stop()
            raise

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"event=listening address='127\.0\.0\.1:(\d+)'", self.said())
            if found and is_ready(int(found[1])):
                return int(found[1])
            time.sleep(0.02)
        said = self.said().strip().splitlines()
        raise Failed(f"the daemon does not get ready: {said[-1] if said else 'it says nothing'}")

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def http(self, path, body, spread=(0, 1), before=None):
        """The words of httpbench for it."""
        return ["http", self.port, self.key, *spread, path, body, *([before] if before else [])]

    def make_workspaces(self, first, last):
        """w0, w1, ... from `first` to before `last`; each has run something, so all are awake."""
        count, spread = last - first, (first, last - first)
        bench_lines(self.place, 1, count, 0, self.http("/v1/workspaces", '{"id":"w@"}', spread))
        bench_lines(self.place, 1, count, 0, self.http("/v1/workspaces/w@/exec", EXEC, spread))

    def exec_words(self, spread=1, asleep=False):
        return self.http("/v1/workspaces/w@/exec", EXEC, (0, spread), "/v1/workspaces/w@/sleep" if asleep else None)

    def cpu_ms(self):
        """Of the daemon and all below it, also those that have ended."""
        return sum(sum(int(word) for word in stat[11:15]) for stat in stats_below(self.process.pid)) * TICK_MS


def is_ready(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def stats_below(top):
    """The fields of /proc/PID/stat behind the name, of the process `top` and all its descendants."""
    stats = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            stats[int(path.parent.name)] = path.read_text(errors="replace").rsplit(")", 1)[1].split()
    children = {}
    for pid, stat in stats.items():
        children.setdefault(int(stat[1]), []).append(pid)
    todo = [top]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        if pid in stats:
            yield stats[pid]


@contextlib.contextmanager
def running(place, name, **settings):
    daemon = Daemon(place, name, **settings)
    try:
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(daemon.state, ignore_errors=True)


def bench_lines(place, clients, count, gap_us, words, seed=SEED):
    """(wall times in ms, first of each client left out where there are more; seconds in all)."""
    return times_of(place.lines([place.programs / "httpbench", clients, count, gap_us, seed, *words]), count)


def times_of(lines, count):
    failed = [line for line in lines if line[0] == "start" and line[6] != "0"]
    if failed:
        raise Failed(f"{len(failed)} of {len(lines) - 1} commands failed, one with status {failed[0][6]}")
    wall = [int(line[3]) / 1e6 for line in lines if line[0] == "start" and (line[2] != "0" or count == 1)]
    return wall, next(int(line[1]) / 1e9 for line in lines if line[0] == "all")


def python_lines(place, daemon, count, gap_us, seed):
    """As bench_lines, by one client with http.client."""
    return times_of(place.lines(["/usr/bin/python3", place.programs / "execclient.py", count, gap_us, seed, daemon.port, daemon.key,
                                 "/v1/workspaces/w0/exec", EXEC]), count)


def bare_starts(place, count, gap_us, seed):
    """([wall ms], [cpu ms], its lines about whole blocks) by spawnbench."""
    lines = place.lines([place.programs / "spawnbench", 1, count, gap_us, seed, ":::", TRUE])
    starts = [line for line in lines if line[0] == "start" and line[2] != "0"]
    blocks = [["block", int(line[1]), *line[2:]] for line in lines if line[0] == "block"]
    return [int(line[3]) / 1e6 for line in starts], [int(line[5]) / 1e3 for line in starts], blocks


def latency(place, daemon, mode, counts, gap_ms):
    """Bare starts, commands in a live sandbox, and in one that sleeps, in turns."""
    laps, count = counts
    labels = {"bare": "posix_spawn of true, no sandbox", "live": "exec of true, live sandbox",
              "python": "exec of true, live sandbox, Python's http.client", "asleep": "exec of true, workspace asleep"}
    wall = {name: [] for name in labels}
    cpu = {name: [] for name in labels}
    blocks = []
    for lap in range(laps):
        times, used, rest = bare_starts(place, count, gap_ms * 1000, SEED + lap)
        wall["bare"] += times
        cpu["bare"] += used
        blocks += rest
        for name in ("live", "python", "asleep"):
            words = daemon.exec_words(asleep=name == "asleep")
            if name == "live":  # the lap before has left it as it was after its last command: awake
                bench_lines(place, 1, 1, 0, words)
            before = daemon.cpu_ms()
            if name == "python":
                wall[name] += python_lines(place, daemon, count, gap_ms * 1000, SEED + lap)[0]
            else:
                wall[name] += bench_lines(place, 1, count, gap_ms * 1000, words, SEED + lap)[0]
            cpu[name].append((daemon.cpu_ms() - before) / count)
    bare = statistics.median(wall["bare"])
    found = [{"row": name, "label": label, "n": len(wall[name]), "p50_ms": statistics.median(wall[name]),
              "p99_ms": percentile(wall[name], 0.99), "cpu_ms": statistics.mean(cpu[name]),
              "vs_bare": statistics.median(wall[name]) / bare} for name, label in labels.items()]
    words = f"commands {gap_ms} ms apart on average (Poisson)" if gap_ms else "commands back to back"
    background, _ = machine_time(blocks)
    return table(f"{place.name}-{mode}", f"{place.words}, {words}", LATENCY, found, background=background)


def stream_rows(daemon, path, size):
    """(row, label, size, what it is compared with, words of streambench). Framed is slow: an eighth of it is enough."""
    framed = size // 8
    mib, framed_mib = size / 2**20, framed / 2**20

    def http(argv, framing):
        body = json.dumps({"argv": argv, "stream": framing})
        return ["http", daemon.port, daemon.key, "/v1/workspaces/w0/exec", body]

    zeros = ["/usr/bin/head", "-c", str(size), "/dev/zero"]
    text, noise = ["/bin/cat", "text"], ["/bin/cat", "noise"]
    return [
        ("pipe", f"{mib:g} MiB of zeros, plain pipe", size, "pipe", ["pipe", *zeros]),
        ("raw", f"{mib:g} MiB of zeros, raw", size, "pipe", http(zeros, "raw")),
        ("pipe-file", f"{framed_mib:g} MiB of a file, plain pipe", framed, "pipe-file", ["pipe", "/bin/cat", f"{path}/text"]),
        ("raw-file", f"{framed_mib:g} MiB of a file, raw", framed, "pipe-file", http(text, "raw")),
        ("ndjson", f"{framed_mib:g} MiB of text, ndjson", framed, "pipe-file", http(text, "ndjson")),
        ("sse", f"{framed_mib:g} MiB of text, sse", framed, "pipe-file", http(text, "sse")),
        ("ndjson-noise", f"{framed_mib:g} MiB of random bytes, ndjson", framed, "pipe-file", http(noise, "ndjson")),
    ]


def streams(bench, place, daemon):
    size, laps = (4 << 20, 1) if bench.quick else (256 << 20, 5 * bench.scale)
    script = f"head -c {size // 8} /dev/urandom > noise; base64 noise | head -c {size // 8} > text"
    bench_lines(place, 1, 1, 0, daemon.http("/v1/workspaces/w0/exec", json.dumps({"command": script})))
    measured = stream_rows(daemon, daemon.state / "main/threads/w0", size)
    speeds = {row: [] for row, *_ in measured}
    for _ in range(laps):
        for row, _, count, _, words in measured:
            lines = place.lines([place.programs / "streambench", 1, count, *words])
            speeds[row] += [count / 2**20 / (int(line[2]) / 1e9) for line in lines]
    median = {row: statistics.median(values) for row, values in speeds.items()}
    found = [{"row": row, "label": label, "n": len(speeds[row]), "mib_s": median[row], "vs_pipe": median[row] / median[other]}
             for row, label, _, other, _ in measured]
    columns = (("n", "n", "d"), ("MiB/s", "mib_s", ".0f"), ("× pipe", "vs_pipe", ".2f"))
    return table(f"{place.name}-stream", f"{place.words}, a command's output to a client", columns, found)


def rates(bench, place, daemon):
    """Two clients against two processes that start something."""
    laps, count = (1, 5) if bench.quick else (5 * bench.scale, 200)
    wall, per_second = {"bare": [], "http": []}, {"bare": [], "http": []}
    for lap in range(laps):
        for name, words in (("bare", ["spawn", TRUE]), ("http", daemon.exec_words(spread=2))):
            times, seconds = bench_lines(place, 2, count, 0, words, SEED + lap)
            wall[name] += times
            per_second[name].append(2 * count / seconds)
    median = {name: statistics.median(values) for name, values in per_second.items()}
    labels = {"bare": "posix_spawn of true, 2 processes do it", "http": "exec of true, 2 clients"}
    found = [{"row": name, "label": label, "n": len(wall[name]), "per_s": median[name], "p50_ms": statistics.median(wall[name]),
              "p99_ms": percentile(wall[name], 0.99), "vs_bare": median[name] / median["bare"]}
             for name, label in labels.items()]
    columns = (("n", "n", "d"), ("per second", "per_s", ".0f"), ("p50 ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"),
               ("× bare", "vs_bare", ".2f"))
    return table(f"{place.name}-rate", f"{place.words}, commands per second by two at once", columns, found)


def growth(bench, place):
    most = min(bench.most_live, int((memory_available() - SPARE_MIB) / MIB_EACH))
    levels = [level for level in ((1, 5) if bench.quick else LEVELS) if level <= most]
    found, first, awake = [], None, 0
    with running(place, "daemon-many", max_sandboxes=2000, idle=0) as daemon:
        before = settled_memory(bench)
        for count in levels:
            bench.say(f"commands beside {count} live workspaces")
            daemon.make_workspaces(awake, count)
            awake = count
            result = beside(bench, place, daemon, count)
            result["used_mib"] = before - settled_memory(bench)
            first = first or result
            for name in ("bare", "one", "turn"):
                result["x_" + name] = result[name] / first[name]
            found.append(result)
    if len(levels) < len(LEVELS):
        why = "not measured: --quick" if bench.quick else f"not measured: room for {most} only"
        found.append({"row": "more", "label": f"more than {levels[-1]} live", "why": why})
    columns = (("bare ms", "bare", ".2f"), ("× 1", "x_bare", ".2f"), ("one ms", "one", ".2f"), ("× 1", "x_one", ".2f"),
               ("each in turn ms", "turn", ".2f"), ("× 1", "x_turn", ".2f"), ("MiB", "used_mib", ".0f"))
    return table(f"{place.name}-growth", f"{place.words}, median command beside live workspaces", columns, found)


def beside(bench, place, daemon, count):
    """One row: the medians of bare starts and of commands beside so many live workspaces."""
    laps, starts = (1, 6) if bench.quick else (4 * bench.scale, 50)
    wall = {"bare": [], "one": [], "turn": []}
    for lap in range(laps):
        wall["bare"] += bare_starts(place, starts, 0, SEED + lap)[0]
        wall["one"] += bench_lines(place, 1, starts, 0, daemon.exec_words(), SEED + lap)[0]
        wall["turn"] += bench_lines(place, 1, max(starts, count // laps), 0, daemon.exec_words(count), SEED + lap)[0]
    return {"row": str(count), "label": f"{count} live", **{name: statistics.median(times) for name, times in wall.items()}}


def record(bench, place):
    """What waiting for the disk adds, with one client and with eight."""
    laps, count = (1, 4) if bench.quick else (8 * bench.scale, 240)
    found = []
    with running(place, "daemon-synced") as synced, running(place, "daemon-unsynced", synced=False) as unsynced:
        daemons = {"synced": synced, "unsynced": unsynced}
        for daemon in daemons.values():
            daemon.make_workspaces(0, 8)
        for clients in (1, 8):
            wall, each = {name: [] for name in daemons}, {name: [] for name in daemons}
            for lap in range(laps):
                for name, daemon in daemons.items():
                    own = max(2, count // clients)
                    times, seconds = bench_lines(place, clients, own, 0, daemon.exec_words(clients), SEED + lap)
                    wall[name] += times
                    each[name].append(seconds / (own * clients) * 1e3)
            result = {"row": str(clients), "label": f"{clients} client{'s' if clients > 1 else ''}", "n": len(wall["synced"])}
            for name in daemons:
                result[name + "_p50"] = statistics.median(wall[name])
                result[name + "_each"] = statistics.median(each[name])
            result["adds"] = result["synced_each"] / result["unsynced_each"]
            found.append(result)
    columns = (("n", "n", "d"), ("p50 ms", "synced_p50", ".2f"), ("p50 ms, not synced", "unsynced_p50", ".2f"),
               ("ms per command", "synced_each", ".2f"), ("ms per command, not synced", "unsynced_each", ".2f"),
               ("×", "adds", ".2f"))
    return table(f"{place.name}-record", f"{place.words}, what the audit record adds", columns, found)


def measured_as(bench, place):
    """The tables of one identity."""
    tight = (1, 4) if bench.quick else (10 * bench.scale, 50)
    spaced = (1, 3) if bench.quick else (6 * bench.scale, 6)
    with running(place, "daemon") as daemon:
        daemon.make_workspaces(0, 2)
        bench.say(f"commands through the daemon {place.words}, back to back")
        yield latency(place, daemon, "tight", tight, 0)
        bench.say(f"commands through the daemon {place.words}, {bench.gap_ms} ms apart")
        yield latency(place, daemon, "spaced", spaced, bench.gap_ms)
        bench.say(f"streams {place.words}")
        yield streams(bench, place, daemon)
        bench.say(f"commands per second {place.words}")
        yield rates(bench, place, daemon)
    bench.say(f"what the record adds {place.words}")
    yield record(bench, place)
    if place is bench.places[0]:
        yield growth(bench, place)


def measure(bench):
    for place in bench.places:
        try:
            yield from measured_as(bench, place)
        except Failed as error:
            failed = {"row": "failed", "label": "the daemon", "why": str(error)}
            yield table(f"{place.name}-failed", f"{place.words}, the rest", LATENCY, [failed])
