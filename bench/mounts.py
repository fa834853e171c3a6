# SPDX-License-Identifier: Apache-2.0
"""Part "mounts": what extra mounts cost a start."""

import statistics

from measure import medians, table
from place import Failed
from rows import TRUE, Row, missing

TITLE = "Extra mounts"
ABOUT = """\
- `carrel run --ro DIR:/extra/N …` and bubblewrap with its same mounts and as many `--ro-bind` more, back to back.
  "× 0" is the median divided by that without extra mounts."""
COUNTS = (0, 10, 20, 40)
NAMES = ("bare", "carrel", "bwrap")


def extra_rows(place, count):
    directories = [place.base / "extra" / str(index) for index in range(count)]
    bwrap = place.row("bwrap")
    carrel = [word for path in directories for word in ("--ro", f"{path}:/extra/{path.name}")]
    found = [place.row("bare"), Row("carrel", "carrel run", [*place.carrel, *carrel, "--", TRUE])]
    if bwrap.argv:
        more = [word for path in directories for word in ("--ro-bind", str(path), f"/tmp/{path.name}")]
        found.append(Row("bwrap", "bwrap", [*bwrap.argv[:-4], *more, *bwrap.argv[-4:]]))  # before --chdir / -- true
    return found


def works(place, row):
    try:
        place.run(row.argv)
    except Failed as error:
        row.why = f"does not work here: {error}"
    return not row.why


def measure(bench):
    place = bench.places[0]
    bench.say("starts with extra mounts")
    place.directory(place.base / "extra")
    for index in range(max(COUNTS)):
        place.directory(place.base / "extra" / str(index))
    extra = {count: extra_rows(place, count) for count in COUNTS}
    broken = [(count, row) for count, found in extra.items() for row in found if not works(place, row)]
    values = {}
    laps, block = (1, 3) if bench.quick else (3 * bench.scale, 15)
    for _ in range(laps):  # the counts take turns, so that drift of the machine meets all alike
        for count, found in extra.items():
            for name, value in medians(place, [row for row in found if not row.why], 1, 1, block).items():
                values.setdefault((count, name), []).append(value)
    found = []
    for count in COUNTS:
        result = {"row": str(count), "label": f"{count} extra mounts"}
        for name in NAMES:
            if (count, name) in values:
                result[name] = statistics.median(values[count, name])
                result["x_" + name] = result[name] / (found[0] if found else result)[name]
        found.append(result)
    found += [{"row": f"{row.name}-{count}", "label": f"{row.name}, {count} extra mounts", "why": row.why}
              for count, row in broken]
    if not place.row("bwrap").argv:
        found.append(missing(place.row("bwrap")))
    columns = []
    for name in NAMES:
        columns += [(f"{name} ms", name, ".2f"), ("× 0", "x_" + name, ".2f")]
    yield table(f"{place.name}-mounts", f"{place.words}, back to back", columns, found)
