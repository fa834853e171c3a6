#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""carrel template build, list, show and rm, as a person uses them. What needs packages uses tools that only pretend: the
real ones, and a real registry, are in client_template_registry.py."""
import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE, TMP, carrel, read, write
from daemontest import DaemonTest
from envtest import UV, put_stubs

# Put in front of the stub of uv: says what the file `says` says, resolves as `compile` does, and installs one file.
PIP = """#!/bin/sh
case "$1 $2" in
"pip compile") cat /opt/carrel/says >&2; . /opt/carrel/compile; exit ;;
"pip install") [ "$3" = --python ] || { cat > /.venv/installed; echo 1 > /.cache/uv/fetched; . /opt/carrel/install; exit; } ;;
esac
"""
# A package that wants its code to be run: by Python as it starts, and for a program of the build.
INSTALL = """at=$(echo /.venv/lib/python3*/site-packages)
echo 'x = 1' > $at/six.py
echo 'open("/ran", "w")' | sed 's/^/import sys; /' > $at/six.pth
for name in sh uv bun; do printf '#!/bin/sh\\ntouch /ran\\n' > /.venv/bin/$name; chmod 755 /.venv/bin/$name; done
"""
LOCKED = "printf '%s\\n' 'six==1.17.0 \\' '    --hash=sha256:" + "0" * 64 + "'"


class Between:
    """A socket before the daemon's. When the template is asked for, `lose` is called with the request and a connection to the
    daemon, and the client hears nothing; nor does it for its next two tries."""

    def __init__(self, path, daemon, lose):
        self.daemon, self.lose, self.deaf = daemon, lose, 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self.daemon.socket)
            threading.Thread(target=self.answer, args=(server, client), daemon=True).start()
            while request := client.recv(1 << 20):
                if self.deaf:
                    self.deaf -= 1
                    return
                if request.startswith(b"POST /v1/templates "):
                    self.deaf = 2
                    while not request.endswith(b"}"):
                        request += client.recv(1 << 20)
                    with socket.socket(socket.AF_UNIX) as other:
                        other.connect(self.daemon.socket)
                        self.lose(request, other)
                    return
                server.sendall(request)

    @staticmethod
    def answer(server, client):
        try:
            while answer := server.recv(1 << 20):
                client.sendall(answer)
        except OSError:
            pass  # the other side has left


class Templates(DaemonTest):
    def setUp(self):
        super().setUp()
        self.env = {**os.environ, "CARREL_SOCKET": self.daemon.socket, "HOME": self.dir, "CARREL_TEMPLATES": self.path("shipped")}
        os.mkdir(self.path("lab"))

    def carrel(self, *args, **kwargs):
        return carrel(*args, **{"env": self.env, **kwargs})

    def says(self, *args):
        done = self.carrel(*args)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def refuses(self, *args, says):
        """Refused, in one line that says so; returns that line."""
        done = self.carrel(*args)
        self.assertEqual(125, done.returncode, done.stdout + done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual("", done.stdout)
        return done.stderr

    def file(self, name="lab", **more):
        """A template's file, with a file to copy beside it."""
        write(self.path("lab/hello.sh"), "#!/bin/sh\necho hello\n")
        os.chmod(self.path("lab/hello.sh"), 0o755)
        return write(self.path(f"lab/{name}.json"), json.dumps({"name": name, **more}))

    def workspaces(self):
        answer = self.daemon.get("/v1/workspaces").json["workspaces"]
        trash = self.daemon.get("/v1/workspaces?deleted=1").json["workspaces"]
        return [w["id"] for w in answer + trash]

    def templates(self):
        return [t["name"] for t in self.daemon.get("/v1/templates").json["templates"]]

    def fake_tools(self, says="", compile=LOCKED):
        tools = f"{self.daemon.state}/.carrel/tools"
        put_stubs(self.daemon.state)
        os.chmod(write(f"{tools}/bin/uv", PIP + UV), 0o755)
        write(f"{tools}/says", says)
        write(f"{tools}/compile", compile)
        write(f"{tools}/install", INSTALL)

    def build(self, *args, **more):
        path = self.file(**{"python": {"packages": ["six"]}, **more})
        return self.carrel("template", "build", path, *args)

    def left_nothing(self):
        self.assertEqual(([], []), (self.workspaces(), self.templates()))
        self.assertEqual({"hello.sh", "lab.json"}, set(os.listdir(self.path("lab"))))


class Plain(Templates):
    """Without packages, and so without tools and network."""

    def test_from_the_first_to_the_last(self):
        path = self.file(files={"/tools/hello.sh": "hello.sh"}, env={"LAB": "blue", "EMPTY": ""})
        done = self.carrel("template", "build", path)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"^lab: \d+ files?, \S+\n$")
        self.assertIn("carrel: 1/3 workspace\ncarrel: 2/3 files\ncarrel: 3/3 template\n", done.stderr)
        self.assertEqual([], self.workspaces())
        self.assertRegex(self.says("template", "list"), r"NAME .*\nlab +\S+ +0 +\d+s ago")
        self.assertEqual("desk\n", self.says("ws", "create", "desk", "--template", "lab"))
        self.assertEqual("hello\nblue:\n", self.says("exec", "desk", "-c", "/tools/hello.sh; echo $LAB:$EMPTY"))
        self.assertRegex(self.says("ws", "show", "desk"), r"(?m)^template +lab$")
        shown = self.says("template", "show", "lab")
        for line in (r"name +lab", r"workspaces +1", r"copied +/tools/hello.sh", r"env +EMPTY=|env +LAB=blue"):
            self.assertRegex(shown, f"(?m)^{line}$")
        self.assertEqual("lab", json.loads(self.says("template", "show", "lab", "--json"))["name"])
        self.assertEqual(["lab"], [t["name"] for t in json.loads(self.says("template", "list", "--json"))["templates"]])
        # What one workspace writes is its own.
        self.says("exec", "desk", "-c", "echo changed > /tools/hello.sh")
        self.says("ws", "create", "den", "--template", "lab")
        self.assertEqual("hello\n", self.says("exec", "den", "--", "/tools/hello.sh"))
        self.refuses("template", "rm", "lab", says="desk")
        for name in ("desk", "den"):
            self.says("ws", "rm", "--purge", name)
        self.assertEqual("", self.says("template", "rm", "lab"))
        self.assertEqual([], self.templates())
        self.refuses("template", "show", "lab", says="lab")
        self.refuses("template", "rm", "lab", says="lab")
        self.refuses("ws", "create", "x", "--template", "lab", says="lab")

    def build_between(self, lose):
        between = Between(f"{self.daemon.state}.between", self.daemon, lose)
        self.addCleanup(between.listener.close)
        done = self.carrel("template", "build", self.file(), env={**self.env, "CARREL_SOCKET": f"{self.daemon.state}.between"})
        self.assertEqual(0, between.deaf, "it did not ask again after it was not answered")
        return done

    def test_an_answer_that_is_lost_is_asked_for(self):
        self.says("template", "build", self.file())  # that this one is there says nothing
        before = self.daemon.get("/v1/templates/lab").json["id"]

        def lose(request, daemon):
            daemon.sendall(request)
            daemon.recv(1 << 20)
        done = self.build_between(lose)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"^lab: \d+ files?, \S+\n$")
        self.assertNotEqual(before, self.daemon.get("/v1/templates/lab").json["id"])
        self.assertEqual([], self.workspaces())

    def test_a_front_that_died_with_the_question_has_made_nothing(self):
        self.says("template", "build", self.file())
        before = self.daemon.get("/v1/templates/lab").json["id"]
        done = self.build_between(lambda request, daemon: self.daemon.kill_front())
        self.assertEqual(125, done.returncode, done.stdout)
        self.assertIn("Build again", done.stderr)
        self.assertEqual(before, self.daemon.get("/v1/templates/lab").json["id"])
        self.assertEqual([], self.workspaces())

    def test_what_is_wrong_is_told_before_anything_is_made(self):
        os.symlink("/etc/passwd", self.path("lab/out"))
        bad = [("{", "line 1"),
               ('{"nmae": "x"}', 'unknown key "nmae"; known are: name, python'),
               ('{"name": "x", "debian": ["tesseract-ocr"]}', 'add "base": "debian-12"'),
               ('{"name": "x", "files": {"/a": "missing"}}', "there is no 'missing' beside"),
               ('{"name": "x", "files": {"/a": "out"}}', "leads out of"),
               ('{"name": "x", "files": {"/usr/a": "hello.sh"}}', "not for files"),
               ('{"name": "x", "files": {"/a": "../lab/x.json"}}', "beside"),
               ('{"name": "x", "python": {"packages": ["-r x"]}}', "no name of a package")]
        self.file()
        os.mkdir(self.path("lab/folder"))
        before = len(self.daemon.audit())
        for text, says in bad:
            path = write(self.path("lab/x.json"), text)
            with self.subTest(text=text):
                self.refuses("template", "build", path, says=says)
        self.refuses("template", "build", self.path("lab/none.json"), says="none.json' cannot be read: No such file")
        self.refuses("template", "build", "none", says="no template 'none' came with Carrel")
        write(self.path("lab/x.json"), '{"name": "x", "files": {"/a": "folder"}}')
        self.refuses("template", "build", self.path("lab/x.json"), says="no file that can be read")
        self.assertEqual(before, len(self.daemon.audit()))
        self.assertEqual(([], []), (self.workspaces(), self.templates()))

    def test_the_command_line_is_checked(self):
        for args, says in ((("template",), "no action given"), (("template", "bild", "x"), "no action given"),
                           (("template", "build"), "name a file"), (("template", "show"), "name a template"),
                           (("template", "list", "x"), "too many arguments"), (("template", "rm", "x", "--offline"), "are for carrel template build"),
                           (("template", "build", "x", "--what"), "unknown option"), (("template", "bild", "x"), "did you mean 'build'?")):
            with self.subTest(args=args):
                self.refuses(*args, says=says)
        self.assertIn("usage: carrel template build", self.says("template", "--help"))

    def test_a_shipped_one_is_found_by_its_name(self):
        os.mkdir(self.path("shipped"))
        write(self.path("shipped/plain.json"), '{"name": "plain"}')
        self.assertRegex(self.says("template", "build", "--quiet", "plain"), "^plain: ")
        self.assertEqual(["plain"], self.templates())

    def test_json_tells_of_each_step(self):
        done = self.carrel("template", "build", "--json", self.file(files={"/a": "hello.sh"}))
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(["step", "step", "step", "end"], [e["type"] for e in events])
        self.assertEqual(["workspace", "files", "template"], [e["step"] for e in events[:3]])
        self.assertEqual("lab", events[-1]["template"]["name"])

    def test_quiet_says_only_the_end(self):
        done = self.carrel("template", "build", "--quiet", self.file())
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_another_build_replaces_it_for_new_workspaces(self):
        path = self.file(files={"/hello.sh": "hello.sh"})
        self.says("template", "build", path)
        self.says("ws", "create", "old", "--template", "lab")
        write(self.path("lab/hello.sh"), "#!/bin/sh\necho new\n")
        self.says("template", "build", path)
        self.says("ws", "create", "new", "--template", "lab")
        self.assertEqual("hello\n", self.says("exec", "old", "--", "sh", "/hello.sh"))
        self.assertEqual("new\n", self.says("exec", "new", "--", "sh", "/hello.sh"))

    def test_a_key_of_a_user_may_use_and_not_make(self):
        path = self.file(files={"/hello.sh": "hello.sh"})
        self.says("template", "build", path)
        self.env = {**self.env, "CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}", "CARREL_KEY": self.daemon.key("ann")}
        del self.env["CARREL_SOCKET"]
        done = self.carrel("template", "build", path)
        self.assertEqual(125, done.returncode)
        self.assertEqual(125, self.carrel("template", "rm", "lab").returncode)
        self.assertEqual("anns\n", self.says("ws", "create", "anns", "--template", "lab"))
        self.assertEqual("hello\n", self.says("exec", "anns", "--", "/hello.sh"))
        self.assertEqual(["lab"], self.templates())
        self.assertEqual(["anns"], self.workspaces())


class Pretended(Templates):
    """With tools that only pretend, so that each failure can be had."""

    def test_the_first_build_writes_a_lock_and_the_second_uses_it(self):
        self.fake_tools()
        done = self.build()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("the lock is in", done.stderr)
        lock = read(self.path("lab/lab.python.lock"))
        self.assertRegex(lock, r'^# Packages of a Carrel template.*\n# python 3\.\d+\n# packages \["six"\]\nsix==1.17.0 \\\n')
        self.fake_tools(compile="echo 'it resolves again' >&2; exit 1")
        done = self.build()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(lock, read(self.path("lab/lab.python.lock")))
        done = self.build(python={"packages": ["six", "attrs"]})
        self.assertEqual(125, done.returncode)
        self.assertIn("made for other packages: build with --update-lock", done.stderr)
        done = self.build("--update-lock", python={"packages": ["six", "attrs"]})
        self.assertEqual(125, done.returncode)
        self.assertIn("it resolves again", done.stderr)
        self.assertEqual(lock, read(self.path("lab/lab.python.lock")))
        write(self.path("lab/lab.python.lock"), lock.replace("# python 3.", "# python 2."))
        self.fake_tools()
        done = self.build()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("the lock is for another Python", done.stderr)
        self.assertIn("# python 2.", read(self.path("lab/lab.python.lock")))
        self.assertIn("six==1.17.0", self.says("template", "show", "lab"))

    def test_failures_leave_nothing_and_say_what_to_do(self):
        options = ["--quiet", "--json", None]
        for says, remedy in (("Because nosuch was not found in the package registry and you require nosuch", "no package of that name"),
                             ("we can conclude that your requirements are unsatisfiable", "do not go together"),
                             ("error sending request: dns error", "was not reached"),
                             ("No space left on device (os error 28)", "the disk is full"),
                             ("quite something else", "uv failed with status 1; what it said is above")):
            with self.subTest(says=says):
                self.fake_tools(says=says + "\n", compile="exit 1")
                for option in options:
                    done = self.build(*([option] if option else []))
                    self.assertEqual(125, done.returncode)
                    self.assertIn(remedy, done.stderr.splitlines()[-1])
                    self.assertIn(says, done.stdout if option == "--json" else done.stderr)
                    self.left_nothing()
                options = [None]

    def test_an_interrupted_build_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.fake_tools(says="now\n", compile="sleep 1000")
            path = self.file(python={"packages": ["six"]})
            build = subprocess.Popen([CARREL, "template", "build", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, env=self.env, cwd=TMP, text=True)
            for line in build.stderr:
                if "now" in line:
                    break
            self.assertEqual(1, len(self.workspaces()))
            build.send_signal(number)
            out, said = build.communicate(timeout=PATIENCE)
            self.assertEqual(128 + number, build.returncode, said)
            self.assertIn("stopped; nothing of the build is left", said)
            self.left_nothing()

    def test_a_second_build_of_a_name_is_refused_and_a_killed_one_can_be_given_up(self):
        self.fake_tools()
        self.assertEqual(0, self.build().returncode)
        before = self.daemon.get("/v1/templates/lab").json["id"]
        lock = read(self.path("lab/lab.python.lock"))
        self.fake_tools(says="now\n", compile="sleep 1000")
        first = subprocess.Popen([CARREL, "template", "build", "--update-lock", self.path("lab/lab.json")], env=self.env, cwd=TMP,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in first.stderr:
            if "now" in line:
                break
        ws = self.workspaces()
        self.assertEqual(1, len(ws))
        self.fake_tools()
        for number in range(2):
            done = self.build()
            self.assertEqual(125, done.returncode, done.stderr)
            self.assertIn(f"is being built in the workspace '{ws[0]}'", done.stderr.splitlines()[-1])
            if number == 0:
                first.kill()
                first.communicate(timeout=PATIENCE)
        self.assertEqual((before, lock, ws), (self.daemon.get("/v1/templates/lab").json["id"],
                                              read(self.path("lab/lab.python.lock")), self.workspaces()))
        self.says("ws", "rm", "--purge", ws[0])  # as it says
        done = self.build()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertNotEqual(before, self.daemon.get("/v1/templates/lab").json["id"])

    def test_what_is_not_decided_is_waited_for(self):
        self.fake_tools(says="now\n", compile="sleep 1; " + LOCKED)
        build = subprocess.Popen([CARREL, "template", "build", self.file(python={"packages": ["six"]})], env=self.env, cwd=TMP,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in build.stderr:
            said += line
            if "now" in line:  # the broker can then neither freeze it nor see how far it is
                write(f"{self.daemon.state}/.carrel/templates", "")
            elif "template" in line and "/" in line:
                break
        deadline = time.monotonic() + PATIENCE
        while "event=template_unfinished" not in self.daemon.said():
            self.assertLess(time.monotonic(), deadline, said)
            time.sleep(0.05)
        self.assertIsNone(build.poll(), "it did not wait")
        os.unlink(f"{self.daemon.state}/.carrel/templates")
        _, said = build.communicate(timeout=PATIENCE)
        self.assertEqual(125, build.returncode)
        self.assertIn("has taken that back", said)
        self.left_nothing()

    def test_no_code_of_a_package_runs(self):
        self.fake_tools()
        done = self.build(node={})
        self.assertEqual(0, done.returncode, done.stderr)
        self.says("ws", "create", "desk", "--template", "lab")
        self.assertNotIn("ran", self.says("ls", "desk:/").split())
        self.assertEqual("1\n", self.says("exec", "desk", "-c", "ls /.venv/lib/python3*/site-packages/__pycache__/six.*.pyc | wc -l"))
        self.says("exec", "desk", "--", "/.venv/bin/python", "-c", "")  # it would have been seen
        self.assertIn("ran", self.says("ls", "desk:/").split())

    def test_the_cache_is_shared_unless_foreign_code_could_run(self):
        for build, shared in ((True, "no"), (False, "yes")):
            with self.subTest(build=build):
                self.fake_tools()
                done = self.build(python={"packages": ["six"], "build": build})
                self.assertEqual(0, done.returncode, done.stderr)
                self.says("ws", "create", f"w{shared}")
                said = self.says("exec", f"w{shared}", "-c", "test -e /.cache/uv/fetched && echo yes || echo no")
                self.assertEqual(shared, said.strip())

    def test_what_a_tool_says_does_not_drive_the_terminal(self):
        self.fake_tools(says="\x1b[2Jwiped\u202e\n", compile="exit 1")
        done = self.build()
        self.assertIn("\\x1b[2Jwiped\\u{202e}", done.stderr)


class Closed(Templates):
    """A daemon that gives no workspace the network."""
    options = ("--set", "allow_net=no")

    def test_the_setting_is_named(self):
        self.fake_tools()
        done = self.build()
        self.assertEqual(125, done.returncode)
        self.assertIn("--set allow_net=yes", done.stderr)
        self.assertIn("--offline", done.stderr)
        self.left_nothing()
        done = self.build("--offline")
        self.assertEqual(0, done.returncode, done.stderr)

    def test_without_tools_setup_is_named(self):
        done = self.build("--offline")
        self.assertEqual(125, done.returncode)
        self.assertIn("carrel env setup", done.stderr)
        self.left_nothing()


if __name__ == "__main__":
    unittest.main()
