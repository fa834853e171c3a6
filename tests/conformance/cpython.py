#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""CPython's own tests of the operating system give inside what they give outside.

Every test case is compared. What differs must stand in cpython-differences.txt with its reason, and
what stands there must differ: an unlisted difference fails, and so does a stale entry.
"""
import fnmatch
import os
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, PYTHON, ROOT, TMP, CarrelTest  # noqa: E402

HERE = os.path.join(os.environ["SRC"], "tests", "conformance")
MODULES = ("test_os", "test_subprocess", "test_threading", "test_socket", "test_pty")
ORDINARY = 54321 if ROOT else os.getuid()  # outside as inside: an ordinary user
RETRIES = 2


class Entry:
    """One line of the list: who, outcome outside, outcome inside, name (a pattern), reason."""

    def __init__(self, line):
        self.text = line
        who, self.outside, self.inside, self.pattern, self.reason = line.split(None, 4)
        self.applies = who == "both" or who == ("root" if ROOT else "user")

    def covers(self, name, outside, inside):
        return (self.applies and fnmatch.fnmatchcase(name, self.pattern)
                and (self.outside, self.inside) == (outside, inside))


def read_list():
    with open(os.path.join(HERE, "cpython-differences.txt"), encoding="utf-8") as file:
        return [Entry(line) for line in map(str.strip, file) if line and not line.startswith("#")]


class CPython(CarrelTest):
    def setUp(self):
        super().setUp()
        self.running = []
        with open(os.path.join(HERE, "cases.py"), encoding="utf-8") as source:
            self.program = source.read()
        listed = self.ok("--", "env", "-0")
        self.env = dict(entry.split("=", 1) for entry in listed.split("\0") if entry)
        self.files = tuple(map(int, self.ok("--", "bash", "-c", "ulimit -Sn; ulimit -Hn").split()))
        if ROOT:
            os.chmod(TMP, 0o711)  # the ordinary user works below it

    def start_outside(self, module, *cases):
        here = self.path("outside-" + module)
        if not os.path.isdir(here):
            os.mkdir(here)
            os.chown(here, ORDINARY, ORDINARY)

        def become_ordinary():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_NOFILE, self.files)
            if ROOT:
                os.setgroups([])
                os.setresgid(ORDINARY, ORDINARY, ORDINARY)
                os.setresuid(ORDINARY, ORDINARY, ORDINARY)

        return self.start([PYTHON, "-B", "-c", self.program, module, *cases], cwd=here, preexec_fn=become_ordinary,
                          env=dict(self.env, HOME=here, PWD=here))

    def start_inside(self, module, *cases):
        os.makedirs(f"{self.ws}/{module}", exist_ok=True)
        return self.start([CARREL, "run", "--workspace", self.ws, "--cwd", "/" + module, "--",
                           PYTHON, "-B", "-c", self.program, module, *cases])

    def start(self, command, **kwargs):
        """Starts it with its errors going to a file, and sees to it that it does not outlive a failed test."""
        errors = tempfile.TemporaryFile("w+", dir=self.dir, errors="replace")
        process = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                   start_new_session=True, **kwargs)
        self.running.append((process, errors))
        return process, errors

    def tearDown(self):
        for process, errors in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
            errors.close()
        super().tearDown()

    def results(self, started, what):
        process, errors = started
        lines = process.communicate()[0].splitlines()
        if process.returncode or lines[-1:] != ["end"]:
            errors.seek(0)
            self.fail(f"{what} ended with {process.returncode}: {errors.read()[-2000:]}")
        return {name: (outcome, reason) for name, outcome, reason in (line.split("\t") for line in lines[:-1])}

    def compare(self, modules):
        """{name: (outside, inside)} of all cases of the modules, each run once on either side, all at once."""
        running = [(module, self.start_outside(module, *cases), self.start_inside(module, *cases))
                   for module, cases in modules.items()]
        found = {}
        for module, outside, inside in running:
            outer, inner = self.results(outside, module + " outside"), self.results(inside, module + " inside")
            for name in outer.keys() | inner.keys():
                found[name] = (outer.get(name, ("absent", "")), inner.get(name, ("absent", "")))
        return found

    def test_every_case_gives_inside_what_it_gives_outside(self):
        entries = read_list()
        found = self.compare(dict.fromkeys(MODULES, ()))
        self.assertGreater(len(found), 1400, "the test suite is there")
        # Many of these tests depend on time, and two cores run ten of them at once: a difference must repeat.
        for _ in range(RETRIES):
            again = self.unexplained(found, entries)
            if again:
                found.update(self.compare(by_module(again)))
        wrong = [f"not listed: {name}: outside {outside}, inside {inside}"
                 for name, (outside, inside) in sorted(self.unexplained(found, entries).items())]
        wrong += [f"stale: {entry.text}" for entry in entries if entry.applies and self.is_stale(entry, found)]
        differing = sum(outside[0] != inside[0] for outside, inside in found.values())
        print(f"{len(found)} cases, {differing} differ")
        self.assertEqual([], wrong, "\n" + "\n".join(wrong))

    def unexplained(self, found, entries):
        return {name: (outside, inside) for name, (outside, inside) in found.items()
                if outside[0] != inside[0] and not any(e.covers(name, outside[0], inside[0]) for e in entries)}

    def is_stale(self, entry, found):
        """No such case, or outside it is as listed and inside not. (Where the host itself gives another outcome, the
        entry says nothing.)"""
        cases = [pair for name, pair in found.items() if fnmatch.fnmatchcase(name, entry.pattern)]
        return not cases or any(outside[0] == entry.outside and inside[0] != entry.inside for outside, inside in cases)


def by_module(names):
    modules = {}
    for name in names:
        modules.setdefault(name.split(".")[1], []).append(name)
    return modules


if __name__ == "__main__":
    unittest.main()
