#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
"""Each system call that puts a plan's layer over a directory is made to fail, one at a time.

Whatever fails, the directory itself stays as it is. Either carrel says so in one line with status 125, or the command
ran and its changes are in the plan; and nothing stays mounted, locked or running.
"""
import collections
import errno
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, PATIENCE, CarrelTest, host_state, read, reap_until_alone, tree, write  # noqa: E402

FAILING = {
    "clone": "EAGAIN", "fork": "EAGAIN", "vfork": "EAGAIN", "open_tree": "EPERM", "move_mount": "EINVAL", "fsopen": "ENODEV",
    "fsconfig": "EINVAL", "fsmount": "EPERM", "mount_setattr": "EINVAL", "mount": "EPERM", "pivot_root": "EINVAL", "fchdir": "EACCES",
    "chdir": "EACCES", "mkdir": "ENOSPC", "mkdirat": "ENOSPC", "capget": "EPERM", "capset": "EPERM", "flock": "EIO", "fchown": "EPERM",
    "fchownat": "EPERM", "fchmod": "EPERM", "fchmodat": "EPERM", "setfsuid": "EPERM", "setfsgid": "EPERM", "stat": "EIO",
    "unlinkat": "EIO", "execveat": "EACCES", "memfd_create": "EMFILE", "fsync": "EIO", "renameat": "EIO", "rename": "EIO",
}
COMMAND = "echo new >/new; echo more >>/old; rm /gone; chmod 700 /dir; echo x >/dir/x"


class PlanFailingSystemCalls(CarrelTest):
    def setUp(self):
        super().setUp()
        self.fail_call, self.log = self.path("fail_call"), self.path("log")
        source = os.path.join(os.environ["SRC"], "tests", "fault", "fail_call.c")
        subprocess.run(["cc", "-O1", "-Wall", "-static", "-o", self.fail_call, source], check=True)
        self.plans = f"{self.ws}.carrel-plans"
        os.mkdir(f"{self.ws}/dir")
        for name in ("old", "gone", "dir/file"):
            write(f"{self.ws}/{name}", name)
        self.before = tree(self.ws), os.stat(self.ws).st_mtime_ns

    def tearDown(self):
        subprocess.run(["chmod", "-Rf", "u+rwx", self.plans], check=False)
        super().tearDown()

    def run_plan(self, process=-1, call=0, number=0, error=0):
        # What a run that failed in the middle has left may hold a directory of the kernel's that has no mode.
        subprocess.run(["chmod", "-Rf", "u+rwx", self.plans], check=False)
        subprocess.run(["rm", "-rf", self.plans], check=True)
        command = [self.fail_call, self.log, *map(str, (process, call, number, error)),
                   CARREL, "run", "--plan", "--workspace", self.ws, "-c", COMMAND]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                                  check=False, cwd=self.dir)
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, "none: it hangs", "", "")
        if left := reap_until_alone():
            done.stderr += f"left running: {left}"
        return done

    def judge(self, done):
        """What is wrong with the outcome of one disturbed run; None when nothing is."""
        if (tree(self.ws), os.stat(self.ws).st_mtime_ns) != self.before:
            return f"the directory has changed: {sorted(set(tree(self.ws)) ^ set(self.before[0]))}"
        if done.returncode == 125 and re.fullmatch(r"carrel: [^\n]{12,}\n", done.stderr):
            return None
        # The command ran; commands of its own may have failed, but what it did is in the plan.
        if not isinstance(done.returncode, int) or "none made yet" not in done.stderr:
            return f"status {done.returncode}, stderr {done.stderr!r}"
        name, = os.listdir(self.plans)
        if done.returncode == 0 and not os.path.exists(f"{self.plans}/{name}/upper/new"):
            return "the plan has nothing of it"
        return None

    def test_no_failing_call_lets_a_planned_run_touch_the_directory(self):
        done = self.run_plan()
        self.assertEqual(0, done.returncode, done.stderr)
        counts = collections.Counter(tuple(map(int, line.split())) for line in read(self.log).splitlines())
        names, state, wrong, tried, refused = names_of_calls(), host_state(), [], 0, 0
        for process, call in sorted(counts):
            name = names[call]
            count = counts[process, call] if name in FAILING else 0
            some = range(1, count + 1) if count <= 12 else sorted({*range(1, count + 1, count // 6), count - 1, count})
            for number in some:
                done = self.run_plan(process, call, number, getattr(errno, FAILING[name]))
                tried += 1
                refused += done.returncode == 125
                if problem := self.judge(done):
                    wrong.append(f"process {process}, {name} number {number} = {FAILING[name]}: {problem}")
        print(f"{tried} calls failed, {refused} refused")
        self.unchanged(state)
        self.assertGreater(refused, 20, "the injection reaches the setup")
        self.assertEqual([], wrong, "\n" + "\n".join(wrong))


def names_of_calls():
    lines = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                           capture_output=True, text=True, check=True).stdout
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", lines)}


if __name__ == "__main__":
    unittest.main()
