#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""Runs the examples of the documentation.

A ```sh block of README.md or docs/*.md, and a literal block of a man page's EXAMPLES, is a shell script; the blocks of
one document run in order in one scratch directory, with `carrel` on PATH. A command that fails, fails the test. What
`# => text` comments below (or beside) a command state is all that the command prints; `…` stands for any text, and
`# => …` alone for any number of lines. `make TARGET` is only looked up: the target must exist.

The lines (.Dl) in the EXAMPLES of the pages in SCENES run in order, too, against a daemon and with what they speak of.
"""
import os
import pathlib
import re
import subprocess
import sys

SRC = pathlib.Path(os.environ["SRC"])
TMP = pathlib.Path(os.environ["TMP"])
EXPECT = re.compile(r"\s*#\s=>\s?(.*)$")
DAEMON = """carrel serve --state desks --listen 127.0.0.1:0 --set ports=token >serve.log 2>&1 &
daemon=$!
trap 'kill $daemon; wait' EXIT
export CARREL_SOCKET="$PWD/desks/carrel.sock"
until carrel ws ls >/dev/null 2>&1; do kill -0 $daemon || { cat serve.log; exit 1; }; sleep 0.1; done
"""
SCENES = {
    "carrel-files.1": "carrel ws create desk; mkdir src; echo 'x = 1  # TODO' >src/a.py; carrel mkdir desk:/out",
    "carrel-exec.1": "carrel ws create desk; echo 'test:' | carrel put - desk:/Makefile; tar cf archive.tar -T /dev/null",
    "carrel-port.1": "carrel ws create desk",
    "carrel-ws.1": "echo '{\"limits\": {\"timeout\": \"1h\"}}' >policy.json",
}
NOT_HERE = ("/srv/",)  # a place of somebody's host


def markdown_blocks(text):
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


def man_blocks(text):
    examples = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh )", text, re.M | re.S)
    literal = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", examples.group(1) if examples else "", re.M | re.S)
    return [block.replace("\\e", "\\").replace("\\&", "") for block in literal]


def man_scene(name, text):
    """The one-line examples of a page, as one block."""
    examples = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh )", text, re.M | re.S)
    lines = [line for line in re.findall(r"^\.Dl (.*)$", examples.group(1), re.M) if not any(word in line for word in NOT_HERE)]
    return "\n".join([DAEMON, SCENES[name], *lines])


def steps(block):
    """Splits a block into (script, expected lines or None)."""
    script, expected = [], []
    for line in block.splitlines():
        found = EXPECT.search(line)
        command = line[: found.start()] if found else line
        if command.strip() and expected:
            yield "\n".join(script), expected
            script, expected = [], []
        if found:
            expected.append(found.group(1))
        if command.strip() or not found:
            script.append(re.sub(r"^make (\w[\w-]*)$", f"make -n -C '{SRC}' \\1 >/dev/null", command))
    yield "\n".join(script), expected or None


def matches(expected, output):
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else ".*".join(re.escape(part) for part in line.split("…")) + r"\n"
        for line in expected
    )
    return re.fullmatch(pattern, output) is not None


def run_block(name, block, cwd):
    """Returns a list of complaints. One shell for the whole block, so that variables and `cd` carry over."""
    script, wanted = ["set -e"], list(steps(block))
    for i, (commands, _) in enumerate(wanted):
        script += [f"exec >'{TMP}/out.{i}' 2>&1", commands]
        (TMP / f"out.{i}").unlink(missing_ok=True)
    env = {
        "PATH": f"{pathlib.Path(os.environ['CARREL']).parent}:{os.environ['PATH']}",
        "HOME": str(cwd),
        "LC_ALL": "C.UTF-8",
        "SRC": str(SRC),
    }
    status = subprocess.run(["bash", "-c", "\n".join(script)], cwd=cwd, env=env, stdin=subprocess.DEVNULL).returncode
    complaints, last = [], ""
    for i, (commands, expected) in enumerate(wanted):
        path = TMP / f"out.{i}"
        if not path.exists():
            break
        last = path.read_text(errors="replace")
        if expected is not None and not matches(expected, last):
            complaints.append(f"{name}: {commands}\n  expected: {expected}\n  printed:  {last.splitlines()}")
    if status:
        complaints.append(f"{name}: exit status {status} in\n{block}\n  last output: {last}")
    return complaints


def main():
    documents = [(p, markdown_blocks) for p in [SRC / "README.md", *sorted((SRC / "docs").glob("*.md"))]]
    documents += [(p, man_blocks) for p in sorted((SRC / "man").glob("*.[0-9]"))]
    complaints, count = [], 0
    TMP.chmod(0o711)  # as root the daemon's front is another user, and has to reach its files
    for path, extract in documents:
        cwd = TMP / path.name
        cwd.mkdir(0o755)
        for number, block in enumerate(extract(path.read_text()), 1):
            complaints += run_block(f"{path.name}, example {number}", block, cwd)
            count += 1
        if path.name in SCENES:
            complaints += run_block(f"{path.name}, lines", man_scene(path.name, path.read_text()), cwd)
            count += 1
    print("\n".join(complaints) or f"{count} examples")
    return 1 if complaints or count == 0 else 0


sys.exit(main())
