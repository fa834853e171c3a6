# SPDX-License-Identifier: Apache-2.0
"""Part "plans": a command in plan mode, its plan applied and undone, on a plain directory."""

import json
import shutil
import statistics
import time

from measure import table
from place import Failed

TITLE = "Plans"
ABOUT = """\
- A run makes N changes in a tree of M files: half of them moves to another directory, as long as there are files to
  move, the rest new files of 100 bytes. In plan mode its time includes reading the plan off, with the hash of all new
  content. Plain: `carrel run` of the same command, in turns; the tree is put back in between, outside the measured time.
- apply and undo are `carrel plan apply` and `undo` of such a plan, checked, journalled and on the disk when they
  return. What they are compared with does the same to the same files and ends with a sync of the file system, without
  checks and without a way back: `mv` of as many files, a hundred at a time, and `rsync -a` of as many files of 100 bytes
  into the tree.
- The large file is all blocks, no holes. As an ordinary user the kernel copies what is moved in plan mode."""
SIZES = (1000, 100000)
CHANGES = (10, 1000, 20000)
BIG = 2 << 30
NOT_QUICK = "not measured: --quick"
WORK = r"""
import os, sys
changes, files = int(sys.argv[1]), int(sys.argv[2])
moves = min(changes // 2, files)
os.mkdir("moved"); os.mkdir("new")
for n in range(moves):
    os.rename("d%d/f%d" % (n // 100, n % 100), "moved/%d" % n)
for n in range(changes - moves - 2):
    with open("new/%d" % n, "wb", 0) as file: file.write(b"x" * 100)
"""
BACK = r"""
import os, shutil, sys
moves = min(int(sys.argv[1]) // 2, int(sys.argv[2]))
for n in range(moves):
    os.rename("moved/%d" % n, "d%d/f%d" % (n // 100, n % 100))
shutil.rmtree("moved"); shutil.rmtree("new")
"""
FILL = r"""
import os, sys
os.chdir(sys.argv[1])
for n in range(int(sys.argv[2])):
    if n % 100 == 0: os.mkdir("d%d" % (n // 100))
    with open("d%d/f%d" % (n // 100, n % 100), "wb", 0) as file: file.write(b"%d" % n * 20)
"""
PYTHON = "/usr/bin/python3"


def took(place, argv):
    begin = time.monotonic()
    output = place.run(argv)
    return (time.monotonic() - begin) * 1e3, output


class Tree:
    """A directory of so many files, with plans."""

    def __init__(self, place, files):
        self.place, self.files = place, files
        self.path = place.directory(place.base / f"plans-{files}")
        place.run([PYTHON, "-c", FILL, self.path, files])
        self.run("--", "/bin/true")  # makes the mount points

    def run(self, *words):
        return took(self.place, [*self.place.carrel, "--workspace", self.path, *words])

    def plain(self, changes):
        ms, _ = self.run("--", PYTHON, "-c", WORK, changes, self.files)
        self.run("--", PYTHON, "-c", BACK, changes, self.files)
        return ms

    def planned(self, *command):
        ms, output = self.run("--plan", "--json", "--", *command)
        plan = json.loads(output)["plan"]
        return ms, plan

    def work(self, changes):
        return self.planned(PYTHON, "-c", WORK, changes, self.files)

    def plan(self, verb, plan):
        return took(self.place, [self.place.programs / "carrel", "plan", verb, "--dir", self.path, plan["id"]])[0]

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.rmtree(f"{self.path}.carrel-plans", ignore_errors=True)


def run_row(bench, tree, changes):
    laps = 1 if bench.quick else (9 if changes < 10000 else 3) * bench.scale
    plain, planned, operations = [], [], 0
    for _ in range(laps):
        plain.append(tree.plain(changes))
        ms, plan = tree.work(changes)
        planned.append(ms)
        operations = plan["operations"]
        tree.plan("discard", plan)
    one, other = statistics.median(plain), statistics.median(planned)
    return {"row": f"{changes}-{tree.files}", "label": f"{changes} changes in {tree.files} files", "n": laps, "operations": operations,
            "plain_ms": one, "plan_ms": other, "x_plain": other / one, "each_us": (other - one) / changes * 1e3}


def runs(bench, place, trees):
    found = [run_row(bench, tree, changes) for tree in trees for changes in (CHANGES[:2] if bench.quick else CHANGES)]
    by_row = {row["row"]: row for row in found}
    for row in found:
        changes = row["row"].split("-")[0]
        small = by_row[f"{changes}-{trees[0].files}"]
        row["x_small"] = (row["plan_ms"] - row["plain_ms"]) / max(small["plan_ms"] - small["plain_ms"], 0.1)
    if bench.quick:
        found.append({"row": "more", "label": "more changes, more files", "why": NOT_QUICK})
    columns = (("n", "n", "d"), ("operations", "operations", "d"), ("plain ms", "plain_ms", ".1f"), ("plan ms", "plan_ms", ".1f"),
               ("× plain", "x_plain", ".2f"), ("added µs a change", "each_us", ".1f"), (f"added × {trees[0].files} files", "x_small", ".2f"))
    return table(f"{place.name}-runs", f"{place.words}, runs in plan mode", columns, found)


def native(tree, count):
    """ms of mv and of rsync, where there is one, of so many files in a copy of the tree's first directories."""
    place = tree.place
    source, scratch = place.directory(place.base / "rsync-source"), place.directory(place.base / "mv-tree")
    place.run(["/bin/sh", "-c", f"cd {source} && head -c {count * 100} /dev/zero | split -b 100 -a 5 - f"])
    place.run(["/bin/cp", "-a", *(tree.path / f"d{n}" for n in range((count + 99) // 100)), scratch])
    in_last = f"{(count - 1) % 100 + 1}"  # so many of the last directory's
    mv = (f"cd {scratch} && mkdir moved && for d in d*; do mkdir moved/$d && ls $d | head -n {in_last if count < 100 else 100} | "
          "(cd $d && xargs mv -t ../moved/$d); done && sync -f .")
    found = {"mv": took(place, ["/bin/sh", "-c", mv])[0]}
    if shutil.which("rsync"):
        found["rsync"] = took(place, ["/bin/sh", "-c", f"rsync -a {source}/ {scratch}/ && sync -f {scratch}"])[0]
    for path in (source, scratch):
        shutil.rmtree(path)
    return found


def applies(bench, place, tree):
    laps = 1 if bench.quick else 3 * bench.scale
    found = []
    for changes in CHANGES[:2] if bench.quick else CHANGES:
        times = {"apply": [], "undo": [], "mv": [], "rsync": []}
        for _ in range(laps):
            _, plan = tree.work(changes)
            times["apply"].append(tree.plan("apply", plan))
            times["undo"].append(tree.plan("undo", plan))
            tree.plan("discard", plan)
            for name, ms in native(tree, min(changes, tree.files)).items():
                times[name].append(ms)
        median = {name: statistics.median(values) for name, values in times.items() if values}
        for name, label in (("apply", "apply"), ("undo", "undo"), ("mv", "mv, sync"), ("rsync", "rsync -a, sync")):
            row = {"row": f"{name}-{changes}", "label": f"{changes} changes: {label}"}
            if name not in median:
                found.append({**row, "why": "not installed: apt-get install rsync"})
            else:
                found.append({**row, "n": laps, "ms": median[name], "each_us": median[name] / changes * 1e3,
                              "x_mv": median[name] / median["mv"],
                              "x_rsync": median[name] / median["rsync"] if "rsync" in median else None})
    columns = (("n", "n", "d"), ("ms", "ms", ".1f"), ("µs a change", "each_us", ".1f"), ("× mv", "x_mv", ".2f"), ("× rsync", "x_rsync", ".2f"))
    return table(f"{place.name}-apply", f"{place.words}, applied and undone in {tree.files} files", columns, found)


def big_file(bench, place):
    size = 64 << 20 if bench.quick else BIG
    tree = Tree(place, 0)
    found = []
    path = tree.path / "big"
    if shutil.disk_usage(place.base).free < 4 * size:
        why = "not enough room on the disk"
    else:
        why = None
        place.run([PYTHON, "-c", "import os,sys; f=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT); os.posix_fallocate(f,0,int(sys.argv[2]))", path, size])
        tree.run("--", "/bin/mkdir", "there")
    planned = "plan" if place.root else "plan-copied"
    for name, label in (("plain", "mv, plain run"), (planned, "mv in plan mode"), ("apply", "apply"), ("undo", "undo")):
        found.append({"row": name, "label": f"{label}, {size >> 20} MiB", **({"why": why} if why else {})})
    if why is None:
        times = {name: [] for name in ("plain", planned, "apply", "undo")}
        for _ in range(1 if bench.quick or not place.root else 5 * bench.scale):
            times["plain"].append(tree.run("--", "/bin/mv", "big", "there/big")[0])
            tree.run("--", "/bin/mv", "there/big", "big")
            ms, plan = tree.planned("/bin/mv", "big", "there/big")
            times[planned].append(ms)
            times["apply"].append(tree.plan("apply", plan))
            times["undo"].append(tree.plan("undo", plan))
            tree.plan("discard", plan)
        for row in found:
            row["n"], row["ms"] = len(times[row["row"]]), statistics.median(times[row["row"]])
    if not place.root:
        found.append({"row": "plan", "label": "mv in plan mode, nothing copied", "why": "the kernel copies what an ordinary user moves in plan mode"})
    tree.remove()
    columns = (("n", "n", "d"), ("ms", "ms", ".1f"))
    return table(f"{place.name}-large", f"{place.words}, a large file moved", columns, found)


def measured_as(bench, place):
    bench.say(f"plans {place.words}")
    trees = [Tree(place, files) for files in (SIZES[:1] if bench.quick else SIZES)]
    try:
        yield runs(bench, place, trees)
        bench.say(f"plans applied and undone {place.words}")
        yield applies(bench, place, trees[-1])
    finally:
        for tree in trees:
            tree.remove()
    bench.say(f"a large file moved in a plan {place.words}")
    yield big_file(bench, place)


def measure(bench):
    for place in bench.places:
        try:
            yield from measured_as(bench, place)
        except Failed as error:
            failed = {"row": "failed", "label": "plans", "why": str(error)}
            yield table(f"{place.name}-failed", f"{place.words}, the rest", (("ms", "ms", ".1f"),), [failed])
