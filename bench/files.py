# SPDX-License-Identifier: Apache-2.0
"""Part "files": reading, writing, a storm of metadata, and git status, inside against native."""

import shutil

import inside
from place import Failed

TITLE = "Files"
ABOUT = """\
- Time of one operation, the median of some rounds, measured inside: the start of the sandbox is not part of it.
  Native is its time; the other columns are multiples of native in the same round. "Native again" is the same native
  program once more: how far it is from 1.00, or its rounds from each other, is the noise.
- Reads come from the page cache, writes go to it; only the durable write waits for the disk. Metadata: an empty file
  in directories of 100. `git status` includes starting git; the index has been refreshed inside before."""
MICRO, MILLI = 1e3, 1e6
JOBS = {
    "read-small": ("read 4 KiB at random", "µs", MICRO), "write-small": ("write 4 KiB at random", "µs", MICRO),
    "write-durable": ("write 4 KiB + fdatasync", "µs", MICRO), "read-large": ("read 1 MiB in order", "µs", MICRO),
    "write-large": ("write 1 MiB to a new file", "µs", MICRO), "create": ("create a file", "µs", MICRO),
    "stat": ("stat", "µs", MICRO), "rename": ("rename", "µs", MICRO), "unlink": ("unlink", "µs", MICRO)}


def make_repository(place, home, files):
    place.run([home / "iobench", "tree", "tree", files], cwd=home)
    git = ["git", "-C", "tree", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "tree"]):
        place.run([*git, *command], cwd=home)
    for name in inside.TOOLS:  # git keeps uid and device in it, which are not the same everywhere
        shutil.copy(home / "tree/.git/index", home / f"tree/.git/index-{name}")
        if place.identity:
            shutil.chown(home / f"tree/.git/index-{name}", place.identity["user"], place.identity["group"])


def git_status(bench, place):
    files = 500 if bench.quick else 20000
    bench.say(f"git status in a tree of {files} files")
    for home in (place.workspace, place.bwrap_workspace):
        make_repository(place, home, files)
    status = ["git", "-c", "safe.directory=*", "-C", "tree", "status", "--porcelain"]

    def index_of(name):
        return ["/usr/bin/env", f"GIT_INDEX_FILE=.git/index-{name}"]

    refresh = inside.tools(place)
    for row, home in refresh:
        if row.argv is not None:
            try:
                place.run([*row.argv, *index_of(row.name), *status], cwd=home)
            except Failed:
                pass  # fails again, and says why, when it is measured
    found = inside.jobs_in_turns(place, ["time", *status], 1 if bench.quick else 5 * bench.scale, index_of)
    return {"time": (f"git status, {files} files", "ms", MILLI)}, found


def measure(bench):
    place = bench.places[0]
    inside.prepare(place)
    bench.say("reads, writes and metadata")
    arguments = ["files", 4, 200] if bench.quick else ["files", 64, 3000]
    found = inside.jobs_in_turns(place, arguments, 1 if bench.quick else 8 * bench.scale)
    yield inside.compared_table(f"{place.name}-files", f"{place.words}, reads, writes and metadata", found, JOBS)
    if not shutil.which("git"):
        why = "not installed: apt-get install git"
        yield inside.table(f"{place.name}-git", f"{place.words}, git", inside.COLUMNS,
                           [{"row": "time", "label": "git status", "why": why}])
        return
    units, found = git_status(bench, place)
    yield inside.compared_table(f"{place.name}-git", f"{place.words}, git", found, units)
