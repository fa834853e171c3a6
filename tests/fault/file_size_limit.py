#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""A daemon whose files may not grow (ulimit -f): a write that is refused is an error like any other. Nobody dies of it,
what cannot be recorded is not done, and when there is room again all goes on."""
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, PATIENCE, TMP, carrel  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

FREE = resource.RLIM_INFINITY


class FileSizeLimit(DaemonTest):
    def limit(self, pid, size):
        """Only the soft one: whoever is not root could not lift the other again."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))

    def limit_front(self, size):
        """As root it is somebody else, whose limits are not ours to change: the next one takes the broker's."""
        self.limit(self.daemon.process.pid, size)
        self.daemon.kill_front()
        self.limit(self.daemon.process.pid, FREE)
        return self.daemon.front_pid()

    def assert_lives(self, broker, front):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.said()[-2000:])
        self.assertEqual((broker, front), (self.daemon.process.pid, self.daemon.front_pid()), self.daemon.said()[-2000:])

    def test_an_audit_record_that_may_not_grow(self):
        self.workspace(id="desk")
        self.daemon.execute("desk", "true")
        broker, front = self.daemon.process.pid, self.daemon.front_pid()
        time.sleep(0.5)  # its last records are written
        size = os.stat(f"{self.daemon.state}/audit/000000001.jsonl").st_size
        self.limit(broker, size + 40)  # in the middle of a line
        for body in ({"command": "touch made"}, {"command": "touch made", "background": True}):
            answer = self.daemon.post("/v1/workspaces/desk/exec", body)
            self.assertEqual((507, "disk_full"), (answer.status, answer.code), answer.bytes)
            self.assertIn("audit", answer.json["error"]["message"])
        self.assertEqual(507, self.daemon.post("/v1/workspaces", {"id": "more"}).status)
        self.assertFalse(os.path.exists(f"{self.daemon.state}/main/threads/desk/made"), "it was started all the same")
        self.assertEqual(404, self.daemon.get("/v1/workspaces/more").status)
        self.assertEqual(200, self.daemon.get("/v1/workspaces/desk").status)
        self.assert_lives(broker, front)
        self.limit(broker, FREE)
        deadline = time.monotonic() + PATIENCE
        while self.daemon.post("/v1/workspaces", {"id": "again"}).status != 201:
            self.assertLess(time.monotonic(), deadline, "it does not recover")
            time.sleep(0.1)
        self.assert_lives(broker, front)
        done = carrel("audit", "verify", "--state", self.daemon.state)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_output_and_database_that_may_not_grow(self):
        self.workspace(id="desk")
        self.daemon.execute("desk", "true")
        broker, front = self.daemon.process.pid, self.daemon.front_pid()
        front = self.limit_front(32768)
        answer = self.daemon.post("/v1/workspaces/desk/exec", {"command": "head -c 1000000 /dev/zero; sleep 1000",
                                                               "timeout_ms": 20000})
        self.assertIn(answer.status, (200, 507), answer.bytes)
        if answer.status == 200:
            self.assertEqual("disk", answer.json["reason"], answer.bytes[-500:])
        answers = [self.daemon.post("/v1/workspaces", {}) for _ in range(40)]
        made = [answer.status for answer in answers]
        self.assertLessEqual(set(made), {201, 500, 507}, made)  # SQLite does not always say why
        self.assertIn(answers[-1].code, ("disk_full", "internal"), "the database grows without a limit")
        self.assert_lives(broker, front)
        front = self.limit_front(FREE)
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "again"}).status)
        self.assertEqual(0, self.daemon.execute("again", "true")["exit_code"])
        self.assertEqual(made.count(201) + 2, len(self.daemon.get("/v1/workspaces?limit=1000").json["workspaces"]))
        self.assert_lives(broker, front)

    def test_one_that_cannot_even_begin_says_so(self):
        for size in (0, 512):
            state = self.path(f"small{size}")
            with subprocess.Popen([CARREL, "serve", "--state", state, "--listen", "127.0.0.1:0", "--set", f"socket={state}.sock"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=TMP, text=True,
                                  preexec_fn=lambda size=size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))) as serve:
                said = ""
                late = threading.Timer(PATIENCE, serve.kill)
                late.start()
                for line in serve.stdout:  # it ends, or tries again until it is told to stop
                    said += line
                    if re.search("File too large|disk I/O error", line):
                        serve.terminate()
                status = serve.wait(PATIENCE)
                late.cancel()
            self.assertGreaterEqual(status, 0, f"{size}: it died of a signal\n{said}")
            self.assertRegex(said, "File too large|disk I/O error", size)
            self.assertNotIn(f"how='signal {int(signal.SIGXFSZ)}'", said, size)


if __name__ == "__main__":
    unittest.main()
