#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 500
# TAKES: 100
# AS: root
"""A quick benchmark goes through every part, and what it could not measure it says, with the reason."""
import json
import os
import re
import subprocess
import unittest

SRC, TMP = os.environ["SRC"], os.environ["TMP"]
with open(f"{SRC}/bench/run", encoding="utf-8") as program:
    PARTS = re.findall(r'"(\w+)"', re.search(r"(?m)^PARTS = \((.*)\)$", program.read()).group(1))
if not os.environ.get("LONG"):
    PARTS.remove("system")  # it makes two bases and installs in each
# What needs no other tool and no privilege: a reason instead of a figure would be a defect.
MUST_BE_THERE = {("starts", "bare"), ("starts", "engine"), ("starts", "pool"), ("starts", "pool-cold"),
                 ("starts", "carrel"), ("storm", "bare"), ("storm", "engine"), ("storm", "carrel"), ("live", "1"),
                 ("live", "10"), ("live", "carrel"), ("live", "bare"), ("mounts", "0"), ("mounts", "40"),
                 ("files", "read-small"), ("files", "unlink"), ("calls", "getppid"), ("calls", "ioctl"),
                 ("neighbours", "print"), ("daemon", "live"), ("daemon", "python"), ("daemon", "asleep"), ("daemon", "raw"), ("daemon", "http"),
                 ("daemon", "5"), ("daemon", "8"), ("filesapi", "read"), ("filesapi", "ls"), ("filesapi", "ls-brief"), ("filesapi", "read-asleep"),
                 ("filesapi", "put"), ("filesapi", "batch"), ("filesapi", "stat-64"), ("filesapi", "1000"),
                 ("plans", "10-1000"), ("plans", "1000-1000"), ("plans", "apply-1000"), ("plans", "undo-1000"),
                 ("snapshots", "10"), ("snapshots", "1000"),
                 ("plans", "plan" if os.geteuid() == 0 else "plan-copied"), ("environments", "bare"), ("environments", "both"),
                 ("environments", "50")}


def bench(*arguments):
    # As root it measures as an ordinary user too, who could not get into a directory below $TMP.
    done = subprocess.run([f"{SRC}/bench/run", *arguments], cwd=TMP, capture_output=True, text=True, timeout=480,
                          env={**os.environ, "TMPDIR": "/tmp"})
    if done.returncode != 0:
        raise AssertionError(f"bench/run {' '.join(arguments)}: {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


class BenchmarkMeasures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.printed = bench("--quick", *(f"--only={part}" for part in PARTS), "--json", f"{TMP}/figures.json")
        with open(f"{TMP}/figures.json", encoding="utf-8") as file:
            cls.figures = json.load(file)

    def tables(self):
        for part, found in self.figures["parts"].items():
            for table in found["tables"]:
                yield part, table

    def test_every_part_is_there(self):
        self.assertEqual(PARTS, list(self.figures["parts"]))

    def test_every_row_has_figures_or_a_reason(self):
        for part, table in self.tables():
            keys = [key for _, key, _ in table["columns"]]
            self.assertTrue(table["rows"], table["title"])
            for row in table["rows"]:
                with self.subTest(part=part, table=table["name"], row=row["row"]):
                    self.assertTrue(row["why"] if "why" in row else any(row.get(key) for key in keys), row)

    def test_what_needs_nothing_but_carrel_has_figures(self):
        measured = {(part, row["row"]) for part, table in self.tables() for row in table["rows"] if "why" not in row}
        self.assertEqual(set(), MUST_BE_THERE - measured)

    def test_carrel_takes_as_many_mounts_as_are_measured(self):
        whys = [row["why"] for part, table in self.tables() for row in table["rows"]
                if part == "mounts" and row["row"].startswith("carrel") and "why" in row]
        self.assertEqual([], whys)

    def test_no_limit_failed_to_hold(self):
        self.assertNotIn("DID NOT HOLD", self.printed)

    def test_ratios_are_to_the_bare_start_of_the_same_table(self):
        for part, table in self.tables():
            rows = {row["row"]: row for row in table["rows"] if "vs_bare" in row}
            if part == "starts":
                for row in rows.values():
                    self.assertAlmostEqual(row["p50_ms"] / rows["bare"]["p50_ms"], row["vs_bare"])

    def test_the_document_is_made_from_the_figures_alone(self):
        bench("--from", f"{TMP}/figures.json", "--write-docs", f"{TMP}/benchmarks.md")
        with open(f"{TMP}/benchmarks.md", encoding="utf-8") as file:
            document = file.read()
        for _, table in self.tables():
            self.assertIn(table["title"][1:], document)
            for row in table["rows"]:
                self.assertIn(f"| {row['label']} | ", document)
        self.assertIn(self.figures["machine"]["kernel"], document)
        self.assertIn("bench/run --quick", document)


if __name__ == "__main__":
    unittest.main()
