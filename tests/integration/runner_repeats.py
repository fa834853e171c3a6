#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
# ALONE
"""tests/run repeats what failed once, alone; FLAKY is told, remembered, and a failure the second time."""
import json
import os
import shutil
import subprocess
import unittest

SRC, TMP = os.environ["SRC"], os.environ["TMP"]
WHO = "root" if os.getuid() == 0 else "user"
TREE, BUILD = f"{TMP}/tree", f"{TMP}/tree/build"


def put(name, text):
    os.makedirs(os.path.dirname(f"{TREE}/{name}"), exist_ok=True)
    with open(f"{TREE}/{name}", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(f"{TREE}/{name}", 0o755)


def unlucky(name, *, timeout=60, last="exit 1"):
    """A test that fails once after each call of the function that is returned."""
    mark = f"{TREE}/{name}.mark"
    put(f"tests/integration/{name}", f"#!/bin/bash\n# TIMEOUT: {timeout}\n[ -e {mark} ] || exit 0\nrm {mark}\necho bad luck\n{last}\n")
    return lambda: put(f"{name}.mark", "")


class RunnerRepeats(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(TREE, ignore_errors=True)
        for folder in ("tests/integration", "packaging/templates", "packaging/networks", "build"):
            os.makedirs(f"{TREE}/{folder}")
        for file in ("run", "keeper.py", "flaky.py"):
            shutil.copy(f"{SRC}/tests/{file}", f"{TREE}/tests/{file}")
        put("tests/integration/good", "#!/bin/bash\n")

    def run_tests(self, *patterns, **variables):
        env = {**os.environ, "BUILD": BUILD, **variables}
        done = subprocess.run([f"{TREE}/tests/run", "--as", WHO, *patterns], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110)
        return done.returncode, done.stdout.splitlines()

    def test_flaky_once_passes_and_again_fails(self):
        luck = unlucky("sometimes")
        name = f"integration/sometimes ({WHO})"
        luck()
        status, lines = self.run_tests()
        self.assertEqual([status, *lines[-2:]], [0, f"1 FLAKY: {name}", "2 passed, 0 failed"], lines)
        told = [line for line in lines if line.startswith(f"FLAKY {name}: ")]
        log = told[0].rpartition(" ")[2]
        self.assertTrue(log.startswith(f"{BUILD}/"), told)
        with open(log, encoding="utf-8") as file:
            self.assertIn("bad luck", file.read())
        with open(f"{BUILD}/flaky.json", encoding="utf-8") as file:
            self.assertEqual(list(json.load(file)), [name])
        self.assertEqual(self.run_tests("good")[0], 0)  # a run without it says nothing about it
        luck()
        status, lines = self.run_tests()
        self.assertEqual([status, *lines[-2:]], [1, f"1 FLAKY: {name}", "1 passed, 1 failed"], lines)
        self.assertIn(f"FAIL  {name}: FLAKY in the run before as well", lines)
        status, lines = self.run_tests()
        self.assertEqual([status, lines[-1]], [0, "2 passed, 0 failed"], lines)
        luck()  # after a good run it is the first time again
        self.assertEqual(self.run_tests()[0], 0)

    def test_a_timeout_is_repeated_too(self):
        unlucky("slow", timeout=1, last="sleep 100")()
        status, lines = self.run_tests()
        self.assertEqual([status, lines[-1]], [0, "2 passed, 0 failed"], lines)
        with open(f"{BUILD}/flaky/integration.slow.{WHO}.log", encoding="utf-8") as file:
            self.assertIn("timed out after 1 s", file.read())

    def test_what_fails_again_has_failed(self):
        put("tests/integration/never", "#!/bin/bash\necho never; exit 1\n")
        put("tests/integration/skips", f"#!/bin/bash\n[ -e {TREE}/now ] && exit 77\ntouch {TREE}/now; exit 1\n")
        status, lines = self.run_tests()
        self.assertEqual([status, lines[-1]], [1, "1 passed, 2 failed"], lines)
        self.assertEqual(sum(line.startswith("FAIL  integration/never") for line in lines), 1, lines)
        self.assertFalse(os.path.exists(f"{BUILD}/flaky.json"))

    def test_the_repeat_is_alone(self):
        # Each fails once it has seen the others beside it, and the second time if it sees another one.
        meet = "touch $me; for _ in {{1..300}}; do [ $(ls {0} | wc -l) = 3 ] && exit 1; sleep 0.1; done; exit 1"
        alone = "mkdir {0}/busy || exit 1; sleep 0.3; rmdir {0}/busy; exit 0"
        os.mkdir(f"{TREE}/met")
        for number in range(3):
            put(f"tests/integration/crowd{number}",
                f"#!/bin/bash\nme={TREE}/met/{number}\n[ ! -e $me ] || {{ {alone.format(TREE)}; }}\n{meet.format(TREE + '/met')}\n")
        status, lines = self.run_tests("--jobs", "4")
        self.assertEqual([status, lines[-1]], [0, "4 passed, 0 failed"], lines)
        self.assertTrue(lines[-2].startswith("3 FLAKY: "), lines)

    def test_too_many_are_not_repeated(self):
        for number in range(21):
            put(f"tests/integration/broken{number}", f"#!/bin/bash\necho >>{TREE}/count; exit 1\n")
        status, lines = self.run_tests()
        self.assertEqual([status, lines[-1]], [1, "1 passed, 21 failed"], lines)
        with open(f"{TREE}/count", encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 21)


if __name__ == "__main__":
    unittest.main()
