# SPDX-License-Identifier: Apache-2.0
"""Part "snapshots": snapshots and forks of workspaces of different sizes, and merging one back."""

import contextlib
import shutil
import statistics
import time

from daemon import running
from environments import Api
from measure import table
from place import Failed
from plans import FILL, PYTHON

TITLE = "Snapshots and forks"
ABOUT = """\
- A workspace of so many files of 10 to 100 bytes. First: its first snapshot, which copies all. Next: one more after a
  single file has changed, which shares the rest by hard links. Fork: a workspace made from a snapshot that is there; its
  first command: `true` in it. Merge: the plan of one changed file, with the snapshot of the fork that it is made of.
- Copy: `cp -a` of the same files and a sync of the file system, without Carrel.
- All over HTTP, as `carrel snapshot`, `carrel fork` and `carrel merge` do it."""
SIZES = (10, 1000, 100000)
COLUMNS = (("n", "n", "d"), ("first ms", "first_ms", ".1f"), ("next p50 ms", "next_ms", ".1f"), ("fork p50 ms", "fork_ms", ".1f"),
           ("first command p50 ms", "command_ms", ".1f"), ("merge p50 ms", "merge_ms", ".1f"), ("copy ms", "copy_ms", ".1f"))


def copied(place, source, to):
    begin = time.monotonic()
    place.run(["/bin/sh", "-c", f"cp -a {source} {to} && sync -f {to}"])
    ms = (time.monotonic() - begin) * 1e3
    shutil.rmtree(to)
    return ms


def row_of(bench, place, daemon, api, files):
    desk = f"s{files}"
    api.create(desk)
    api.run(desk, PYTHON, "-c", FILL, "/", str(files))
    first, answer = api.post(f"/v1/workspaces/{desk}/snapshots", {})
    if answer["files"] < files:
        raise Failed("a snapshot lacks files")
    wall = {"next": [], "fork": [], "command": [], "merge": []}
    laps = 2 if bench.quick else (3 if files > 10000 else 9) * bench.scale
    for lap in range(laps):
        api.run(desk, "/bin/sh", "-c", f"echo {lap} >d0/f0")
        ms, answer = api.post(f"/v1/workspaces/{desk}/snapshots", {})
        wall["next"].append(ms)
        fork = f"{desk}-{lap}"
        wall["fork"].append(api.create(fork, fork={"workspace": desk, "snapshot": answer["id"]}))
        wall["command"].append(api.run(fork, "/bin/true")[0])
        api.run(fork, "/bin/sh", "-c", f"echo fork {lap} >d0/f1")
        wall["merge"].append(api.post(f"/v1/workspaces/{desk}/merge", {"fork": fork})[0])
    return {"row": str(files), "label": f"{files} files", "n": laps, "first_ms": first,
            "copy_ms": copied(place, f"{daemon.state}/main/threads/{desk}", f"{place.base}/copied"),
            **{f"{name}_ms": statistics.median(times) for name, times in wall.items()}}


def measure(bench):
    for place in bench.places:
        bench.say(f"snapshots {place.words}")
        found = []
        try:
            with running(place, "snapshots") as daemon:
                api = Api(daemon)
                with contextlib.closing(api.connection):
                    for files in SIZES[:2] if bench.quick else SIZES:
                        found.append(row_of(bench, place, daemon, api, files))
        except Failed as error:
            found.append({"row": "failed", "label": "the rest", "why": str(error)})
        if bench.quick:
            found.append({"row": "more", "label": "more files", "why": "not measured: --quick"})
        yield table(f"{place.name}-snapshots", f"{place.words}, by files in the workspace", COLUMNS, found)
