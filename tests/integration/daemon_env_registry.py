#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# AS: root
# LONG
"""uv, pip and bun from their registries, doing in workspaces what agents do all day. Skipped only where a registry cannot be
reached at all."""
import os
import subprocess
import sys
import unittest

from carreltest import CARREL, TMP
from envtest import HOST, EnvTest, Registry, registries, wheel

WHY_NOT = registries()
CA = os.environ.get("SSL_CERT_FILE", "")
REAL_TOOLS = os.path.join(TMP, "env-tools")


class RealTools(EnvTest):
    """One set of tools for all of these tests; each has a daemon of its own."""
    options = ("--set", f"package_ca={CA}")
    network = {"allow": ["@python", "@node"]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not os.path.isdir(f"{REAL_TOOLS}/.carrel/tools"):
            os.makedirs(REAL_TOOLS, exist_ok=True)
            done = subprocess.run([CARREL, "env", "setup", "--state", REAL_TOOLS], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr

    def setUp(self):
        super().setUp()
        os.makedirs(f"{self.daemon.state}/.carrel", mode=0o700, exist_ok=True)
        subprocess.run(["cp", "-al", f"{REAL_TOOLS}/.carrel/tools", f"{self.daemon.state}/.carrel/tools"], check=True)
        self.workspace(id="net", policy={"network": self.network})

    def inside(self, line, ws="net", **more):
        return self.run_inside(line, ws, timeout_ms=120000, **more)


def thing(version, *files, needs=()):
    """A wheel of a package "thing" that is as large as it is told."""
    info = f"thing-{version}.dist-info"
    members = [("thing/__init__.py", f"version = '{version}'\n"), *files,
               (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n"
                                    + "".join(f"Requires-Dist: {need}\n" for need in needs)),
               (f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")]
    record = "".join(f"{name},,\n" for name, _ in members) + f"{info}/RECORD,,\n"
    return wheel(*members, (f"{info}/RECORD", record))


@unittest.skipIf(WHY_NOT, WHY_NOT or "")
class BadInstalls(RealTools):
    """With the real uv and bun, and an index of our own: a clear error, and the environment stays as it was."""
    options = (*RealTools.options, "--set", "allow_net_host=yes")
    network = "host"

    def setUp(self):
        super().setUp()
        self.registry = Registry()
        self.addCleanup(self.registry.close)
        for version, files in (("1.0", [("thing/small.py", "x = 1\n")]),
                               ("2.0", [(f"thing/big{n}.bin", bytes(8 << 20)) for n in range(12)])):
            self.registry.add_wheel("thing", version, thing(version, *files), tag="py3-none-any")
        self.registry.add_wheel("thing", "3.0", thing("3.0", needs=["thing<3"]), tag="py3-none-any")
        self.index = {"UV_DEFAULT_INDEX": f"{self.registry.url}/simple"}

    def prepare(self, ws):
        self.make("python", 201, ws=ws)
        self.inside("uv pip install thing==1.0", ws, env=self.index)
        return self.all(ws)

    def all(self, ws):
        return self.inside("cd /.venv && find . -name __pycache__ -prune -o -type f -print | sort | xargs sha256sum", ws)

    def fails(self, ws, line, *words):
        done = self.daemon.execute(ws, line, env=self.index, timeout_ms=120000)
        self.assertNotEqual(0, done["exit_code"], done)
        for word in words:
            self.assertIn(word, done["stderr"])
        return done

    def test_a_full_disk_in_mid_install(self):
        """In an image, so that the kernel says it."""
        self.workspace(id="small", policy={"network": self.network, "limits": {"disk": "image:72M"}})
        before = self.prepare("small")
        self.fails("small", "uv pip install thing==2.0", "No space left", "as it was")
        self.assertEqual(before, self.all("small"))
        self.assertEqual("1.0\n", self.inside("python -c 'import thing; print(thing.version)'", "small"))
        self.inside("uv pip check", "small")
        self.fails("small", "uv add thing==2.0", "No space left")
        self.assertEqual(before, self.all("small"))
        self.assertNotIn("thing", self.inside("cat /pyproject.toml", "small"))
        self.inside("uv pip uninstall thing && uv pip install thing==1.0", "small", env=self.index)

    def test_an_unknown_package_a_conflict_and_no_network(self):
        before = self.prepare("net")
        self.fails("net", "uv pip install no-such-thing", "no-such-thing")
        self.fails("net", "uv pip install thing==3.0", "thing")
        self.fails("net", "uv pip install thing==7", "thing")
        self.assertEqual(before, self.all("net"))
        self.make("python", 201, ws="desk")
        empty = self.all("desk")
        self.fails("desk", "uv pip install thing==1.0", "network")
        self.assertEqual(empty, self.all("desk"))


@unittest.skipIf(WHY_NOT, WHY_NOT or "")
class FromTheRegistries(RealTools):
    def test_python_packages_in_every_way(self):
        self.make("python", 201, ws="net")
        self.inside("uv pip install six")
        self.assertEqual("/.venv/lib", self.inside("python -c 'import six; print(six.__file__[:10])'").strip())
        self.assertTrue(self.inside("ls /.venv/lib/python*/site-packages/__pycache__/six*.pyc"), "compiled at install")
        self.inside("pip install --no-input iniconfig && python -c 'import iniconfig'")
        self.inside("uv add idna && python -c 'import idna' && grep idna /pyproject.toml")
        self.assertIn("six", self.inside("uv pip list"), "what pip has installed is still there after uv add")
        self.inside("uv pip install pytest && mkdir /tests && echo 'def test_a(): pass' > /tests/test_a.py")
        self.assertIn("1 passed", self.inside("timeout 60 pytest -q"), "it does not look through the system")
        self.assertEqual("3\n", self.inside("uv run python -c 'print(1 + 2)'"))
        self.inside("mkdir -p /lib1/lib1 && echo 'x = 7' > /lib1/lib1/__init__.py && printf '[project]\\nname = \"lib1\"\\n"
                    "version = \"1\"\\n[build-system]\\nrequires = [\"setuptools\"]\\nbuild-backend = \"setuptools.build_meta\"\\n"
                    "[tool.setuptools]\\npackages = [\"lib1\"]\\n' > /lib1/pyproject.toml && uv pip install -e /lib1")
        self.assertEqual("7\n", self.inside("cd /tmp && python -c 'import lib1; print(lib1.x)'"))
        self.inside("echo 'x = 8' > /lib1/lib1/__init__.py")
        self.assertEqual("8\n", self.inside("cd /tmp && python -c 'import lib1; print(lib1.x)'"))
        error = self.run_inside("uv pip install no-such-package-of-ours-at-all", "net", code=1, timeout_ms=60000)
        self.inside("python -c 'import six'")
        self.assertEqual("", error)
        self.assertNotIn(".venv", self.root_names())

    def test_node_packages_in_every_way(self):
        self.make("node", 201, ws="net")
        self.inside("bun add is-odd")
        self.inside("echo 'import isOdd from \"is-odd\"; const n: number = 3; console.log(isOdd(n))' > /x.ts")
        self.assertEqual("true\n", self.inside("bun run /x.ts"))
        self.assertEqual("true\n", self.inside("bun /x.ts"))
        self.inside("echo 'const o = require(\"is-odd\"); console.log(o(2))' > /y.js")
        self.assertEqual("false\n", self.inside("bun /y.js"))
        self.assertIn("is-odd", self.inside("bun pm ls"))
        self.inside("echo 'import {test, expect} from \"bun:test\"; test(\"a\", () => expect(1).toBe(1))' > /a.test.ts")
        self.inside("timeout 60 bun test")
        self.inside("bun add cowsay && test -x /node_modules/.bin/cowsay")
        self.assertEqual("/node_modules/.bin/cowsay", self.inside("command -v cowsay").strip())

    def test_the_verification_commands_of_the_seeds(self):
        """Written down in the documents that the project began with; only their paths differ."""
        self.make("python", 201, ws="net")
        self.make("node", 201, ws="net")
        seen = self.inside("printenv | grep -E 'HOME|USER|PATH|PYTHON|NODE'")
        for line in ("HOME=/", "USER=user", "PYTHONUNBUFFERED=1", "NODE_PATH=/node_modules"):
            self.assertIn(line, seen.splitlines())
        self.assertIn("/.venv/bin:", seen)
        self.assertEqual("/.venv/bin/python\n", self.inside("which python"))
        self.assertEqual("/opt/carrel/bin/bun\n", self.inside("which bun"))
        self.assertEqual(f"Python {HOST}\n", self.inside("python --version"))
        self.assertRegex(self.inside("bun --version"), r"^\d+\.\d+\.\d+")
        self.assertIn("pip", self.inside("uv pip list"))
        self.inside("bun add is-odd")
        self.assertIn("is-odd", self.inside("bun pm ls"))
        self.assertIn(".venv", self.inside("ls -la /"))
        self.assertIn("[project]", self.inside("cat /pyproject.toml"))
        self.assertIn("workspace", self.inside("cat /package.json"))
        self.assertIn("VIRTUAL_ENV", self.inside("cat /.bashrc"))
        self.inside("pwd; touch test.txt && ls -la test.txt; echo $?")
        self.inside("rm -rf .venv")
        missing = self.daemon.execute("net", "uv init --python 3.99")
        self.assertNotEqual(0, missing["exit_code"])

    def test_uv_init_works_in_the_root(self):
        minor = HOST.rsplit(".", 1)[0]
        self.inside(f"uv init --python {minor}")
        self.assertIn('name = "workspace"', self.inside("cat /pyproject.toml"))
        self.inside("uv add six && python -c 'import six'")
        self.inside("cd /tmp && uv init thing && grep 'name = \"thing\"' thing/pyproject.toml")
        result = self.daemon.execute("desk", "uv init --python 3.99")
        self.assertNotEqual(0, result["exit_code"])
        self.assertIn("3.99", result["stderr"])

    def test_the_hosts_packages_are_out_of_sight(self):
        self.make("python", 201, ws="net")
        self.assertEqual("[]\n", self.inside("python -c 'import sys; print([p for p in sys.path if \"dist-packages\" in p])'"))
        for name in ("jsonschema", "yaml", "apt"):
            if os.path.exists(f"/usr/lib/python3/dist-packages/{name}"):
                self.run_inside(f"python -c 'import {name}'", "net", code=1)

    def test_two_workspaces_two_versions(self):
        self.workspace(id="other", policy={"network": self.network})
        wanted = (("net", "1.5.3", "2.0.0"), ("other", "2.2.3", "3.0.1"))
        for ws, pandas, odd in wanted:
            self.make("python", 201, ws=ws)
            self.make("node", 201, ws=ws)
            self.inside(f"uv pip install pandas=={pandas} 'numpy<2'", ws, env={"UV_COMPILE_BYTECODE": "0"})
            self.inside(f"bun add is-odd@{odd}", ws)
        for ws, pandas, odd in wanted:
            self.assertEqual(pandas + "\n", self.inside("python -c 'import pandas; print(pandas.__version__)'", ws))
            self.assertEqual(odd + "\n", self.inside("bun -p 'require(\"is-odd/package.json\").version'", ws))
        path = self.inside("python -c 'import pandas; print(pandas.__file__)'").strip()
        self.inside(f"echo 'poison = 1' >> {path}")
        self.inside("python -c 'import pandas; assert pandas.poison'")
        self.inside("uv pip install --reinstall pandas==1.5.3 && python -c 'import pandas; assert not hasattr(pandas, \"poison\")'",
                    env={"UV_COMPILE_BYTECODE": "0", "UV_OFFLINE": "1"})
        self.assertFalse(os.path.exists("/.venv"))
        self.run_inside("python3 -c 'import pandas'", "desk", code=1)

    def test_the_examples_of_the_seeds(self):
        """Word for word, but for where they are."""
        self.make("python", 201, ws="net")
        self.inside("uv pip install matplotlib pandas", env={"UV_COMPILE_BYTECODE": "0"})
        self.put("/plot.py", "import matplotlib.pyplot as plt\nplt.plot([1,2,3], [4,5,6])\n"
                             "plt.savefig('/plot.png')  # Writes to workspace/plot.png\n")
        self.inside("python /plot.py")
        self.assertEqual("PNG\n", self.inside("head -c 4 /plot.png | tail -c 3; echo"))
        self.put("/script.py", "import pandas as pd\nimport matplotlib.pyplot as plt\n"
                               "df = pd.DataFrame({'x': [1,2,3], 'y': [4,5,6]})\nplt.plot(df['x'], df['y'])\n"
                               "plt.savefig('/chart.png')\nprint(\"Chart saved!\")\n")
        self.assertEqual("Chart saved!\n", self.inside("python /script.py"))
        self.make("node", 201, ws="net")
        self.inside("bun add docx")
        self.put("/script.js", "const { Document, Packer, Paragraph } = require('docx');\nconst fs = require('fs');\n"
                               "const doc = new Document({ sections: [{ children: [ new Paragraph(\"Hello World\"), ], }], });\n"
                               "Packer.toBuffer(doc).then(buffer => {\n  fs.writeFileSync('/document.docx', buffer);\n"
                               "  console.log('Document saved!');\n});\n")
        self.assertEqual("Document saved!\n", self.inside("bun /script.js"))
        self.assertIn("Hello World", self.inside("python -c 'import zipfile; "
                                                 "print(zipfile.ZipFile(\"/document.docx\").read(\"word/document.xml\").decode())'"))
        self.put("/fetch.ts", "import axios from 'axios';\nconsole.log(typeof axios.get);\n")
        self.inside("bun add axios")
        self.assertEqual("function\n", self.inside("bun run /fetch.ts"))

    def put(self, path, text):
        answer = self.daemon.request("PUT", f"/v1/workspaces/net/files{path}", text.encode())
        self.assertIn(answer.status, (200, 201), answer.bytes)

    def test_packages_stay_over_sleep_and_restart(self):
        self.make("python", 201, ws="net")
        self.inside("uv pip install six")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/net/sleep").status)
        self.daemon.stop()
        self.daemon.start()
        self.inside("python -c 'import six'")
        self.inside("uv pip list | grep six")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if result.wasSuccessful() and result.skipped:
        print(result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
