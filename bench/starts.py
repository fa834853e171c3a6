# SPDX-License-Identifier: Apache-2.0
"""Part "starts": one start of /bin/true through each row, back to back and spaced, as each identity."""

from measure import START_COLUMNS, collect, figures_of, table
from rows import missing

TITLE = "Starts"
ABOUT = """\
- p50, p99: from just before the start until the program has been waited for; below 100 starts p99 is the slowest
  one. Standard streams are pipes.
- gone: the median until the last process that the program started has gone too.
- cpu: user and system time of the program and all its descendants, mean per start; with a pool also what it takes to
  prepare and to clear away: what latency is saved is not saved in cpu.
- machine: cpu time of the whole machine per start, with the kernel's own threads (they take namespaces down
  after the program has ended), less what the machine does when nothing is started. Not given when other work
  kept the machine busy, nor for spaced starts, nor for the engine.
- × bare, × bwrap, × seeds: the median divided by that of the bare start, of bubblewrap with the same mounts, and of
  the bubblewrap line that scripts have used so far: it shows the host's whole /etc, /proc without covers and /dev.
- A pool is warm when all its places are ready before the first start, cold when none is."""


def measure(bench):
    # laps, rounds in each, starts in a block
    tight = (1, 2, 4) if bench.quick else (10 * bench.scale, 2, 25)
    spaced = (1, 1, 1) if bench.quick else (10 * bench.scale, 2, 1)
    modes = (("tight", "back to back", 0, tight),
             ("spaced", f"starts {bench.gap_ms} ms apart on average (Poisson)", bench.gap_ms, spaced))
    for place in bench.places:
        measured = [row for row in place.rows if row.argv]
        absent = [missing(row) for row in place.rows if not row.argv]
        for mode, words, gap_ms, counts in modes:
            bench.say(f"starts {place.words}, {words}")
            lines = collect(place, measured, *counts, gap_ms * 1000)
            found, background = figures_of(lines, measured, mode == "tight")
            yield table(f"{place.name}-{mode}", f"{place.words}, {words}", START_COLUMNS, found + absent,
                        background=background)
