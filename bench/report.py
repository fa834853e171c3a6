# SPDX-License-Identifier: Apache-2.0
"""Tables from the figures of one benchmark run: for the terminal and for docs/benchmarks.md."""

import re
import textwrap

import marks
from measure import BUSY
from place import WORDS

ROWS = """\
Rows that start something start the same `/bin/true` with the same environment, in turns within one run. "Same mounts"
are those that `carrel run --explain` prints, {mounts} on this machine; bubblewrap also gets the same namespaces (it has
no time namespace), `--new-session` and `--die-with-parent`, but no seccomp filter, resource limits or Landlock,
which Carrel always applies, and the files of `/etc` and `/proc` that Carrel writes itself are prepared for it
beforehand. Rows of the engine are the same sandbox made by a program with libcarrel in it. What cannot be measured
here has a row with the reason."""
MARK_COLUMNS = ("what", "as", "mark", "measured", "", "why")


def cell(result, key, form):
    value = result.get(key)
    return "-" if value is None else format(value, form)


def cells(table):
    """Header and lines of cells; a line of two is a row that could not be measured, with its reason."""
    yield ["", *(heading for heading, _, _ in table["columns"])]
    for result in table["rows"]:
        if "why" in result:
            yield [result["label"], result["why"]]
        else:
            yield [result["label"], *(cell(result, key, form) for _, key, form in table["columns"])]


def tables_of(figures):
    return [table for part in figures["parts"].values() for table in part["tables"]]


def notes(figures):
    busiest = max((table.get("background") or 0 for table in tables_of(figures)), default=0)
    if busiest > BUSY:
        return [*figures["notes"], f"Other work took up to {busiest:.0%} of the machine meanwhile: times are too long, "
                "ratios rough. Run it again when the machine is quiet."]
    return figures["notes"]


def machine_line(figures):
    m = figures["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    return (f"{m['cpus']} cpus ({m['cpu']}), {m['memory_gib']} GiB, Linux {m['kernel']}, {m['cgroups']}, workspaces on "
            f"{m['filesystem']}; {versions}")


def mark_lines(figures):
    for mark in marks.judge_all(figures):
        yield [mark["what"], WORDS[mark["identity"]].removeprefix("as "), mark["bound"], mark["value"], mark["verdict"],
               mark["why"]]


def print_table(lines):
    """Numbers to the right; a reason may be as long as it likes."""
    lines = list(lines)
    full = [line for line in lines if len(line) == len(lines[0])]
    widths = [max(len(line[i]) for line in full) for i in range(len(lines[0]))]
    widths[0] = max(len(line[0]) for line in lines)
    for line in lines:
        if len(line) == 2 != len(lines[0]):
            print(f"  {line[0]:<{widths[0]}}  {line[1]}")
        else:
            print(f"  {line[0]:<{widths[0]}}" + "".join(f"  {text:>{width}}" for text, width in zip(line[1:], widths[1:])))


def print_terminal(figures):
    print(machine_line(figures))
    for part in figures["parts"].values():
        for table in part["tables"]:
            background = table.get("background")
            busy = f"; other work took {background:.0%} of the machine" if background is not None else ""
            print(f"\n{part['title']}: {table['title']}{busy}")
            print_table(cells(table))
    print("\nMarks" + (" (of a quick run: they say nothing)" if "--quick" in figures["command"] else ""))
    for what, identity, bound, value, verdict, why in mark_lines(figures):
        print(f"  {verdict:<12}  {what}, as {identity}: {value} ({bound})".replace("`", "") + (f": {why}" if why else ""))
    for note in notes(figures):
        print("note:", note)


def markdown_table(lines, left=1):
    """The first columns, `left` of them, are text."""
    lines = [[text.replace("|", "\\|") for text in line] for line in lines]
    yield "| " + " | ".join(lines[0]) + " |"
    yield "|" + "---|" * left + "---:|" * (len(lines[0]) - left)
    for line in lines[1:]:
        yield "| " + " | ".join(line + [""] * (len(lines[0]) - len(line))) + " |"


def wrapped(part):
    """Its lines; paragraphs and items of lists with a line of 120 characters and more are filled anew, tables are not."""
    for block in re.split(r"\n(?=[-|#\n])", part):
        if block.startswith("\n"):
            yield ""
        lines = block.removeprefix("\n").split("\n")
        if lines[0].startswith(("|", "#")) or max(map(len, lines)) < 120:
            yield from lines
        else:
            yield from textwrap.wrap(" ".join(map(str.strip, lines)), 119, subsequent_indent="  " * lines[0].startswith("- "),
                                     break_long_words=False, break_on_hyphens=False)


def markdown(figures):
    text = ["<!-- Made by bench/run --write-docs from measured figures: do not edit. -->", "# Benchmarks", "",
            f"`{figures['command']}` on {machine_line(figures)}.",
            "Figures of one machine compare with each other, not with those of another.", "", "## Against the marks", ""]
    text += markdown_table([list(MARK_COLUMNS), *mark_lines(figures)], left=len(MARK_COLUMNS))
    text += ["", ROWS.format(mounts=figures["mounts"])]
    for note in notes(figures):
        text += ["", note]
    for part in figures["parts"].values():
        text += ["", f"## {part['title']}", "", part["about"]]
        for table in part["tables"]:
            text += ["", f"### {table['title'][0].upper()}{table['title'][1:]}", "", *markdown_table(cells(table))]
    return "\n".join(line for part in text for line in wrapped(part)) + "\n"
