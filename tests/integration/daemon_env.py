#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""Python and Node in workspaces: made, told, refused and left as they were, with tools that only look like uv and bun."""
import json
import shutil
import threading
import unittest

from envtest import HOST, EnvTest, put_stubs


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

    def test_words_of_a_hostile_interpreter_are_only_words(self):
        self.run_inside("mkdir -p /.venv/bin; touch /.venv/pyvenv.cfg; printf '%s\\n' '#!/bin/sh' "
                        "'printf \"\\\\377 a\\\\tnode\\\\tnew\\\\nwhy\\\\tx\\\\n\"' > /.venv/bin/python; chmod +x /.venv/bin/python")
        self.assertIn(self.daemon.post("/v1/workspaces/desk/env/python").status, (200, 409, 422))
        self.env()

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
        answer = self.daemon.post("/v1/workspaces", {"id": "nook", "python": "3.2"})
        self.assertIn(answer.status, (400, 422), answer.bytes)
        self.assertIn(HOST, answer.json["error"]["message"])

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


if __name__ == "__main__":
    unittest.main()
