# SPDX-License-Identifier: Apache-2.0
"""Part "storm": a thousand starts in a row, and many at once."""

import statistics

from measure import collect, percentile, starts_of, table
from place import Failed
from rows import TRUE, missing

TITLE = "Many starts"
ABOUT = """\
- In a row: nothing between one start and the next. last/first: the median of the last tenth divided by that of the
  first tenth; above 1 the machine is falling behind with clearing away.
- At once: all begin at the same moment. all: until the last one has ended; per start: that time divided by
  their number; × bare: the same divided by that of bare starts. Each has a workspace of its own."""
ROW_COLUMNS = (("n", "n", "d"), ("p50 ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"), ("slowest ms", "max_ms", ".2f"),
               ("last/first", "drift", ".2f"), ("× bare", "vs_bare", ".2f"))
ONCE_COLUMNS = (("n", "n", "d"), ("all ms", "all_ms", ".1f"), ("per start ms", "each_ms", ".2f"),
                ("p50 ms", "p50_ms", ".1f"), ("p99 ms", "p99_ms", ".1f"), ("cpu ms", "cpu_ms", ".2f"),
                ("× bare", "vs_bare", ".2f"))
IN_A_ROW = ("bare", "engine", "pool", "carrel", "carrel-limits", "bwrap")
AT_ONCE = ("bare", "engine", "carrel", "carrel-limits", "bwrap", "proot", "runc", "runsc")


def in_a_row(bench, place):
    count = 20 if bench.quick else 1000
    found = []
    for name in IN_A_ROW:
        row = place.row(name)
        if not row.argv:
            found.append(missing(row))
            continue
        starts = starts_of(collect(place, [row], 1, 1, count, 0), 0, row)
        wall = [start[1] for start in starts]
        tenth = max(1, count // 10)
        found.append({"row": name, "label": row.label, "n": len(wall), "p50_ms": statistics.median(wall),
                      "p99_ms": percentile(wall, 0.99), "max_ms": max(wall),
                      "drift": statistics.median(wall[-tenth:]) / statistics.median(wall[:tenth])})
    return table(f"{place.name}-row", f"{place.words}, {count} in a row", ROW_COLUMNS, compared(found, "p50_ms"))


def compared(found, key):
    bare = next(result[key] for result in found if result["row"] == "bare")
    for result in found:
        if key in result:
            result["vs_bare"] = result[key] / bare
    return found


def crowd_command(place, row, count):
    """'@' is the number of each of them: whatever must not be shared has one in its name."""
    own = str(place.base / "crowd" / "@")
    if row.engine is not None:
        return [place.programs / "crowdbench", count, 0, place.init, own, TRUE]
    argv = [own if word == str(place.workspace) else word for word in row.argv]
    if row.name == "runc":
        argv[-1] += "-@"
    return [place.programs / "crowdbench", count, 0, "-", "-", *argv]


def at_once(bench, place):
    count, laps = (8, 1) if bench.quick else (64, 3)
    place.directory(place.base / "crowd")
    for index in range(count):
        place.directory(place.base / "crowd" / str(index))
    measured = [place.row(name) for name in AT_ONCE]
    lines = {row.name: [] for row in measured}
    for lap in range(laps):
        for row in measured:
            if row.argv and lap % row.every == 0:
                try:
                    lines[row.name] += place.lines(crowd_command(place, row, count))
                except Failed as error:
                    row.why = f"{count} at once do not work: {error}"
    found = [crowd_figures(row, lines[row.name], count) if lines[row.name] else missing(row) for row in measured]
    return table(f"{place.name}-once", f"{place.words}, {count} at once", ONCE_COLUMNS, compared(found, "each_ms"))


def crowd_figures(row, lines, count):
    starts = starts_of([[line[0], 0, *line[2:]] for line in lines], 0, row)
    wall = [start[1] for start in starts]
    every = statistics.median(int(line[1]) / 1e6 for line in lines if line[0] == "all")
    return {"row": row.name, "label": row.label, "n": len(wall), "all_ms": every, "each_ms": every / count,
            "p50_ms": statistics.median(wall), "p99_ms": percentile(wall, 0.99),
            "cpu_ms": statistics.mean(start[3] for start in starts)}


def measure(bench):
    place = bench.places[0]
    bench.say("starts in a row")
    yield in_a_row(bench, place)
    bench.say("starts at once")
    yield at_once(bench, place)
