#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Secrets of owners: set over HTTP, put into requests by carrel-egress, and read by nobody: neither the front that took
them nor anything inside, while the call that needs one succeeds."""
import os
import signal
import subprocess
import unittest

import daemontest
from carreltest import CARREL, PATIENCE, write
from daemon_network import NetworkTest
from nettest import Names
from tlstest import Authority, TlsWeb

API, VALUE, NEXT = "api.example.org", "sk-live-0123456789abcdefXYZ", "sk-next-9876543210fedcbaZYX"
# Everything a program inside can look at, searched for what comes on standard input.
SEARCH = r"""
import os, re, sys
wanted = [bytes.fromhex(word) for word in sys.argv[1:]]
found = []
def look(where, data):
    found.extend(where for word in wanted if word in data)
def files(top):
    for place, _, names in os.walk(top):
        for name in names:
            path = os.path.join(place, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 24:
                    look(path, open(path, 'rb').read())
            except OSError:
                pass
for top in ('/etc', '/tmp', '/.cache', '/run', '/var', '/dev/shm', '/work', '/home', '/opt'):
    files(top)
for name in os.listdir('/'):
    if os.path.isfile('/' + name):
        look('/' + name, open('/' + name, 'rb').read())
for pid in [name for name in os.listdir('/proc') if name.isdigit()]:
    for part in ('environ', 'cmdline', 'maps', 'status', 'comm', 'stat', 'mountinfo'):
        try:
            data = open(f'/proc/{pid}/{part}', 'rb').read()
        except OSError:
            continue
        if not (part == 'cmdline' and int(pid) == os.getpid()):
            look(f'/proc/{pid}/{part}', data)
    if int(pid) == os.getpid():
        continue
    try:
        memory = open(f'/proc/{pid}/mem', 'rb', 0)
        for line in open(f'/proc/{pid}/maps'):
            low, high = (int(word, 16) for word in line.split()[0].split('-'))
            if line.split()[1][0] == 'r' and high - low < 1 << 26:
                try:
                    memory.seek(low)
                    look(f'/proc/{pid}/mem', memory.read(high - low))
                except (OSError, ValueError, OverflowError):
                    pass
    except OSError:
        pass
print('found', sorted(set(found)))
"""


class SecretsTest(NetworkTest):
    def setUp(self):
        os.makedirs(self.path("authority") if hasattr(self, "dir") else "/tmp", exist_ok=True)
        self.authority = Authority(os.path.join(os.environ["TMP"], f"authority-{os.getpid()}-{id(self)}"))
        os.chmod(self.authority.place, 0o755)
        self.api = TlsWeb(self.authority.context(API))
        self.addCleanup(self.api.close)
        self.more = ("--set", f"network_trust={self.authority.file}", "--set", f"network_private={API}")
        super().setUp()

    def rule(self, **more):
        return {"network": {"allow": [{"host": API, "port": self.api.port, "secret": {"from": "example-key"}, **more}]}}

    def put(self, value, name="example-key", owner="alice", status=200, **more):
        answer = self.daemon.request("PUT", f"/v1/secrets/{name}?owner={owner}" if owner else f"/v1/secrets/{name}", {"value": value}, **more)
        self.assertEqual(status, answer.status, answer.bytes)
        return answer

    def desk(self, **more):
        answer = self.daemon.post("/v1/workspaces", {"owner": "alice", "policy": self.rule(**more)})
        self.assertEqual(201, answer.status, answer.bytes)
        return answer.json["id"]

    def curl(self, ws, path="/v1/x", more=""):
        return self.daemon.execute(ws, f'curl -sS -m 30 -H "Authorization: Bearer $EXAMPLE_KEY" {more} https://{API}:{self.api.port}{path}')["stdout"]

    def sent(self):
        return self.api.seen[-1][2].get("authorization")


class Set(SecretsTest):
    def test_it_is_put_into_requests_and_changed_without_a_restart(self):
        ws = self.desk(paths=["/v1/*"])
        self.assertIn("not set", self.curl(ws))
        self.assertEqual([], self.api.seen)
        self.put(VALUE)
        shown = self.curl(ws)
        self.assertEqual(f"Bearer {VALUE}", self.sent())
        self.assertNotIn(VALUE, shown)
        self.put(NEXT)
        shown = self.curl(ws)
        self.assertEqual(f"Bearer {NEXT}", self.sent())
        self.assertNotIn(NEXT, shown)
        self.assertIn("403", self.daemon.execute(ws, f"curl -sS -o /dev/null -w '%{{http_code}}' https://{API}:{self.api.port}/v2")["stdout"])
        rows = [row for row in self.ledger(ws) if row["operation"] == "net.request"]
        self.assertEqual({("GET /v1/x", 200)}, {(row["details"]["request"], row["details"]["status"]) for row in rows})
        starts = [row for row in self.daemon.audit() if row["operation"] == "sandbox.start"]
        self.assertEqual(1, len(starts), "the sandbox stays")
        answer = self.daemon.request("DELETE", "/v1/secrets/example-key?owner=alice")
        self.assertEqual(204, answer.status, answer.bytes)
        self.assertIn("not set", self.curl(ws))

    def test_git_over_https_and_methods(self):
        refs = b"1" * 40 + b"\trefs/heads/main\n"
        self.api.answers["/v1/repo.git/info/refs"] = (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(refs)) + refs
        self.put(VALUE)
        ws = self.desk(methods=["GET"], paths=["/v1/*"])
        shown = self.daemon.execute(ws, f'git -c http.extraHeader="Authorization: Bearer $EXAMPLE_KEY" ls-remote https://{API}:{self.api.port}/v1/repo.git 2>&1')
        self.assertIn("refs/heads/main", shown["stdout"])
        self.assertEqual(f"Bearer {VALUE}", self.sent())
        said = len(self.api.seen)
        self.assertIn("method", self.curl(ws, more="-X DELETE"))
        refused = [row["details"]["why"] for row in self.ledger(ws) if row["operation"] == "net.refuse"]
        self.assertEqual(["no rule allows this method"], refused)
        self.assertEqual(said, len(self.api.seen), "it does not get there")

    def test_it_lives_through_the_end_of_each_process(self):
        self.put(VALUE)
        ws = self.desk()
        self.curl(ws)
        before = self.egress()
        os.kill(before, signal.SIGKILL)
        self.until(lambda: self.egress() not in (None, before), "another one")
        self.until(lambda: "headers" in self.curl(ws), "it serves")
        self.assertEqual(f"Bearer {VALUE}", self.sent())
        self.daemon.kill_front()
        self.until(lambda: self.daemon.get("/readyz").status == 200, "another front")
        self.put(NEXT)
        self.curl(ws)
        self.assertEqual(f"Bearer {NEXT}", self.sent())
        self.daemon.stop()
        self.daemon = daemontest.Daemon(self.path("s"), *self.options)
        self.curl(ws)
        self.assertEqual(f"Bearer {NEXT}", self.sent())

    def test_each_owner_has_their_own(self):
        alice, bob = self.daemon.key("alice"), self.daemon.key("bob")
        self.put(VALUE, owner=None, key=alice)
        self.put(NEXT, owner=None, key=bob)
        self.put("whatever-it-is", owner="alice", key=bob, status=403)
        self.assertEqual(["example-key"], [one["name"] for one in self.daemon.get("/v1/secrets", key=alice).json["secrets"]])
        self.assertEqual(403, self.daemon.get("/v1/secrets?owner=alice", key=bob).status)
        for key, value in ((alice, VALUE), (bob, NEXT)):
            answer = self.daemon.post("/v1/workspaces", {"policy": self.rule()}, key=key)
            self.curl(answer.json["id"])
            self.assertEqual(f"Bearer {value}", self.sent())
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/secrets/example-key", key=bob).status)
        self.assertEqual(404, self.daemon.request("DELETE", "/v1/secrets/example-key", key=bob).status)
        self.assertEqual(1, len(self.daemon.get("/v1/secrets", key=alice).json["secrets"]))

    def test_bad_ones_are_refused(self):
        for value in ("short", "two\nlines-of-it", "x" * 4097, "caf\u00e9-caf\u00e9-caf\u00e9", 7, None, ""):
            self.put(value, status=400)
        for name in ("A", "a%2Fb", "a.b", "-a", "a" * 65):
            self.assertIn(self.daemon.request("PUT", f"/v1/secrets/{name}?owner=alice", {"value": VALUE}).status, (400, 404), name)
        for at in range(64):
            self.put(VALUE, name=f"k{at}")
        self.assertGreaterEqual(self.daemon.request("PUT", "/v1/secrets/onemore?owner=alice", {"value": VALUE}).status, 400)
        self.put(NEXT, name="k1")

    def test_the_command_line(self):
        environment = dict(os.environ, CARREL_SOCKET=self.daemon.socket, CARREL_KEY=self.daemon.key("alice"))
        environment.pop("CARREL_URL", None)

        def secret(*words, text=None):
            return subprocess.run([CARREL, "secret", *words], input=text, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=PATIENCE, check=False)
        done = secret("set", "example-key", text=VALUE + "\n")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        write(self.path("value"), NEXT)
        self.assertEqual(0, secret("set", "other-key", "--file", self.path("value")).returncode)
        listed = secret("ls")
        self.assertRegex(listed.stdout, "(?s)example-key.*other-key|other-key.*example-key")
        self.assertNotIn("sk-", listed.stdout)
        self.assertEqual(0, secret("rm", "other-key").returncode)
        self.assertNotEqual(0, secret("rm", "other-key").returncode)
        self.assertNotEqual(0, secret("set", "example-key", text="a\nb\n").returncode)


class Nowhere(SecretsTest):
    def test_the_value_is_nowhere_but_in_the_request(self):
        self.put(VALUE)
        ws = self.desk()
        shown = self.daemon.execute(ws, f"""
            ulimit -c unlimited
            sleep 300 & curl -sSv -H "Authorization: Bearer $EXAMPLE_KEY" -H "X-Other: $EXAMPLE_KEY" https://{API}:{self.api.port}/v1/x 2>&1 | tee /answer
            python3 - <<'END'
import os, ssl, socket
s = ssl.create_default_context().wrap_socket(socket.create_connection(('{API}', {self.api.port})), server_hostname='{API}')
open('/certificate', 'wb').write(s.getpeercert(True))
s.sendall(b'GET / HTTP/1.1\\r\\nHost: {API}:{self.api.port}\\r\\nAuthorization: ' + os.environ['EXAMPLE_KEY'].encode() + b'\\r\\n\\r\\n')
open('/again', 'wb').write(s.recv(65536))
END
            python3 -c "$SEARCH" {VALUE.encode().hex()}""", env={"SEARCH": SEARCH})["stdout"]
        self.assertEqual(f"Bearer {VALUE}", self.api.seen[0][2]["authorization"])
        self.assertEqual(VALUE, self.api.seen[1][2]["authorization"])
        self.assertIn("found []", shown)
        self.assertNotIn(VALUE, shown)
        self.assertNotIn(VALUE, repr(self.daemon.audit()))
        self.assertNotIn(VALUE, self.daemon.get(f"/v1/workspaces/{ws}").bytes.decode())
        self.assertNotIn(VALUE, self.daemon.get("/v1/secrets?owner=alice").bytes.decode())
        for place, _, names in os.walk(self.path("s")):  # nor on disk, in any form that is not sealed
            for name in names:
                path = os.path.join(place, name)
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        self.assertNotIn(VALUE.encode(), file.read(), path)


if __name__ == "__main__":
    unittest.main()
