#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
"""Each system call that gives a mount its layer is made to fail, one at a time.

Whatever fails, the source stays as it is. Either carrel says so in one line with status 125 and the workspace is as it was,
or the command ran and its changes are in the layer; and nothing stays mounted, locked or running.
"""
import collections
import errno
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, PATIENCE, CarrelTest, host_state, read, reap_until_alone, tree, write  # noqa: E402

FAILING = {
    "clone": "EAGAIN", "fork": "EAGAIN", "vfork": "EAGAIN", "open_tree": "EPERM", "move_mount": "EINVAL", "fsopen": "ENODEV",
    "fsconfig": "EINVAL", "fsmount": "EPERM", "mount_setattr": "EINVAL", "mount": "EPERM", "fchdir": "EACCES", "chdir": "EACCES",
    "mkdirat": "ENOSPC", "capget": "EPERM", "capset": "EPERM", "flock": "EIO", "fchown": "EPERM", "fchmod": "EPERM",
    "openat2": "EACCES", "dup": "EMFILE", "unlinkat": "EIO",
}
COMMAND = "echo new >/.venv/new; echo more >>/.venv/old; rm /.venv/gone; echo x >/.cache/uv/x"


class LayerFailingSystemCalls(CarrelTest):
    def setUp(self):
        super().setUp()
        self.fail_call, self.log, self.base = self.path("fail_call"), self.path("log"), self.path("base")
        source = os.path.join(os.environ["SRC"], "tests", "fault", "fail_call.c")
        subprocess.run(["cc", "-O1", "-Wall", "-static", "-o", self.fail_call, source], check=True)
        os.mkdir(self.base)
        for name in ("old", "gone"):
            write(f"{self.base}/{name}", name)
        self.before = tree(self.base), os.stat(self.base).st_mtime_ns
        self.layers = [self.path("venv"), self.path("uv")]

    def tearDown(self):
        subprocess.run(["chmod", "-Rf", "u+rwx", self.dir], check=False)
        super().tearDown()

    def run_layered(self, process=-1, call=0, number=0, error=0):
        for place in (*self.layers, self.ws):
            subprocess.run(["chmod", "-Rf", "u+rwx", place], check=False)
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place, 0o700)
        command = [self.fail_call, self.log, *map(str, (process, call, number, error)), CARREL, "run", "--workspace", self.ws,
                   "--layer", f"{self.base}:/.venv:{self.layers[0]}", "--layer", f"{self.base}:/.cache/uv:{self.layers[1]}",
                   "-c", COMMAND]
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
        if (tree(self.base), os.stat(self.base).st_mtime_ns) != self.before:
            return "the source has changed"
        ran = any(os.path.exists(f"{layer}/upper") and os.listdir(f"{layer}/upper") for layer in self.layers)
        if done.returncode == 125 and re.fullmatch(r"carrel: [^\n]{12,}\n", done.stderr):
            return f"left in the workspace: {os.listdir(self.ws)}" if not ran and os.listdir(self.ws) else None
        # The command ran; commands of its own may have failed.
        if not isinstance(done.returncode, int) or "carrel" in done.stderr:
            return f"status {done.returncode}, stderr {done.stderr!r}"
        if done.returncode == 0 and not (os.path.exists(f"{self.layers[0]}/upper/new") and os.path.exists(f"{self.layers[1]}/upper/x")):
            return "the layers have nothing of it"
        return None

    def test_no_failing_call_lets_a_layered_run_touch_the_source(self):
        done = self.run_layered()
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        counts = collections.Counter(tuple(map(int, line.split())) for line in read(self.log).splitlines())
        names, state, wrong, tried, refused = names_of_calls(), host_state(), [], 0, 0
        for process, call in sorted(counts):
            name = names[call]
            count = counts[process, call] if name in FAILING else 0
            some = range(1, count + 1) if count <= 12 else sorted({*range(1, count + 1, count // 6), *range(count - 5, count + 1)})
            for number in some:
                done = self.run_layered(process, call, number, getattr(errno, FAILING[name]))
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
