# SPDX-License-Identifier: Apache-2.0
"""Part "calls": single system calls, those that the filter lets by unseen and those whose arguments it reads."""

import inside

TITLE = "System calls"
ABOUT = """\
- Time of one call. The filter reads the arguments of `ioctl` and `open`, and decides about the others by their number
  alone, which the kernel remembers. The `ioctl` is one that fails at once: nothing but the way in and out is left of
  it, so that the filter shows at its largest. `stat` and `open` are of the current directory."""
NANO = 1
JOBS = {
    "getppid": ("getppid", "ns", NANO), "read": ("read of /dev/null", "ns", NANO),
    "write": ("write to /dev/null", "ns", NANO), "stat": ("stat", "ns", NANO),
    "ioctl": ("ioctl (the filter reads its arguments)", "ns", NANO),
    "open+close": ("open + close (the filter reads its arguments)", "ns", NANO)}


def measure(bench):
    place = bench.places[0]
    inside.prepare(place)
    bench.say("system calls")
    found = inside.jobs_in_turns(place, ["calls", 5 if bench.quick else 100], 1 if bench.quick else 5 * bench.scale)
    yield inside.compared_table(f"{place.name}-calls", f"{place.words}, one call", found, JOBS)
