#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 60
# AS: user
"""A Python that the host lacks is fetched by uv where the workspace has the network, and kept for later ones. What is fetched
here is no interpreter, but a script that says that it is one: a list and an archive that this test serves."""
import hashlib
import http.server
import io
import json
import os
import platform
import tarfile
import threading

from packagetest import PackagesTest, main

VERSION, MINOR = "3.98.7", "3.98"
THERE = rf"^/\.cache/python/cpython-[\w.-]+/bin/python{MINOR}\n$"
FAKE = f"""#!/usr/bin/python3 -IB
import platform, sys

class Version(tuple):
    major, minor, micro, releaselevel, serial = {VERSION.replace('.', ', ')}, "final", 0

sys.executable = sys._base_executable = sys.argv[0]
sys.version_info = Version(({VERSION.replace('.', ', ')}, "final", 0))
sys.version = "{VERSION} (main, Jan  1 2026, 00:00:00) [GCC 12.2.0]"
platform.python_version = lambda: "{VERSION}"
platform.python_implementation = lambda: "CPython"
words = sys.argv[1:]
while words and words[0] in ("-I", "-B", "-S", "-s", "-u"):
    words.pop(0)
if words[:1] == ["-c"]:
    sys.argv = ["-c", *words[2:]]
    exec(compile(words[1], "<string>", "exec"), {{"__name__": "__main__"}})
elif words:
    sys.argv = words
    exec(compile(open(words[0]).read(), words[0], "exec"), {{"__name__": "__main__"}})
"""
FILES = {f"bin/python{MINOR}": (0o755, FAKE), f"lib/python{MINOR}/_sysconfigdata__linux_{platform.machine()}-linux-gnu.py": (0o644, "# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"),
         f"lib/python{MINOR}/os.py": (0o644, "")}


def archive():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, (mode, text) in FILES.items():
            entry = tarfile.TarInfo("python/" + name)
            entry.mode, entry.size = mode, len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        for name in ("python", "python3"):
            entry = tarfile.TarInfo("python/bin/" + name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"python{MINOR}"
            tar.addfile(entry)
    return made.getvalue()

HOST = {"network": "host"}  # the mirror is at an address


class Mirror(http.server.BaseHTTPRequestHandler):
    served = {}
    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        data = self.served.get(self.path)
        self.send_response(200 if data else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *args):
        """Nothing."""


class FetchedPython(PackagesTest):
    options = ("--set", "allow_net_host=yes")
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        mirror = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        cls.addClassCleanup(mirror.server_close)
        cls.addClassCleanup(mirror.shutdown)
        at, data = f"http://127.0.0.1:{mirror.server_port}", archive()
        entry = {"name": "cpython", "arch": {"family": platform.machine(), "variant": None}, "os": "linux", "libc": "gnu", "prerelease": "",
                 "major": 3, "minor": 98, "patch": 7, "url": f"{at}/python.tar.gz", "sha256": hashlib.sha256(data).hexdigest(),
                 "variant": None, "build": "20260101"}
        Mirror.served = {"/python.tar.gz": data, "/list.json": json.dumps({f"cpython-{VERSION}-linux-{platform.machine()}-gnu": entry}).encode()}
        cls.env = {"UV_PYTHON_DOWNLOADS_JSON_URL": f"{at}/list.json"}

    def desk(self, name, **more):
        return self.workspace(name, policy={**HOST, "env": self.env, **more})

    def test_one_that_is_not_here_is_fetched_where_the_network_is(self):
        desk = self.desk("desk")
        self.inside(desk, f"uv init --python {MINOR} && cat .python-version")
        found = self.inside(desk, f"uv python find --no-project --system {MINOR}")
        self.assertRegex(found, THERE)
        # It stays when the sandbox has gone, and is not fetched again.
        fetched = Mirror.asked.count("/python.tar.gz")
        self.assertGreater(fetched, 0)
        self.carrel("ws", "sleep", desk)
        self.assertEqual(found, self.inside(desk, f"uv python find --no-project --system {MINOR}"))
        self.assertEqual(fetched, Mirror.asked.count("/python.tar.gz"))
        # The host's own comes first where any will do.
        self.assertRegex(self.inside(desk, "uv python find --no-project --system '>=3'"), "^/usr/")
        # Others do not see it: what one workspace fetches is no other's to run.
        other = self.workspace("other", policy=HOST)
        self.assertNotIn(VERSION, self.inside(other, "uv python list --only-installed"))
        self.assertEqual([], [name for name in os.listdir(f"{self.daemon.state}/main/threads/{desk}") if name in (".local", "python")])

    def test_environments_are_made_with_one_that_is_fetched(self):
        self.desk("route")
        answer = self.post("/v1/workspaces/route/env/python", {"version": MINOR})
        # The stand-in makes no environment; that it was fetched for one is what is seen.
        self.assertRegex(self.inside("route", f"uv python find --no-project --system {MINOR}"), THERE)
        self.assertNotEqual("version_missing", answer.json.get("error", {}).get("code"), answer.bytes)

    def test_shared_with_all_by_a_template_it_needs_no_network(self):
        self.desk("builder")
        self.inside("builder", f"uv python install {MINOR}")
        answer = self.post("/v1/templates", {"name": "with-python", "workspace": "builder", "share_cache": True})
        self.assertIn(answer.status, (200, 201, 202), answer.bytes)
        self.workspace("closed")
        self.assertRegex(self.inside("closed", f"uv python find --no-project --system {MINOR}"), THERE)

    def test_without_the_network_it_is_refused_and_said_what_to_do(self):
        closed = self.workspace("shut", policy={"env": self.env})
        said = self.fails(closed, "uv init --python 3.96")
        self.assertRegex(said, r'there is no Python 3.96 here; there are: [\d. ]+\(uv fetches others where the policy\'s "network" allows .*@github\)')
        self.assertEqual("", self.inside(closed, "ls -A | grep -e pyproject -e python-version || :"))
        answer = self.post(f"/v1/workspaces/{closed}/env/python", {"version": "3.96"})
        self.assertEqual((422, "version_missing"), (answer.status, answer.code))

    def test_one_that_cannot_be_fetched_is_an_error(self):
        desk = self.desk("nowhere")
        said = self.fails(desk, "uv init --python 3.97")
        self.assertIn("Python 3.97 could not be fetched", said)
        self.assertEqual("", self.inside(desk, "ls -A | grep -e pyproject -e python-version || :"))


if __name__ == "__main__":
    main()
