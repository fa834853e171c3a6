#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# ATTACK 91: through the standard streams: make the caller's pipes non-blocking, read what others wrote into them, write
# into its input, wind its input file back to before the run
# MUST: pipes and files of the caller stay as they were; a file stays behind what was read of it
# CONTROL: outside
"""The attack is one program that tries it all; without a sandbox, every part of it works."""
import fcntl
import os
import subprocess
import sys

CARREL, TMP, PYTHON = os.environ["CARREL"], os.environ["TMP"], "/usr/bin/python3"
OUTSIDE = os.environ.get("CARREL_WEAKEN") == "outside"
WS = f"{TMP}/ws"

# What it finds goes into a file of its workspace: the streams are what is attacked.
ATTACK = """
import fcntl, os, sys
report = open(sys.argv[1] + "report", "w")

def attempt(what, action):
    try:
        print(what, action(), file=report)
    except OSError as error:
        print(what, error.strerror, file=report)

def reopened(number, flags, action):
    fd = os.open(f"/proc/self/fd/{number}", flags | os.O_NONBLOCK)
    attempt(f"reopened {number}:", lambda: action(fd))

attempt("read:", lambda: os.read(0, 10))
attempt("seek:", lambda: os.lseek(0, 0, os.SEEK_SET))
attempt("input:", lambda: reopened(0, os.O_WRONLY, lambda fd: os.write(fd, b"injected" * 1000)))
for number in (1, 2):
    attempt("output:", lambda: reopened(number, os.O_RDONLY, lambda fd: os.read(fd, 100)))
for number in (0, 1, 2):
    attempt("flags:", lambda: fcntl.fcntl(number, fcntl.F_SETFL, os.O_NONBLOCK))
"""
escapes = []


def must(true, what):
    if not true:
        escapes.append(what)


def run(*command, **streams):
    """The attack, unless another command is given, in the sandbox or, for the control, beside it."""
    place = f"{WS}/" if OUTSIDE else "/"
    prefix = [] if OUTSIDE else [CARREL, "run", "--level", "ns", "--no-tty", "--workspace", WS, "--"]
    done = subprocess.run([*prefix, *(command or (PYTHON, "-c", ATTACK, place))], check=False, timeout=30, **streams)
    if done.returncode:
        print(f"UNCLEAR: ended with {done.returncode}")
        sys.exit(2)


def drained(fd):
    """All that is in a pipe."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def attack_pipes():
    pipes = [os.pipe() for _ in range(3)]
    given = [pipes[0][0], pipes[1][1], pipes[2][1]]
    os.write(pipes[0][1], b"0123456789" * 3)
    for _, end in pipes[1:]:
        os.write(end, b"the caller's own\n")
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in given]
    run(stdin=given[0], stdout=given[1], stderr=given[2])
    must(before == [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in given], "the flags of the caller's pipes changed")
    must(b"injected" not in drained(given[0]), "something was written into the caller's input")
    for name, (end, _) in zip(("output", "error"), pipes[1:]):
        must(drained(end) == b"the caller's own\n", f"the caller's standard {name} is not as the caller wrote it")
    report = open(f"{WS}/report", encoding="utf-8").read()
    print(report)
    must("caller" not in report, "what the caller wrote into its pipe was read")
    if "read: b'0123456789'" not in report or report.count("flags:") != 3:
        print("UNCLEAR: the attack did not run to its end")
        sys.exit(2)


def attack_file():
    start, content = 10000, b"0123456789" * 1020  # the attack adds less to its pipe than comes before the start
    with open(f"{TMP}/input", "w+b", buffering=0) as file:
        file.write(content)
        file.seek(start)
        with open(os.devnull, "wb") as null:
            run(stdin=file, stdout=null, stderr=null)
        # As an ordinary user the command can fill its own pipe, and how much of it was read is not known any more.
        must(start <= file.tell() <= len(content), f"the caller's file was at {start} and is now at {file.tell()}")
        file.seek(0)
        must(file.read() == content, "the caller's file was changed")
        file.seek(start)
        run("head", "-c", "10", stdin=file, stdout=subprocess.DEVNULL)
        run("dd", "bs=7", "count=1", "status=none", stdin=file, stdout=subprocess.DEVNULL)
        if not OUTSIDE:  # head and dd wind back or not as they please
            must(file.tell() == start + 17, f"17 bytes were read, and the file is {file.tell() - start} further")


os.mkdir(WS)
attack_pipes()
attack_file()
for escape in escapes:
    print(f"ESCAPED: {escape}")
sys.exit(bool(escapes))
