# SPDX-License-Identifier: Apache-2.0
"""Tables from the figures of one benchmark run: for the terminal and for docs/benchmarks.md."""

IDENTITIES = {"root": "as root", "user": "as an ordinary user"}
MODES = {"tight": "back to back", "spaced": "starts 300 ms apart on average"}
BUSY = 0.05  # above this share of the machine taken by other work, its cpu time says nothing about us
COLUMNS = (  # heading, key, format
    ("n", "n", "d"), ("p50 ms", "p50_ms", ".2f"), ("p99 ms", "p99_ms", ".2f"), ("gone ms", "gone_ms", ".2f"),
    ("cpu ms", "cpu_ms", ".2f"), ("machine ms", "machine_ms", ".2f"), ("× bare", "vs_bare", ".2f"),
    ("× bwrap", "vs_bwrap", ".2f"))
LEGEND = """\
- p50, p99: from just before `posix_spawn` until the started program has been waited for; below 100 starts
  p99 is the slowest one. Standard streams are pipes.
- gone: the median until the last process that the program started has gone too.
- cpu: user and system time of the program and all its descendants, mean per start.
- machine: cpu time of the whole machine per start, with the kernel's own threads (they take namespaces down
  after the program has ended), less what the machine does when nothing is started. Not given when other work
  kept the machine busy, nor for spaced starts, nor for the engine.
- × bare, × bwrap: the median divided by that of the bare start and of bubblewrap with the same mounts."""

ROWS = """\
All rows start the same `/bin/true` with the same environment, in turns within one run. "Same mounts" are those
that `carrel run --explain` prints, {mounts} on this machine; bubblewrap also gets the same namespaces (it has no
time namespace), `--new-session` and `--die-with-parent`, but no seccomp filter, resource limits or Landlock,
which Carrel always applies, and the files of `/etc` and `/proc` that Carrel writes itself are prepared for it
beforehand. `carrel_run()` is the same sandbox made by a program with libcarrel in it, nothing prepared ahead."""


def cell(result, key, form):
    value = result.get(key)
    return "-" if value is None else format(value, form)


def table(results):
    """Header and lines of cells for the results of one identity and mode."""
    lines = [["", *(heading for heading, _, _ in COLUMNS)]]
    for result in results:
        if "why" in result:
            lines.append([result["label"], result["why"]])
        else:
            lines.append([result["label"], *(cell(result, key, form) for _, key, form in COLUMNS)])
    return lines


def groups(figures):
    """(identity, mode, results) in the order measured."""
    seen = dict.fromkeys((r["identity"], r["mode"]) for r in figures["results"])
    for identity, mode in seen:
        yield identity, mode, [r for r in figures["results"] if (r["identity"], r["mode"]) == (identity, mode)]


def summary(figures):
    """One sentence per group: the two ratios that Carrel is built to."""
    for identity, mode, results in groups(figures):
        rows = {r["row"]: r for r in results if "why" not in r}
        if {"engine", "carrel", "bwrap"} <= rows.keys():
            yield (f"{IDENTITIES[identity]}, {MODES[mode]}: a fresh sandbox takes {rows['engine']['vs_bare']:.2f} × a "
                   f"bare start in the engine and {rows['carrel']['vs_bare']:.2f} × as `carrel run`, which is "
                   f"{1 / rows['carrel']['vs_bwrap']:.2f} × as fast as bubblewrap with the same mounts"
                   + minimal(rows))


def minimal(rows):
    """For those who would give bubblewrap less to do."""
    if "bwrap-minimal" not in rows:
        return ""
    ratio = rows["bwrap-minimal"]["p50_ms"] / rows["carrel"]["p50_ms"]
    return f" and {ratio:.2f} × as fast as with system directories and /proc only"


def notes(figures):
    busiest = max((r.get("background") or 0 for r in figures["results"]), default=0)
    if busiest > BUSY:
        return [*figures["notes"], f"Other work took up to {busiest:.0%} of the machine meanwhile: times are too long, "
                "ratios rough. Run it again when the machine is quiet."]
    return figures["notes"]


def machine_line(figures):
    m = figures["machine"]
    return (f"{m['cpus']} cpus ({m['cpu']}), {m['memory_gib']} GiB, Linux {m['kernel']}, workspaces on "
            f"{m['filesystem']}, bubblewrap {figures['versions'].get('bwrap', 'not installed')}")


def print_terminal(figures):
    print(machine_line(figures))
    for identity, mode, results in groups(figures):
        background = results[0].get("background")
        busy = f"; other work took {background:.0%} of the machine" if background is not None else ""
        print(f"\n{IDENTITIES[identity]}, {MODES[mode]}{busy}")
        lines = table(results)
        width = max(len(line[0]) for line in lines)
        for line in lines:
            if len(line) == 2:
                print(f"  {line[0]:<{width}}  {line[1]}")
            else:
                print(f"  {line[0]:<{width}}" + "".join(f"{text:>12}" for text in line[1:]))
    print()
    for sentence in summary(figures):
        print(sentence.replace("`", ""))
    for note in notes(figures):
        print("note:", note)


def markdown(figures):
    text = ["<!-- Made by bench/run --write-docs from measured figures: do not edit. -->", "# Benchmarks", "",
            f"`{figures['command']}` on {machine_line(figures)}. Figures of one machine compare with each other, not",
            "with those of another.", "", "In short:", ""]
    text += [f"- {sentence}" for sentence in summary(figures)]
    text += ["", "## What the columns mean", "", LEGEND, "", "## Rows", "", ROWS.format(mounts=figures["mounts"])]
    for note in notes(figures):
        text += ["", note]
    for identity, mode, results in groups(figures):
        text += ["", f"## {IDENTITIES[identity][0].upper()}{IDENTITIES[identity][1:]}, {MODES[mode]}", ""]
        lines = table(results)
        text.append("| " + " | ".join(lines[0]) + " |")
        text.append("|---|" + "---:|" * len(COLUMNS))
        for line in lines[1:]:
            text.append("| " + " | ".join(line + [""] * (len(lines[0]) - len(line))) + " |")
    return "\n".join(text) + "\n"
