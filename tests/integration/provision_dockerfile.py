#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""provision/dockerfile.py: what of a Dockerfile is understood, that the rest is refused with its line, and that nothing hostile in
one names a file outside of its directory."""
import os
import random
import sys
import unittest

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{SRC}/provision")
import dockerfile  # noqa: E402
from words import Failure  # noqa: E402

WHOLE = r"""# syntax=docker/dockerfile:1
FROM debian:12-slim
env A=1 B="two words" C='$A' \
    # in between
    E=x\ y
ENV D $A-${B}
ENV PATH=/opt/x:$PATH
RUN apt-get update && \
    apt-get install -y curl
RUN ["echo", "a b"]
WORKDIR /app
USER user
COPY . .
COPY a.txt sub/b.txt lib/
COPY ["with space", "/etc/x"]
WORKDIR sub
CMD ["python3", "-m", "http.server"]
"""
REFUSED = (
    ("", "no FROM"), ("# only\n", "no FROM"), ("RUN true", "line 1: the first instruction is FROM"), ("\n\nARG X\n", "line 3: ARG"),
    ("FROM python:3.11", "line 1: no base is 'python:3.11'"), ("FROM ../x", "no base"), ("FROM host", "no base"), ("FROM -x", "no base"),
    ("FROM debian:12 AS build", "no base"), ("FROM --platform=x debian:12", "no base"),
    ("FROM debian:12\nFROM debian:12", "line 2: there is one FROM"),
    ("FROM debian:12\nADD x /", "line 2: ADD is not understood"), ("FROM debian:12\nENTRYPOINT x", "ENTRYPOINT"),
    ("FROM debian:12\n\nEXPOSE 80", "line 3: EXPOSE"), ("FROM debian:12\nHEALTHCHECK x", "HEALTHCHECK"), ("FROM debian:12\n<<EOF", "line 2"),
    ("FROM debian:12\nRUN", "RUN says nothing"), ("FROM debian:12\nRUN []", "RUN says nothing"),
    ("FROM debian:12\nRUN --mount=type=bind x", "'--mount=type=bind'"), ("FROM debian:12\nRUN cat <<EOF\nx\nEOF", "here-documents"),
    ("FROM debian:12\nRUN a \\\n b\nFOO", "line 4: FOO"),
    ("FROM debian:12\nCOPY x", "where to"), ("FROM debian:12\nCOPY --chown=a x /", "--chown"), ("FROM debian:12\nCOPY --from=x y /", "--from"),
    ("FROM debian:12\nCOPY ../x /", "leads out"), ("FROM debian:12\nCOPY a/../../x /", "leads out"), ("FROM debian:12\nENV U=..\nCOPY $U/x /", "leads out"),
    ("FROM debian:12\nCOPY *.py /", "patterns"), ("FROM debian:12\nCOPY x /proc/1", "nothing stays"), ("FROM debian:12\nCOPY x /etc/../tmp/x", "nothing stays"),
    ("FROM debian:12\nWORKDIR /dev", "nothing stays"), ("FROM debian:12\nWORKDIR $NOPE", "'NOPE' is not set"), ("FROM debian:12\nENV A=${B:-c}", "not understood"),
    ("FROM debian:12\nENV A=b c", "not NAME=VALUE"), ("FROM debian:12\nENV 1A=b", "NAME=VALUE"), ("FROM debian:12\nENV A=\"b", "NAME=VALUE"),
    ("FROM debian:12\nUSER postgres", "line 2: USER 'postgres'"), ("FROM debian:12\nCMD []", "CMD has"), ("FROM debian:12\nCMD " + "x" * 5000, "CMD has"),
    ("# escape=`\nFROM debian:12", "line 1: the escape"), ("FROM debian:12\nRUN a\0b", "NUL"), ("FROM debian:12\n" + "RUN x\n" * 600, "512"),
    (b"FROM debian:12\nRUN \xff", "line 2: it is not UTF-8"), ("#" * 300000, "256 KiB"))


def parse(text, name="lab"):
    return dockerfile.parse(text if isinstance(text, bytes) else text.encode(), name)


class Dockerfile(unittest.TestCase):
    def test_all_that_is_understood(self):
        made = parse(WHOLE)
        self.assertEqual(("lab", "debian-12"), (made.name, made.base))
        self.assertEqual({"A": "1", "B": "two words", "C": "$A", "D": "1-two words", "E": "x y", "PATH": f"/opt/x:{dockerfile.PATH}"}, made.env)
        self.assertEqual("cd /app/sub && exec python3 -m http.server", made.start)
        run, words, workdir, *copies, last = made.steps
        self.assertEqual(("apt-get update &&     apt-get install -y curl", "root", "/", "line 8: RUN"), (run.line, run.user, run.cwd, run.title))
        self.assertEqual("two words", run.env["B"])
        self.assertEqual(["echo", "a b"], words.line)
        self.assertEqual(["install", "-d", "--", "/app"], workdir.line)
        self.assertEqual([[(".", "/app", True)], [("a.txt", "/app/lib", True), ("sub/b.txt", "/app/lib", True)], [("with space", "/etc/x", False)]],
                         [step.pairs for step in copies])
        self.assertEqual({"user"}, {step.user for step in copies})
        self.assertEqual((["install", "-d", "-o", "1000", "-g", "1000", "--", "/app/sub"], "root"), (last.line, last.user))

    def test_the_rest_is_refused_with_its_line(self):
        for text, says in REFUSED:
            with self.subTest(text=text[:60]), self.assertRaises(Failure) as failed:
                parse(text)
            self.assertIn(says, str(failed.exception))
        for name in ("", "-x", "../x", "a b"):
            self.assertRaises(Failure, parse, "FROM debian:12", name)

    def test_whatever_it_becomes_what_is_taken_names_nothing_outside(self):
        chance, whole = random.Random(5), WHOLE.encode()
        parts = [b"..", b"/", b"//", b"\\", b"\\\n", b"\n", b"$", b"${", b"}", b'"', b"'", b"[", b"]", b",", b"\xff", b"\0", b"#", b"--", b" ", b"COPY ", b"USER ", b"proc", b"\r"]
        taken = 0
        for _ in range(20000):
            text = bytearray(whole)
            for _ in range(chance.randrange(1, 5)):
                at = chance.randrange(len(text))
                text[at:at + chance.choice((0, 1, 4))] = chance.choice(parts)
            try:
                made = parse(bytes(text))
            except Failure as failure:
                self.assertRegex(str(failure), r"\A(line \d+: |it has no FROM)")
                continue
            taken += 1
            self.assertRegex(made.base, r"\A[a-z0-9][a-z0-9-]*\Z")
            for step in made.steps:
                self.assertIn(step.user, ("root", "user"))
                self.assertTrue(step.cwd.startswith("/"))
                for source, place, _ in step.pairs:
                    self.assertFalse(source.startswith("/") or ".." in source.split("/"), source)
                    self.assertTrue(place.startswith("/") and ".." not in place.split("/"), place)
                    self.assertNotIn(place.split("/")[1], dockerfile.PASSING)
        self.assertGreater(taken, 100)


if __name__ == "__main__":
    unittest.main()
