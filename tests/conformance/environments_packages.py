#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 60
# AS: user
"""Packages of one workspace are its own: two versions side by side, out of sight of all others and of the host, there after
sleep and restart, changed in place without anybody else seeing it, and installed again with the network closed."""
import hashlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import PYTHON, write  # noqa: E402
from packagetest import FULL, OPEN, PackagesTest, main  # noqa: E402

# The older one has wheels up to Python 3.11.
PANDAS = ("1.5.3", "2.2.3") if sys.version_info < (3, 12) else ("2.2.3", "2.3.3")
ODD = ("2.0.0", "3.0.1")
VERSION = "python -c 'import pandas; print(pandas.__version__, pandas.__file__)'"
ODD_VERSION = "bun -p 'require(\"is-odd/package.json\").version'"
PACKAGES = ["six", "python-dateutil", "pytz", "idna", "attrs"]


def digest(top):
    """Every file below, by its content."""
    found = {}
    for where, _, files in os.walk(top):
        for name in files:
            path = os.path.join(where, name)
            if os.path.islink(path):
                found[path] = os.readlink(path)
            else:
                with open(path, "rb") as file:
                    found[path] = hashlib.sha256(file.read()).hexdigest()
    return found


class PackagesOfOnesOwn(PackagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lab = write(os.path.join(cls.dir, "lab.json"), json.dumps({
            "name": "lab", "python": {"packages": PACKAGES}, "node": {"packages": ["is-odd"]}}))
        cls.carrel("template", "build", lab)
        cls.shared = os.path.join(cls.daemon.state, ".carrel")
        for name in ("one", "other"):
            cls.workspace(name, template="lab")
        for name, pandas, odd in zip(("old", "new"), PANDAS, ODD):
            cls.workspace(name, policy=OPEN, python=True, node=True)
            cls.inside(name, f"uv pip install pandas=={pandas} 'numpy<2'", env={"UV_COMPILE_BYTECODE": str(int(FULL))})
            cls.inside(name, f"bun add is-odd@{odd}")
        cls.workspace("bare", python=True, node=True)

    def check_versions(self):
        for name, pandas, odd in zip(("old", "new"), PANDAS, ODD):
            version, path = self.inside(name, VERSION).split()
            self.assertEqual(pandas, version)
            self.assertTrue(path.startswith("/.venv/lib/python3"), path)
            self.assertEqual(odd, self.inside(name, ODD_VERSION).strip())

    def test_each_imports_its_own(self):
        self.check_versions()

    def test_neither_sees_the_other(self):
        self.assertIn("No module named 'pandas'", self.fails("bare", VERSION))
        self.assertIn("is-odd", self.fails("bare", ODD_VERSION))
        for name, other in zip(("old", "new"), reversed(PANDAS)):
            self.assertEqual("", self.inside(name, f"find / -xdev -path /usr -prune -o -name 'pandas-{other}*' -print"))

    def test_the_host_sees_neither(self):
        for path in ("/.venv", "/node_modules"):
            self.assertFalse(os.path.exists(path), path)
        seen = subprocess.run([PYTHON, "-c", "import pandas; print(pandas.__file__)"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False, cwd="/").stdout
        self.assertFalse(seen.startswith((self.dir, "/.venv")), seen)

    def test_what_the_system_has_cannot_be_imported(self):
        path = json.loads(self.inside("bare", "python -c 'import json, sys; print(json.dumps(sys.path))'"))
        self.assertEqual([], [entry for entry in path if "dist-packages" in entry])
        self.assertEqual(["/.venv"], [entry.split("/lib/")[0] for entry in path if "site-packages" in entry])
        there = "/usr/lib/python3/dist-packages"
        for name in sorted(os.listdir(there) if os.path.isdir(there) else ()):
            if name.isidentifier() and os.path.exists(f"{there}/{name}/__init__.py") and name not in ("pip", "_distutils_hack"):
                self.assertIn("No module named", self.fails("bare", f"cd /tmp && python -c 'import {name}'"))
                break

    def test_they_are_there_after_sleep_and_a_restart_of_the_daemon(self):
        for name in ("old", "new"):
            self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{name}/sleep").status)
        self.daemon.stop()
        self.daemon.start()
        self.check_versions()
        self.assertIn(PANDAS[0], self.inside("old", "uv pip list | grep -w pandas"))
        self.assertIn(f"is-odd@{ODD[0]}", self.inside("old", "bun pm ls"))

    def test_what_one_has_fetched_it_can_install_again_without_the_network(self):
        self.assertIn(PANDAS[1], self.inside("new", "uv pip uninstall pandas 2>&1"))
        self.fails("new", VERSION)
        self.inside("new", f"uv pip install pandas=={PANDAS[1]}", env={"UV_OFFLINE": "1", "UV_COMPILE_BYTECODE": "0"})
        self.check_versions()

    # What is shared: a template, and the cache that its build has filled.

    def content(self, ws):
        return (self.inside(ws, "cat /.venv/lib/python3*/site-packages/six.py"),
                self.inside(ws, "cat /node_modules/is-odd/index.js"))

    def test_an_edit_in_place_is_seen_by_nobody_else(self):
        before, files = self.content("one"), digest(self.shared)
        self.inside("one", "for f in /.venv/lib/python3*/site-packages/six.py /node_modules/is-odd/index.js; do "
                           "printf XX | dd of=$f conv=notrunc bs=1 seek=3 status=none; done")
        self.inside("one", "cd /.venv/lib/python3*/site-packages && echo 'answer = 42' > own.py && rm -r /node_modules/is-number")
        changed = self.content("one")
        self.assertNotEqual(before[0], changed[0])
        self.assertNotEqual(before[1], changed[1])
        self.assertEqual(before, self.content("other"))
        self.assertEqual(before, self.content(self.workspace("later", template="lab")))
        self.inside("later", "test ! -e /.venv/lib/python3*/site-packages/own.py && test -e /node_modules/is-number")
        self.assertEqual(files, digest(self.shared), "the template or the cache has changed")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/one/sleep").status)
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(changed, self.content("one"))
        self.assertEqual("42\n", self.inside("one", "python -c 'import own; print(own.answer)'"))
        self.inside("one", "uv pip install --reinstall six")
        self.assertEqual(before[0], self.content("one")[0], "from the cache it comes as it was")

    def test_an_edit_of_the_cache_inside_is_seen_by_nobody_else(self):
        files = digest(self.shared)
        self.inside("other", "find /.cache/uv/ -name six.py -exec sh -c 'echo poison = 1 >> $1' - {} ';'")
        self.assertEqual(files, digest(self.shared))
        self.workspace("fresh", python=True)
        self.inside("fresh", "uv pip install six && python -c 'import six; assert not hasattr(six, \"poison\")'")

    def test_the_same_set_is_installed_again_with_the_network_closed(self):
        self.workspace("closed", python=True, node=True)
        self.fails("closed", f"{PYTHON} -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'")
        self.inside("closed", f"uv pip install {' '.join(PACKAGES)}")
        self.inside("closed", "python -c 'import six, dateutil, pytz, idna, attr'")
        self.inside("closed", "bun add --offline is-odd")
        self.assertEqual("true\n", self.inside("closed", "bun -p 'require(\"is-odd\")(3)'"))
        self.inside("closed", "uv pip uninstall six")
        self.fails("closed", "python -c 'import six'")
        self.fails("closed", "uv pip install flask")
        self.inside("closed", "python -c 'import attr'")


if __name__ == "__main__":
    main()
