#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""`--allow HOST`: that name is reached over TCP, by programs that need no settings for it; nothing else is, and each
refusal is told with what to do about it."""
import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE, PYTHON, CarrelTest, carrel, write
from nettest import Names, Web

FETCH = ("import sys, urllib.request\n"
         "for url in sys.argv[1:]:\n"
         "    try: print(urllib.request.urlopen(url, timeout=20).read().decode(), end='')\n"
         "    except OSError as error: print('failed:', getattr(error, 'reason', error))\n")


class NamesTest(CarrelTest):
    def setUp(self):
        super().setUp()
        self.web = Web()
        self.names = Names({"api.example.org": ["127.0.0.1"], "www.example.org": ["127.0.0.1"], "other.example.net": ["127.0.0.1"],
                            "example.org": ["127.0.0.1"]})
        self.options = ["--nameserver", self.names.address]
        for name in ("api.example.org", "www.example.org", "other.example.net", "example.org"):
            self.options += ["--allow-private", f"{name}:{self.web.port}"]

    def tearDown(self):
        self.web.close()
        self.names.close()
        super().tearDown()

    def url(self, name, path="/"):
        return f"http://{name}:{self.web.port}{path}"

    def allow(self, *rules):
        return [*self.options, *(word for rule in rules for word in ("--allow", rule))]

    def fetch(self, options, *urls):
        """What a program inside gets, line by line, and the denials."""
        result, _ = self.json(*options, "--", PYTHON, "-c", FETCH, *urls)
        return result["stdout"].splitlines(), result["denials"]


class Reached(NamesTest):
    def test_an_allowed_name_is_reached_and_nothing_else(self):
        lines, denials = self.fetch(self.allow(f"api.example.org:{self.web.port}"), self.url("api.example.org", "/a"),
                                    self.url("other.example.net"), self.url("127.0.0.1"), self.url("192.0.2.1"),
                                    f"http://api.example.org:{self.web.port % 60000 + 1024}/")
        self.assertEqual(f"from api.example.org:{self.web.port} /a", lines[0])
        self.assertEqual(["failed:"] * 4, [line.split()[0] for line in lines[1:]], lines)
        self.assertIn("unreachable", lines[3])
        self.assertIn("refused", lines[4])
        self.assertEqual([(f"api.example.org:{self.web.port}", "/a")], self.web.seen)
        told = {one["what"]: one for one in denials}
        self.assertIn("look up other.example.net", told)
        self.assertIn("--allow other.example.net", told["look up other.example.net"]["fix"])
        self.assertIn("connect to an address", told)

    def test_only_names_that_are_connected_to_are_asked_for_upstream(self):
        script = ("import socket\n"
                  "for name in ('api.example.org', 'secret-data.api.example.org', 'c2VjcmV0.example.net'):\n"
                  "    try: print(socket.gethostbyname(name))\n"
                  "    except OSError as error: print('failed')\n")
        self.assertRegex(self.ok(*self.allow(f"api.example.org:{self.web.port}"), "--", PYTHON, "-c", script),
                         r"^198\.1[89]\.\d+\.\d+\nfailed\nfailed\n$")
        self.assertEqual([], self.names.asked)
        self.fetch(self.allow(f"api.example.org:{self.web.port}"), self.url("api.example.org"))
        self.assertEqual({"api.example.org"}, set(self.names.asked))

    def test_a_name_has_one_address_and_no_other_kind_of_record(self):
        script = ("import socket\n"
                  "kinds = {a[0].name + ' ' + a[4][0] for _ in range(3) for a in socket.getaddrinfo('API.example.ORG', 80)}\n"
                  "print(len(kinds), *kinds)\n")
        self.assertRegex(self.ok(*self.allow("api.example.org"), "--", PYTHON, "-c", script), r"^1 AF_INET 198\.1[89]\.")

    def test_a_wildcard_is_what_is_below_and_deny_wins(self):
        options = [*self.allow(f"*.example.org:{self.web.port}"), "--deny", "api.example.org"]
        lines, denials = self.fetch(options, self.url("www.example.org"), self.url("api.example.org"), self.url("example.org"))
        self.assertEqual(["from", "failed:", "failed:"], [line.split()[0] for line in lines], lines)
        self.assertEqual({"look up api.example.org", "look up example.org"}, {one["what"] for one in denials})
        fixes = {one["what"]: one["fix"] for one in denials}
        self.assertIn("--deny", fixes["look up api.example.org"])

    def test_sets_are_files(self):
        os.mkdir(self.path("sets"))
        write(self.path("sets/mine"), f"# of this test\nwww.example.org:{self.web.port}\n")
        env = dict(os.environ, CARREL_NETWORKS=self.path("sets"))
        done = carrel("run", *self.allow("@mine"), "--", PYTHON, "-c", FETCH, self.url("www.example.org"), env=env, cwd=self.dir)
        self.assertEqual(f"from www.example.org:{self.web.port} /\n", self.succeeded(done))
        done = carrel("run", "--allow", "@other", "--", "true", env=env, cwd=self.dir)
        self.one_line(done, "@other", self.path("sets"))

    def test_a_redirect_is_another_request(self):
        port = self.web.port
        lines, denials = self.fetch(self.allow(f"api.example.org:{port}"), self.url("api.example.org", f"/to/www.example.org:{port}/"))
        self.assertIn("failed", lines[0])
        self.assertEqual(["look up www.example.org"], [one["what"] for one in denials])
        self.assertEqual(1, len(self.web.seen))


class Ports(NamesTest):
    """Programs listen where they like, also at the ports of rules: a name leads to its host, and the rest to them."""
    LISTEN = """
import errno, http.server, select, socket, sys, threading, urllib.request
host, port = sys.argv[1], int(sys.argv[2])
class Own(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'own\\n')
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer((host, port), Own)
threading.Thread(target=server.serve_forever, daemon=True).start()
def get(at):
    return urllib.request.urlopen(f'http://{at}:{port}/', timeout=20).read().decode().strip()
print(get('127.0.0.1'), get('api.example.org'))
for at, family in (('::ffff:' + socket.gethostbyname('api.example.org'), socket.AF_INET6), ('127.0.0.1', socket.AF_INET)):
    with socket.socket(family) as s: # as event loops connect
        s.setblocking(False)
        assert s.connect_ex((at, port)) in (0, errno.EINPROGRESS)
        select.select([], [s], [])
        print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), s.gettimeout(), s.getpeername()[0])
"""

    def test_programs_listen_at_the_ports_of_rules(self):
        for address in ("0.0.0.0", "127.0.0.1", ""):
            result, _ = self.json(*self.allow(f"api.example.org:{self.web.port}", "www.example.org"), "--", PYTHON, "-c", self.LISTEN, address, str(self.web.port))
            lines = result["stdout"].splitlines()
            self.assertEqual((0, []), (result["exit_code"], result["denials"]), result["stderr"])
            self.assertEqual(f"own from api.example.org:{self.web.port} /", lines[0])
            self.assertRegex(lines[1], r"^0 0.0 ::ffff:198\.18\.")
            self.assertEqual("0 0.0 127.0.0.1", lines[2])

    def test_a_port_by_its_other_number_is_the_same_rule(self):
        """Where Carrel's own socket is cannot be taken by programs, and leads nowhere else."""
        script = ("import socket, urllib.request\n"
                  "for port in range(512, 514):\n"
                  "    for name in ('api.example.org', 'other.example.net'):\n"
                  "        try: print(socket.create_connection((name, port), 5).recv(1) or 'end')\n"
                  "        except OSError as error: print(type(error).__name__)\n"
                  "    try: socket.create_server(('0.0.0.0', port))\n"
                  "    except OSError as error: print(type(error).__name__)\n")
        options = self.allow(f"api.example.org:{self.web.port}", "other.example.net")
        result, _ = self.json(*options, "--", PYTHON, "-c", script)
        lines = result["stdout"].splitlines()
        self.assertEqual(("ConnectionResetError", "PermissionError"), (lines[1], lines[2]), result)
        self.assertEqual(["ConnectionRefusedError", "ConnectionRefusedError", "PermissionError"], lines[3:])
        self.assertEqual([], self.web.seen)

    def test_without_the_listener_that_is_told(self):
        environment = {**os.environ, "CARREL_WEAKEN": "net-redirect"}
        weak = os.environ["CARREL_WEAK"]
        done = subprocess.run([weak, "run", "--json", *self.allow(f"api.example.org:{self.web.port}"), "--", PYTHON, "-c",
                               "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1])))", str(self.web.port)],
                              env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        told = {one["what"]: one for one in json.loads(done.stdout)["denials"]}["listen on a port that leads to names"]
        self.assertIn(f"at port {self.web.port}", told["fix"])


class Datagrams(NamesTest):
    def test_udp_where_a_rule_names_it(self):
        upstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        upstream.bind(("127.0.0.1", 0))
        port = upstream.getsockname()[1]
        came = []

        def answer():
            with upstream:
                while (got := upstream.recvfrom(1000))[0] != b"stop":
                    came.append(got[0])
                    upstream.sendto(got[0][::-1], got[1])
        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(upstream.sendto, b"stop", ("127.0.0.1", port))
        script = ("import socket, sys\n"
                  "for name in ('api.example.org', 'www.example.org', '127.0.0.1'):\n"
                  "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "    s.settimeout(20 if name[0] == 'a' else 1)\n"
                  "    try:\n"
                  "        s.connect((name, int(sys.argv[1]))); s.send(name.encode()); print(s.recv(100).decode())\n"
                  "    except OSError as error: print(type(error).__name__)\n")
        options = ["--nameserver", self.names.address, "--allow-private", "api.example.org", "--allow-private", "www.example.org"]
        result, _ = self.json(*options, "--allow", f"api.example.org:{port} udp", "--allow", "www.example.org", "--", PYTHON, "-c", script, str(port))
        self.assertEqual(["gro.elpmaxe.ipa", "TimeoutError", "TimeoutError"], [line if line[0] == "g" else "TimeoutError" for line in result["stdout"].splitlines()], result)
        self.assertEqual([b"api.example.org"], came)
        self.assertIn(f"{port}", json.dumps(result["denials"]))


class Addresses(NamesTest):
    def test_private_addresses_are_refused_unless_the_host_says_otherwise(self):
        options = ["--nameserver", self.names.address, "--allow", f"api.example.org:{self.web.port}"]
        lines, denials = self.fetch(options, self.url("api.example.org"))
        self.assertIn("failed", lines[0])
        self.assertEqual([f"connect api.example.org:{self.web.port}"], [one["what"] for one in denials])
        self.assertIn("private", denials[0]["rule"] + denials[0]["fix"])
        self.assertEqual([], self.web.seen)

    def test_metadata_is_never_reached(self):
        for address in ("169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "100.100.100.200"):
            self.names.table["api.example.org"] = [address]
            lines, denials = self.fetch(self.allow(f"api.example.org:{self.web.port}"), self.url("api.example.org"))
            self.assertIn("failed", lines[0], address)
            self.assertEqual(1, len(denials), address)

    def test_an_answer_with_one_private_address_is_refused_whole(self):
        self.names.table["api.example.org"] = ["192.0.2.1", "127.0.0.1"]
        options = ["--nameserver", self.names.address, "--allow", f"api.example.org:{self.web.port}"]
        lines, denials = self.fetch(options, self.url("api.example.org"))
        self.assertIn("failed", lines[0])
        self.assertEqual(1, len(denials))
        self.assertEqual([], self.web.seen)

    def test_a_name_without_an_upstream_fails_and_is_told(self):
        lines, _ = self.fetch(self.allow(f"none.example.org:{self.web.port}"), self.url("none.example.org"))
        self.assertIn("failed", lines[0])


class Asked(NamesTest):
    def test_what_is_no_name_is_refused_in_words(self):
        for rule in ("", "*", "*.com", "127.0.0.1", "0x7f.1", "2130706433", "[::1]", "::ffff:127.0.0.1", "a@example.org", "a b.org",
                     "http://example.org", "example.org:0", "example.org:70000", "-a.org", "a..org", "ex\u00e4mple.org", "!example.org"):
            self.refused("--workspace", self.ws, "--allow", rule, words=("--allow",))
        self.refused("--workspace", self.ws, "--allow", "example.org:53", words=("53",))
        self.refused("--workspace", self.ws, "--deny", "example.org", words=("--deny", "--allow"))
        self.refused("--workspace", self.ws, "--allow-private", "example.org", words=("--allow-private", "--allow"))
        for mode in ("none", "host"):
            self.refused("--workspace", self.ws, "--allow", "example.org", "--net", mode, words=("--allow", "--net"))
        self.refused("--workspace", self.ws, "--level", "dir", "--allow", "example.org", words=("--allow",))
        ports = [word for port in range(1000, 1033) for word in ("--allow", f"example.org:{port}")]
        self.refused("--workspace", self.ws, *ports, words=("32", "ports"))

    def test_options_narrow_a_policy(self):
        policy = self.path("policy.json")
        write(policy, json.dumps({"network": {"allow": ["*.example.org", f"api.example.org:{self.web.port}"], "deny": ["www.example.org"]}}))
        script = ("import socket, sys\n"
                  "for name in sys.argv[1:]:\n"
                  "    try: print(socket.gethostbyname(name)[:5])\n"
                  "    except OSError as error: print('failed')\n")
        names = ["api.example.org", "a.example.org", "www.example.org"]
        look = ["--", PYTHON, "-c", script, *names]
        self.assertRegex(self.ok("--policy", policy, *look), r"^198.1\n198.1\nfailed\n$")
        self.assertRegex(self.ok("--policy", policy, "--allow", "a.example.org", *look), r"^failed\n198.1\nfailed\n$")
        self.assertRegex(self.ok("--policy", policy, "--deny", "a.example.org", *look), r"^198.1\nfailed\nfailed\n$")
        self.assertRegex(self.ok("--policy", policy, "--net", "none", *look), r"^failed\nfailed\nfailed\n$")
        for words in (["--allow", "example.net"], ["--allow", "a.example.org:22"], ["--allow-private", "a.example.org"], ["--net", "host"]):
            self.refused("--policy", policy, *words, words=("policy",))

    def test_an_empty_list_is_nothing(self):
        policy = self.path("policy.json")
        write(policy, json.dumps({"network": {"allow": []}}))
        self.assertNotEqual(0, self.run_in("--policy", policy, "--", "getent", "hosts", "example.org").returncode)

    def test_it_is_explained(self):
        text = self.ok("--allow", "api.example.org", "--deny", "www.example.org", "--explain", "--", "true")
        self.assertRegex(text, r"(?m)^network +names$")
        self.assertRegex(text, r"(?m)^names +api.example.org, !www.example.org$")
        self.assertEqual(["api.example.org"], json.loads(self.ok("--allow", "api.example.org", "--explain", "--json", "--", "true"))["names"])


class Process(NamesTest):
    def begin(self, *options, script):
        process = subprocess.Popen([CARREL, "run", "--json", *options, "--", PYTHON, "-uc", script], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    @staticmethod
    def below(process):
        """The programs that the run has started: their names and ids."""
        found = {}
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{task}/children", encoding="ascii") as file:
                for pid in file.read().split():
                    with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                        found[comm.read().strip()] = int(pid)
        return found

    def until(self, so):
        deadline = time.monotonic() + PATIENCE
        while not so():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_nothing_is_started_for_runs_without_names(self):
        process = self.begin(script="open('started', 'w').close()\nimport time, os\nwhile os.path.exists('started'): time.sleep(0.01)")
        self.until(lambda: os.path.exists(self.path("started")))
        self.assertEqual({"carrel-init"}, set(self.below(process)))
        os.unlink(self.path("started"))
        self.assertEqual(0, process.wait(PATIENCE))

    def test_killed_in_the_middle_nothing_opens(self):
        script = ("import socket, os, time, urllib.request, sys\n"
                  f"url = {self.url('api.example.org')!r}\n"
                  "print(urllib.request.urlopen(url).read())\n"
                  "c = socket.create_connection(('api.example.org', %d))\n"
                  "open('started', 'w').close()\n"
                  "while os.path.exists('started'): time.sleep(0.01)\n"
                  "c.settimeout(20)\n"
                  "try: print('open' if c.recv(1) else 'ended')\n"
                  "except ConnectionError: print('ended')\n"
                  "try: urllib.request.urlopen(url, timeout=5); print('opened')\n"
                  "except OSError as error: print('fails')\n") % self.web.port
        process = self.begin(*self.allow(f"api.example.org:{self.web.port}"), script=script)
        self.until(lambda: os.path.exists(self.path("started")))
        os.kill(self.below(process)["carrel-egress"], signal.SIGKILL)
        time.sleep(0.1)
        os.unlink(self.path("started"))
        out, _ = process.communicate(timeout=PATIENCE)
        result = json.loads(out)
        self.assertEqual(["ended", "fails"], result["stdout"].splitlines()[1:], result)
        self.assertIn("carrel-egress has ended", [one["rule"] for one in result["denials"]])

    def test_it_ends_with_the_run_also_one_that_is_killed(self):
        script = "open('started', 'w').close()\nimport time\ntime.sleep(1000)"
        process = self.begin(*self.allow("api.example.org"), script=script)
        self.until(lambda: os.path.exists(self.path("started")))
        egress = self.below(process)["carrel-egress"]
        process.kill()
        process.wait(PATIENCE)

        def has_ended():
            try:
                with open(f"/proc/{egress}/stat", encoding="ascii") as file:
                    return file.read().split()[2] == "Z"
            except OSError:
                return True
        self.until(has_ended)


if __name__ == "__main__":
    unittest.main()
