#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 35
"""Signed heads of the record: what they show that the chain alone cannot (attack 76), rotation, retention, and who has
the key."""
import base64
import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

from carreltest import PATIENCE, ROOT, carrel, read
from daemontest import Daemon, DaemonTest


def verify(state, *options):
    return carrel("audit", "verify", "--state", state, *options)


def segments(state):
    return sorted(os.listdir(f"{state}/audit"))


def lines_of(state):
    """All lines of all segments, with where each is."""
    found = []
    for name in segments(state):
        with open(f"{state}/audit/{name}", "rb") as file:
            found += [(name, number, line) for number, line in enumerate(file.read().splitlines(keepends=True), 1)]
    return found


def rehashed(lines, start):
    """The chain made anew from a line on, as somebody would who can write all files."""
    made = list(lines[:start])
    before = hashlib.sha256(lines[start - 1].rstrip(b"\n")).hexdigest() if start else "0" * 64
    for line in lines[start:]:
        record = json.loads(line)
        record["prev"] = before
        anew = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
        before = hashlib.sha256(anew).hexdigest()
        made.append(anew + b"\n")
    return made


def child(daemon, name):
    for pid in os.listdir("/proc"):
        try:
            stat = read(f"/proc/{pid}/stat") if pid.isdigit() else ""
        except OSError:
            continue
        if f"({name})" in stat and int(stat.rsplit(")", 1)[1].split()[1]) == daemon.process.pid:
            return int(pid)
    return None


class HeadsTest(DaemonTest):
    def wait_for(self, what, why):
        deadline = time.monotonic() + PATIENCE
        while not (found := what()):
            self.assertLess(time.monotonic(), deadline, f"{why}\n{self.daemon.said()[-2000:]}")
            time.sleep(0.05)
        return found

    def heads(self, path=None):
        try:
            return [json.loads(line) for line in read(path or f"{self.daemon.state}/heads/heads.jsonl").splitlines()]
        except FileNotFoundError:
            return []

    def work(self, count):
        for number in range(count):
            self.assertEqual(201, self.daemon.post("/v1/keys", {"owner": f"o{number}", "scopes": ["user"]}).status)

    def broken(self, state, words, line=None, file=None, options=()):
        done = verify(state, *options)
        self.assertEqual(1, done.returncode, f"passed for whole: {done.stdout}{done.stderr}")
        self.assertIn(words, done.stderr)
        told = json.loads(verify(state, "--json", *options).stdout)
        self.assertFalse(told["whole"])
        if line:
            self.assertEqual((file or "000000001.jsonl", line), (told["problem"]["file"], told["problem"]["line"]), told)
        return told


class Anchored(HeadsTest):
    options = ("--set", "audit_heads=200ms")

    def setUp(self):
        super().setUp()
        self.sink = self.path("sink.jsonl")

    def signed(self):
        """A record with several heads, the daemon stopped; its lines, its heads."""
        for _ in range(3):
            self.work(3)
            last = len(lines_of(self.daemon.state))
            self.wait_for(lambda: self.heads() and self.heads()[-1]["seq"] >= last, "no head is signed")
        self.daemon.stop()
        return [line for _, _, line in lines_of(self.daemon.state)], self.heads()

    def copy(self, lines=None, heads=True):
        """The state directory as somebody has left it who changed its record."""
        there = self.path("spoiled")
        shutil.rmtree(there, ignore_errors=True)
        os.makedirs(f"{there}/audit")
        if lines is None:
            lines = [line for _, _, line in lines_of(self.daemon.state)]
        with open(f"{there}/audit/000000001.jsonl", "wb") as file:
            file.writelines(lines)
        shutil.copytree(f"{self.daemon.state}/heads", f"{there}/heads")
        if not heads:
            os.unlink(f"{there}/heads/heads.jsonl")
        return there

    def test_a_stopped_daemon_leaves_a_record_that_is_signed_to_its_end(self):
        lines, heads = self.signed()
        self.assertEqual(len(lines), heads[-1]["seq"])
        self.assertEqual(hashlib.sha256(lines[-1].rstrip(b"\n")).hexdigest(), heads[-1]["hash"])
        done = verify(self.daemon.state)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, rf"anchor   record {len(lines)}, signed 2\S+Z by key {heads[-1]['key']}")
        self.assertNotIn("unanchored", done.stdout)
        self.assertIn("no sink: ", done.stdout)
        told = json.loads(verify(self.daemon.state, "--json").stdout)
        self.assertEqual((len(lines), 0, "none", True),
                         (told["anchored_seq"], told["unanchored"], told["sink"], told["whole"]))

    def test_openssl_finds_the_signature_good(self):
        _, heads = self.signed()
        pem = self.path("key.pem")
        with open(pem, "w", encoding="ascii") as file:
            file.write(carrel("audit", "key", "--pem", "--state", self.daemon.state).stdout)
        head = heads[-1]
        text = json.dumps(head, separators=(",", ":"))
        with open(self.path("message"), "w", encoding="ascii") as file:
            file.write("carrel audit head\n" + text[:text.index(',"sig"')])
        with open(self.path("signature"), "wb") as file:
            file.write(bytes.fromhex(head["sig"]))
        done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", pem, "-rawin", "-in", self.path("message"),
                               "-sigfile", self.path("signature")], capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()
        self.assertRegex(key, "^ed25519:[0-9a-f]{64}$")
        self.assertIn(key.removeprefix("ed25519:"), base64.b64decode(read(pem).splitlines()[1]).hex())
        self.assertEqual(head["key"], hashlib.sha256(bytes.fromhex(key[8:])).hexdigest()[:16])

    def test_every_tampering_is_named_at_its_first_line(self):
        lines, heads = self.signed()
        key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()
        n, seqs = len(lines), [head["seq"] for head in heads]
        middle = seqs[0] + 1  # the line after the first head: index seqs[0]
        changed = lines[middle - 1].replace(b'"actor":"', b'"actor":"m', 1)
        cases = {
            "edit": ([*lines[:middle - 1], changed, *lines[middle:]], "changed", middle),
            "edit of a signed line": ([*lines[:seqs[0] - 1], lines[seqs[0] - 1].replace(b'"actor":"', b'"actor":"m', 1),
                                       *lines[seqs[0]:]], "changed", seqs[0]),
            "deletion": ([*lines[:middle - 1], *lines[middle:]], "missing", middle),
            "insertion": ([*lines[:middle], lines[middle - 1], *lines[middle:]], "out of order", middle + 1),
            "reorder": ([*lines[:middle - 1], lines[middle], lines[middle - 1], *lines[middle + 1:]], "missing", middle),
            "cut": (lines[:seqs[-2]], "cut off", seqs[-2] + 1),
            "cut to nothing": ([], "cut off", 1),
            "rewritten": (rehashed([*lines[:middle - 1], changed, *lines[middle:]], middle), "written anew", seqs[0] + 1),
            "rewritten from the first": (rehashed([lines[0].replace(b'"actor":"', b'"actor":"m', 1), *lines[1:]], 1),
                                         "written anew", 1),
        }
        for what, (spoiled, words, line) in cases.items():
            with self.subTest(what):
                self.broken(self.copy(spoiled), words, line)
        kept = shutil.copy(f"{self.daemon.state}/heads/heads.jsonl", self.path("kept.jsonl"))
        with self.subTest("rewritten, and the heads taken away: seen with those kept elsewhere"):
            anew = rehashed([*lines[:middle - 1], changed, *lines[middle:]], middle)
            there = self.copy(anew, heads=False)
            self.broken(there, "removed or emptied")
            os.unlink(f"{there}/heads/keys")
            self.broken(there, "a daemon's state directory without the key")
            os.rmdir(f"{there}/heads")
            done = verify(there)
            self.assertEqual(0, done.returncode, "nobody can see this without a head, in a copy of the record alone")
            self.assertIn(f"tail unanchored: {n} records, and no signed head", done.stdout)
            self.assertIn("no sink", done.stdout)
            self.assertIn("not ruled out: that the record was cut off or written anew", done.stdout)
            self.broken(there, "written anew", seqs[0] + 1, options=("--head", kept, "--key", key))

    def test_a_head_that_was_forged_or_changed_is_told(self):
        lines, heads = self.signed()
        key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()
        path = f"{self.copy()}/heads/heads.jsonl"
        good = read(path)
        for what, text in {"a hash": good.replace(heads[0]["hash"], heads[1]["hash"], 1),
                           "a time": good.replace(heads[0]["time"][:4], "1999", 1),
                           "a signature": good.replace(heads[0]["sig"], heads[1]["sig"], 1),
                           "a member more": good.replace('{"head":1,', '{"head":1,"x":1,', 1)}.items():
            with self.subTest(what), open(path, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                self.assertIn("line 1 of the heads", self.broken(self.path("spoiled"), "heads")["heads_problem"])
        with self.subTest("heads of another key"):
            other = Daemon(self.path("o"))
            other.stop()
            theirs = f"{other.state}/heads/heads.jsonl"
            self.broken(self.daemon.state, "signature is not that of", options=("--head", theirs, "--key", key))
            self.broken(other.state, "signature is not that of", options=("--key", key))
        self.assertEqual(0, verify(self.daemon.state, "--key", key).returncode)
        self.assertEqual(125, verify(self.daemon.state, "--key", "ed25519:12").returncode)
        self.assertEqual(125, verify(self.daemon.state, "--head", "/nope").returncode)

    def test_what_came_after_the_last_head_is_told_as_unanchored(self):
        self.signed()
        self.daemon.options = ("--set", "audit_heads=0")
        self.daemon.start()
        self.work(4)
        after = len(lines_of(self.daemon.state)) - self.heads()[-1]["seq"]
        self.assertGreaterEqual(after, 4)
        for options in (("--state", self.daemon.state), ("--remote",)):
            done = carrel("audit", "verify", *options,
                          env={**os.environ, "CARREL_SOCKET": self.daemon.socket})
            self.assertIn(f"tail unanchored: {after} records after head {self.heads()[-1]['seq']}", done.stdout, done.stderr)
            self.assertEqual(0, done.returncode)
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.assertIn(f"tail unanchored: {after} records", verify(self.daemon.state).stdout)
        self.daemon.start()  # signs for what the killed one has left
        self.assertGreaterEqual(self.heads()[-1]["seq"], after)

    def test_over_http_the_same_is_found(self):
        self.work(5)
        self.wait_for(self.heads, "no head")
        env = {**os.environ, "CARREL_URL": f"http://127.0.0.1:{self.daemon.tcp_port()}",
               "CARREL_KEY": read(f"{self.daemon.state}/admin.key").strip()}
        done = carrel("audit", "verify", "--remote", "--json", env=env)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual((True, len(lines_of(self.daemon.state))), (told["whole"], told["records"]))
        key = carrel("audit", "key", "--remote", env=env).stdout
        self.assertEqual(carrel("audit", "key", "--state", self.daemon.state).stdout, key)
        alice = self.daemon.key("alice")
        for path in ("raw", "heads", "keys"):
            self.assertEqual(403, self.daemon.get(f"/v1/audit/{path}", key=alice).status)
        # Under the daemon's feet: a line in the middle.
        path = f"{self.daemon.state}/audit/000000001.jsonl"
        with open(path, "r+b") as file:
            text = file.read()
            at = text.index(b'"actor":"socket"', text.index(b"\n"))
            file.seek(at)
            file.write(b'"actor":"sockeT"')
        done = carrel("audit", "verify", "--remote", env=env)
        line = text[:at].count(b"\n") + 1
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn(f"record, line {line}: changed", done.stderr)
        with open(path, "wb") as file:
            file.write(text)

    def test_a_state_directory_put_back_as_a_whole_is_seen_by_the_sinks_file(self):
        self.daemon.stop()
        self.daemon.options += ("--set", f"audit_sink_file={self.sink}")
        self.daemon.start()
        self.work(3)
        self.daemon.stop()
        key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()
        backup = shutil.copytree(self.daemon.state, self.path("backup"), symlinks=True)
        at = len(lines_of(self.daemon.state))
        self.daemon.start()
        self.work(5)
        self.daemon.stop()
        done = verify(self.daemon.state, "--head", self.sink, "--key", key)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertNotIn("no sink", done.stdout)
        self.assertIn("sink: heads are also sent elsewhere (file)", verify(self.daemon.state).stdout)
        self.assertEqual(0, verify(backup).returncode, "the copy agrees with itself")
        self.broken(backup, "an earlier one put back", at + 1, options=("--head", self.sink, "--key", key))
        if ROOT:
            self.assertEqual((1879048189, 0o640), (os.stat(self.sink).st_uid, os.stat(self.sink).st_mode & 0o777))

    def test_a_daemon_that_goes_on_with_a_state_put_back_is_seen_too(self):
        self.daemon.stop()
        self.daemon.options += ("--set", f"audit_sink_file={self.sink}")
        self.daemon.start()
        self.daemon.stop()
        key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()
        subprocess.run(["cp", "-a", self.daemon.state, self.path("backup")], check=True)
        at = len(lines_of(self.daemon.state))
        self.daemon.start()
        self.work(5)
        self.daemon.stop()
        last = len(lines_of(self.daemon.state))
        shutil.rmtree(self.daemon.state)
        os.rename(self.path("backup"), self.daemon.state)
        self.daemon.start()
        self.work(9)
        self.daemon.stop()
        self.assertEqual(0, verify(self.daemon.state).returncode)
        told = self.broken(self.daemon.state, "written anew", options=("--head", self.sink, "--key", key))
        # Heads of the second life agree with it up to the first record that has one of each life.
        self.assertIn(told["problem"]["line"], range(at + 1, last + 1))

    def test_a_daemon_does_not_go_on_with_what_was_not_signed(self):
        lines, heads = self.signed()
        anew = rehashed([*lines[:3], lines[3].replace(b'"actor":"', b'"actor":"m', 1), *lines[4:]], 4)
        kept = f"{self.daemon.state}/audit/000000001.jsonl"
        for spoiled in (anew, lines[:heads[0]["seq"]]):
            with open(kept, "wb") as file:
                file.writelines(spoiled)
            done = carrel("serve", "--state", self.daemon.state, "--listen", "127.0.0.1:0", "--set", f"socket={self.daemon.socket}")
            self.assertEqual(125, done.returncode)
            self.assertIn("the record is not the one that was signed", done.stderr)
            self.assertEqual(spoiled, [line for _, _, line in lines_of(self.daemon.state)], "it wrote to it")
        with open(kept, "wb") as file:
            file.writelines(lines)
        self.daemon.start()
        self.assertEqual(0, verify(self.daemon.state).returncode)

    def test_nobody_but_the_sink_has_the_key(self):
        self.wait_for(self.heads, "no head")
        key = f"{self.daemon.state}/sink/key"
        self.assertEqual(0o600, os.stat(key).st_mode & 0o777)
        sink, front = child(self.daemon, "carrel-sink"), self.daemon.front_pid()
        self.assertTrue(sink)
        if ROOT:
            uids = {os.stat(f"/proc/{pid}").st_uid for pid in (front, self.daemon.process.pid)}
            self.assertEqual(1879048189, os.stat(key).st_uid)
            self.assertNotIn(os.stat(key).st_uid, uids)
            # The front's user can neither read the key nor write heads or record.
            for path in (key, f"{self.daemon.state}/heads/heads.jsonl", f"{self.daemon.state}/audit/000000001.jsonl"):
                done = subprocess.run(["setpriv", "--reuid=1879048190", "--regid=1879048190", "--clear-groups",
                                       "sh", "-c", f": >>{path}"], capture_output=True, check=False)
                self.assertNotEqual(0, done.returncode, path)
            done = subprocess.run(["setpriv", "--reuid=1879048190", "--regid=1879048190", "--clear-groups", "cat", key],
                                  capture_output=True, check=False)
            self.assertNotEqual(0, done.returncode)
        os.kill(sink, signal.SIGSTOP)  # dies with an order that it has not answered
        self.work(1)
        time.sleep(0.5)
        os.kill(sink, signal.SIGKILL)
        self.wait_for(lambda: child(self.daemon, "carrel-sink") not in (None, sink), "no other sink")
        self.work(2)
        last = len(lines_of(self.daemon.state))
        self.wait_for(lambda: self.heads()[-1]["seq"] >= last, "it signs no more")
        self.daemon.stop()
        self.assertEqual(0, verify(self.daemon.state).returncode)

    def test_the_front_cannot_write_what_only_the_broker_knows(self):
        """A checkpoint is believed: so nobody else's record may pass for one."""
        done = self.daemon.post("/v1/keys", {"owner": "o", "scopes": ["user"], "name": '","operation":"audit.retention'})
        self.assertIn(done.status, (201, 400))
        self.assertNotIn("audit.retention", {r["operation"] for r in self.daemon.audit()})

    def test_heads_are_posted_to_another_host_through_its_outages(self):
        got, answers = [], iter([503, 500, None, 403] + [200] * 1000)

        class Keeper(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = next(answers)
                if answer is None:
                    self.close_connection = True
                    return
                if answer == 200:
                    got.append((body, self.headers["Authorization"]))
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                body = b"".join(line + b"\n" for line, _ in got)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeper)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/heads"
            secret = self.path("secret")
            with open(secret, "w", encoding="ascii") as file:
                file.write("Bearer abc\n")
            os.chmod(secret, 0o600)
            self.daemon.stop()
            self.daemon.options += ("--set", f"audit_sink_url={url}", "--set", f"audit_sink_auth={secret}")
            self.daemon.start()
            self.work(4)
            last = len(lines_of(self.daemon.state))
            self.wait_for(lambda: got and json.loads(got[-1][0])["seq"] >= last, "the heads do not arrive")
            self.assertEqual({"Bearer abc"}, {auth for _, auth in got})
            self.assertEqual(sorted({body for body, _ in got}, key=lambda b: json.loads(b)["seq"]), [body for body, _ in got])
            self.daemon.stop()
            key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()
            done = verify(self.daemon.state, "--head", url, "--key", key)
            self.assertEqual(0, done.returncode, done.stderr)
            with open(f"{self.daemon.state}/audit/000000001.jsonl", "r+b") as file:
                text = file.read()
                file.truncate(text[:-1].rindex(b"\n", 0, text[:-1].rindex(b"\n")) + 1)
            shutil.rmtree(f"{self.daemon.state}/heads")
            self.broken(self.daemon.state, "cut off", options=("--head", url, "--key", key))
        finally:
            server.shutdown()
            server.server_close()


class Robbed(HeadsTest):
    """What is done to the heads and keys themselves, by somebody who cannot sign."""
    options = ("--set", "audit_heads=200ms")

    def setUp(self):
        super().setUp()
        for _ in range(3):
            self.work(3)
            last = len(lines_of(self.daemon.state))
            self.wait_for(lambda: self.heads() and self.heads()[-1]["seq"] >= last, "no head is signed")
        self.kept = shutil.copy(f"{self.daemon.state}/heads/heads.jsonl", self.path("kept.jsonl"))
        self.key = carrel("audit", "key", "--state", self.daemon.state).stdout.strip()

    def spoiled(self, change, *names):
        """A copy of the state directory after `change` was called with it; all but its workspaces."""
        there = self.path("spoiled")
        shutil.rmtree(there, ignore_errors=True)
        os.mkdir(there)
        for name in ("audit", "heads", "sink"):
            shutil.copytree(f"{self.daemon.state}/{name}", f"{there}/{name}")
        change(there, *names)
        return there

    @staticmethod
    def heads_become(function):
        def change(there):
            with open(f"{there}/heads/heads.jsonl", "r+b") as file:
                lines = function(file.read().splitlines(keepends=True))
                file.seek(0)
                file.writelines(lines)
                file.truncate()
        return change

    def test_heads_that_were_robbed_are_missed(self):
        self.daemon.stop()
        other = Daemon(self.path("o"))
        other.stop()

        def from_other(*names):
            def change(there):
                for name in names:
                    shutil.copy(f"{other.state}/heads/{name}", f"{there}/heads/{name}")
            return change
        become = self.heads_become
        for what, change, words in [
                ("removed", lambda there: os.unlink(f"{there}/heads/heads.jsonl"), "removed or emptied"),
                ("emptied", become(lambda lines: []), "removed or emptied"),
                ("all of heads/ removed", lambda there: shutil.rmtree(f"{there}/heads"), "removed or emptied"),
                ("rolled back", become(lambda lines: lines[:1]), "heads were taken away"),
                ("the last one taken away", become(lambda lines: lines[:-1]), "heads were taken away"),
                ("the last one torn", become(lambda lines: [*lines[:-1], lines[-1][:-9]]), "heads were taken away"),
                ("swapped", become(lambda lines: [lines[1], lines[0], *lines[2:]]), "they go backwards"),
                ("reversed", become(lambda lines: lines[::-1]), "they go backwards"),
                ("one of them emptied", become(lambda lines: [lines[0], b"\n", *lines[2:]]), "is not a signed head"),
                ("heads of another record", from_other("heads.jsonl"), "the signature is not that of"),
                ("heads and key of another record", from_other("heads.jsonl", "keys"), "written anew"),
                ("the keys removed", lambda there: os.unlink(f"{there}/heads/keys"), "the signature is not that of"),
                ("the keys emptied", lambda there: open(f"{there}/heads/keys", "w").close(), "the signature is not that of"),
                ("the keys of another", from_other("keys"), "the signature is not that of")]:
            with self.subTest(what):
                there = self.spoiled(change)
                self.broken(there, words)
                if "key" not in what and "record" not in what:
                    shutil.rmtree(f"{there}/sink")  # the record shows by itself what was signed
                    shutil.copy(f"{self.daemon.state}/heads/keys", f"{there}/heads/keys") if os.path.isdir(f"{there}/heads") else 0
                    self.assertEqual(0 if what.startswith("all of") else 1, verify(there).returncode)
        self.assertEqual(0, verify(self.daemon.state).returncode)

    def test_a_state_directory_without_heads_and_key_is_no_bare_copy(self):
        self.daemon.stop()
        signed = self.heads()[-2]["seq"]
        self.daemon.start()  # says in the record up to where it was signed
        self.daemon.stop()
        last = self.heads()[-1]["seq"]
        for name in ("heads", "sink"):
            os.rename(f"{self.daemon.state}/{name}", self.path(name))
        self.broken(self.daemon.state, "not verified, for its heads: this is a daemon's state directory without the key that signs "
                    "them, and no signed head in heads/heads.jsonl: it was removed or emptied")
        self.broken(self.daemon.state, "removed or emptied", options=("--head", self.kept, "--key", self.key))
        bare = self.path("bare")
        shutil.copytree(f"{self.daemon.state}/audit", f"{bare}/audit")
        done = verify(bare)
        self.assertEqual(0, done.returncode, done.stderr)
        said = re.search(r"(?m)^not ruled out: that the record was cut off or written anew: it says that records up to (\d+) were "
                         r"signed, and this copy is without heads and key; give heads kept elsewhere with --head, and the key with "
                         r"--key$", done.stdout)
        self.assertTrue(said, done.stdout)
        self.assertTrue(signed <= int(said[1]) <= last, f"{signed} {said[1]} {last}")
        os.mkdir(f"{bare}/main")  # whatever else lies there
        self.broken(bare, "removed or emptied")
        for name in ("heads", "sink"):
            os.rename(self.path(name), f"{self.daemon.state}/{name}")
        self.assertEqual(0, verify(self.daemon.state).returncode)

    def test_what_only_kept_heads_show_is_said_not_to_be_ruled_out(self):
        def earlier(there):
            """The whole state directory as it was some heads ago."""
            first = self.heads()[1]["seq"]
            self.heads_become(lambda lines: lines[:2])(there)
            with open(f"{there}/audit/000000001.jsonl", "r+b") as file:
                lines = file.read().splitlines(keepends=True)
                file.truncate(sum(map(len, lines[:first])))
            shutil.rmtree(f"{there}/sink")
        self.daemon.stop()
        there = self.spoiled(earlier)
        done = verify(there)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("not ruled out: that the end was cut off, together with its heads or since the newest of them, or the "
                      "whole record replaced and signed with another key; keep heads elsewhere and give them with --head, and "
                      "the key with --key\n", done.stdout)
        self.assertIn("that the end was cut off", json.loads(verify(there, "--json").stdout)["not_ruled_out"])
        self.assertNotIn("another key", verify(there, "--key", self.key).stdout)
        self.broken(there, "it was cut off", options=("--head", self.kept))
        self.broken(there, "not in the chain", options=("--head", self.heads(self.kept)[-1]["hash"]))
        other = Daemon(self.path("o"))
        other.stop()
        self.assertEqual(0, verify(other.state).returncode, "another one's record, and key, are whole")
        self.broken(other.state, "signature is not that of", options=("--key", self.key))
        self.broken(other.state, "signature is not that of", options=("--head", self.kept))
        empty = self.path("empty")
        with open(empty, "w", encoding="ascii"):
            pass
        self.broken(self.daemon.state, "holds no signed head", options=("--head", empty))
        done = verify(self.daemon.state, "--head", self.kept, "--key", self.key)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f"not ruled out: that records after {self.heads(self.kept)[-1]['seq']}, the newest vouched for by --head, were "
                      "cut off\n", done.stdout)

    def test_a_daemon_does_not_go_on_without_the_heads_it_signed(self):
        self.daemon.stop()
        heads = f"{self.daemon.state}/heads/heads.jsonl"
        good, kept = read(heads), self.kept
        for what, text in {"removed": None, "emptied": "", "rolled back": good[:good.index("\n") + 1]}.items():
            with self.subTest(what):
                os.unlink(heads)
                if text is not None:
                    with open(heads, "w", encoding="ascii") as file:
                        file.write(text)
                    os.chown(heads, os.stat(f"{self.daemon.state}/sink/key").st_uid, -1)
                done = carrel("serve", "--state", self.daemon.state, "--listen", "127.0.0.1:0", "--set",
                              f"socket={self.daemon.socket}")
                self.assertEqual(125, done.returncode)
                self.assertIn("heads were taken away", done.stderr)
        os.unlink(heads)
        os.unlink(f"{self.daemon.state}/sink/last")
        self.daemon.start()
        self.assertEqual(["audit.anew"], [r["operation"] for r in self.daemon.audit() if r["operation"].startswith("audit.")])
        self.daemon.stop()
        self.broken(self.daemon.state, "the daemon found no signed head")
        self.assertEqual(0, verify(self.daemon.state, "--head", kept).returncode)

    def test_over_http_they_are_missed_too(self):
        env = {**os.environ, "CARREL_SOCKET": self.daemon.socket}
        path = f"{self.daemon.state}/heads/heads.jsonl"
        good = read(path)
        first, second, rest = good.split("\n", 2)
        for text, words in (("", "removed or emptied"), (f"{second}\n{first}\n{rest}", "they go backwards")):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            done = carrel("audit", "verify", "--remote", env=env)
            self.assertEqual(1, done.returncode, done.stdout)
            self.assertIn(words, done.stderr)
        with open(path, "w", encoding="ascii") as file:
            file.write(good)
        self.assertEqual(0, carrel("audit", "verify", "--remote", env=env).returncode)

    def test_the_line_for_cron_keeps_heads_that_verify_takes(self):
        with open(f"{os.environ['SRC']}/docs/record.md", encoding="utf-8") as file:
            line = re.search(r"(?m)^\*/5 \* \* \* \* (ssh .*)$", file.read())[1]
        os.mkdir(self.path("home"))
        with open(self.path("ssh"), "w", encoding="ascii") as file:
            file.write('#!/bin/sh\nshift\nexec sh -c "$*"\n')
        os.chmod(self.path("ssh"), 0o755)
        env = {**os.environ, "PATH": f"{self.path('')}:{os.environ['PATH']}", "HOME": self.path("home")}
        line = line.replace("/var/lib/carrel", self.daemon.state)
        for _ in range(3):
            subprocess.run(["sh", "-c", line], cwd=self.path("home"), env=env, check=True)  # as cron does
            self.work(1)
            time.sleep(0.3)
        self.daemon.stop()
        kept = self.path("home/carrel-heads.jsonl")
        self.assertEqual(3, len(self.heads(kept)))
        self.assertEqual(0, verify(self.daemon.state, "--head", kept, "--key", self.key).returncode)
        there = self.spoiled(lambda there: [shutil.rmtree(f"{there}/{name}") for name in ("heads", "sink")])
        with open(f"{there}/audit/000000001.jsonl", "r+b") as file:
            file.truncate(len(file.readline()))
        self.broken(there, "cut off", options=("--head", kept, "--key", self.key))


class Rotated(HeadsTest):
    options = ("--set", "audit_heads=200ms", "--set", "audit_segment=4K")

    def test_each_full_segment_has_a_head_of_its_last_line(self):
        self.work(60)
        self.daemon.stop()
        self.assertGreater(len(segments(self.daemon.state)), 3)
        signed = {head["seq"]: head["hash"] for head in self.heads()}
        last = {}
        for name, _, line in lines_of(self.daemon.state):
            last[name] = line
        for name, line in last.items():
            seq = json.loads(line)["seq"]
            self.assertEqual(hashlib.sha256(line.rstrip(b"\n")).hexdigest(), signed.get(seq), f"{name}: record {seq}")
        self.assertEqual(0, verify(self.daemon.state).returncode)

    def test_the_oldest_go_and_the_rest_can_still_be_checked(self):
        self.daemon.stop()
        self.daemon.options += ("--set", "audit_keep_bytes=16K")
        self.daemon.start()
        for _ in range(6):
            self.work(20)
            time.sleep(0.5)
        self.wait_for(lambda: segments(self.daemon.state)[0] != "000000001.jsonl", "nothing goes")
        self.wait_for(lambda: sum(os.path.getsize(f"{self.daemon.state}/audit/{name}")
                                  for name in segments(self.daemon.state)) < 28 << 10, "too much stays")
        self.daemon.stop()
        done = verify(self.daemon.state)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        first = json.loads(lines_of(self.daemon.state)[0][2])
        self.assertIn(f"begins   with record {first['seq']}: ", done.stdout)
        gone = [r for r in self.daemon.audit() if r["operation"] == "audit.retention"][-1]
        self.assertGreaterEqual(gone["details"]["through"], first["seq"] - 1)
        self.assertEqual(gone["details"]["through"], gone["details"]["head"]["seq"])
        self.assertEqual(gone["details"]["hash"], gone["details"]["head"]["hash"])
        self.assertLessEqual(gone["details"]["head"]["seq"], self.heads()[0]["seq"])
        with self.subTest("a segment that was not put away"):
            there = shutil.copytree(self.daemon.state, self.path("fewer"), symlinks=True)
            names = segments(there)
            kept = [name for name in names if name > names[0]]
            os.unlink(f"{there}/audit/{names[0]}")
            if any(r["details"]["through"] >= json.loads(lines_of(there)[0][2])["seq"] - 1
                   for r in self.daemon.audit() if r["operation"] == "audit.retention"):
                os.unlink(f"{there}/audit/{kept.pop(0)}")
            self.broken(there, "the file is missing", 1)
        with self.subTest("one in the middle"):
            there = shutil.copytree(self.daemon.state, self.path("middle"), symlinks=True)
            names = segments(there)
            os.unlink(f"{there}/audit/{names[1]}")
            self.broken(there, "the file is missing", 1, names[1])
        with self.subTest("heads rolled back to before what was put away"):
            there = shutil.copytree(self.daemon.state, self.path("back"), symlinks=True)
            shutil.rmtree(f"{there}/sink")
            with open(f"{there}/heads/heads.jsonl", "r+b") as file:
                file.truncate(len(file.readline()))
            self.broken(there, "heads were taken away")
        with self.subTest("a first line that follows another one"):
            there = shutil.copytree(self.daemon.state, self.path("other"), symlinks=True)
            path = f"{there}/audit/{segments(there)[0]}"
            text = read(path)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(first["prev"], "0" * 64, 1))
            self.assertEqual(1, verify(there).returncode)
        self.daemon.start()
        self.work(2)
        self.assertEqual(0, verify(self.daemon.state).returncode)

    def test_age_begins_a_segment_and_ends_one(self):
        self.daemon.stop()
        self.daemon.options = ("--set", "audit_heads=200ms", "--set", "audit_segment_age=1s", "--set", "audit_keep=3s")
        self.daemon.start()
        deadline = time.monotonic() + PATIENCE
        while segments(self.daemon.state)[0] == "000000001.jsonl" or len(segments(self.daemon.state)) < 2:
            self.assertLess(time.monotonic(), deadline, self.daemon.said()[-1000:])
            self.work(1)
            time.sleep(0.3)
        self.daemon.stop()
        done = verify(self.daemon.state)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)


class Asked(HeadsTest):
    def test_every_filter_finds_what_it_should_and_nothing_else(self):
        self.workspace(id="desk")
        self.daemon.execute("desk", "exit 3")
        time.sleep(0.01)
        self.work(3)
        self.daemon.post("/v1/keys", {"owner": "later", "scopes": ["user"]})
        everything = self.daemon.audit()

        def got(query):
            answer = self.daemon.get(f"/v1/audit?limit=1000&{query}")
            self.assertEqual(200, answer.status, answer.bytes)
            return answer.json["records"]
        pivot = everything[len(everything) // 2]["time"]
        for query, test in {
                "operation=exec.*": lambda r: r["operation"].startswith("exec."),
                "operation=*": lambda r: True,
                "result=exit": lambda r: r["result"] == "exit",
                "until=4": lambda r: r["seq"] <= 4,
                "after=2&until=4": lambda r: 2 < r["seq"] <= 4,
                f"from={pivot}": lambda r: r["time"] >= pivot,
                f"to={pivot}": lambda r: r["time"] < pivot,
                f"from={pivot}&operation=key.*&result=ok&actor=socket":
                    lambda r: r["time"] >= pivot and r["operation"].startswith("key.") and r["actor"] == "socket",
                "from=1999-01-01&to=2999-01-01T00:00:00Z": lambda r: True,
                "from=2999-01-01": lambda r: False,
                "to=1999-01-01": lambda r: False}.items():
            with self.subTest(query):
                self.assertEqual([r for r in everything if test(r)], got(query))
        for odd in ("from=yesterday", "to=2026-1-1", "until=x", "from=2026-01-01T00:00:00.1234567Z"):
            self.assertEqual(400, self.daemon.get(f"/v1/audit?{odd}").status, odd)
        env = {**os.environ, "CARREL_SOCKET": self.daemon.socket}

        def tail(*options):
            done = carrel("audit", "tail", "--json", "-n", "1000", *options, env=env)
            self.assertEqual(0, done.returncode, done.stderr)
            return [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([r for r in everything if r["operation"].startswith("exec.")], tail("--operation", "exec.*"))
        self.assertEqual([r for r in everything if r["result"] == "exit"], tail("--result", "exit"))
        self.assertEqual(everything, tail("--from", "1h"))
        self.assertEqual([], tail("--to", "1h"))
        self.assertEqual(everything[2:5], tail("--after", "2", "--until", "5"))
        self.assertEqual([r for r in everything if r["time"] < pivot], tail("--to", pivot))


if __name__ == "__main__":
    unittest.main(verbosity=0)
