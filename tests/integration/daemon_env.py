#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""Python and Node in workspaces: made, told, refused and left as they were, with tools that only look like uv and bun."""
import fcntl
import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE, write
from envtest import HOST, EnvTest, Registry, put_stubs


class WithoutTools(EnvTest):
    def test_it_is_said_what_brings_them(self):
        for what in ("python", "node"):
            error = self.make(what, 409)["error"]
            self.assertEqual("tools_missing", error["code"])
            self.assertIn("carrel env setup", error["message"])
        self.assertEqual({"uv": None, "bun": None}, self.env()["tools"])
        self.assertIsNone(self.env()["python"])
        done = self.carrel("env", "desk", "python")
        self.assertEqual(125, done.returncode)
        self.assertIn("carrel env setup", done.stderr)
        self.assertIn("carrel env setup", self.carrel("env", "desk").stdout)
        put_stubs(self.daemon.state)
        self.assertIn("carrel ws sleep", self.make("python", 409)["error"]["message"], "it is awake, and has not seen them")
        self.assertEqual(0, self.carrel("ws", "sleep", "desk").returncode)
        self.make("python", 201)


class WithStubs(EnvTest):
    def setUp(self):
        super().setUp()
        put_stubs(self.daemon.state)

    def test_python_is_made_once_and_told(self):
        made = self.make("python", 201)["python"]
        self.assertEqual((HOST, "/.venv/bin/python", True), (made["version"], made["path"], made["created"]))
        again = self.make("python", 200)["python"]
        self.assertEqual({**made, "created": False, "state": "there"}, again)
        self.assertEqual("/.venv/bin/python\n/.venv\n", self.run_inside('command -v python; echo "$VIRTUAL_ENV"'))
        self.assertEqual("/.venv\n", self.run_inside("python -c 'import sys; print(sys.prefix)'"))
        project = self.run_inside("cat /pyproject.toml")
        self.assertIn('name = "workspace"', project)
        self.assertIn(f'requires-python = ">={HOST.rsplit(".", 1)[0]}"', project)
        self.assertEqual("", self.run_inside("grep -rlI carrel-new /.venv/bin; true"), "no path of the time when it was made")
        self.assertIn("/.venv", self.run_inside(". /.venv/bin/activate && echo $VIRTUAL_ENV"))
        report = self.env()
        self.assertEqual(again, report["python"])
        self.assertEqual({"uv": "0.0.1", "bun": "0.0.2"}, report["tools"])
        self.assertEqual(HOST, report["interpreters"][0]["version"])
        self.assertFalse({name for name in self.root_names() if "carrel" in name}, "nothing is left")

    def test_one_is_replaced_at_one_instant(self):
        self.make("python", 201)
        watch = self.daemon.post("/v1/workspaces/desk/exec", {
            "command": "touch /sees; while test -e /.venv/pyvenv.cfg; do :; done; touch /gap", "background": True})
        self.await_name("sees")
        self.make("python", 201, {"clear": True})
        self.assertNotIn("gap", self.root_names())
        self.kill("desk", watch)

    def test_a_project_that_is_there_stays(self):
        self.run_inside("printf '[project]\\nname = \"mine\"\\nversion = \"1\"\\n' > /pyproject.toml")
        self.make("python", 201)
        self.assertIn('"mine"', self.run_inside("cat /pyproject.toml"))

    def test_another_version_is_refused_and_those_there_are_told(self):
        error = self.make("python", 422, {"version": "3.2"})["error"]
        self.assertEqual("version_missing", error["code"])
        self.assertIn(HOST, error["message"])
        self.assertEqual(HOST, error["details"]["have"][0]["version"])
        self.assertFalse({".venv", "pyproject.toml"} & self.root_names(), "and nothing was made")
        self.make("python", 201, {"version": HOST})
        self.run_inside("touch /.venv/mine")
        error = self.make("python", 409, {"version": "3.2"})["error"]
        self.assertEqual("env_exists", error["code"])
        self.assertIn(HOST, error["message"])
        self.make("python", 422, {"version": "3.2", "clear": True})
        self.run_inside("test -e /.venv/mine")
        self.make("python", 201, {"version": HOST, "clear": True})
        self.run_inside("test ! -e /.venv/mine")

    def test_nothing_of_a_request_becomes_shell_text(self):
        for version in ("; touch /x", "$(touch /x)", "3.11'", "--help", "/bin/sh", "", "3" * 40, "3.11\n", 3, ["3"]):
            with self.subTest(version=version):
                answer = self.daemon.post("/v1/workspaces/desk/env/python", {"version": version})
                self.assertEqual((400, "invalid_request"), (answer.status, answer.code))
        for body in ({"nope": 1}, {"clear": "yes"}):
            self.assertEqual(400, self.daemon.post("/v1/workspaces/desk/env/python", body).status)
        self.assertEqual(400, self.daemon.post("/v1/workspaces/desk/env/node", {"version": "1"}).status)
        self.assertNotIn("x", self.root_names())

    def test_a_broken_one_is_not_touched_until_it_is_asked_for(self):
        for breaks in ("mkdir /.venv && touch /.venv/mine", "rm -rf /.venv; touch /.venv", "rm -rf /.venv; ln -s /nowhere /.venv",
                       "rm -rf /.venv; mkdir -p /.venv/bin; touch /.venv/pyvenv.cfg; "
                       "printf '#!/bin/sh\\nexit 1' > /.venv/bin/python; chmod +x /.venv/bin/python"):
            with self.subTest(breaks=breaks):
                self.run_inside(breaks)
                before = self.run_inside("ls -lA /.venv")
                error = self.make("python", 409)["error"]
                self.assertEqual("env_broken", error["code"])
                self.assertIn("clear", error["message"])
                self.assertEqual(before, self.run_inside("ls -lA /.venv"))
                self.assertEqual("broken", self.env()["python"]["state"])
                self.make("python", 201, {"clear": True})
                self.assertEqual("/.venv\n", self.run_inside("python -c 'import sys; print(sys.prefix)'"))
                self.assertFalse({name for name in self.root_names() if "carrel" in name})

    def test_what_fails_leaves_everything_as_it_was(self):
        self.make("python", 201)
        self.run_inside("touch /.venv/mine; echo 'something is wrong with it' > /uv-fails")
        before = self.root_names()
        error = self.make("python", 422, {"clear": True})["error"]
        self.assertEqual("env_failed", error["code"])
        self.assertIn("something is wrong with it", error["message"])
        self.assertEqual(before, self.root_names())
        self.run_inside("test -e /.venv/mine")
        self.run_inside("echo 'No space left on device (os error 28)' > /uv-fails")
        error = self.make("python", 507, {"clear": True})["error"]
        self.assertEqual("disk_full", error["code"])
        self.assertEqual(before, self.root_names())
        self.run_inside("test -e /.venv/mine")

    def test_leftovers_of_one_that_was_killed_go_and_what_was_put_aside_comes_back(self):
        self.make("python", 201)
        self.run_inside("touch /.venv/mine; mv /.venv /.venv.carrel-old; mkdir /.venv.carrel-new; touch /.pyproject.carrel-new")
        self.make("python", 200)
        self.run_inside("test -e /.venv/mine")
        self.assertFalse({name for name in self.root_names() if "carrel" in name})

    def test_pip_that_cannot_be_put_back_leaves_nothing_of_itself(self):
        self.make("python", 201)
        write(f"{self.daemon.state}/.carrel/tools/wheels/pip-1.0-py3-none-any.whl", "a wheel")
        self.run_inside("touch /.venv/mine /uv-pip-half")
        before = self.run_inside("find /.venv -path '*__pycache__*' -prune -o -print | sort")
        error = self.make("python", 507)["error"]
        self.assertEqual("disk_full", error["code"])
        self.assertEqual(before, self.run_inside("find /.venv -path '*__pycache__*' -prune -o -print | sort"))
        self.assertIsNone(self.env()["python"]["pip"])

    def test_words_of_a_hostile_interpreter_are_only_words(self):
        self.run_inside("mkdir -p /.venv/bin; touch /.venv/pyvenv.cfg; printf '%s\\n' '#!/bin/sh' "
                        "'printf \"\\\\377 a\\\\tnode\\\\tnew\\\\nwhy\\\\tx\\\\n\"' > /.venv/bin/python; chmod +x /.venv/bin/python")
        answer = self.daemon.post("/v1/workspaces/desk/env/python")
        self.assertIn(answer.status, (200, 409, 422))
        self.assertNotIn("node", answer.json)
        self.assertIsNone(self.env()["node"])

    def test_node_is_made_once_and_what_is_there_stays(self):
        made = self.make("node", 201)["node"]
        self.assertEqual(("0.0.2", True), (made["bun"], made["created"]))
        self.assertEqual(shutil.which("node", path="/usr/bin") is None, made["node"] is None)
        package = json.loads(self.run_inside("cat /package.json"))
        self.assertEqual("workspace", package["name"])
        self.assertFalse(self.make("node", 200)["node"]["created"])
        self.run_inside("echo '{\"name\": \"mine\"}' > /package.json; rm -r /node_modules")
        self.make("node", 201)
        self.assertEqual("mine", json.loads(self.run_inside("cat /package.json"))["name"])
        self.run_inside("rm -r /node_modules; touch /node_modules")
        self.assertIn("remove it", self.make("node", 409)["error"]["message"])

    def test_two_at_once_make_one(self):
        answers = []

        def ask():
            answers.append(self.daemon.post("/v1/workspaces/desk/env/python", {}).status)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn(201, answers)
        self.assertLessEqual(set(answers), {200, 201, 409})
        self.assertEqual("/.venv\n", self.run_inside("python -c 'import sys; print(sys.prefix)'"))
        self.assertFalse({name for name in self.root_names() if "carrel" in name})

    def test_at_creation(self):
        answer = self.daemon.post("/v1/workspaces", {"id": "den", "python": True, "node": True})
        self.assertEqual(201, answer.status, answer.bytes)
        self.assertEqual("/.venv\n", self.run_inside("python -c 'import sys; print(sys.prefix)'", "den"))
        self.run_inside("test -e /package.json", "den")
        self.assertEqual(400, self.daemon.post("/v1/workspaces", {"python": "/bin/sh"}).status)
        self.assertEqual(400, self.daemon.post("/v1/workspaces", {"node": "yes"}).status)

    def refused_at_creation(self, status, code, word, body):
        """With this error, and as if it had never been."""
        answer = self.daemon.post("/v1/workspaces", {"id": "nook", **body})
        self.assertEqual((status, code), (answer.status, answer.code), answer.bytes)
        self.assertIn(word, answer.json["error"]["message"])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/nook").status)
        self.assertFalse(os.path.exists(f"{self.daemon.state}/main/threads/nook"))
        last = [r for r in self.daemon.audit() if r["workspace"] == "nook" and r["operation"] == "workspace.create"][-1]
        self.assertEqual("failed", last["result"])
        self.assertIn(word, json.dumps(last))
        return answer.json["error"]

    def test_what_fails_at_creation_leaves_no_workspace_and_says_why(self):
        error = self.refused_at_creation(422, "version_missing", HOST, {"python": "3.2"})
        self.assertEqual(HOST, error["details"]["have"][0]["version"])
        error = self.refused_at_creation(403, "forbidden", "allow_net_host", {"python": True, "policy": {"network": "host"}})
        self.assertEqual("allow_net_host", error["details"]["reason"])
        self.refused_at_creation(403, "forbidden", "allow_net_host", {"node": True, "policy": {"network": "host"}})
        shutil.rmtree(f"{self.daemon.state}/.carrel/tools/libexec")
        self.refused_at_creation(409, "tools_missing", "carrel env setup", {"python": True})
        self.workspace(id="nook")

    def test_a_full_workspace_is_said_and_nothing_is_left(self):
        self.workspace(id="small", policy={"limits": {"disk": "3M"}})
        self.run_inside("touch /uv-big", "small")
        before = self.root_names("small")
        answer = self.daemon.post("/v1/workspaces/small/env/python")
        self.assertEqual((507, "disk_full"), (answer.status, answer.code), answer.bytes)
        self.assertEqual(before, self.root_names("small"))

    def test_the_command_line(self):
        done = self.carrel("env", "desk", "python", "--version", HOST)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertIn(f"{HOST} in /.venv", done.stdout)
        done = self.carrel("env", "--json", "desk", "node")
        self.assertEqual("0.0.2", json.loads(done.stdout)["node"]["bun"])
        done = self.carrel("env", "desk", "python", "--version=3.2", "--clear")
        self.assertEqual(125, done.returncode)
        self.assertIn(HOST, done.stderr)
        self.assertIn("uv 0.0.1, bun 0.0.2", self.carrel("env", "desk").stdout)
        for args, word in (((), "name a workspace"), (("desk", "perl"), "python or node"), (("desk", "--clear"), "for python"),
                           (("none",), "no workspace")):
            done = self.carrel("env", *args)
            self.assertEqual(125, done.returncode)
            self.assertIn(word, done.stderr)

    def test_a_clean_up_leaves_alone_what_another_makes(self):
        self.run_inside("echo 60 > /uv-slow")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.daemon.post("/v1/workspaces/desk/env/python", {})))
        thread.start()
        self.await_name("uv-began")
        self.assertEqual("workspace_busy", self.make("python", 409)["error"]["code"])
        # Stands for another request, which is next to have the lock.
        other = self.daemon.post("/v1/workspaces/desk/exec", {
            "command": "flock /tmp sh -c 'mkdir -p /.venv.carrel-new; touch /.venv.carrel-new/other /got; sleep 60'", "background": True})
        running = self.daemon.get("/v1/workspaces/desk/exec?state=running").json["execs"]
        making = next(one["exec_id"] for one in running if one["command"] == "carrel env")
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/desk/exec/{making}/kill").status // 100 * 100)
        thread.join()
        self.assertEqual((422, "env_failed"), (answers[0].status, answers[0].code), answers[0].bytes)
        self.assertIn("the next request removes", answers[0].json["error"]["message"])
        self.run_inside("test -e /.venv.carrel-new/other")
        self.kill("desk", other)
        self.run_inside("rm /uv-slow")
        self.make("python", 201)
        self.assertFalse({name for name in self.root_names() if "carrel" in name})

    def doctor(self, *args, code=0):
        done = self.carrel("doctor", "--json", *args)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return {check["check"]: check for check in json.loads(done.stdout)["checks"]}

    def test_the_doctor_answers_the_usual_troubles(self):
        seen = self.doctor("desk")
        self.assertIn("carrel env desk python", seen["python"]["fix"])
        self.assertIn("carrel env desk node", seen["node"]["fix"])
        self.assertTrue(seen["output"]["works"])
        self.assertTrue(seen["PATH"]["works"])
        self.make("python", 201)
        seen = self.doctor("desk")
        self.assertTrue(seen["python"]["works"])
        self.assertIn("/.venv/bin/python", seen["python"]["detail"])
        seen = self.doctor("--package", "nosuch", "desk", code=1)
        self.assertIn("uv pip install", seen["package"]["fix"])
        site = self.run_inside("python -c 'import site; print(site.getsitepackages()[0])'").strip()
        self.run_inside(f"mkdir {site}/thing-1.5.dist-info; printf 'Name: thing\\nVersion: 1.5\\n' > {site}/thing-1.5.dist-info/METADATA")
        self.assertIn("thing 1.5 is installed in /.venv", self.doctor("--package", "thing", "desk")["package"]["detail"])
        self.run_inside("mkdir -p /node_modules/@a/b; echo '{ \"version\": \"2.0\" }' > /node_modules/@a/b/package.json")
        self.assertIn("2.0 is installed in /node_modules", self.doctor("--package", "@a/b", "desk")["package"]["detail"])
        self.workspace(id="odd", policy={"env": {"PATH": "/usr/bin", "PYTHONUNBUFFERED": ""}})
        seen = self.doctor("odd", code=1)
        self.assertFalse(seen["PATH"]["works"])
        self.assertFalse(seen["output"]["works"])
        self.run_inside("rm -rf /.venv; mkdir /.venv; touch /.venv/x")
        self.assertIn("--clear", self.doctor("desk", code=1)["python"]["fix"])


class AtTheLimit(EnvTest):
    options = ("--set", "max_execs=1")

    def test_a_quota_at_creation_leaves_no_workspace(self):
        put_stubs(self.daemon.state)
        started = self.daemon.post("/v1/workspaces/desk/exec", {"command": "sleep 60", "background": True})
        self.assertEqual(202, started.status, started.bytes)
        answer = self.daemon.post("/v1/workspaces", {"id": "nook", "python": True})
        self.assertEqual((429, "quota_exceeded", "max_execs"), (answer.status, answer.code, answer.json["error"]["details"]["reason"]))
        self.assertEqual(404, self.daemon.get("/v1/workspaces/nook").status)
        self.kill("desk", started)


class OnATemplate(EnvTest):
    """/.venv is a mount there: a new one takes its place while the sandbox sleeps."""

    def setUp(self):
        super().setUp()
        put_stubs(self.daemon.state)
        self.make("python", 201)
        self.run_inside("touch /.venv/old")
        answer = self.daemon.post("/v1/templates", {"name": "base", "workspace": "desk"})
        self.assertEqual(201, answer.status, answer.bytes)
        self.workspace(id="a", template="base")
        self.run_inside("touch /.venv/mine", "a")

    def which(self, ws="a"):
        """Old or new; it works, and nothing else is there."""
        self.assertEqual("/.venv\n", self.run_inside("python -c 'import sys; print(sys.prefix)'", ws))
        names = set(self.run_inside("ls -A /.venv", ws).split())
        self.assertIn({"old", "mine"} & names, ({"old", "mine"}, set()))
        return "old" if "old" in names else "new"

    def test_clear_makes_it_the_workspaces_own(self):
        self.workspace(id="b", template="base")
        self.make("python", 200, ws="a")
        self.make("python", 422, {"version": "3.2", "clear": True}, ws="a")
        self.assertEqual("old", self.which())
        made = self.make("python", 201, {"clear": True}, ws="a")["python"]
        self.assertEqual((HOST, True), (made["version"], made["created"]))
        self.assertEqual("new", self.which())
        self.assertFalse({name for name in self.root_names("a") if "carrel" in name})
        self.run_inside("test -e /.venv/old", "b")
        self.daemon.post("/v1/workspaces/a/sleep")
        self.assertEqual("new", self.which(), "also in the next sandbox")
        layer = f"{self.daemon.state}/main/.carrel/workspaces/a/env"
        deadline = time.monotonic() + PATIENCE
        while {"venv", "gone"} & set(os.listdir(layer)):
            self.assertLess(time.monotonic(), deadline, "what it had changed of the template's is not kept for nothing")
            time.sleep(0.02)
        self.run_inside("touch /.venv/again", "a")
        self.make("python", 201, {"clear": True}, ws="a")
        self.run_inside("test ! -e /.venv/again; rm -rf /.venv", "a")
        self.daemon.post("/v1/workspaces/a/sleep")
        self.assertIn("old", self.run_inside("ls /.venv", "a"), "without one of its own there is the template's")
        self.assertNotIn("mine", self.run_inside("ls /.venv", "a"))

    def test_files_of_the_template_that_are_gone_are_named(self):
        top = f"{self.daemon.state}/.carrel/templates"
        one = os.listdir(top)[0]
        self.daemon.post("/v1/workspaces/a/sleep")
        os.rename(f"{top}/{one}/tree", f"{top}/{one}/elsewhere")
        answer = self.daemon.post("/v1/workspaces/a/exec", {"command": "true"})
        self.assertEqual((404, "not_found"), (answer.status, answer.code), answer.bytes)
        self.assertIn(f".carrel/templates/{one}", answer.json["error"]["message"])
        os.rename(f"{top}/{one}/elsewhere", f"{top}/{one}/tree")
        self.assertEqual("old", self.which())

    def test_commands_that_run_are_not_ended_for_it(self):
        started = self.daemon.post("/v1/workspaces/a/exec", {"command": "sleep 60", "background": True})
        answer = self.daemon.post("/v1/workspaces/a/env/python", {"clear": True})
        self.assertEqual((409, "workspace_busy"), (answer.status, answer.code), answer.bytes)
        self.assertIn("carrel ws sleep", answer.json["error"]["message"])
        self.assertEqual("old", self.which())
        self.assertFalse({name for name in self.root_names("a") if "carrel" in name})
        self.kill("a", started)

    def test_a_file_that_is_being_sent_is_not_cut_off_for_it(self):
        watch = self.daemon.stream("GET", "/v1/workspaces/a/files-watch?path=/")
        upload = self.daemon.connect()
        self.addCleanup(upload.close)
        upload.putrequest("PUT", "/v1/workspaces/a/files/sent")
        upload.putheader("Content-Length", "6")
        upload.endheaders(b"one")
        answer = self.daemon.post("/v1/workspaces/a/env/python", {"clear": True})
        self.assertEqual((409, "workspace_busy"), (answer.status, answer.code), answer.bytes)
        self.assertIn("files", answer.json["error"]["message"])
        upload.send(b"two")
        answer = upload.getresponse()
        self.assertEqual(201, answer.status, answer.read())
        self.assertEqual("onetwo", self.run_inside("cat /sent", "a"))
        self.assertEqual("old", self.which())
        self.make("python", 201, {"clear": True}, ws="a")
        self.assertEqual("new", self.which())
        watch.keep.close()

    def test_a_kill_at_any_instant_leaves_the_old_one_or_the_new_one(self):
        seen, turn = set(), 0

        def after(delay):
            return lambda ws, thread: thread.join(delay)

        def while_it_is_made(ws, thread):
            tree = f"{self.daemon.state}/main/threads/{ws}"
            while thread.is_alive() and ".venv.carrel-new" not in os.listdir(tree):
                time.sleep(0.001)
        # Some by chance; one that comes after the change for certain; and as many as it takes for one before it.
        instants = [after(0.4), after(0.8), after(None)]
        while instants or "old" not in seen:
            self.assertLess(turn, 20, "none came before the change")
            ws, turn = f"k{turn}", turn + 1
            self.workspace(id=ws, template="base")
            self.run_inside("touch /.venv/mine", ws)

            def clear(ws=ws):
                try:
                    self.daemon.post(f"/v1/workspaces/{ws}/env/python", {"clear": True})
                except (OSError, http.client.HTTPException):
                    pass  # it was killed
            thread = threading.Thread(target=clear)
            thread.start()
            (instants.pop() if instants else while_it_is_made)(ws, thread)
            self.daemon.stop(signal.SIGKILL)
            thread.join()
            self.daemon.start()
            seen.add(self.which(ws))
            self.make("python", 201, {"clear": True}, ws=ws)
            self.assertEqual("new", self.which(ws))
            self.assertFalse({name for name in self.root_names(ws) if "carrel" in name})
        self.assertEqual({"old", "new"}, seen)

    def test_nobody_else_has_one_put_into_its_place(self):
        # A plan's reviewer saw no /.venv change, and who was killed was told of none.
        self.run_inside("cp -a /.venv /.venv.carrel-next && rm /.venv.carrel-next/old /.venv.carrel-next/mine", "a")
        self.daemon.post("/v1/workspaces/a/sleep")
        self.assertEqual("old", self.which())
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual("old", self.which())
        answer = self.daemon.request("PUT", "/v1/workspaces/a/files/.venv.carrel-old", b"x")
        self.assertEqual((409, "reserved"), (answer.status, answer.code), answer.bytes)
        self.make("python", 201, {"clear": True}, ws="a")
        self.assertEqual("new", self.which())
        self.assertFalse({name for name in self.root_names("a") if "carrel" in name})

    def test_one_process_at_a_time_removes_the_layers_of_a_workspace(self):
        layer = f"{self.daemon.state}/main/.carrel/workspaces/a/env"
        os.makedirs(f"{layer}/gone/left")
        fd = os.open(layer, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)  # as if one were at it
        self.make("python", 201, {"clear": True}, ws="a")
        self.assertEqual("new", self.which())
        time.sleep(0.2)
        self.assertEqual({"venv", "gone"}, {"venv", "gone"} & set(os.listdir(layer)), "another one was started")
        fcntl.flock(fd, fcntl.LOCK_UN)
        deadline = time.monotonic() + PATIENCE
        while {"venv", "gone"} & set(os.listdir(layer)):
            self.assertLess(time.monotonic(), deadline, "what was left is not finished")
            self.daemon.post("/v1/workspaces/a/sleep")
            self.assertEqual("new", self.which(), "the next sandbox does it")

    def test_one_of_its_own_that_is_no_directory_shuts_nobody_out(self):
        self.make("python", 201, {"clear": True}, ws="a")
        for make in ("ln -s /data/env", "echo x >"):
            self.run_inside(f"rm -rf /.venv; {make} /.venv", "a")
            self.daemon.post("/v1/workspaces/a/sleep")
            self.run_inside("test ! -d /.venv; rm /.venv", "a")
        self.daemon.post("/v1/workspaces/a/sleep")
        self.assertIn("old", self.run_inside("ls /.venv", "a"))

    def test_names_that_are_no_environment_are_no_way_out(self):
        for make in ("ln -s /etc /.venv.carrel-next", "echo x > /.venv.carrel-next"):
            self.run_inside(make, "a")
            self.daemon.post("/v1/workspaces/a/sleep")
            self.assertEqual("old", self.which())
            self.run_inside("rm /.venv.carrel-next", "a")


class WhatTheSettingsName(EnvTest):
    """A file of authorities, and the cache: only what needs them is refused without them."""

    def setUp(self):
        super().setUp()
        put_stubs(self.daemon.state)
        self.ca = write(self.path("ca.pem"), "CA")
        self.daemon.stop()
        self.daemon.options = ("--set", f"package_ca={self.ca}", "--set", "allow_net_host=yes")
        self.daemon.start()

    def test_a_file_of_authorities_that_is_not_there(self):
        self.workspace(id="net", policy={"network": "host"})
        self.assertEqual("CA", self.run_inside("cat /opt/carrel-ca.pem", "net"))
        os.unlink(self.ca)
        for ws in ("desk", "net"):
            self.daemon.post(f"/v1/workspaces/{ws}/sleep")
        self.assertNotIn("carrel-ca.pem", self.run_inside("env"))
        answer = self.daemon.post("/v1/workspaces/net/exec", {"command": "true"})
        self.assertEqual(500, answer.status, answer.bytes)
        self.assertIn("package_ca", answer.json["error"]["message"])
        self.assertIn(self.ca, answer.json["error"]["message"])
        done = subprocess.run([CARREL, "serve", "--state", self.path("t"), "--set", f"package_ca={self.ca}"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("'package_ca' names", done.stdout + done.stderr)
        write(self.ca, "CA")
        self.assertEqual("CA", self.run_inside("cat /opt/carrel-ca.pem", "net"))

    def test_a_cache_that_is_not_there(self):
        cache = f"{self.daemon.state}/.carrel/cache"
        self.run_inside("touch /.cache/uv/x")
        self.daemon.post("/v1/workspaces/desk/sleep")
        shutil.rmtree(cache)
        self.run_inside("test -e /.cache/uv/x")
        self.assertEqual(["1"], [name for name in os.listdir(cache) if name.isdigit()])
        self.daemon.post("/v1/workspaces/desk/sleep")
        shutil.rmtree(cache)
        write(cache, "a file")
        self.run_inside("test ! -e /.cache/uv/x && mkdir -p /.cache/uv && touch /.cache/uv/y")
        self.assertIn("going on without the package cache", self.daemon.said())


# As uv and pip leave a package that is whole.
WHOLE = """site=$(echo /.venv/lib/python3*/site-packages)
whole() {
    rm -rf "$site/$1" "$site/$1"-*.dist-info
    mkdir "$site/$1" "$site/$1-$2.dist-info"
    echo "${2%.0}" >"$site/$1/v"
    touch "$site/$1-$2.dist-info/INSTALLER"
    printf '%s,,\\n' "$1/v" "$1-$2.dist-info/INSTALLER" "$1-$2.dist-info/RECORD" >"$site/$1-$2.dist-info/RECORD"
}
"""
INSTALLER = f"#!/bin/sh\n# Of uv: an install that the disk is too small for.\n{WHOLE}" + """
case "$1 $2 $*" in
"pip install "*thing==1.0)
    [ ! -e /lost ] || exit 2
    whole thing 1.0 ;;
"pip install "*thing==2.0)
    rm -rf "$site/thing" "$site/thing-1.0.dist-info"
    mkdir "$site/thing" "$site/thing-2.0.dist-info" "$site/_thing"
    echo 2 >"$site/thing/v"
    echo half >"$site/thing/big"
    echo thing/v,, >"$site/thing-2.0.dist-info/RECORD" # the archive's own
    touch "$site/.tmpX"
    [ ! -e /hang ] || { touch /hangs; sleep 600; }
    echo "No space left on device (os error 28)" >&2
    exit 2 ;;
"pip install "*thing==4.0) whole thing 4.0; whole beside 1.0; exit 2 ;;
"pip install "*daemon) sleep 60 >/dev/null 2>&1 & ;;
"pip install "*) [ "$3" != nothing ] || { echo "there is no 'nothing'" >&2; exit 1; } ;;
*) echo "$*" ;;
esac
"""


class Installs(EnvTest):
    """bin/uv, which is Carrel's, around a uv that fails."""

    def setUp(self):
        super().setUp()
        registry = Registry()
        self.addCleanup(registry.close)
        registry.add_all()
        registry.add_uv("9.9.9", text=INSTALLER)
        done = registry.setup(self.daemon.state)
        self.assertEqual(0, done.returncode, done.stderr)
        self.run_inside("python3 -m venv --without-pip /.venv")
        self.run_inside("uv pip install thing==1.0")
        self.before = self.all()

    def all(self):
        return self.run_inside("find /.venv | sort; cat /.venv/lib/python3*/site-packages/thing/v")

    def test_what_fails_half_way_leaves_everything_as_it_was(self):
        done = self.daemon.execute("desk", "uv pip install thing==2.0")
        self.assertEqual(2, done["exit_code"], done)
        self.assertIn("No space left", done["stderr"])
        self.assertIn("as it was", done["stderr"])
        self.assertEqual(self.before, self.all())

    def test_what_fails_at_once_changes_nothing_and_says_its_own_words(self):
        done = self.daemon.execute("desk", "uv pip install nothing")
        self.assertEqual((1, "there is no 'nothing'\n"), (done["exit_code"], done["stderr"]))
        self.assertEqual(self.before, self.all())
        self.assertEqual("tree\n", self.run_inside("uv tree"))

    def killed(self):
        """An install, when it has removed the old version and has the new one in part."""
        self.run_inside("touch /hang")
        started = self.daemon.post("/v1/workspaces/desk/exec", {"command": "uv pip install thing==2.0", "background": True})
        self.await_name("hangs")
        self.kill("desk", started)
        self.run_inside("rm /hang /hangs")

    def test_one_that_was_killed_is_taken_back_by_the_next(self):
        self.killed()
        self.assertNotEqual(self.before, self.all())
        self.run_inside("uv pip install other")
        self.assertEqual(self.before, self.all())

    def test_what_is_whole_stays_whoever_has_installed_it(self):
        self.killed()
        self.run_inside(f"{WHOLE} whole later 1.0")  # by pip, or uv run
        self.run_inside("uv pip install other")
        self.run_inside(f"{WHOLE} test -e $site/later/v -a -e $site/later-1.0.dist-info/RECORD; rm -r $site/later*")
        self.assertEqual(self.before, self.all())
        self.killed()
        self.run_inside(f"{WHOLE} whole thing 3.0")
        self.assertNotIn("thing==", self.carrel("doctor", "desk").stdout)
        self.run_inside("uv pip install other")
        self.run_inside(f"{WHOLE} cd $site; test $(cat thing/v) = 3 -a ! -e thing-1.0.dist-info -a ! -e _thing && whole thing 1.0")
        self.assertEqual(self.before, self.all())
        # Of one that fails itself: each package in its version, and what came beside it.
        done = self.daemon.execute("desk", "uv pip install thing==4.0")
        self.assertEqual(2, done["exit_code"], done)
        self.run_inside(f"{WHOLE} test -e $site/beside/v && rm -r $site/beside*")
        self.assertEqual(self.before, self.all())

    def test_what_is_in_part_is_left_alone_while_pip_is_at_work(self):
        self.run_inside("printf '#!/bin/sh\\ntouch /pips; sleep 600' > /.venv/bin/pip; chmod 755 /.venv/bin/pip")
        before = self.all()
        pip = self.daemon.post("/v1/workspaces/desk/exec", {"command": "pip install x", "background": True})
        self.await_name("pips")
        done = self.daemon.execute("desk", "uv pip install thing==2.0")
        self.assertEqual(2, done["exit_code"], done)
        self.assertIn("pip is at work", done["stderr"])
        done = self.daemon.execute("desk", "uv pip install other")
        self.assertEqual((2, "error: pip is at work in /.venv; wait for it, and install again\n"), (done["exit_code"], done["stderr"]))
        self.run_inside(f"{WHOLE} test -e $site/_thing")
        self.kill("desk", pip)
        self.run_inside("uv pip install other")
        self.assertEqual(before, self.all())

    def test_one_of_the_same_version_that_is_in_part_is_not_whole(self):
        self.killed()
        self.run_inside(f"{WHOLE} mkdir $site/thing-1.0.dist-info && touch $site/thing-1.0.dist-info/METADATA")
        self.assertIn("thing==1.0", self.carrel("doctor", "desk").stdout)
        self.run_inside("uv pip install other")
        self.assertEqual(self.before, self.all())

    def test_what_an_install_leaves_running_keeps_nobody_waiting(self):
        self.run_inside("uv pip install daemon && timeout -s KILL 5 uv pip install other")
        self.run_inside("printf '#!/bin/sh\\nexit 1' > /.venv/bin/flock; chmod 755 /.venv/bin/flock")  # as if one did not end
        done = self.daemon.execute("desk", "uv pip install other")
        self.assertEqual(2, done["exit_code"], done)
        self.assertIn("waiting for it", done["stderr"])
        self.assertIn("does not end", done["stderr"])

    def test_what_cannot_be_put_back_is_named(self):
        self.run_inside("touch /lost")
        done = self.daemon.execute("desk", "uv pip install thing==2.0")
        self.assertEqual(2, done["exit_code"], done)
        self.assertIn("uv pip install thing==1.0", done["stderr"])
        note = self.run_inside("cat /.venv/.carrel-installing")
        full = "trap '' XFSZ; ulimit -f 0; uv pip install other"
        for line, code in (("uv pip install other", 0), (full, 2), ("uv pip install nothing", 1), ("uv pip install other", 0)):
            done = self.daemon.execute("desk", line)
            self.assertEqual(code, done["exit_code"], done)
            self.assertIn("uv pip install thing==1.0", done["stderr"], "it is forgotten")
            self.assertIn("thing==1.0", self.carrel("doctor", "desk").stdout)
            self.assertEqual(note, self.run_inside("cat /.venv/.carrel-installing"))
        self.run_inside("rm /lost; uv pip install other")
        self.assertEqual(self.before, self.all())


if __name__ == "__main__":
    unittest.main()
