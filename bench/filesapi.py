# SPDX-License-Identifier: Apache-2.0
"""Part "filesapi": a workspace's files through `carrel serve`, over HTTP on loopback."""

import json
import statistics

from daemon import bare_starts, bench_lines, running
from measure import SEED, machine_time, percentile, table
from place import Failed

TITLE = "Files over HTTP"
ABOUT = """\
- Requests over TCP on loopback by clients that keep their connection, in turns with what they are compared with.
  The file that is read has 4 KiB, the directory that is listed 100 entries. Reads come from the page cache.
- ls: names and types (`brief=1`), as ls(1) without options; all facts, as with -l, for which each entry is looked at.
- Apart: with gaps the processors have slept and their caches have cooled, for bare starts too.
- asleep: whatever serves the workspace, a sandbox or a sleeping reader, is ended by `POST .../sleep` before each request,
  outside the measured time; each request is the first one.
- A durable write is answered when content, name and its line in the audit record are on the disk. Bare: a new file,
  write, fsync, rename, fsync of the directory, by a program that does nothing else. In a batch all files of one request
  have one sync; the figure is that of one file.
- Growth: calls on one directory with so many entries; a list is of its first 100, with all facts."""
KIB = "x" * 4096
LEVELS = (10, 1000, 100000)
BATCH = 1000
COLUMNS = (("n", "n", "d"), ("p50 ms", "p50_ms", ".3f"), ("p99 ms", "p99_ms", ".3f"), ("× bare", "vs_bare", ".2f"))


def url(rest, workspace="w0"):
    return f"/v1/workspaces/{workspace}/files{rest}"


def run_inside(place, daemon, command):
    bench_lines(place, 1, 1, 0, daemon.http("/v1/workspaces/w0/exec", json.dumps({"command": command})))


def result(row, label, wall, bare):
    return {"row": row, "label": label, "n": len(wall), "p50_ms": statistics.median(wall), "p99_ms": percentile(wall, 0.99),
            "vs_bare": statistics.median(wall) / statistics.median(bare)}


def prepare(place, daemon):
    run_inside(place, daemon, "head -c 4096 /dev/zero > /four; mkdir /hundred && cd /hundred && seq 100 | xargs touch")


def calls(place, daemon, name, counts, gap_ms):
    """What an agent does most, awake and asleep, beside bare starts."""
    laps, count, slow = counts
    asked = {"read": ("read of 4 KiB", "GET " + url("/four")), "stat": ("stat", "GET " + url("/four?stat=1")),
             "ls-brief": ("ls of 100 entries, names and types", "GET " + url("/hundred?list=1&brief=1")),
             "ls": ("ls of 100 entries, all facts", "GET " + url("/hundred?list=1"))}
    wall = {"bare": [], **{row + state: [] for state in ("", "-asleep") for row in asked}}
    blocks = []
    for lap in range(laps):
        times, _, rest = bare_starts(place, slow, gap_ms * 1000, SEED + lap)
        wall["bare"] += times
        blocks += rest
        for row, (_, path) in asked.items():
            run_inside(place, daemon, "true")  # wakes it: what reads would not
            wall[row] += bench_lines(place, 1, count, gap_ms * 1000, daemon.http(path, ""), SEED + lap)[0]
            words = daemon.http(path, "", before="/v1/workspaces/w0/sleep")
            wall[row + "-asleep"] += bench_lines(place, 1, slow, gap_ms * 1000, words, SEED + lap)[0]
    found = [result("bare", "posix_spawn of true, no sandbox", wall["bare"], wall["bare"])]
    found += [result(row, label, wall[row], wall["bare"]) for row, (label, _) in asked.items()]
    found += [result(row + "-asleep", f"{label}, workspace asleep", wall[row + "-asleep"], wall["bare"])
              for row, (label, _) in asked.items()]
    words = f"calls on files {gap_ms} ms apart on average (Poisson)" if gap_ms else "calls on files back to back"
    return table(f"{place.name}-{name}", f"{place.words}, {words}", COLUMNS, found, background=machine_time(blocks)[0])


def tight(bench, place, daemon):
    prepare(place, daemon)
    return calls(place, daemon, "calls", (1, 4, 3) if bench.quick else (10 * bench.scale, 200, 20), 0)


def spaced(bench, place, daemon):
    return calls(place, daemon, "spaced", (1, 3, 3) if bench.quick else (2 * bench.scale, 11, 11), bench.gap_ms)


def batch_body():
    return json.dumps({"files": [{"path": f"/many/{n % 20}/{n}", "content": f"file {n}"} for n in range(BATCH)]})


def durable(bench, place, daemon):
    laps, count = (1, 3) if bench.quick else (10 * bench.scale, 50)
    directory = place.directory(place.base / "durable")
    run_inside(place, daemon, "mkdir -p /put")
    asleep = "/v1/workspaces/w0/sleep"
    wall = {"bare": [], "put": [], "batch": [], "put-asleep": [], "batch-asleep": []}
    for lap in range(laps):
        lines = place.lines([place.programs / "durablebench", directory, count, len(KIB)])
        wall["bare"] += [int(line[3]) / 1e6 for line in lines if line[0] == "start" and line[2] != "0"]
        wall["put"] += bench_lines(place, 1, count, 0, daemon.http("PUT " + url("/put/f@"), KIB, (0, count)), SEED + lap)[0]
        words = daemon.http("PUT " + url("/put/f@"), KIB, (0, count), before=asleep)
        wall["put-asleep"] += bench_lines(place, 1, max(2, count // 5), 0, words, SEED + lap)[0]
        for row, before in (("batch", None), ("batch-asleep", asleep)):
            words = daemon.http(url("-write"), batch_body(), before=before)
            wall[row] += [took / BATCH for took in bench_lines(place, 1, 2, 0, words)[0]]
    labels = {"bare": "4 KiB: write, fsync, rename, fsync of the directory", "put": "4 KiB: PUT", "batch": f"one of {BATCH} in one request"}
    labels |= {row + "-asleep": f"{labels[row]}, workspace asleep" for row in ("put", "batch")}
    found = [result(name, label, wall[name], wall["bare"]) for name, label in labels.items()]
    return table(f"{place.name}-durable", f"{place.words}, durable writes", COLUMNS, found)


def rates(bench, place, daemon):
    laps, count = (1, 64) if bench.quick else (5 * bench.scale, 6400)
    found = []
    for name, label, path in (("read", "read of 4 KiB", url("/four")), ("stat", "stat", url("/four?stat=1"))):
        for clients in (1, 64):
            wall, per_second = [], []
            for lap in range(laps):
                own = max(2, count // clients)
                times, seconds = bench_lines(place, clients, own, 0, daemon.http("GET " + path, ""), SEED + lap)
                wall += times
                per_second.append(clients * own / seconds)
            found.append({"row": f"{name}-{clients}", "label": f"{label}, {clients} connection{'s' if clients > 1 else ''}", "n": len(wall),
                          "per_s": statistics.median(per_second), "p50_ms": statistics.median(wall), "p99_ms": percentile(wall, 0.99)})
    columns = (("n", "n", "d"), ("per second", "per_s", ".0f"), ("p50 ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"))
    return table(f"{place.name}-requests", f"{place.words}, requests per second", columns, found)


def growth(bench, place, daemon):
    laps, count = (1, 3) if bench.quick else (5 * bench.scale, 40)
    found, first = [], None
    for entries in LEVELS[:2] if bench.quick else LEVELS:
        run_inside(place, daemon, f"mkdir /of{entries} && cd /of{entries} && seq {entries} | xargs touch")
        asked = {"stat": ("GET " + url(f"/of{entries}/5?stat=1"), ""), "ls": ("GET " + url(f"/of{entries}?list=1&limit=100"), ""),
                 "put": ("PUT " + url(f"/of{entries}/5"), KIB)}
        wall = {name: [] for name in asked}
        for lap in range(laps):
            for name, (path, body) in asked.items():
                wall[name] += bench_lines(place, 1, count, 0, daemon.http(path, body), SEED + lap)[0]
        row = {"row": str(entries), "label": f"{entries} entries", **{name: statistics.median(times) for name, times in wall.items()}}
        first = first or row
        found.append({**row, **{"x_" + name: row[name] / first[name] for name in asked}})
    if bench.quick:
        found.append({"row": "more", "label": f"{LEVELS[-1]} entries", "why": "not measured: --quick"})
    columns = (("stat ms", "stat", ".3f"), (f"× {LEVELS[0]}", "x_stat", ".2f"), ("ls ms", "ls", ".3f"), (f"× {LEVELS[0]}", "x_ls", ".2f"),
               ("write ms", "put", ".3f"), (f"× {LEVELS[0]}", "x_put", ".2f"))
    return table(f"{place.name}-directories", f"{place.words}, median call on a directory that grows", columns, found)


def measured_as(bench, place):
    with running(place, "daemon-files") as daemon:
        daemon.make_workspaces(0, 1)
        for words, part in (("calls on files", tight), ("calls on files with gaps", spaced), ("durable writes", durable),
                            ("requests per second", rates), ("directories that grow", growth)):
            bench.say(f"{words} over HTTP {place.words}")
            yield part(bench, place, daemon)


def measure(bench):
    for place in bench.places:
        try:
            yield from measured_as(bench, place)
        except Failed as error:
            failed = {"row": "failed", "label": "files over HTTP", "why": str(error)}
            yield table(f"{place.name}-failed", f"{place.words}, the rest", COLUMNS, [failed])
