#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 90
"""OpenAI's Agents SDK in both languages, as PyPI and npm have it, with its Cloudflare client on a real daemon: sessions, whole runs of
the examples with a scripted model, and what keys of agents may do through it."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import TMP  # noqa: E402
from clienttest import SRC, run  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

HERE = f"{SRC}/tests/conformance/openai"
VENV, NPM = f"{TMP}/venv", f"{TMP}/npm"
INSTALL = ["npm", "install", "--loglevel=error", "--no-fund", "--no-audit"]


def node():
    """One that the packages can run on: the system's, or that of npm's package node."""
    said = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    if int(said.strip().lstrip("v").split(".")[0] or 0) >= 20:
        return "node"
    run([*INSTALL, "node@22"], cwd=NPM, timeout=300)
    return f"{NPM}/node_modules/node/bin/node"


class Agents(DaemonTest):
    def ask(self, *argv, key=None):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "CLOUDFLARE_"))}
        env.update(CARREL_URL=f"http://127.0.0.1:{self.daemon.tcp_port()}", CARREL_KEY=key or self.daemon.key("alice"),
                   PYTHONDONTWRITEBYTECODE="1")
        return run(argv, env=env, timeout=300)

    def python(self):
        if not os.path.exists(VENV):
            run(["python3", "-m", "venv", VENV])
            run([f"{VENV}/bin/pip", "install", "-q", "--disable-pip-version-check", "openai-agents[cloudflare]==0.24.*"], timeout=300)
        return f"{VENV}/bin/python"

    def test_python(self):
        python = self.python()
        self.assertRegex(self.ask(python, "-W", "ignore::ResourceWarning", f"{HERE}/session.py"), r"Ran \d+ tests")
        said = self.ask(python, f"{SRC}/examples/openai_agents.py")
        self.assertIn("sum 55", said)
        self.assertTrue(said.rstrip().endswith("The sum is 55."), said)

    def test_javascript(self):
        os.makedirs(NPM, exist_ok=True)
        # The client of MCP by name: an optional package for newer Nodes than Debian's, npm leaves it out where it runs on that one.
        run([*INSTALL, "@openai/agents@0.20", "@openai/agents-extensions@0.18", "@modelcontextprotocol/client@2", "ws@8", "zod@4"],
            cwd=NPM, timeout=300)
        program = node()
        for script in (f"{HERE}/session.mjs", f"{SRC}/examples/openai_agents.mjs"):
            shutil.copy(script, NPM)
        self.assertRegex(self.ask(program, f"{NPM}/session.mjs"), r"done w\w+\n")
        said = self.ask(program, f"{NPM}/openai_agents.mjs")
        self.assertIn("sum 55", said)
        self.assertTrue(said.rstrip().endswith("The sum is 55."), said)

    def test_an_agent_writes_into_its_plan(self):
        """Its key is for one workspace, whose policy says so: by command, file, archive or terminal, the tree stays as it is."""
        owner = self.daemon.key("alice", ("owner",))
        agent = self.daemon.post("/v1/keys", {"scopes": ["agent"], "workspaces": ["thread-1"], "policy": {"writes": "plan"}}, key=owner).json["key"]
        said = self.ask(self.python(), "-W", "ignore::ResourceWarning", f"{HERE}/planned.py", key=agent)
        self.assertTrue(said.endswith("thread-1 done\n"), said)
        names = [e["path"] for e in self.daemon.get("/v1/workspaces/thread-1/files/?list=1&depth=9", key=owner).json["entries"]]
        self.assertEqual([name for name in names if name.startswith("/workspace/")], [])
        plans = self.daemon.get("/v1/workspaces/thread-1/plans", key=owner).json["plans"]
        self.assertEqual([plan["state"] for plan in plans], ["open"])


if __name__ == "__main__":
    unittest.main()
