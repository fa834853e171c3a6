# SPDX-License-Identifier: Apache-2.0
"""Part "neighbours": is the host still there for others while a sandbox runs into its limits?"""

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import threading

from measure import collect, percentile, starts_of, table
from place import Failed
from rows import TRUE

TITLE = "Bad neighbours"
ABOUT = """\
- The median of `carrel run -- true`, 30 ms apart on average, while a sandbox with limits runs a bomb over and over;
  "× alone" divides it by the median with no bomb, measured before and after each. ended: exit statuses of the bomb's
  runs and how often each: 120 memory, 121 processes, 122 output, 123 disk, 124 timeout, 137 and 143 ended by us."""
LIMITS = {"--memory": "256M", "--pids": "256", "--cpu": "1", "--disk": "128M", "--files": "10000", "--max-output": "16M"}
BOMBS = (  # kind, label, the limit that must stop it, others that keep it small
    ("fork", "fork bomb", "--pids", ("--memory", "--cpu")), ("threads", "thread bomb", "--pids", ("--memory", "--cpu")),
    ("memory", "memory bomb (heap)", "--memory", ("--cpu",)), ("tmpfs", "memory bomb (tmpfs)", "--memory", ("--cpu",)),
    ("disk", "disk filler (write)", "--disk", ("--memory", "--cpu")),
    ("files", "disk filler (empty files)", "--files", ("--memory", "--cpu")),
    ("print", "endless printer", "--max-output", ("--cpu",)))
GAP_US = 30000
NOT_HELD = 99  # bomb.c: it went as far as it dares, and nothing stopped it
COLUMNS = (("alone ms", "alone_ms", ".2f"), ("beside ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"),
           ("× alone", "vs_alone", ".2f"), ("ended", "ended", "s"))


class Bomb:
    """Runs one over and over in a thread of its own, until stop()."""

    def __init__(self, place, kind, options):
        self.place, self.kind, self.stopped = place, kind, threading.Event()
        home = place.base / "bomb"
        self.command = [*place.carrel, *options, "--timeout", "20s", "--workspace", home, "--", "/bomb", kind]
        self.home, self.statuses, self.said, self.process = home, {}, "", None
        self.prepare()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def prepare(self):
        shutil.rmtree(self.home, ignore_errors=True)
        self.place.directory(self.home)
        shutil.copy(self.place.programs / "bomb", self.home / "bomb")

    def loop(self):
        while not self.stopped.is_set():
            with self.place.popen(self.command, stdout=subprocess.DEVNULL) as self.process:
                errors = self.process.communicate()[1].strip()
            code = self.process.returncode
            code = 128 - code if code < 0 else code
            self.statuses[code] = self.statuses.get(code, 0) + 1
            if code == 125:
                self.said = errors.splitlines()[-1] if errors else "exit status 125"
                return
            self.prepare()

    def stop(self):
        self.stopped.set()
        while self.thread.is_alive():  # more than once: it may be about to start another
            with contextlib.suppress(ProcessLookupError, AttributeError):
                os.killpg(self.process.pid, signal.SIGTERM)
            self.thread.join(0.2)
        shutil.rmtree(self.home, ignore_errors=True)


def one(place, label, kind, options, count):
    row = place.row("carrel-cwd")
    alone = [start[1] for start in starts_of(collect(place, [row], 1, 1, count // 2, GAP_US), 0, row)]
    bomb = Bomb(place, kind, options)
    try:
        beside = [start[1] for start in starts_of(collect(place, [row], 1, 1, count, GAP_US), 0, row)]
    finally:
        bomb.stop()
    alone += [start[1] for start in starts_of(collect(place, [row], 1, 1, count // 2, GAP_US), 0, row)]
    result = {"row": kind, "label": label, "alone_ms": statistics.median(alone), "p50_ms": statistics.median(beside),
              "p99_ms": percentile(beside, 0.99), "vs_alone": statistics.median(beside) / statistics.median(alone),
              "ended": ", ".join(f"{code} × {times}" for code, times in sorted(bomb.statuses.items()))}
    if bomb.said:
        return {"row": kind, "label": label, "why": f"does not work here: {bomb.said}"}
    if NOT_HELD in bomb.statuses:
        return {"row": kind, "label": label, "why": "THE LIMIT DID NOT HOLD: the bomb went off and ended by itself"}
    return result


def kept(place, options):
    """Those limits that this build has and this host can keep."""
    found = []
    for name in options:
        try:
            if place.has_option(name):
                place.run([*place.carrel, name, LIMITS[name], "--", TRUE])
                found += [name, LIMITS[name]]
        except Failed:
            pass  # the one limit that matters is tried again with the bomb, and says why it cannot be had
    return found


def measure(bench):
    place = bench.places[0]
    found = []
    for kind, label, needed, others in BOMBS:
        bench.say(f"beside: {label}")
        if not place.has_option(needed):
            found.append({"row": kind, "label": label, "why": f"this build of Carrel has no option {needed}"})
            continue
        options = [needed, LIMITS[needed], *kept(place, others)]
        found.append(one(place, f"{label}: {' '.join(options)}", kind, options, 6 if bench.quick else 100 * bench.scale))
    yield table(f"{place.name}-neighbours", f"{place.words}, beside a bomb", COLUMNS, found)
