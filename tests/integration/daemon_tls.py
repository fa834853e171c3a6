#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""HTTPS on the daemon: who is served, who is refused, what clients of all kinds see, and what carrel-tls may do.

Certificates are the daemon's own, or made here by openssl."""
# TIMEOUT: 120
# TAKES: 30
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import unittest

from carreltest import CARREL, PATIENCE, ROOT, TMP, read
from daemontest import ANSWERS, Answer, DaemonTest
from websockettest import WebSocket

HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(32)  # the beginning of a ClientHello


def openssl(*arguments, **kwargs):
    return subprocess.run(["openssl", *arguments], capture_output=True, timeout=PATIENCE, check=False, **kwargs)


class Secure(http.client.HTTPConnection):
    """HTTP over TLS to 127.0.0.1, as the name that is asked for."""

    def __init__(self, port, context, name="localhost"):
        super().__init__(name, port, timeout=ANSWERS)
        self.context = context

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", self.port), self.timeout)
        try:
            self.sock = self.context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


class TlsTest(DaemonTest):
    options = ("--tls-self-signed", "--set", "tls_listen=127.0.0.1:0", "--set", "domain=desks.test")

    def setUp(self):
        super().setUp()
        self.key = self.daemon.key("alice")

    @property
    def port(self):
        return int(re.findall(r"https='127\.0\.0\.1:(\d+)", self.daemon.said())[-1])

    @property
    def ca(self):
        return f"{self.daemon.state}/tls/ca.pem"

    def context(self, ca=None):
        return ssl.create_default_context(cafile=ca or self.ca)

    def secure(self, name="localhost", context=None):
        return Secure(self.port, context or self.context(), name)

    def ask(self, method, path, body=None, connection=None, **headers):
        own = connection or self.secure()
        try:
            own.request(method, path, body=json.dumps(body) if isinstance(body, dict) else body,
                        headers={"Authorization": f"Bearer {self.key}", **headers})
            return Answer(own.getresponse())
        finally:
            if not connection:
                own.close()

    def plain(self):
        s = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        self.addCleanup(s.close)
        return s

    def helper(self):
        """The pid of carrel-tls; None: it is between two lives."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = read(f"/proc/{pid}/stat")
            except OSError:
                continue
            name, rest = stat[stat.index("(") + 1:].rsplit(")", 1)
            if name == "carrel-tls" and int(rest.split()[1]) == self.daemon.process.pid:
                return int(pid)
        return None

    def until(self, what):
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), deadline, self.daemon.said()[-2000:])
            time.sleep(0.02)


class Served(TlsTest):
    def test_names_of_the_domain_and_this_host_are_good_and_others_are_not(self):
        for name, status in (("localhost", 200), ("127.0.0.1", 200), ("desks.test", 200), ("api.desks.test", 200), ("3000-i1abc.desks.test", 502)):  # no such sandbox
            with self.subTest(name):
                own = self.secure(name)
                self.assertEqual(status, self.ask("GET", "/healthz", connection=own).status)
                own.close()
        for name in ("desks.example", "a.b.desks.test"):
            with self.subTest(name), self.assertRaises(ssl.SSLCertVerificationError):
                self.secure(name).connect()
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.secure(context=ssl.create_default_context()).connect()

    def test_the_authority_speaks_for_no_other_name(self):
        """Who trusts it trusts it for the domain alone: what its key signs beside that is refused."""
        tls = f"{self.daemon.state}/tls"
        for name, good in (("x.desks.test", True), ("example.com", False)):
            request, out, extra = self.path("r.csr"), self.path("r.pem"), self.path("r.cnf")
            with open(extra, "w", encoding="ascii") as file:
                file.write(f"subjectAltName=DNS:{name}\n")
            openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path("r.key"), "-subj", "/CN=x", "-out", request)
            made = openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", f"{tls}/ca.key", "-extfile", extra, "-out", out, "-days", "3")
            self.assertEqual(0, made.returncode, made.stderr)
            self.assertEqual(good, openssl("verify", "-CAfile", self.ca, out).returncode == 0, name)

    def test_only_the_daemons_user_reads_the_keys(self):
        for name, mode in (("ca.key", 0o600), ("key.pem", 0o600), ("ca.pem", 0o644), ("cert.pem", 0o644)):
            st = os.stat(f"{self.daemon.state}/tls/{name}")
            self.assertEqual((mode, os.geteuid()), (st.st_mode & 0o7777, st.st_uid), name)

    def test_a_start_with_a_good_certificate_makes_no_other(self):
        before = {name: read(f"{self.daemon.state}/tls/{name}") for name in ("ca.pem", "cert.pem")}
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(before, {name: read(f"{self.daemon.state}/tls/{name}") for name in before})
        os.unlink(f"{self.daemon.state}/tls/cert.pem")
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(before["ca.pem"], read(self.ca))
        self.until(lambda: self.ask("GET", "/healthz").status == 200)

    def test_many_requests_on_one_connection_and_many_connections(self):
        one = self.secure()
        for _ in range(50):
            self.assertEqual(200, self.ask("GET", "/healthz", connection=one).status)
        one.close()
        many = [self.secure() for _ in range(60)]
        for each in many:
            each.connect()
        for each in many:
            each.request("GET", "/healthz")
        self.assertEqual({200}, {each.getresponse().status for each in many})
        for each in many:
            each.close()

    def test_without_a_key_nobody_is_anybody(self):
        """The Unix socket's trust in the daemon's own user does not come with the pair that clients of TLS come by."""
        own = self.secure()
        own.request("GET", "/v1/workspaces")
        self.assertEqual(401, own.getresponse().status)
        own.close()

    def test_large_bodies_both_ways(self):
        body = os.urandom(24 << 20)
        ws = self.ask("POST", "/v1/workspaces", {}).json["id"]
        self.assertIn(self.ask("PUT", f"/v1/workspaces/{ws}/files/big", body=body).status, (200, 201))
        answer = self.ask("GET", f"/v1/workspaces/{ws}/files/big")
        self.assertEqual(hashlib.sha256(body).digest(), hashlib.sha256(answer.bytes).digest())
        pieces = (body[at:at + 70001] for at in range(0, 4 << 20, 70001))
        own = self.secure()
        own.request("PUT", f"/v1/workspaces/{ws}/files/chunked", body=pieces, headers={"Authorization": f"Bearer {self.key}"}, encode_chunked=True)
        self.assertIn(own.getresponse().status, (200, 201))
        own.close()
        result = self.ask("POST", f"/v1/workspaces/{ws}/exec", {"command": "stat -c %s big chunked"}).json
        self.assertEqual(24 << 20, int(result["stdout"].split()[0]), result)

    def test_a_stream_comes_as_it_is_written_and_a_client_that_leaves_is_noticed(self):
        ws = self.ask("POST", "/v1/workspaces", {}).json["id"]
        own = self.secure()
        own.request("POST", f"/v1/workspaces/{ws}/exec", json.dumps({"command": "echo one; sleep 600", "stream": True, "timeout_ms": 60000}),
                    {"Authorization": f"Bearer {self.key}"})
        answer = own.getresponse()
        seen = b""
        while b'"one' not in seen:
            piece = answer.read1()
            self.assertTrue(piece, seen)
            seen += piece
        before = self.connections()
        own.sock.close()
        answer.close()
        own.close()
        self.until(lambda: self.connections() < before)

    def connections(self):
        return int(re.search(rb"^carrel_http_connections (\d+)", self.daemon.get("/metrics").bytes, re.M).group(1))

    def test_a_websocket(self):
        ws = self.ask("POST", "/v1/workspaces", {}).json["id"]
        begun = self.ask("POST", f"/v1/workspaces/{ws}/exec", {"command": "cat", "pty": {}, "background": True}).json
        terminal = WebSocket(self.daemon, f"/v1/workspaces/{ws}/exec/{begun['exec_id']}/attach", self.key, self.context().wrap_socket(self.plain(), server_hostname="localhost"))
        self.assertEqual(101, terminal.status)
        for word in (b"first", b"second"):
            terminal.send(word + b"\n")
            self.assertIn(word, terminal.read(word))
        terminal.close()

    def test_curl_and_the_client_of_the_command_line(self):
        env = {"PATH": os.environ["PATH"], "CARREL_URL": f"https://localhost:{self.port}", "CARREL_KEY": self.key, "CARREL_CA": self.ca, "HOME": self.dir}
        made = subprocess.run([CARREL, "ws", "create", "desk"], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(0, made.returncode, made.stderr)
        ran = subprocess.run([CARREL, "exec", "desk", "--", "echo", "over", "tls"], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((0, "over tls\n"), (ran.returncode, ran.stdout), ran.stderr)
        del env["CARREL_CA"]
        refused = subprocess.run([CARREL, "ws", "ls"], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(125, refused.returncode)
        self.assertIn("certificate", refused.stderr)
        got = subprocess.run(["curl", "-s", "--cacert", self.ca, "--resolve", f"api.desks.test:{self.port}:127.0.0.1", f"https://api.desks.test:{self.port}/healthz"],
                             capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual("ok", json.loads(got.stdout)["status"])

    @unittest.skipUnless(shutil.which("node"), "needs Node")
    def test_node(self):
        script = "fetch(process.argv[1]).then(r => r.json()).then(j => console.log(j.status), e => { console.log(e.cause.code); })"
        run = ["node", "-e", script, f"https://localhost:{self.port}/healthz"]
        env = dict(os.environ, NODE_EXTRA_CA_CERTS=self.ca)
        self.assertEqual("ok\n", subprocess.run(run, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout)
        env.pop("NODE_EXTRA_CA_CERTS")
        self.assertIn("SELF_SIGNED", subprocess.run(run, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout)


class Refused(TlsTest):
    def s_client(self, *options, says=b""):
        return openssl("s_client", "-connect", f"127.0.0.1:{self.port}", "-servername", "localhost", "-CAfile", self.ca, *options, input=says)

    def test_old_versions_and_other_protocols(self):
        for version in ("-tls1_2", "-tls1_3"):
            self.assertIn(b"Verify return code: 0", self.s_client(version).stdout, version)
        for version in ("-tls1", "-tls1_1"):
            said = self.s_client(version, "-cipher", "DEFAULT@SECLEVEL=0")
            self.assertNotEqual(0, said.returncode, said.stdout)
        self.assertIn(b"ALPN protocol: http/1.1", self.s_client("-alpn", "h2,http/1.1").stdout)
        self.assertIn(b"no application protocol", self.s_client("-alpn", "h2").stderr)
        self.assertIn(b"No ALPN negotiated", self.s_client().stdout)

    def test_renegotiation(self):
        """A client that asks for it (R) is told no, and its connection ends or goes on without."""
        said = self.s_client("-tls1_2", says=b"R\n")
        self.assertRegex(said.stdout + said.stderr, rb"(?i)no renegotiation|RENEGOTIATING")
        self.assertEqual(200, self.ask("GET", "/healthz").status)
        self.assertNotIn(b"HTTP/1.1 200", said.stdout)

    def test_garbage_and_plain_http_end_their_own_connection_alone(self):
        open_one = self.secure()
        self.assertEqual(200, self.ask("GET", "/healthz", connection=open_one).status)
        for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 4096, os.urandom(4096), b"\x16\x03\x01\xff\xff" + b"\1" * 70000, b"\x80\x2e\x01\0\2", HELLO + b"\xff" * 400):
            s = self.plain()
            try:
                s.sendall(garbage)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass
            s.close()
        self.assertEqual(200, self.ask("GET", "/healthz", connection=open_one).status)
        open_one.close()

    def test_slow_handshakes_hold_up_nobody_and_end(self):
        slow = [self.plain() for _ in range(40)]
        for s in slow:
            s.sendall(HELLO[:20])
        self.assertEqual(200, self.ask("GET", "/healthz").status)
        for s in slow:
            s.settimeout(PATIENCE)
            try:
                while s.recv(4096):
                    pass
            except ConnectionError:
                pass

    def test_a_client_that_breaks_off_within_a_request(self):
        own = self.context().wrap_socket(self.plain(), server_hostname="localhost")
        own.sendall(b"POST /v1/workspaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        own.close()
        self.assertEqual(200, self.ask("GET", "/healthz").status)


class Process(TlsTest):
    def test_what_it_is(self):
        """A user of its own as root, no privileges, a list of system calls, no file and no environment of others."""
        status = dict(line.split(":\t") for line in read(f"/proc/{self.helper()}/status").splitlines() if ":\t" in line)
        self.assertEqual(("1", "2"), (status["NoNewPrivs"], status["Seccomp"]))
        if ROOT:
            self.assertEqual("0" * 16, status["CapEff"])
            uids = {status["Uid"].split()[0], "0"}
            front = dict(line.split(":\t") for line in read(f"/proc/{self.daemon.front_pid()}/status").splitlines() if ":\t" in line)
            self.assertEqual(3, len(uids | {front["Uid"].split()[0]}))
            self.assertEqual("", status["Groups"].strip())

    def test_one_that_dies_is_followed_by_another(self):
        before = self.helper()
        os.kill(before, signal.SIGKILL)
        self.until(lambda: self.helper() not in (None, before))
        self.assertEqual(200, self.ask("GET", "/healthz").status)

    def test_the_front_may_die_and_clients_come_back(self):
        self.assertEqual(200, self.ask("GET", "/healthz").status)
        self.daemon.kill_front()
        self.assertEqual(200, self.ask("GET", "/healthz").status)


class Certificate(DaemonTest):
    """Certificates that somebody else has made."""

    def setUp(self):
        os.chmod(TMP, 0o711)
        self.make("one", "first.test")
        self.make("two", "second.test")
        self.options = ("--set", "tls_listen=127.0.0.1:0", "--set", f"tls_certificate={TMP}/one.pem", "--set", f"tls_key={TMP}/one.key")
        super().setUp()

    def tearDown(self):
        super().tearDown()
        for name in ("one.pem", "one.key", "two.pem", "two.key"):
            os.unlink(f"{TMP}/{name}")

    def make(self, name, domain):
        made = openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{TMP}/{name}.key", "-out", f"{TMP}/{name}.pem",
                       "-days", "30", "-subj", f"/CN={domain}", "-addext", f"subjectAltName=DNS:{domain}")
        self.assertEqual(0, made.returncode, made.stderr)
        os.chmod(f"{TMP}/{name}.key", 0o600)

    def serves(self, name):
        port = int(re.findall(r"https='127\.0\.0\.1:(\d+)", self.daemon.said())[-1])
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as s:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(s) as own:
                der = own.getpeercert(True)
        return ssl.DER_cert_to_PEM_cert(der) == read(f"{TMP}/{name}.pem")

    def test_a_new_one_is_taken_without_a_restart_and_a_bad_one_is_not(self):
        self.assertTrue(self.serves("one"))
        os.replace(f"{TMP}/two.key", f"{TMP}/one.key")  # between the two it does not fit: the one of before stays
        os.replace(f"{TMP}/two.pem", f"{TMP}/one.pem")
        deadline = time.monotonic() + PATIENCE
        while not self.serves("one"):
            self.assertLess(time.monotonic(), deadline, self.daemon.said()[-2000:])
            time.sleep(0.2)
        with open(f"{TMP}/one.pem", "w", encoding="ascii") as file:
            file.write("nothing\n")
        deadline = time.monotonic() + PATIENCE
        while "certificate_not_taken" not in self.daemon.said():
            self.assertLess(time.monotonic(), deadline, self.daemon.said()[-2000:])
            time.sleep(0.2)
        self.assertFalse(self.serves("one"))
        for name in ("two.key", "two.pem"):
            with open(f"{TMP}/{name}", "w", encoding="ascii"):
                pass

    def refused(self, *options):
        run = subprocess.run([CARREL, "serve", "--state", f"{TMP}/refused", "--listen", "127.0.0.1:0", "--set", f"socket={TMP}/r.sock", *options],
                             capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(125, run.returncode, run.stderr)
        return run.stderr

    def test_what_cannot_be_served_does_not_start(self):
        at = ("--set", "tls_listen=127.0.0.1:0")
        pair = ("--set", f"tls_certificate={TMP}/one.pem", "--set", f"tls_key={TMP}/one.key")
        self.assertIn("needs a certificate", self.refused(*at))
        self.assertIn("tls_key' lacks", self.refused(*at, *pair[:2]))
        self.assertIn("say where", self.refused(*pair))
        self.assertIn("either", self.refused("--tls-self-signed", *at, *pair))
        self.assertIn("not that of the certificate", self.refused(*at, *pair[:2], "--set", f"tls_key={TMP}/two.key"))
        self.assertIn("no such file", self.refused(*at, *pair[:2], "--set", f"tls_key={TMP}/none").lower())
        self.assertIn("not a domain", self.refused("--tls-self-signed", *at, "--set", "domain=Nothing"))
        os.chmod(f"{TMP}/one.key", 0o644)
        self.assertIn("chmod 600", self.refused(*at, *pair))
        os.chmod(f"{TMP}/one.key", 0o600)
        shutil.rmtree(f"{TMP}/refused", ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
