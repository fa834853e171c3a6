# SPDX-License-Identifier: Apache-2.0
"""Part "mounts": what extra mounts cost a start."""

import statistics

from measure import medians, table
from place import Failed
from rows import TRUE, Row, missing

TITLE = "Extra mounts"
ABOUT = """\
- `carrel run --ro DIR:/extra/N …` and bubblewrap with its same mounts and as many `--ro-bind` more, back to back.
  "× 0" is the median divided by that without extra mounts.
- Layers: `carrel run --layer`, or `--layer-ro`, of an empty directory. When the last process has gone the kernel writes
  all of the file system of a layer that could be written to disk (overlayfs does when it is unmounted), and the run ends
  only then: part of the time is that of the disk."""
COUNTS = (0, 10, 20, 40)
LAYERS = (0, 1, 4)
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


def layer_rows(place, count):
    below, found = place.base / "extra" / "0", [place.row("bare")]
    for option in ("layer", "layer-ro"):
        words = [word for index in range(count)
                 for word in (f"--{option}", f"{below}:/extra/{index}:{place.base}/layers/{index}")]
        found.append(Row(option, f"carrel run --{option}", [*place.carrel, *words, "--", TRUE]))
    return found


def measure_layers(bench, place):
    place.directory(place.base / "layers")
    for index in range(max(LAYERS)):
        place.directory(place.base / "layers" / str(index)).chmod(0o700)
    rows = {count: layer_rows(place, count) for count in LAYERS}
    works(place, rows[max(LAYERS)][1])  # makes what is to be shown
    broken = [(count, row) for count, found in rows.items() for row in found if not works(place, row)]
    values, found = {}, []
    laps, block = (1, 3) if bench.quick else (3 * bench.scale, 15)
    for _ in range(laps):
        for count, some in rows.items():
            for name, value in medians(place, [row for row in some if not row.why], 1, 1, block).items():
                values.setdefault((count, name), []).append(value)
    for count in LAYERS:
        result = {"row": str(count), "label": f"{count} layers"}
        for name in ("layer", "layer-ro"):
            if (count, name) in values:
                result[name] = statistics.median(values[count, name])
                result["x_" + name] = result[name] / (found[0] if found else result)[name]
        found.append(result)
    found += [{"row": f"{row.name}-{count}", "label": f"{row.name}, {count}", "why": row.why} for count, row in broken]
    columns = [("written ms", "layer", ".2f"), ("× 0", "x_layer", ".2f"), ("shown ms", "layer-ro", ".2f"), ("× 0", "x_layer-ro", ".2f")]
    return table(f"{place.name}-layers", f"{place.words}, layers", columns, found)


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
    yield measure_layers(bench, place)
