#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 40
# AS: user
"""carrel template with real packages: small ones, from the registries that uv and bun ask. Skipped only where those cannot
be reached."""
import hashlib
import json
import os
import re
import subprocess
import sys
import unittest

from carreltest import CARREL, PATIENCE, TMP, CarrelTest, carrel, read, write
from daemontest import DaemonTest
from envtest import registries

LONG = 10 * PATIENCE  # what comes over the network
SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def installed(top):
    """Hashes of all files below; bytecode is left out, as it holds times."""
    found = {}
    for where, _, files in os.walk(top):
        for name in files:
            path = os.path.join(where, name)
            if name.endswith(".pyc") or os.path.islink(path):
                continue
            with open(path, "rb") as file:
                content = file.read()
            if name == "RECORD":  # lists the bytecode, too
                content = b"\n".join(line for line in content.splitlines() if b".pyc" not in line)
            found[os.path.relpath(path, top)] = hashlib.sha256(content).hexdigest()
    return found


class Registry(DaemonTest):

    def setUp(self):
        super().setUp()
        done = carrel("env", "setup", "--state", self.daemon.state, timeout=LONG)
        self.assertEqual(0, done.returncode, done.stderr)
        self.env = {**os.environ, "CARREL_SOCKET": self.daemon.socket, "HOME": self.dir}
        os.mkdir(self.path("lab"))

    def says(self, *args):
        done = carrel(*args, env=self.env, timeout=LONG)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout

    def left_nothing(self):
        self.assertEqual([], self.daemon.get("/v1/workspaces").json["workspaces"])
        self.assertEqual([], self.daemon.get("/v1/templates").json["templates"])
        self.assertEqual(["lab.json"], os.listdir(self.path("lab")))

    def template_tree(self, name):
        template = self.daemon.get(f"/v1/templates/{name}").json
        return f"{self.daemon.state}/.carrel/templates/{template['id']}/tree"

    def test_two_builds_from_one_lock_are_the_same(self):
        lab = write(self.path("lab/lab.json"), json.dumps({"name": "lab", "python": {"packages": ["six<2", "python-dateutil"]},
                                                           "node": {"packages": ["is-odd@3"]}}))
        self.says("template", "build", lab)
        locks = {name: read(self.path("lab", name)) for name in ("lab.python.lock", "lab.node.lock")}
        self.assertRegex(locks["lab.python.lock"], r"(?m)^python-dateutil==\S+ \\\n    --hash=sha256:")
        self.assertIn("is-number@", locks["lab.node.lock"])
        self.assertNotRegex("".join(locks.values()), r"https?://")
        first = installed(self.template_tree("lab"))
        self.assertTrue([p for p in first if p.endswith("site-packages/six.py")], sorted(first)[:50])
        self.assertIn("node_modules/is-odd/index.js", first)
        # Again, and with the network closed: all comes from the cache.
        for options in ((), ("--offline",)):
            with self.subTest(options=options):
                self.says("template", "build", lab, *options)
                again = installed(self.template_tree("lab"))
                same = re.compile(r"\.venv/lib|node_modules/")
                self.assertEqual({p: h for p, h in first.items() if same.match(p)}, {p: h for p, h in again.items() if same.match(p)})
        self.assertEqual(locks, {name: read(self.path("lab", name)) for name in locks})
        # A workspace on it, without the network.
        self.says("ws", "create", "desk", "--template", "lab")
        self.assertEqual("1\n", self.says("exec", "desk", "--", "python", "-c", "import six, dateutil; print(1)"))
        self.assertEqual("true\n", self.says("exec", "desk", "--", "bun", "-e", "console.log(require('is-odd')(3))"))
        self.assertIn("six==1.", self.says("template", "show", "lab"))
        depends = self.says("exec", "desk", "--", "python", "-c", "import tomllib; print(*tomllib.load(open('/pyproject.toml', 'rb'))"
                                                                  "['project']['dependencies'])")
        self.assertEqual("six<2 python-dateutil\n", depends)
        self.says("exec", "desk", "-c", "uv sync --offline && python -c 'import six, dateutil'")  # which removes none of them
        # The same packages in another one, from the shared cache alone.
        self.says("ws", "create", "den", "--python", "--node")
        self.says("exec", "den", "--", "uv", "pip", "install", "six<2")
        self.says("exec", "den", "--", "bun", "add", "--offline", "is-odd@3")

    def test_what_cannot_be_had_leaves_nothing(self):
        for kind, packages, says in (("python", ["six==99.99"], "no such version"),
                                     ("python", ["python-dateutil==2.9.0.post0", "six<1.5"], "do not go together"),
                                     ("python", ["no-such-package-in-any-registry-0x7"], "no package of that name"),
                                     ("node", ["no-such-package-in-any-registry-0x7"], "no package of that name")):
            with self.subTest(packages=packages):
                lab = write(self.path("lab/lab.json"), json.dumps({"name": "lab", kind: {"packages": packages}}))
                done = carrel("template", "build", lab, env=self.env, timeout=LONG)
                self.assertEqual(125, done.returncode, done.stderr)
                self.assertIn(says, done.stderr.splitlines()[-1])
                self.left_nothing()
        self.daemon.stop()  # and nobody answers where the tools ask
        self.daemon.options = (*self.options, "--set", "package_registry=http://127.0.0.1:9/")
        self.daemon.start()
        write(lab, '{"name": "lab", "node": {"packages": ["is-odd"]}}')
        done = carrel("template", "build", lab, env=self.env, timeout=LONG)
        self.assertEqual(125, done.returncode, done.stderr)
        self.assertIn("the package index was not reached", done.stderr.splitlines()[-1])
        self.left_nothing()


class Documentation(CarrelTest):
    def test_every_command_of_the_document_works(self):
        """The blocks of docs/environments.md that need a registry; those that need none are run with all other documents'."""
        home = self.path("docs")
        os.mkdir(home)
        for above in (TMP, self.dir, home):
            os.chmod(above, 0o711)  # as root the front is somebody else
        blocks = re.findall(r"^```bash\n(.*?)^```$", read(f"{SRC}/docs/environments.md"), re.M | re.S)
        self.assertEqual(2, len(blocks))
        script = "\n".join(["set -e; trap 'kill %1; wait %1' EXIT", *blocks])
        env = {"PATH": f"{os.path.dirname(CARREL)}:{os.environ['PATH']}", "HOME": home, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["bash", "-c", script], cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONG, check=False)
        self.assertEqual(0, done.returncode, done.stdout[-3000:])
        for line in ("/.venv/lib/", "true", "six==1."):
            self.assertIn(line, done.stdout)


if __name__ == "__main__":
    if (missing := registries()):
        print(missing)
        sys.exit(77)
    unittest.main()
