#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Services of a template: started with each sandbox, started again when they end, ready when their port answers."""
import json
import os
import signal
import time
import unittest

from carreltest import PATIENCE, carrel
from daemontest import DaemonTest

SPEC = {"services": {
    "web": {"run": "mkdir -p /site && echo page > /site/page && echo serving && cd /site && exec python3 -m http.server -b 127.0.0.1 8123",
            "port": 8123},
    "tick": {"run": "echo tick >> /ticks; exit 3"}}}


class Services(DaemonTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="making")
        answer = self.daemon.post("/v1/templates", {"name": "lab", "workspace": "making", "spec": SPEC})
        self.assertEqual(201, answer.status, answer.bytes)

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.1)

    def services(self):
        done = carrel("ws", "services", "desk", "--json", env={**os.environ, "CARREL_SOCKET": self.daemon.socket}, timeout=PATIENCE)
        self.assertEqual(0, done.returncode, done.stderr)
        return {one["name"]: one for one in json.loads(done.stdout)["services"]}

    def run_in(self, command):
        done = self.daemon.execute("desk", command)
        return done["stdout"] + done["stderr"]

    def ready(self):
        self.until(lambda: self.services().get("web", {}).get("state") == "ready", "it is never ready")
        return self.services()

    def test_they_run_are_ready_and_run_again(self):
        self.workspace(id="desk", template="lab")
        self.assertEqual({}, self.services())  # asleep
        self.run_in("true")
        found = self.ready()
        self.assertEqual((8123, 0), (found["web"]["port"], found["web"]["ends"]))
        self.assertIn("http.server", found["web"]["command"])
        self.assertEqual("page\n", self.run_in("python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8123/page\").read().decode(), end=\"\")'"))
        self.until(lambda: self.run_in("wc -l < /ticks").strip() >= "2", "what has ended is not started again")
        self.until(lambda: self.services()["tick"].get("ends", 0) >= 1, "it is not told how often it has ended")
        self.check_a_killed_one_comes_back()
        self.check_its_log(found["web"]["exec_id"])
        self.check_sleep()
        self.check_the_front_and_the_daemon_killed()

    def check_a_killed_one_comes_back(self):
        self.run_in("pkill -9 -f [h]ttp.server")
        self.until(lambda: self.services()["web"].get("ends") == 1, "it is not seen to have ended")
        self.ready()

    def check_its_log(self, exec_id):
        log = self.daemon.get(f"/v1/workspaces/desk/exec/{exec_id}/output").bytes.decode()
        self.assertIn("serving", log)
        self.assertIn("the service 'web' has ended (137); it is started again in 1 s", log)

    def check_sleep(self):
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sleep").status)
        self.assertEqual({}, self.services())
        self.run_in("true")
        self.assertEqual(0, self.ready()["web"]["ends"])

    def check_the_front_and_the_daemon_killed(self):
        before = self.services()["web"]["exec_id"]
        self.daemon.kill_front()
        self.assertEqual(before, self.ready()["web"]["exec_id"])
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.run_in("true")
        self.assertNotEqual(before, self.ready()["web"]["exec_id"])

    def test_what_is_no_service_is_refused(self):
        self.workspace(id="other")
        for services in ([], {"a": 7}, {"a": {}}, {"a": {"run": ""}}, {"a b": {"run": "x"}}, {"a" * 33: {"run": "x"}}, {"a": {"run": "x", "port": 0}},
                         {"a": {"run": "x", "port": 65536}}, {"a": {"run": "x", "else": 1}}, {f"s{n}": {"run": "x"} for n in range(17)}):
            with self.subTest(services=services):
                answer = self.daemon.post("/v1/templates", {"name": "bad", "workspace": "other", "spec": {"services": services}})
                self.assertEqual(400, answer.status, answer.bytes)


if __name__ == "__main__":
    unittest.main()
