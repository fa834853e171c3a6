#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 400
# TAKES: 50
"""A workspace that is frozen while the broker, the front or the process that does it is killed before each of its steps:
what is there afterwards is the workspace or the template, whole, and never both or neither. (Every fourth or
sixth step, for the time it takes: all of them with LONG.)"""
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from carreltest import PATIENCE, carrel, read, write  # noqa: E402
from daemon_templates import TemplateTest  # noqa: E402
from daemontest import Daemon  # noqa: E402

FILL = """
mkdir -p /.venv/lib /data /.cache/uv/wheels; echo one > /.venv/lib/one.py; echo data > /data/file
echo wheel > /.cache/uv/wheels/w
"""

LONG = bool(os.environ.get("LONG"))


class Faults(TemplateTest):
    options = ()

    def setUp(self):
        super().setUp()
        self.daemon.stop()
        shutil.rmtree(self.daemon.state)
        self.faults, library = self.path("faults"), self.path("stop_chore.so")
        os.mkdir(self.faults, 0o700)
        source = os.path.join(os.environ["SRC"], "tests", "fault", "stop_chore.c")
        subprocess.run(["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.daemon = Daemon(self.path("s"), *self.options,
                             env={**os.environ, "LD_PRELOAD": library, "FAULTS": self.faults})
        os.makedirs(self.top("tools", "bin"), mode=0o755)

    def clear(self):
        for name in os.listdir(self.faults):
            os.unlink(f"{self.faults}/{name}")

    def stopped(self, text="stopped"):
        """The one that stands, once there is one."""
        path = f"{self.faults}/{text}"
        self.until(lambda: os.path.exists(path) and read(path).endswith("\n"), "nothing happens")
        pid = int(read(path).split()[0])
        os.unlink(path)
        return pid

    def standing(self):
        """All children of the broker that stand."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                state, parent = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            if state == "T" and int(parent) == self.daemon.process.pid:
                found.append(int(pid))
        return found

    def go_on(self):
        self.clear()
        for pid in self.standing():
            os.kill(pid, signal.SIGCONT)


class Killed(Faults):
    def begin(self, step):
        """Asks for a template, whose making stops before that step. Its name, the one who stands, and who waits."""
        name = f"desk{step}"
        self.workspace(id=name)
        self.run_in(name, FILL)
        self.daemon.post(f"/v1/workspaces/{name}/sleep")
        self.clear()
        write(f"{self.faults}/at", str(step))
        waiting = self.daemon.stream("POST", "/v1/templates", {"name": name, "workspace": name, "share_cache": True},
                                     wait=False)
        waiting.sock.settimeout(0.05)
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(f"{self.faults}/stopped") or not read(f"{self.faults}/stopped").endswith("\n"):
            self.assertLess(time.monotonic(), deadline, f"nothing happens at step {step}")
            if self.daemon.get(f"/v1/templates/{name}").status == 200:
                self.clear()
                waiting.close()
                return name, None, None
            time.sleep(0.01)
        pid = int(read(f"{self.faults}/stopped").split()[0])
        os.unlink(f"{self.faults}/at")
        return name, pid, waiting

    def states(self, name):
        return self.daemon.get(f"/v1/workspaces/{name}").status, self.daemon.get(f"/v1/templates/{name}").status

    def check(self, name, step):
        self.until(lambda: sorted(self.states(name)) == [200, 404] and not self.unsettled(), f"{step}: {self.states(name)}, "
                                                                                            f"left: {self.unsettled()}")
        look = "cat /.venv/lib/one.py /data/file /.cache/uv/wheels/w"
        if self.states(name)[0] == 200:
            self.assertEqual("one\ndata\nwheel\n", self.run_in(name, look), step)
            self.until(lambda: self.freeze(name, name, share_cache=True).status == 201, step)  # the sweep may be at it
            was = "workspace"
        else:
            was = "template"
        on = self.on(name)
        self.assertEqual("one\ndata\nwheel\n", self.run_in(on, look), f"{step}: {was}")
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": name}).status, step)
        self.assertEqual("", self.run_in(name, "ls -A /.venv /data 2>/dev/null; true"), "what was before it")
        for one in (on, name):
            self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{one}?purge=1").status)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/templates/{name}").status)
        return was

    def unsettled(self):
        """Directories of templates that nobody knows."""
        known = {t["id"] for t in self.daemon.get("/v1/templates").json["templates"]}
        return [one for one in self.templates() if one not in known] if os.path.exists(self.top("templates")) else []

    def each(self, kill, every=1):
        found = []
        step = 1
        while True:
            name, pid, waiting = self.begin(step)
            if pid:
                kill(pid)
                waiting.close()
            found.append(self.check(name, step))
            if not pid:
                break
            step += every
        self.assertGreater(step, 10)
        self.assertEqual({"workspace", "template"}, set(found))
        self.assertEqual(sorted(found, reverse=True), found, "a template becomes a workspace again")
        done = carrel("audit", "verify", "--state", self.daemon.state)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        print(f"{step} steps, {found.count('workspace')} before the tree moves")

    def test_the_broker_is_killed(self):
        def kill(_):
            self.daemon.stop(signal.SIGKILL)
            self.clear()
            self.daemon.start()
        self.each(kill, every=1 if LONG else 4)

    def test_the_process_that_does_it_is_killed(self):
        self.each(lambda pid: os.kill(pid, signal.SIGKILL), every=1 if LONG else 6)

    def test_the_front_is_killed_and_the_process_goes_on(self):
        for step in (3, 25):
            name, pid, waiting = self.begin(step)
            self.daemon.kill_front()
            os.kill(pid, signal.SIGCONT)
            waiting.close()
            self.until(lambda name=name: self.states(name) == (404, 200), "what it has done is for nobody")
            self.check(name, step)


class Undecided(Faults):
    def test_one_whose_tree_has_moved_is_finished_later_and_that_is_what_is_told(self):
        ws = self.workspace(id="desk")
        self.run_in(ws, FILL)
        self.daemon.post(f"/v1/workspaces/{ws}/sleep")
        write(f"{self.faults}/at", "moved")
        waiting = self.daemon.stream("POST", "/v1/templates", {"name": "base", "workspace": ws}, wait=False)
        for _ in range(2):  # it, and the one that is to see how far it came
            pid = self.stopped()
            write(f"{self.faults}/at", "1")
            os.kill(pid, signal.SIGKILL)
        answer = waiting.getresponse()
        told = json.loads(answer.read())
        waiting.close()
        self.assertEqual((202, "freezing"), (answer.status, told.get("state")), told)
        self.stopped()  # the sweep's
        refused = self.daemon.request("DELETE", f"/v1/workspaces/{ws}?purge=1")
        self.assertEqual(409, refused.status, refused.bytes)
        self.assertEqual("freezing", self.daemon.get(f"/v1/templates/{told['id']}").json["state"])
        self.go_on()
        self.until(lambda: self.daemon.get(f"/v1/templates/{told['id']}").json["state"] == "ready", "it is not finished")
        self.assertEqual(404, self.daemon.get(f"/v1/workspaces/{ws}").status)
        self.assertEqual("one\ndata\n", self.run_in(self.on(), "cat /.venv/lib/one.py /data/file"))


class Filled(Faults):
    options = ("--set", "owner_chores=2")
    FILES = "mkdir /.venv /data; echo 1 > /.venv/a; cd /data; touch $(seq 30)"

    def create(self, name, key=None):
        return self.daemon.stream("POST", "/v1/workspaces", {"id": name, "template": "base"}, key=key, wait=False)

    def test_filling_waits_for_nobody_else_and_so_many_at_a_time(self):
        self.build(fill="mkdir /.venv; echo 1 > /.venv/a; echo data > /data")
        alice, bob = self.daemon.key("alice"), self.daemon.key("bob")
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "planned"}, key=alice).status)
        plan = self.daemon.execute("planned", "echo x > /new", mode="plan", key=alice)["plan"]["id"]
        verify = (f"/v1/workspaces/planned/plans/{plan}/verify", {"check": ["test", "-e", "/new"]})
        write(f"{self.faults}/at", "1")
        waiting = [self.create(name, alice) for name in ("a1", "a2")]
        self.until(lambda: len(self.standing()) == 2, "they are not processes of their own")
        refused = self.daemon.post("/v1/workspaces", {"id": "a3", "template": "base"}, key=alice)
        self.assertEqual((429, "owner_chores"), (refused.status, refused.json["error"]["details"]["reason"]))
        self.assertEqual(404, self.daemon.get("/v1/workspaces/a3").status)
        refused = self.daemon.post(*verify, key=alice)
        self.assertEqual((429, "owner_chores"), (refused.status, refused.json["error"]["details"]["reason"]))
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "plain"}, key=alice).status, "the broker stands")
        waiting.append(self.create("b1", bob))
        self.until(lambda: len(self.standing()) == 3, "one owner's keep another's out")
        self.go_on()
        for own in waiting:
            self.assertEqual(201, own.getresponse().status)
            own.close()
        self.assertEqual(200, self.daemon.post(*verify, key=alice).status)
        self.assertEqual("data\n", self.run_in("a1", "cat /data", key=alice))
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/a1?purge=1", key=alice).status)
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "a3", "template": "base"}, key=alice).status)

    def test_nobody_has_the_tree_while_it_is_filled(self):
        self.build(fill=self.FILES)
        write(f"{self.faults}/at", "2")
        waiting = self.create("desk")
        self.until(self.standing, "nothing happens")
        self.daemon.kill_front()  # the next one finds a workspace that is to go
        waiting.close()
        time.sleep(1)
        self.assertIn("desk", os.listdir(f"{self.daemon.state}/main/threads"), "it was taken from under its copy")
        self.go_on()
        self.until(lambda: self.daemon.get("/v1/workspaces/desk").status == 404, "it is half made for ever")
        self.assertNotIn("desk", os.listdir(f"{self.daemon.state}/main/threads"))

    def test_a_full_disk_is_told_as_that(self):
        self.build(fill=self.FILES)
        write(f"{self.faults}/fail", f"fsync 31 {errno.ENOSPC}")  # of the directory, when all in it is there
        refused = self.daemon.post("/v1/workspaces", {"id": "desk", "template": "base"})
        self.assertEqual((507, "disk_full"), (refused.status, refused.code), refused.bytes)
        self.clear()
        self.until(lambda: self.daemon.post("/v1/workspaces", {"id": "desk", "template": "base"}).status == 201, "it is left")


class NewOnes(TemplateTest):
    def test_a_front_that_is_killed_leaves_no_half_filled_workspace(self):
        self.build(fill="mkdir /.venv /files; echo 1 > /.venv/a; for i in $(seq 300); do echo $i > /files/$i; done")
        for number in range(12):
            own = self.daemon.stream("POST", "/v1/workspaces", {"id": f"w{number}", "template": "base"}, wait=False)
            time.sleep(0.004 * number)
            self.daemon.kill_front()
            own.close()
            time.sleep(1)  # one that lives shorter is started again after a pause, which grows

            def settled(number=number):
                answer = self.daemon.get(f"/v1/workspaces/w{number}")
                return answer.status == 404 or answer.json["deleted"] is None
            self.until(settled, "it is half made for ever")
            if self.daemon.get(f"/v1/workspaces/w{number}").status == 404:
                self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": f"w{number}", "template": "base"}).status)
            self.assertEqual("300\n1\n", self.run_in(f"w{number}", "ls /files | wc -l; cat /.venv/a"))


if __name__ == "__main__":
    unittest.main(verbosity=0)
