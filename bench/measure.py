# SPDX-License-Identifier: Apache-2.0
"""Starting things many times, and what the times say. Shared by the parts of the benchmark.

A table is a dictionary: name, title, columns [heading, key, format], rows; perhaps about and background.
A row of it has row, label and a value for each key, or why it has none.
"""

import math
import os
import statistics

import rows
from place import Failed

GAP_MS = 300
SEED = 20
BUSY = 0.05  # above this share of the machine taken by other work, its cpu time says nothing about us
START_COLUMNS = (
    ("n", "n", "d"), ("p50 ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"), ("gone ms", "gone_ms", ".2f"),
    ("cpu ms", "cpu_ms", ".2f"), ("machine ms", "machine_ms", ".2f"), ("× bare", "vs_bare", ".2f"),
    ("× bwrap", "vs_bwrap", ".2f"), ("× seeds", "vs_seeds", ".2f"))


def table(name, title, columns, found, **more):
    return {"name": name, "title": title, "columns": [list(column) for column in columns], "rows": found, **more}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def collect(place, measured, laps, rounds, block, gap_us):
    """Starts all rows in laps, in turns; returns the programs' lines, rows numbered by their place in `measured`."""
    lines = []
    for lap in range(laps):
        settings = [str(block), str(gap_us), str(SEED + lap)]
        chosen = [index for index, row in enumerate(measured) if lap % row.every == 0]
        spawned = [index for index in chosen if measured[index].engine is None]
        command = [place.programs / "spawnbench", str(rounds), *settings]
        for index in spawned:
            command += [":::", *measured[index].argv]
        for kind, row, *words in place.lines(command) if spawned else []:
            lines.append([kind, int(row) if row == "-1" else spawned[int(row)], *words])
        for index in chosen:
            if measured[index].engine is not None:
                command = rows.engine_command(place, measured[index].engine, rounds * block, gap_us, SEED + lap)
                lines += engine_lines(place.lines(command), index, rounds * block)
    return lines


def engine_lines(lines, index, count):
    """As spawnbench prints them. A line "cpu US" is all that the program has used meanwhile, its pool included; without
    one the cpu of each start stands as it is."""
    total = next((int(line[1]) / count for line in lines if line[0] == "cpu"), None)
    return [["start", index, at, wall, gone, str(round(total)) if total else cpu, status]
            for _, _, at, wall, gone, cpu, status in (line for line in lines if line[0] == "start")]


def starts_of(lines, index, row, skip_first=False):
    """[index in block, wall, gone, cpu] of each start of one row, in ms."""
    starts = [[int(word) for word in line[2:]] for line in lines if line[:2] == ["start", index]]
    failed = [start for start in starts if start[4] != 0]
    if failed:
        raise Failed(f"{len(failed)} of {len(starts)} starts of '{row.label}' failed, one with status {failed[0][4]}")
    # Back to back, the first of a block finds the machine at rest.
    return [[i, wall / 1e6, gone / 1e6, cpu / 1e3] for i, wall, gone, cpu, _ in starts if i > 0 or not skip_first]


def machine_time(lines):
    """From spawnbench's block lines: (busy share of the machine at rest, {row: busy ms per start})."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = {}
    for _, row, starts, wall, idle in (line for line in lines if line[0] == "block"):
        seconds = int(wall) / 1e9
        entry = total.setdefault(row, [0, 0.0, 0.0])
        entry[0] += int(starts)
        entry[1] += seconds
        entry[2] += seconds * os.cpu_count() - int(idle) / ticks
    if -1 not in total:
        return None, {}
    _, seconds, busy = total.pop(-1)
    rest = max(0.0, busy / seconds)
    return rest / os.cpu_count(), {row: (busy - rest * t) / n * 1e3 for row, (n, t, busy) in total.items()}


def figures_of(lines, measured, tight):
    """(rows of a table with START_COLUMNS, busy share of the machine at rest)."""
    background, machine = machine_time(lines)
    results = []
    for index, row in enumerate(measured):
        starts = starts_of(lines, index, row, skip_first=tight)
        wall = [start[1] for start in starts]
        result = {"row": row.name, "label": row.label, "n": len(starts), "p50_ms": statistics.median(wall),
                  "p99_ms": percentile(wall, 0.99), "gone_ms": statistics.median(start[2] for start in starts),
                  "cpu_ms": statistics.mean(start[3] for start in starts)}
        if background is not None and background <= BUSY:
            result["machine_ms"] = machine.get(index)
        results.append(result)
    median = {result["row"]: result["p50_ms"] for result in results}
    for result in results:
        for name, key in (("bare", "vs_bare"), ("bwrap", "vs_bwrap"), ("bwrap-seeds", "vs_seeds")):
            result[key] = result["p50_ms"] / median[name] if name in median else None
    return results, background


def medians(place, measured, laps, rounds, block, gap_us=0):
    """Only the median of each row, by name."""
    found, _ = figures_of(collect(place, measured, laps, rounds, block, gap_us), measured, gap_us == 0)
    return {result["row"]: result["p50_ms"] for result in found}
