# SPDX-License-Identifier: Apache-2.0
"""Runs a module of CPython's own tests and prints one line per test case: name, outcome, reason.

Usage: python3 -B cases.py MODULE [CASE…]    in a writable directory, which it fills with temporary files

Not regrtest: that prints for people, and differently for each kind of failure. What is compared must
be the same lines inside a sandbox and outside.
"""
import os
import sys
import unittest


class Record(unittest.TestResult):
    """Keeps the worst outcome of each case: a case with subtests may have several."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def note(self, test, outcome, reason=""):
        if outcome == "failed" or test.id() not in self.outcomes:
            self.outcomes[test.id()] = (outcome, " ".join(str(reason).split())[:300])

    def addSuccess(self, test):
        self.note(test, "ok")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.note(test, "ok")

    def addUnexpectedSuccess(self, test):
        self.note(test, "failed", "unexpected success")

    def addError(self, test, err):
        self.note(test, "failed", f"{err[0].__name__}: {err[1]}")

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(test, "failed", f"{dict(subtest.params)}: {err[0].__name__}: {err[1]}")


def main():
    module, wanted = "test." + sys.argv[1], sys.argv[2:]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)  # the tests print too, and so do their children
    from test import support
    support.verbose, support.use_resources = 0, []
    record = Record()
    unittest.TestLoader().loadTestsFromNames(wanted or [module]).run(record)
    for name, (outcome, reason) in sorted(record.outcomes.items()):
        print(name, outcome, reason, sep="\t", file=out)
    print("end", file=out, flush=True)
    os._exit(0)  # a failed test may leave threads behind that would be waited for


main()
