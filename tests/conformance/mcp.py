#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 400
# TAKES: 90
"""/mcp as others see it: the conformance suite of the Model Context Protocol (with fixtures that only the test build has), and its
official clients in Python and TypeScript, over HTTP and over `carrel mcp`, calling every tool."""
import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
import daemontest  # noqa: E402
from carreltest import CARREL, TMP  # noqa: E402
from clienttest import SRC, example, run  # noqa: E402
from mcptest import MODERN, Mcp  # noqa: E402

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
FIXTURES = os.path.join(os.path.dirname(CARREL), "mcp", "carrel")
HERE = f"{SRC}/tests/conformance"
NODE = f"{TMP}/node"
# Every tool of the two clients' scripts below, in an order in which each has what it needs.
SCRIPT = [
    ("workspace_create", {"id": "made"}), ("workspace_list", {}),
    ("write_file", {"path": "/a.txt", "content": "one\n"}), ("read_file", {"path": "/a.txt"}),
    ("edit_file", {"path": "/a.txt", "old_string": "one", "new_string": "two"}), ("ls", {"path": "/"}), ("glob", {"pattern": "*.txt"}),
    ("grep", {"pattern": "two"}), ("move", {"source": "/a.txt", "destination": "/b.txt"}), ("execute", {"command": "cat b.txt"}),
    ("start_process", {"command": "cat"}), ("write_process", {"process_id": "$start_process.exec_id", "input": "hello\n"}),
    ("read_process", {"process_id": "$start_process.exec_id", "wait_ms": 20000}), ("list_processes", {}),
    ("kill_process", {"process_id": "$start_process.exec_id"}),
    ("plan_run", {"command": "echo three > b.txt", "keep_open": True}), ("plan_close", {"plan": "$plan_run.plan.id"}), ("plan_list", {}),
    ("plan_show", {"plan": "$plan_run.plan.id"}), ("plan_diff", {"plan": "$plan_run.plan.id"}), ("plan_verify", {"plan": "$plan_run.plan.id"}),
    ("plan_apply", {"plan": "$plan_run.plan.id"}), ("plan_undo", {"plan": "$plan_run.plan.id"}),
    ("plan_discard", {"plan": "$plan_run.plan.id"}), ("delete", {"path": "/b.txt"}),
]


class Proxy(http.server.ThreadingHTTPServer):
    """Adds the key: the suite has no way to give one."""
    daemon_threads = True

    def __init__(self, port, key):
        super().__init__(("127.0.0.1", 0), Forward)
        self.port, self.key = port, key
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://localhost:{self.server_address[1]}/mcp"


class Forward(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        head = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "content-length", "authorization")}
        upstream.request(self.command, self.path, body=body, headers={**head, "Authorization": f"Bearer {self.server.key}"})
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()
        except (OSError, http.client.HTTPException):
            pass  # one of the two has left
        upstream.close()
        self.close_connection = True

    do_GET = do_DELETE = do_POST

    def log_message(self, *args):
        pass


def setUpModule():
    os.makedirs(NODE, exist_ok=True)
    run(["npm", "install", "--prefix", NODE, "--silent", "--no-audit", "--no-fund", SUITE, "node@22", "@modelcontextprotocol/sdk@1.32.2",
         "@modelcontextprotocol/client@2.4.0"],
        timeout=200, env={**os.environ, "NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt"})
    run(["python3", "-m", "venv", f"{TMP}/venv"])
    shutil.copytree(f"{SRC}/clients/python", f"{TMP}/python")  # the example's daemon is started with it
    run([f"{TMP}/venv/bin/pip", "install", "-q", "--disable-pip-version-check", "mcp==2.3.0", f"{TMP}/python"], timeout=200)


def node(*args, timeout=250, **more):
    return subprocess.run([f"{NODE}/node_modules/node/bin/node", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                          check=False, cwd=NODE, **more)


class Suite(daemontest.DaemonTest):
    def setUp(self):
        kept, daemontest.CARREL = daemontest.CARREL, FIXTURES
        self.addCleanup(setattr, daemontest, "CARREL", kept)
        super().setUp()
        with open(f"{self.daemon.state}/admin.key", encoding="utf-8") as file:
            self.proxy = Proxy(self.daemon.tcp_port(), file.read().strip())
        self.addCleanup(self.proxy.server_close)
        self.addCleanup(self.proxy.shutdown)

    def passes(self, version, expected):
        said = node(f"{NODE}/node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", self.proxy.url, "--requirements", version)
        self.assertEqual(0, said.returncode, said.stdout[-6000:])
        summary, _, unscored = said.stdout.partition("=== SUMMARY ===")[2].partition("Not scored")
        outside = set(re.findall(r"^ +[✓✗] (\S+) ", unscored, re.M))
        passed = {name for mark, name in re.findall(r"^([✓✗]) (\S+):", summary, re.M) if mark == "✓"} - outside
        self.assertEqual(expected, len(passed), said.stdout[-4000:])

    def test_the_older_protocol(self):
        self.passes("2025-11-25", 30)

    def test_the_newer_protocol(self):
        self.passes("2026-07-28", 37)


class Clients(daemontest.DaemonTest):
    """Each of the official clients calls every tool, over HTTP and over standard input and output, in both protocols."""
    def setUp(self):
        super().setUp()
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "desk", "owner": "alice"}).status)
        self.key = self.daemon.key("alice")
        offered = [tool["name"] for tool in Mcp(self.daemon, key=self.key).ask("tools/list").result["tools"]]
        self.assertEqual(set(offered), {name for name, _ in SCRIPT})

    def calls(self, argv, where):
        env = {**os.environ, "CARREL_KEY": self.key, "CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}", "CARREL_SOCKET": "", "CARREL": CARREL,
               "SCRIPT": json.dumps(SCRIPT), "WHERE": where}
        for mode in ("legacy", MODERN):
            with self.subTest(mode=mode):
                said = subprocess.run(argv, env={**env, "MODE": mode}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                                      check=False, cwd=NODE)
                self.assertEqual(0, said.returncode, said.stdout[-4000:])
                self.assertEqual([name for name, _ in SCRIPT], re.findall(r"^called (\w+)$", said.stdout, re.M), said.stdout[-4000:])
            self.daemon.request("DELETE", "/v1/workspaces/made?purge=1")  # the next one makes it, too

    def python(self, where):
        self.calls([f"{TMP}/venv/bin/python", "-BP", f"{HERE}/mcp_client.py"], where)  # -P: this file is called mcp, too

    def typescript(self, where):
        shutil.copy(f"{HERE}/mcp_client.mjs", f"{NODE}/mcp_client.mjs")  # beside what it imports
        self.calls([f"{NODE}/node_modules/node/bin/node", f"{NODE}/mcp_client.mjs"], where)

    def test_python_over_http(self):
        self.python("http")

    def test_python_over_stdio(self):
        self.python("stdio")

    def test_typescript_over_http(self):
        self.typescript("http")

    def test_typescript_over_stdio(self):
        self.typescript("stdio")


class Example(unittest.TestCase):
    def test_it_does_what_it_says(self):
        os.chmod(TMP, 0o755)
        example([f"{TMP}/venv/bin/python", "-BP"], f"{SRC}/examples/mcp_client.py", env={**os.environ, "CARREL": CARREL})


if __name__ == "__main__":
    unittest.main()
