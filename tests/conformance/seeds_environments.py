#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 40
# AS: user
"""The Python and Node examples of the documents that the project began with, and their verification commands, word for word
apart from where they are: what was said there about other ways of isolation holds here. (Two workspaces with two versions of
pandas are in environments_packages.py: for the version that they name there is nothing to install on a Python of today.)"""
import io
import os
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import PYTHON  # noqa: E402
from packagetest import OPEN, PackagesTest, main  # noqa: E402

HERE = subprocess.run([PYTHON, "-c", "import platform; print(platform.python_version())"], stdout=subprocess.PIPE, text=True,
                      check=True).stdout.strip()
MINOR = HERE.rsplit(".", 1)[0]  # where the documents say 3.12

CREATES_A_FILE = """
import os
print(f"Working directory: {os.getcwd()}")
print(f"HOME: {os.environ.get('HOME')}")

# Create a file
with open('test.txt', 'w') as f:
    f.write('Hello World!')
print("File created!")

# Verify it exists
print(f"File exists: {os.path.exists('test.txt')}")
"""
PLOT = """
import matplotlib.pyplot as plt
plt.plot([1,2,3], [4,5,6])
plt.savefig('/plot.png')  # Writes to workspace/plot.png
"""
SCRIPT_PY = """# Inside proot: /script.py
import pandas as pd
import matplotlib.pyplot as plt

# Create data
df = pd.DataFrame({'x': [1,2,3], 'y': [4,5,6]})

# Create plot
plt.plot(df['x'], df['y'])
plt.savefig('/chart.png')  # Saves to workspace root

print("Chart saved!")  # Immediate output (PYTHONUNBUFFERED)
"""
SCRIPT_JS = """// Inside proot: /script.js
const { Document, Packer, Paragraph } = require('docx');
const fs = require('fs');

// Create document
const doc = new Document({
  sections: [{
    children: [
      new Paragraph("Hello World"),
    ],
  }],
});

// Save document
Packer.toBuffer(doc).then(buffer => {
  fs.writeFileSync('/document.docx', buffer);
  console.log('Document saved!');
});
"""
FETCH_TS = """
import axios from 'axios';
const response = await axios.get('https://api.example.com');
console.log(response.data);
"""
SETUP = """# 2. Set environment variables
export PYTHONUNBUFFERED=1           # Immediate output
export PYTHONDONTWRITEBYTECODE=1    # No .pyc files
export MPLBACKEND=Agg               # Matplotlib headless
export HOME=/
export PWD=/

# 3. Add venv and node_modules to PATH
export PATH=/.venv/bin:/node_modules/.bin:$PATH

# 4. Activate Python venv
source .venv/bin/activate

# 5. Execute user command
python -c 'import sys; print(sys.prefix)'
"""
BASHRC = """# User environment
export HOME=/
export USER=user

# Python configuration
export PYTHONUNBUFFERED=1
export MPLBACKEND=Agg

# PATH with venv and node_modules
export PATH="/.venv/bin:/node_modules/.bin:$PATH"

# Auto-activate venv
[ -f /.venv/bin/activate ] && source /.venv/bin/activate

# Working directory
cd /
"""


class Seeds(PackagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # backend.ensure_python_init(), backend.ensure_node_init()
        cls.workspace("desk", policy=OPEN, python=True, node=True)
        cls.inside("desk", "uv pip install matplotlib pandas")

    # --- Usage examples ---

    def test_python_with_isolated_environment(self):
        self.put("desk", "/plot.py", PLOT)
        self.inside("desk", "python /plot.py")
        listed = self.daemon.get("/v1/workspaces/desk/files/?list=1").json
        self.assertIn("/plot.png", [entry["path"] for entry in listed["entries"]])
        self.assertEqual(b"\x89PNG", self.fetch("desk", "/plot.png")[:4])
        self.put("desk", "/script.py", SCRIPT_PY)
        self.assertEqual("Chart saved!\n", self.inside("desk", "python /script.py"))
        self.assertEqual(b"\x89PNG", self.fetch("desk", "/chart.png")[:4])

    def test_node_with_isolated_environment(self):
        self.inside("desk", "bun add axios")
        self.put("desk", "/fetch.ts", FETCH_TS)
        self.put("desk", "/served/data.json", '"the answer"')
        # api.example.com is nobody's: a server of the workspace's own takes its place.
        self.assertEqual("the answer\n", self.inside(
            "desk", "python -m http.server -d /served -b 127.0.0.1 0 > /served/log 2>&1 & "
                    "until port=$(grep -o 'port [0-9]*' /served/log); do sleep 0.05; done\n"
                    "sed -i \"s|https://api.example.com|http://127.0.0.1:${port#port }/data.json|\" /fetch.ts\nbun run /fetch.ts; kill %1"))
        self.inside("desk", "bun add docx")
        self.put("desk", "/script.js", SCRIPT_JS)
        self.assertEqual("Document saved!\n", self.inside("desk", "bun /script.js"))
        with zipfile.ZipFile(io.BytesIO(self.fetch("desk", "/document.docx"))) as archive:
            self.assertIn(b"Hello World", archive.read("word/document.xml"))

    # --- Tests ---

    def test_file_creation(self):
        """Not through a shell, whose quotes it would end."""
        answer = self.post("/v1/workspaces/desk/exec", {"argv": ["python", "-c", CREATES_A_FILE]}).json
        self.assertEqual("Working directory: /\nHOME: /\nFile created!\nFile exists: True\n", answer["stdout"], answer)

    def test_package_installation(self):
        self.inside("desk", "uv pip install pandas")
        self.assertRegex(self.inside("desk", 'python -c "import pandas; print(pandas.__version__)"'), r"^\d+\.\d+")

    def test_multiple_threads(self):
        for n in (1, 2):
            self.workspace(f"thread{n}")
            self.inside(f"thread{n}", f"echo 'Thread {n}' > thread.txt")
        for n in (1, 2):
            self.assertEqual(f"Thread {n}\n", self.inside(f"thread{n}", "cat thread.txt"))

    def test_python_isolation(self):
        self.assertIn("matplotlib", self.inside("desk", "uv pip list"))
        self.workspace("system")
        self.fails("system", "python3 -c 'import matplotlib'")

    def test_file_writing(self):
        self.put("desk", "/test-of-writing.txt", "Hello World")
        self.assertIn("test-of-writing.txt", self.inside("desk", "ls /").split())
        self.assertFalse(os.path.exists("/test-of-writing.txt"))

    # --- Setup process ---

    def test_uv_and_bun_from_nothing(self):
        self.workspace("bare", policy=OPEN)
        self.inside("bare", f"uv init --python {MINOR}")
        self.inside("bare", "uv add python-dateutil pytz")
        for line in ("[project]", 'name = "workspace"', "pytz"):
            self.assertIn(line, self.inside("bare", "cat /pyproject.toml"))
        self.assertEqual("/.venv/bin/python\n", self.inside("bare", "which python"))
        self.inside("bare", "python -c 'import dateutil, pytz'")
        self.inside("bare", "bun init -y")
        self.inside("bare", "bun add docx")
        self.assertIn('"docx"', self.inside("bare", "cat /package.json"))
        self.inside("bare", "bun -e 'require(\"docx\")'")
        # The remedy of one of them: "or reinstall venv".
        self.inside("bare", f"rm -rf .venv pyproject.toml\nuv init --python {MINOR}")
        self.inside("bare", "uv add pytz && python -c 'import pytz'")

    def test_the_environment_set_up_by_hand(self):
        self.assertEqual("/.venv\n", self.inside("desk", f"# 1. Change to thread workspace\ncd /\n\n{SETUP}"))
        self.put("desk", "/.bashrc", BASHRC)
        self.assertEqual("/.venv\n", self.inside("desk", "/bin/bash --login -c \"source ~/.bashrc; python -c 'import sys; print(sys.prefix)'\""))

    # --- Verification commands and troubleshooting ---

    def test_check_environment(self):
        seen = self.inside("desk", "printenv | grep -E 'HOME|USER|PATH|PYTHON|NODE'").splitlines()
        for line in ("HOME=/", "USER=user", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1", "NODE_ENV=development"):
            self.assertIn(line, seen)
        path = next(line for line in seen if line.startswith("PATH="))
        for part in ("/.venv/bin", "/node_modules/.bin"):
            self.assertLess(path.index(part), path.index(":/usr/bin"))
        self.assertEqual("/.venv/bin/python\n", self.inside("desk", "which python"))
        self.assertEqual("/opt/carrel/bin/bun\n", self.inside("desk", "which bun"))
        self.assertEqual(f"Python {HERE}\n", self.inside("desk", "python --version"))
        self.assertRegex(self.inside("desk", "bun --version"), r"^\d+\.\d+\.\d+$")
        self.assertIn("HOME=/", self.inside("desk", "printenv | grep -E 'HOME|PWD|PATH|PYTHON'"))
        self.assertEqual("1\n", self.inside("desk", "echo $PYTHONUNBUFFERED"))
        self.assertEqual("Agg\n", self.inside("desk", "echo $MPLBACKEND"))

    def test_check_packages(self):
        self.assertIn("pandas", self.inside("desk", "uv pip list"))
        self.inside("desk", "bun add is-odd")
        self.assertIn("is-odd@", self.inside("desk", "bun pm ls"))

    def test_check_files(self):
        listed = self.inside("desk", "ls -la /")
        for name in (".venv", "node_modules", "pyproject.toml", "package.json"):
            self.assertIn(name, listed)
        self.assertIn("[project]", self.inside("desk", "cat /pyproject.toml"))
        self.assertIn("{", self.inside("desk", "cat /package.json"))
        self.inside("desk", "cat /.bashrc")

    def test_files_not_created(self):
        said = self.inside("desk", "# What's the working directory?\npwd\n\n# Can we write here?\ntouch test.txt && ls -la test.txt\n\n"
                                   "# What's the exit code?\necho $?").splitlines()
        self.assertEqual("/", said[0])
        self.assertTrue(said[1].endswith("test.txt"), said)
        self.assertEqual("0", said[2])

    def test_package_not_found(self):
        said = self.inside("desk", "# Is venv activated?\nwhich python\n\n# Is package installed?\nuv pip list\n\n# Is PATH correct?\necho $PATH")
        self.assertTrue(said.startswith("/.venv/bin/python\n"), said)
        self.assertIn("/.venv/bin", said.splitlines()[-1])


if __name__ == "__main__":
    main()
