#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 35
# AS: root
"""An ordinary user who was given a cgroup of his own keeps every limit that root can keep.

The test is root: it makes the groups, gives them away and becomes somebody else for each run."""
import os
import unittest

from carreltest import PYTHON, TMP, CarrelTest, carrel, read, v1

USER = 54321
BOMB = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
HOG = "x = [bytearray(1 << 20) for i in range(200)]"
GIVEN = ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks")


def own_folders():
    """Our own group in every hierarchy."""
    own = {name: line.split(":", 2)[2] for line in read("/proc/self/cgroup").splitlines()
           for name in line.split(":")[1].split(",")}
    for line in read("/proc/self/mountinfo").splitlines():
        left, right = line.split(" - ", 1)
        kind, _, options = right.split(" ", 2)
        names = {""} if kind == "cgroup2" else set(options.split(",")) & set(own)
        if kind in ("cgroup", "cgroup2") and names and names != {"cpuset"}:
            yield left.split()[4] + own[min(names)].rstrip("/")


def with_controllers(folder):
    """v2: a group with processes, as ours, has no children with controllers; the root has both."""
    while os.path.exists(f"{folder}/cgroup.events"):
        folder = os.path.dirname(folder)
    for name in set(read(f"{folder}/cgroup.controllers").split()) & {"memory", "pids", "cpu", "io"}:
        with open(f"{folder}/cgroup.subtree_control", "w", encoding="ascii") as file:
            file.write(f"+{name}")
    return folder


class WithDelegation(CarrelTest):
    def setUp(self):
        super().setUp()
        os.chmod(TMP, 0o711)  # the runner made it for root alone
        os.chown(self.ws, USER, USER)
        self.given = []
        for folder in own_folders():
            if os.path.exists(f"{folder}/cgroup.controllers"):
                folder = with_controllers(folder)
            group = f"{folder}/given-{os.getpid()}"
            os.mkdir(group)
            self.given.append(group)
            for name in [".", *(name for name in GIVEN if os.path.exists(f"{group}/{name}"))]:
                os.chown(f"{group}/{name}", USER, USER)

    def tearDown(self):
        super().tearDown()
        for group in self.given:
            os.rmdir(group)  # fails when something was left in it

    def become_user(self):
        """In the child: a process of an ordinary user, alone in the groups that he was given."""
        for group in self.given:
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)

    def run_as_user(self, *args):
        return carrel("run", "--workspace", self.ws, *args, preexec_fn=self.become_user, cwd="/")

    def result(self, *args):
        done = self.run_as_user("--json", *args)
        self.assertEqual("", done.stderr)
        return self.object(done.stdout), done

    def test_a_memory_bomb_is_ended(self):
        result, done = self.result("--memory", "64M", "--", PYTHON, "-c", HOG)
        self.assertEqual((120, "oom"), (done.returncode, result["reason"]))
        self.assertLessEqual(result["usage"]["peak_memory_bytes"], 64 << 20)

    def test_memory_of_every_kind_is_counted(self):
        bomb = f"{self.ws}/bomb"
        with open(f"{os.environ['PROBES']}/bomb", "rb") as source, open(bomb, "wb") as copy:
            copy.write(source.read())
        os.chmod(bomb, 0o755)
        for kind in ("tmpfs", "memfd", "shm", "pipes", "sockets", "tcp", "udp"):
            with self.subTest(kind=kind):
                done = self.run_as_user("--memory", "32M", "--timeout", "25s", "--", "/bomb", kind, "96")
                self.assertIn(done.returncode, (0, 120), done)
                self.assertNotIn("ESCAPED", done.stdout)

    def test_a_fork_bomb_is_ended(self):
        result, done = self.result("--pids", "12", "--timeout", "25s", "--", PYTHON, "-c", BOMB)
        self.assertEqual((121, "pids", 12), (done.returncode, result["reason"], result["usage"]["processes"]))
        self.assertEqual("kernel", result["denials"][0]["source"])

    def test_processors_are_bounded(self):
        spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
        result, done = self.result("--cpu", "0.25", "--", PYTHON, "-c", spin)
        self.assertEqual(0, done.returncode)
        self.assertLess(result["usage"]["cpu_user_ms"], 1200)

    def test_groups_that_others_own_are_of_no_use(self):
        for group in self.given:
            os.chown(group, 0, 0)
        self.one_line(self.run_as_user("--memory", "64M", "--", "true"), "--memory",
                      "boot with cgroup v2" if v1("memory") else "Delegate=yes")


if __name__ == "__main__":
    unittest.main()
