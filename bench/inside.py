# SPDX-License-Identifier: Apache-2.0
"""Parts "files" and "calls": the same work natively and inside each sandbox. iobench takes the time itself."""

import math
import shutil
import statistics

from measure import table
from place import Failed
from rows import Row, runsc_command

# Native twice: how far the second differs from the first is the noise of this run.
TOOLS = ("native", "carrel", "again", "bwrap", "proot", "runsc")
LABELS = {"native": "native", "again": "native, measured once more: the noise", "carrel": "carrel run",
          "bwrap": "bwrap, same mounts", "proot": "proot", "runsc": "runsc (gVisor, ptrace)"}
SLOW = {"proot": 2, "runsc": 4}  # take part in every nth round


def tools(place):
    """[(row, command to put before, directory on the host that is the current one inside)]; argv None: it cannot be had."""
    found = []
    for name in TOOLS:
        row = Row(name, LABELS[name], [], every=SLOW.get(name, 1))
        home = place.bwrap_workspace if name in ("bwrap", "proot") else place.workspace
        if name == "runsc" and shutil.which("runsc"):
            row.argv = runsc_command(place, "-quiet", "-force-overlay=false", "-cwd", str(home))
        elif name not in ("native", "again"):
            like = place.row(name)
            row.argv, row.why = like.argv and like.argv[:-1], like.why
        found.append((row, home))
    return found


def prepare(place):
    for home in (place.workspace, place.bwrap_workspace):
        if not (home / "iobench").exists():
            shutil.copy(place.programs / "iobench", home / "iobench")


def jobs_in_turns(place, arguments, rounds, setting=None):
    """{tool: {job: {round: ns per operation}}}; a tool that fails gets its reason instead. setting(name): words to put
    before iobench."""
    found = {}
    wanted = tools(place)
    for turn in range(rounds):
        for row, home in wanted[turn % 2 * 3:] + wanted[:turn % 2 * 3]:
            if row.argv is None or turn % row.every != 0:
                continue
            try:
                lines = place.lines([*row.argv, *(setting(row.name) if setting else []), "./iobench", *arguments],
                                    cwd=home)
            except Failed as error:
                row.argv, row.why = None, f"does not work here: {error}"
                found.pop(row.name, None)
                continue
            for job, operations, nanoseconds in lines:
                found.setdefault(row.name, {}).setdefault(job, {})[turn] = int(nanoseconds) / int(operations)
    for row, _ in wanted:
        found.setdefault(row.name, row.why)
    if not isinstance(found["native"], dict):
        raise SystemExit(f"bench: iobench {' '.join(map(str, arguments))}: {found['native']}")
    return found


def noise_of(ratios):
    """How far the median of native against native is from 1, or may be by chance: the spread of its rounds tells."""
    ordered = sorted(ratios)
    quarter = len(ordered) // 4
    spread = ordered[-1 - quarter] - ordered[quarter]
    return max(abs(statistics.median(ordered) - 1), spread / math.sqrt(len(ordered)))


def compare(found, units):
    """Rows: for each job native in its own unit, the others as multiples of native in the same round (the median of
    those). units: {job: (label, unit, ns in it)}."""
    rows = []
    for job, (label, unit, scale) in units.items():
        native = found["native"][job]
        row = {"row": job, "label": label, "unit": unit, "value": statistics.median(native.values()) / scale}
        for name, jobs in found.items():
            if name != "native" and isinstance(jobs, dict):
                ratios = [value / native[turn] for turn, value in jobs[job].items()]
                row["x_" + name] = statistics.median(ratios)
                if name == "again":
                    row["noise"] = noise_of(ratios)
        rows.append(row)
    for name, why in found.items():
        if not isinstance(why, dict):
            rows.append({"row": name, "label": LABELS[name], "why": why})
    return rows


COLUMNS = (("unit", "unit", "s"), ("native", "value", ".2f"), ("× native again", "x_again", ".2f"), ("noise ±", "noise", ".2f"),
           ("× carrel", "x_carrel", ".2f"), ("× bwrap", "x_bwrap", ".2f"), ("× proot", "x_proot", ".2f"),
           ("× runsc", "x_runsc", ".2f"))


def compared_table(name, title, found, units):
    return table(name, title, COLUMNS, compare(found, units))
