#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 20
# AS: user
"""pip and npm as they are, against their registries, with `--allow @python --allow @node` and nothing else; git against a
server of the test's own. (uv and bun: environments_packages.py.) Registries: skipped only where they cannot be reached."""
import functools
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))

from carreltest import PATIENCE, CarrelTest, carrel, write  # noqa: E402
from envtest import registries  # noqa: E402
from nettest import Names  # noqa: E402
from tlstest import Authority, TlsWeb  # noqa: E402

WHY_NOT = registries()
API, VALUE = "api.example.org", "sk-live-0123456789abcdefXYZ"
# The clients that programs have, each with the placeholder; then it waits, with all that it was told in its memory.
CLIENTS = """
import asyncio, os, sys, time, urllib.request
import httpx, requests
url, headers = sys.argv[1], {'Authorization': 'Bearer ' + os.environ['EXAMPLE_KEY']}
async def both():
    async with httpx.AsyncClient() as client:
        return [answer.text for answer in await asyncio.gather(client.get(url + 'httpx-async', headers=headers), client.get(url + 'httpx-more', headers=headers))]
session = requests.Session()
kept = [session.get(url + 'requests', headers=headers).text, session.post(url + 'requests', headers=headers, data=headers['Authorization']).text,
        httpx.get(url + 'httpx', headers=headers).text, *asyncio.run(both()),
        urllib.request.urlopen(urllib.request.Request(url + 'urllib', headers=headers)).read()]
print(len(kept), 'answers', flush=True)
time.sleep(600)
"""


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class ByName(CarrelTest):
    def inside(self, line, *options):
        done = carrel("run", "--json", "--timeout", "200s", "--workspace", self.ws, *options, "--", "sh", "-c", line, cwd=self.dir, timeout=10 * PATIENCE)
        return json.loads(done.stdout)

    @unittest.skipIf(WHY_NOT, WHY_NOT or "")
    def test_pip_and_npm_fetch_what_they_need_and_nothing_else(self):
        sets = ("--allow", "@python", "--allow", "@node")
        result = self.inside("python3 -m venv /v && /v/bin/pip install -q six && /v/bin/python -c 'import six; print(six.__name__)'", *sets)
        self.assertEqual(("six\n", []), (result["stdout"], result["denials"]), result)
        if shutil.which("npm"):
            result = self.inside("cd /tmp && npm i --silent --no-audit --no-fund is-odd >&2 && node -p 'require(\"is-odd\")(3)'", *sets)
            self.assertEqual(("true\n", []), (result["stdout"], result["denials"]), result)
        result = self.inside("curl -sS https://paste.example.net/ || getent hosts github.com || curl -sS http://192.0.2.1/", *sets)
        self.assertEqual("", result["stdout"])
        self.assertLessEqual({"look up paste.example.net", "look up github.com"}, {one["what"] for one in result["denials"]})
        result = self.inside("/v/bin/pip install -q --retries 0 six --force-reinstall", "--allow", "@node")
        self.assertNotEqual(0, result["exit_code"])

    @unittest.skipIf(WHY_NOT, WHY_NOT or "")
    def test_a_secret_is_not_in_the_memory_of_requests_and_httpx(self):
        result = self.inside("python3 -m venv /v && /v/bin/pip install -q requests httpx", "--allow", "@python")
        self.assertEqual(0, result["exit_code"], result)
        authority = Authority(self.path("authority"))
        web = TlsWeb(authority.context(API))
        self.addCleanup(web.close)
        names = Names({API: ["127.0.0.1"]})
        self.addCleanup(names.close)
        write(self.path("key"), VALUE)
        write(os.path.join(self.ws, "clients.py"), CLIENTS)
        result = self.inside(f"/v/bin/python /clients.py https://{API}:{web.port}/v1/ >/out 2>/err & "
                             "while ! grep -q answers /out && kill -0 $!; do sleep 0.1; done; gcore -o /core $! >/gcore 2>&1; kill -9 $!; cat /out /err",
                             "--nameserver", names.address, "--allow-private", API, "--trust", authority.file, "--secret", f"example-key={self.path('key')}",
                             "--allow", f"{API}:{web.port} secret=example-key paths=/v1/*")
        self.assertIn("6 answers", result["stdout"], result)
        self.assertEqual({f"Bearer {VALUE}"}, {headers["authorization"] for _, _, headers, _ in web.seen})
        self.assertEqual(6, len(web.seen))
        cores = [name for name in os.listdir(self.ws) if name.startswith("core.")]
        self.assertEqual(1, len(cores), result)
        found = set()
        for place, _, files in os.walk(self.ws):
            for name in files:
                with open(os.path.join(place, name), "rb") as file:
                    content = file.read()
                found |= {what for what in (VALUE, "carrel-secret-example-key") if what.encode() in content and name in (*cores, "out", "err", "gcore")}
                self.assertNotIn(VALUE.encode(), content, name)
        self.assertEqual({"carrel-secret-example-key"}, found, "the core has what the program knew")

    def test_git_over_https(self):
        run = functools.partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        top, ca = self.path("served"), self.path("ca.pem")
        run(["git", "init", "-q", f"{top}/work"])
        with open(f"{top}/work/file", "w", encoding="ascii") as file:
            file.write("from git\n")
        for words in (["add", "."], ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "x"]):
            run(["git", "-C", f"{top}/work", *words])
        run(["git", "clone", "-q", "--bare", f"{top}/work", f"{top}/it.git"])
        run(["git", "-C", f"{top}/it.git", "update-server-info"])
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=git.example.org",
             "-addext", "subjectAltName=DNS:git.example.org", "-keyout", self.path("key.pem"), "-out", ca])
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=top))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(ca, self.path("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        names = Names({"git.example.org": ["127.0.0.1"], "other.example.org": ["127.0.0.1"]})
        self.addCleanup(names.close)
        os.makedirs(self.ws, exist_ok=True)
        shutil.copy(ca, os.path.join(self.ws, "ca.pem"))
        at = f"git.example.org:{server.server_port}"
        options = ["--nameserver", names.address, "--allow", at, "--allow-private", at, "--allow-private", f"other.example.org:{server.server_port}"]
        git = "HOME=/tmp git -c http.sslCAInfo=/ca.pem clone -q"
        result = self.inside(f"{git} https://{at}/it.git /clone && cat /clone/file", *options)
        self.assertEqual(("from git\n", []), (result["stdout"], result["denials"]), result)
        result = self.inside(f"{git} https://other.example.org:{server.server_port}/it.git /other", *options)
        self.assertNotEqual(0, result["exit_code"])
        self.assertEqual(["look up other.example.org"], [one["what"] for one in result["denials"]])
        self.assertEqual({"git.example.org"}, set(names.asked))


if __name__ == "__main__":
    unittest.main()
