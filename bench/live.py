# SPDX-License-Identifier: Apache-2.0
"""Part "live": how starts and memory grow with the number of sandboxes that are alive."""

import contextlib
import os
import pathlib
import re
import selectors
import signal
import time

from measure import medians, table
from place import Failed
from rows import missing

TITLE = "Live sandboxes"
ABOUT = """\
- Each live sandbox has a workspace of its own and holds one `sleep`; all are made by one process with libcarrel in
  it, one thread for each. Starts are back to back, beside them; "× 1" is the median divided by that with one
  live sandbox. Bare starts beside them show what the machine itself does.
- Memory is the fall of MemAvailable, kernel included, against before or after, whichever says more. The `sleep` and
  its thread are in it; what plain `sleep` processes take is the row to subtract."""
LEVELS = (1, 10, 100, 500, 1000)
STARTED = ("bare", "engine", "pool", "carrel")
HELD = ["/bin/sh", "-c", "echo .; exec sleep 600"]  # not for ever, should nobody come to end it
GAP_US = 2000  # between one and the next, so that they do not wait for each other
PATIENCE = 120


def memory_available():
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    return int(re.search(r"MemAvailable:\s*(\d+)", text)[1]) / 1024


def settled_memory(bench):
    """MiB, once the kernel has finished with what is being made or cleared away; the largest of the last few looks."""
    looks = [memory_available()]
    deadline = time.monotonic() + (1 if bench.quick else 10)
    while time.monotonic() < deadline:
        time.sleep(0.25)
        looks.append(memory_available())
        if len(looks) > 4 and max(looks[-4:]) - min(looks[-4:]) < 0.5:
            break
    return max(looks[-4:])


def wait_for_all(process, count):
    """Each says a dot when it is alive."""
    dots, deadline = 0, time.monotonic() + PATIENCE
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while dots < count:
            if not selector.select(deadline - time.monotonic()):
                raise Failed(f"only {dots} of {count} were alive after {PATIENCE} s")
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                said = process.stderr.read().strip().splitlines()
                raise Failed(f"only {dots} of {count} could be made: {said[-1] if said else 'no reason given'}")
            dots += data.count(b".")


def reap_all():
    """We are the subreaper: whoever lost its parent is ours, and no other child is left here."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


@contextlib.contextmanager
def held(place, count, kind):
    """So many alive, and none afterwards, whatever happens. kind: sandboxes by "engine" or "carrel", or "bare" processes."""
    own = str(place.base / "live" / "@")
    command = {"engine": [place.init, own, *HELD], "bare": ["-", "-", *HELD],
               "carrel": ["-", "-", *place.carrel, "--workspace", own, "--create", "--", *HELD]}[kind]
    process = place.popen([place.programs / "crowdbench", count, GAP_US, *command])
    try:
        wait_for_all(process, count)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        process.wait()
        reap_all()


def with_live(bench, place, count, measured):
    """One row: the medians of starts beside so many sandboxes, and their memory."""
    before = settled_memory(bench)
    with held(place, count, "engine"):
        beside = settled_memory(bench)
        found = medians(place, measured, 1 * bench.scale, 2, 3 if bench.quick else 20)
    used = max(before, settled_memory(bench)) - beside
    return {"row": str(count), "label": f"{count} live", "used_mib": used, **found}


def growth(bench, place, levels):
    measured = [row for row in map(place.row, STARTED) if row.argv]
    found, first = [], None
    for count in levels:
        bench.say(f"beside {count} live sandboxes")
        try:
            result = with_live(bench, place, count, measured)
        except Failed as error:
            found.append({"row": str(count), "label": f"{count} live", "why": str(error)})
            continue
        first = first or result
        for row in measured:
            result["x_" + row.name] = result[row.name] / first[row.name]
        found.append(result)
    columns = []
    for row in measured:
        columns += [(f"{row.name} ms", row.name, ".2f"), ("× 1", "x_" + row.name, ".2f")]
    absent = [missing(row) for row in map(place.row, STARTED) if not row.argv]
    return table(f"{place.name}-growth", f"{place.words}, median start beside live sandboxes", columns, found + absent)


def memory(bench, place, count, grown):
    """Of sandboxes in one process, as measured above; of as many `carrel run`; of as many plain processes."""
    found = [{"row": f"engine-{result['row']}", "label": f"{result['row']} live sandboxes, one process holds them",
              "n": int(result["row"]), "used_mib": result["used_mib"]}
             for result in grown["rows"] if result.get("used_mib") and int(result["row"]) >= min(count, 100)]
    for kind, label in (("carrel", "times `carrel run -- sleep`"), ("bare", "plain `sleep` processes")):
        bench.say(f"memory of {count} {label}".replace("`", ""))
        result = {"row": kind, "label": f"{count} {label}", "n": count}
        before = settled_memory(bench)
        try:
            with held(place, count, kind):
                beside = settled_memory(bench)
            result["used_mib"] = max(before, settled_memory(bench)) - beside
        except Failed as error:
            result["why"] = str(error)
        found.append(result)
    bare = found[-1].get("used_mib")
    for result in found:
        if "used_mib" in result:
            result["each_mib"] = result["used_mib"] / result["n"]
            result["own_mib"] = result["each_mib"] - bare / count if bare else None
    columns = (("MiB", "used_mib", ".1f"), ("MiB each", "each_mib", ".3f"), ("less the sleep", "own_mib", ".3f"))
    return table(f"{place.name}-memory", f"{place.words}, memory of live sandboxes", columns, found)


def measure(bench):
    place = bench.places[0]
    place.directory(place.base / "live")
    levels = [level for level in ((1, 10) if bench.quick else LEVELS) if level <= bench.most_live]
    grown = growth(bench, place, levels)
    used = memory(bench, place, min(levels[-1], 500), grown)
    if len(levels) < len(LEVELS):
        why = "not measured: --quick" if bench.quick else f"not measured: --live {bench.most_live}"
        for found in (grown, used):
            found["rows"].append({"row": "more", "label": f"more than {levels[-1]} live", "why": why})
    yield grown
    yield used
