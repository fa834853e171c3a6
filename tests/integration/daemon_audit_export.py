#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 20
"""The record, sent elsewhere: nothing is lost and nothing is twice, whatever the other side, the network and kill -9 do."""
import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from bulktest import Bulk, basic, tls
from carreltest import CARREL, PATIENCE, ROOT, TMP, carrel, read
from daemontest import DaemonTest

FAILURES = ["busy", "later", "mixed", "reset", "torn", None, "cut", "other", None, "slow", "bad", "mixed", None, "large", "mixed", None]


def expected(state):
    """id -> line, of every record there is."""
    found = {}
    for name in sorted(os.listdir(f"{state}/audit")):
        with open(f"{state}/audit/{name}", "rb") as file:
            for line in file.read().splitlines():
                found[f"{json.loads(line)['seq']}-{hashlib.sha256(line).hexdigest()}"] = line.decode()
    return found


class ExportTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.bulk = Bulk()

    def tearDown(self):
        self.bulk.stop()
        super().tearDown()

    def work(self, count):
        for number in range(count):
            self.assertEqual(201, self.daemon.post("/v1/keys", {"owner": f"o{number}", "scopes": ["user"]}).status)

    def again(self, *settings):
        self.daemon.stop()
        self.daemon.options = tuple(word for setting in settings for word in ("--set", setting))
        self.daemon.start()

    def wait_for(self, what, why, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while not (found := what()):
            self.assertLess(time.monotonic(), deadline, f"{why}\n{self.daemon.said()[-3000:]}")
            time.sleep(0.05)
        return found

    def exporter(self):
        for pid in os.listdir("/proc"):
            try:
                stat = read(f"/proc/{pid}/stat") if pid.isdigit() else ""
            except OSError:
                continue
            if "(carrel-export)" in stat and int(stat.rsplit(")", 1)[1].split()[1]) == self.daemon.process.pid:
                return int(pid)
        return None

    def all_there(self, bulk=None, patience=PATIENCE):
        bulk = bulk or self.bulk
        self.wait_for(lambda: expected(self.daemon.state).keys() <= bulk.documents.keys(), "records do not arrive", patience)
        wanted = expected(self.daemon.state)
        self.assertEqual(set(wanted), set(bulk.documents), "something else arrived")
        self.assertEqual(len(bulk.order), len(set(bulk.order)))
        self.assertEqual([], bulk.problems)
        for key, line in wanted.items():
            self.assertEqual(line, bulk.documents[key]["event"]["original"])

    def by_hand(self, *options, to=None, spool=None, wait=True, **kwargs):
        command = ["audit", "export", "--state", self.daemon.state, "--to", to or self.bulk.url]
        if spool:
            os.makedirs(spool, exist_ok=True)
            command += ["--spool", spool]
        if wait:
            return carrel(*command, *options, **kwargs)
        return subprocess.Popen([CARREL, *command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, cwd=TMP)


class Exports(ExportTest):
    def test_documents_are_in_the_common_schema(self):
        self.workspace(id="desk")
        self.daemon.execute("desk", "exit 3")
        self.daemon.request("PUT", "/v1/workspaces/desk/files/a.txt", b"a")
        done = self.by_hand()
        self.assertEqual(0, done.returncode, done.stderr)
        self.all_there()
        by_action = {d["event"]["action"]: d for d in self.bulk.documents.values()}
        start, end, put = by_action["exec.start"], by_action["exec.end"], by_action["file.write"]
        for document in by_action.values():
            self.assertRegex(document["@timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertEqual(("event", "8.11.0"), (document["event"]["kind"], document["ecs"]["version"]))
        self.assertEqual((["process"], ["start"], "success"),
                         tuple(start["event"][k] for k in ("category", "type", "outcome")))
        self.assertEqual((["bash", "-c", "exit 3"], "bash -c exit 3"), (start["process"]["args"], start["process"]["command_line"]))
        self.assertEqual(("failure", 3, start["process"]["entity_id"]),
                         (end["event"]["outcome"], end["process"]["exit_code"], end["process"]["entity_id"]))
        self.assertGreater(end["event"]["duration"], 0)
        self.assertEqual(("desk", "desk", "socket"), (end["container"]["id"], end["labels"]["thread"], end["user"]["id"]))
        self.assertEqual(["file"], put["event"]["category"])
        self.assertIn("a.txt", put["file"]["path"])
        self.assertTrue(put["trace"]["id"])

    def test_through_every_failure_nothing_is_lost_and_nothing_is_twice(self):
        self.bulk.failures = FAILURES * 2
        self.again(f"export={self.bulk.url}", "audit_segment=16K")
        for _ in range(6):
            self.work(12)
            time.sleep(0.2)
        self.all_there(patience=3 * PATIENCE)
        self.assertGreater(self.bulk.repeats, 0, "nothing was ever sent twice: the test is too kind")
        metrics = self.daemon.get("/metrics").bytes.decode()
        last = len(expected(self.daemon.state))
        self.wait_for(lambda: f"carrel_audit_exported_sequence {last}" in self.daemon.get("/metrics").bytes.decode(), metrics)
        self.assertRegex(metrics, r"carrel_audit_export_retries_total [1-9]")
        self.assertIn("carrel_audit_export_lag_seconds 0", self.daemon.get("/metrics").bytes.decode())
        if ROOT:
            self.assertEqual(1879048188, os.stat(f"/proc/{self.exporter()}").st_uid)

    def test_an_outage_while_records_are_written_and_restarts_of_both(self):
        self.again(f"export={self.bulk.url}", "export_gzip=yes")
        self.work(10)
        self.all_there()
        self.assertGreater(self.bulk.zipped, 0)
        self.bulk.stop()
        self.work(30)
        self.wait_for(lambda: re.search("carrel_audit_export_lag_seconds [1-9]", self.daemon.get("/metrics").bytes.decode()),
                      "the lag is not told")
        os.kill(self.exporter(), signal.SIGKILL)
        self.work(10)
        self.daemon.stop()
        self.bulk.start()
        self.daemon.start()
        self.all_there(patience=2 * PATIENCE)

    def test_killed_at_random_instants(self):
        self.work(150)
        dice, spool, kills = random.Random(11), self.path("spool"), 0
        stop = threading.Event()

        def write():
            while not stop.is_set():
                self.work(1)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(30):
                self.bulk.failures += dice.choices([None, "torn", "mixed", "slow", "reset"], k=2)
                process = self.by_hand("-f", spool=spool, wait=False)
                time.sleep(dice.random() ** 2 * 0.4)
                process.kill()
                kills += process.wait() == -signal.SIGKILL
        finally:
            stop.set()
            writer.join()
        self.assertGreater(kills, 20)
        self.bulk.failures = []
        done = self.by_hand(spool=spool)
        self.assertEqual(0, done.returncode, done.stderr)
        self.all_there()

    def test_a_document_that_is_never_taken_is_kept_aside_and_holds_nothing_up(self):
        self.work(5)
        self.bulk.poison = lambda document: document["event"]["sequence"] == 4
        done = self.by_hand()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("export_dead_letter", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        wanted = expected(self.daemon.state)
        poison = next(key for key in wanted if key.startswith("4-"))
        self.assertEqual(set(wanted) - {poison}, set(self.bulk.documents))
        dead = [json.loads(line) for line in read(f"{self.daemon.state}/export/dead.jsonl").splitlines()]
        self.assertEqual([poison], [letter["id"] for letter in dead])
        self.assertIn("mapper_parsing_exception", dead[0]["error"])
        self.assertEqual(wanted[poison], json.loads(dead[0]["document"])["event"]["original"])

    def test_a_proxys_page_kills_no_document(self):
        self.work(3)
        self.bulk.failures = ["bad", "bad", "large", "large"]
        done = self.by_hand()
        self.assertEqual(0, done.returncode, done.stderr)
        self.all_there()
        self.assertFalse(os.path.exists(f"{self.daemon.state}/export/dead.jsonl"))

    def test_credentials_are_a_files_and_go_over_tls(self):
        cert, key = self.path("cert.pem"), self.path("key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                        "-out", cert, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        os.chmod(cert, 0o644)
        secret = self.path("secret")
        for text, header in (("ApiKey abc==", "ApiKey abc=="), ("user:pass:word", basic("user", "pass:word"))):
            with open(secret, "w", encoding="ascii") as file:
                file.write(text + "\n")
            os.chmod(secret, 0o600)
            server = Bulk(auth=header, context=tls(cert, key))
            try:
                self.again(f"export={server.url}", f"export_auth={secret}", f"export_ca={cert}")
                self.work(3)
                self.all_there(server)
                cmdline = read(f"/proc/{self.exporter()}/cmdline")
                self.assertNotIn("abc", cmdline)
                self.assertNotIn("pass", cmdline)
                untrusted = self.by_hand("--auth", secret, to=server.url, wait=False, spool=self.path("u"))
                time.sleep(1)
                untrusted.terminate()
                untrusted.wait()
                self.assertEqual(["u"], [n for n in ("u",) if not os.listdir(self.path("u"))], "it trusted anybody")
            finally:
                server.stop()
        refused = self.by_hand("--auth", secret, to="http://192.0.2.1:9200")
        self.assertEqual(125, refused.returncode)
        self.assertIn("https", refused.stderr)

    def test_what_cannot_be_is_refused_in_words(self):
        for to in ("ftp://x", "https://", "http://user:p@h", "file:rel", "https://h:0", "https://h:70000", "http://h/?q", "syslog+udp://"):
            done = self.by_hand(to=to)
            self.assertEqual(125, done.returncode, to)
            self.assertIn("carrel-export: ", done.stderr)
        done = carrel("serve", "--state", self.path("n"), "--listen", "", "--set", "export=ftp://x")
        self.assertIn("'export' must be", done.stderr)

    def test_the_exporter_can_reach_nothing_else(self):
        """Landlock: not the key, not the database, not a directory beside."""
        self.again(f"export={self.bulk.url}")
        self.work(1)
        self.all_there()
        self.assertIn("NoNewPrivs:\t1", read(f"/proc/{self.exporter()}/status"))
        beside = self.path("beside")
        os.mkdir(beside, 0o777)
        done = self.by_hand("--spool", "/nope", to=f"file:{beside}/x")
        self.assertEqual(125, done.returncode)


class Retained(ExportTest):
    def test_what_is_not_exported_does_not_go_until_there_is_too_much_of_it(self):
        self.bulk.stop()
        self.again(f"export={self.bulk.url}", "audit_segment=4K", "audit_keep_bytes=8K", "audit_heads=200ms", "audit_hold=1G")
        self.work(60)
        time.sleep(1.5)
        self.assertIn("000000001.jsonl", os.listdir(f"{self.daemon.state}/audit"), "it went before it was exported")
        everything = expected(self.daemon.state)
        self.bulk.start()
        self.wait_for(lambda: everything.keys() <= self.bulk.documents.keys(), "records do not arrive")
        self.wait_for(lambda: "000000001.jsonl" not in os.listdir(f"{self.daemon.state}/audit"), "it stays though it was exported")
        self.assertEqual(0, carrel("audit", "verify", "--state", self.daemon.state).returncode)
        self.bulk.stop()
        self.again(f"export={self.bulk.url}", "audit_segment=4K", "audit_keep_bytes=8K", "audit_heads=200ms", "audit_hold=24K")
        first = min(os.listdir(f"{self.daemon.state}/audit"))
        self.work(120)
        self.wait_for(lambda: first not in os.listdir(f"{self.daemon.state}/audit"), "the bound does not hold")
        self.wait_for(lambda: "audit_unexported" in self.daemon.said(), "what goes unexported is not told")  # some were exported
        self.wait_for(lambda: any(r["operation"] == "audit.retention" and r["details"].get("unexported") for r in self.daemon.audit()),
                      "nor is it on record")


class Elsewhere(ExportTest):
    def lines(self, path):
        return [json.loads(line) for line in read(path).splitlines(keepends=True) if line.endswith("\n")]

    def test_a_file_has_every_record_once_also_after_it_was_moved_away(self):
        folder = self.path("out")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        path = f"{folder}/records.jsonl"
        self.again(f"export=file:{path}")
        self.work(5)

        def ids():
            return [d["event"]["id"] for name in sorted(os.listdir(folder), reverse=True) for d in self.lines(f"{folder}/{name}")]
        self.wait_for(lambda: os.path.exists(path) and set(ids()) == set(expected(self.daemon.state)), "not all is there")
        os.rename(path, f"{path}.1")
        self.work(5)
        self.wait_for(lambda: os.path.exists(path) and set(ids()) == set(expected(self.daemon.state)), "it was not opened anew")
        self.daemon.stop()
        for name in os.listdir(f"{self.daemon.state}/export"):  # as if it had been killed before it noted how far it was
            if name.startswith("cursor"):
                os.unlink(f"{self.daemon.state}/export/{name}")
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"torn":')
        self.daemon.start()
        self.work(2)
        self.wait_for(lambda: '{"torn"' not in read(path) and set(ids()) == set(expected(self.daemon.state)), "not all is there")
        self.assertEqual(len(ids()), len(set(ids())))

    def receive(self, kind):
        """A log that keeps what it is sent."""
        got = []
        if kind == "unix":
            where = self.path("log")
            own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            own.bind(where)
            os.chmod(where, 0o777)
            target = f"syslog+unix:{where}"
        else:
            own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            own.bind(("127.0.0.1", 0))
            target = f"syslog+{kind}://127.0.0.1:{own.getsockname()[1]}"

        def datagrams():
            while data := own.recv(1 << 16):
                got.append(data)

        def stream():
            own.listen()
            connection = own.accept()[0].makefile("rb")
            while count := b"".join(iter(lambda: connection.read(1), b" ")).strip():
                got.append(connection.read(int(count)))
        threading.Thread(target=stream if kind == "tcp" else datagrams, daemon=True).start()
        return own, target, got

    def test_a_system_log_gets_every_record(self):
        self.work(8)
        wanted = set(expected(self.daemon.state))
        for kind in ("unix", "udp", "tcp"):
            with self.subTest(kind):
                own, target, got = self.receive(kind)
                time.sleep(0.1)
                done = self.by_hand(to=target, spool=self.path(kind))
                self.assertEqual(0, done.returncode, done.stderr)
                self.wait_for(lambda: len(got) >= len(wanted), f"{len(got)} came")
                for message in got:
                    head = re.fullmatch(r'<(11[0-1]|108)>1 \S+Z \S+ carrel - \S+ \[carrel@32473 id="(\S+)" sequence="\d+"\] (\{.*\})',
                                        message.decode(), re.S)
                    self.assertTrue(head, message)
                    self.assertIn(head[2], wanted)
                    self.assertEqual(head[2], json.loads(head[3])["event"]["id"])
                self.assertEqual(wanted, {re.search(r'id="(\S+)"', m.decode())[1] for m in got})
                own.close()


class Named(DaemonTest):
    """The daemon is the one that other verbs find too."""

    def test_the_socket_and_the_address_say_whose_record_is_sent(self):
        self.daemon.post("/v1/keys", {"owner": "named", "scopes": ["user"]})
        with open(f"{self.daemon.state}/admin.key", encoding="ascii") as file:
            key = file.read().strip()
        for name, env in {"socket": {"CARREL_SOCKET": self.daemon.socket},
                          "url": {"CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}", "CARREL_KEY": key}}.items():
            with self.subTest(name):
                to = self.path(f"{name}.jsonl")
                done = carrel("audit", "export", "--to", f"file:{to}", env={**os.environ, **env})
                self.assertEqual(0, done.returncode, done.stderr)
                with open(to, encoding="utf-8") as file:
                    sent = [json.loads(json.loads(line)["event"]["original"])["seq"] for line in file]
                self.assertEqual([r["seq"] for r in self.daemon.audit()], sent)
        self.assertEqual([], [n for n in os.listdir(os.environ["TMPDIR"]) if n.startswith("carrel-export")])
        done = carrel("audit", "export", "--to", f"file:{to}", env={**os.environ, "CARREL_SOCKET": self.path("none")})
        self.assertEqual(125, done.returncode)


if __name__ == "__main__":
    unittest.main(verbosity=0)
