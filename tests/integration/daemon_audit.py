#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""The record of the daemon: every change is in it, nothing can be taken out, changed or put in without being found
(attack 76), and what cannot be recorded is not done."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import unittest

from carreltest import CARREL, PATIENCE, TMP, carrel, mount, private_mounts, read, write
from daemontest import Daemon, DaemonTest

FORGED = ('x"}\n{"seq":1,"time":"2026-01-02T03:04:05.678901Z","actor":"admin","workspace":"","request":"",'
          '"operation":"forged","result":"ok","details":{},"prev":"' + "0" * 64 + '"}\n')


def verify(state, *options):
    return carrel("audit", "verify", "--state", state, *options)


def lines_of(state):
    """All lines, as bytes; there is one segment in these tests."""
    with open(f"{state}/audit/000000001.jsonl", "rb") as file:
        return file.read().splitlines(keepends=True)


class Records(DaemonTest):
    def setUp(self):
        super().setUp()
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"], "name": "laptop"})
        self.made, self.alice, self.actor = made, made.json["key"], f"key:{made.json['id']}"

    def asked(self, method, path, body=None, expected=(200, 201, 204), key=""):
        """A request of Alice's that must succeed; and its id, as answered."""
        answer = self.daemon.request(method, path, body, key=self.alice if key == "" else key,
                                     headers={"X-Request-Id": "mine"})
        self.assertIn(answer.status, expected, answer.bytes)
        return answer, answer.headers["X-Request-Id"]

    def recorded(self, operation, request, workspace="desk", actor=None, result="ok"):
        """The one record of a request and operation."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = [r for r in self.daemon.audit() if (r["operation"], r["request"]) == (operation, request)]
            if found or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.assertEqual(1, len(found), f"{operation} of {request}: {found}")
        record = found[0]
        self.assertEqual((actor or self.actor, workspace, result),
                         (record["actor"], record["workspace"], record["result"]), record)
        return record

    def whole(self, state=None):
        """The chain, checked with nothing of Carrel's; then by Carrel."""
        state = state or self.daemon.state
        lines, done, deadline = None, None, time.monotonic() + PATIENCE
        while lines != list(lines_of(state)):  # what is still being recorded comes in between
            self.assertLess(time.monotonic(), deadline, "it never rests")
            lines, done = list(lines_of(state)), verify(state)
        before, last, number = "0" * 64, "", 0
        for line in lines:
            record = json.loads(line)
            number += 1
            self.assertEqual((number, before), (record["seq"], record["prev"]))
            self.assertRegex(record["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertLessEqual(last, record["time"])
            self.assertEqual({"seq", "time", "actor", "workspace", "request", "operation", "result", "details", "prev"},
                             set(record))
            before, last = hashlib.sha256(line.rstrip(b"\n")).hexdigest(), record["time"]
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("the chain is whole", done.stdout)
        self.assertIn(before, done.stdout)
        return before

    def test_every_change_has_its_record(self):
        self.recorded("key.create", self.made.headers["X-Request-Id"], workspace="", actor="socket")
        _, request = self.asked("POST", "/v1/workspaces", {"id": "desk"})
        self.recorded("workspace.create", request)
        _, request = self.asked("PATCH", "/v1/workspaces/desk", {"labels": {"a": "b"}})
        self.recorded("workspace.update", request)
        _, request = self.asked("PATCH", "/v1/workspaces/desk", {"policy": {"limits": {"timeout": "1m"}}})
        self.recorded("policy.set", request)
        self.commands()
        _, request = self.asked("POST", "/v1/workspaces/desk/sleep", {})
        self.assertEqual("desk", [r for r in self.daemon.audit() if r["operation"] == "sandbox.end"][-1]["workspace"])
        _, request = self.asked("DELETE", "/v1/workspaces/desk")
        self.recorded("workspace.delete", request)
        _, request = self.asked("POST", "/v1/workspaces/desk/undelete", {})
        self.recorded("workspace.undelete", request)
        _, request = self.asked("DELETE", "/v1/workspaces/desk?purge=1")
        self.recorded("workspace.purge", request)
        _, request = self.asked("DELETE", f"/v1/keys/{self.actor.removeprefix('key:')}")
        self.recorded("key.revoke", request, workspace="")
        self.assertNotIn("mine", {r["request"] for r in self.daemon.audit()}, "a client chose the id of its request")
        self.assertEqual("daemon.start", self.daemon.audit()[0]["operation"])
        self.whole()
        self.daemon.stop()
        self.assertEqual("daemon.stop", self.daemon.audit()[-1]["operation"])
        self.whole()

    def commands(self):
        at = "/v1/workspaces/desk/exec"
        ends = [("exit 3", {}, "exit"), ("sleep 60", {"timeout_ms": 200}, "timeout"), ("kill -9 $$", {}, "signal"),
                ("yes", {"limits": {"max_output": "64K"}}, "output")]
        for command, more, reason in ends:
            answer, request = self.asked("POST", at, {"command": command, **more})
            start = self.recorded("exec.start", request)
            end = self.recorded("exec.end", request, result=reason)
            self.assertEqual((answer.json["exec_id"], ["bash", "-c", command]),
                             (start["details"]["exec"], start["details"]["argv"]))
            self.assertEqual((answer.json["exec_id"], answer.json["exit_code"]),
                             (end["details"]["exec"], end["details"]["exit_code"]))
            self.assertLess(start["seq"], end["seq"])
        first = [r["operation"] for r in self.daemon.audit() if r["operation"] in ("sandbox.start", "exec.start", "exec.end")]
        self.assertEqual(["sandbox.start", "exec.start", "exec.end"], sorted(first[:3], key=["sandbox.start", "exec.start",
                                                                                         "exec.end"].index))
        self.assertEqual(1, first.count("sandbox.start"))
        connect = "import socket; socket.socket().connect(('203.0.113.5', 443))"
        answer, request = self.asked("POST", at, {"argv": ["python3", "-c", connect]})
        self.assertNotEqual([], answer.json["denials"], answer.json)
        denial = self.recorded("denial", request, result="denied")
        self.assertEqual("use the network", denial["details"]["what"])
        self.assertEqual(answer.json["exec_id"], denial["details"]["exec"])
        answer, request = self.asked("POST", at, {"command": "sleep 1000", "background": True}, expected=(202,))
        one = answer.json["exec_id"]
        self.assertEqual(one, self.recorded("exec.start", request)["details"]["exec"])
        _, signalled = self.asked("POST", f"{at}/{one}/signal", {"signal": "CONT"})
        self.assertEqual((one, 18), tuple(self.recorded("exec.signal", signalled)["details"][k] for k in ("exec", "signal")))
        _, killed = self.asked("POST", f"{at}/{one}/kill", {})
        self.assertEqual(one, self.recorded("exec.kill", killed)["details"]["exec"])
        self.recorded("exec.end", request, result="signal")

    def some_records(self):
        """A record of some length, the daemon stopped, and a copy of it to spoil."""
        self.asked("POST", "/v1/workspaces", {"id": "desk"})
        for number in range(4):
            self.asked("POST", "/v1/workspaces/desk/exec", {"command": f"exit {number}"})
        self.daemon.stop()
        return lines_of(self.daemon.state), self.whole()

    def broken(self, lines, line, *options):
        """These lines are found broken, at that line."""
        spoiled = self.path("spoiled")
        shutil.rmtree(spoiled, ignore_errors=True)
        os.makedirs(f"{spoiled}/audit")
        with open(f"{spoiled}/audit/000000001.jsonl", "wb") as file:
            file.writelines(lines)
        done = verify(spoiled, *options)
        self.assertEqual(1, done.returncode, f"passed for whole: {done.stdout}")
        self.assertRegex(done.stderr, rf"000000001\.jsonl, line {line}: ", done.stderr)
        told = json.loads(verify(spoiled, "--json", *options).stdout)
        self.assertEqual((False, line, "000000001.jsonl"), (told["whole"], told["problem"]["line"], told["problem"]["file"]))

    def test_ends_that_go_to_the_disk_together_are_there_when_they_are_told(self):
        missing, found = [], []

        def client(number):
            for _ in range(20):
                answer = self.daemon.post(f"/v1/workspaces/of{number}/exec", {"argv": ["true"]})
                end = b'"exec.end","result":"exit","details":{"exec":"%s"' % answer.json["exec_id"].encode()
                is_there = any(end in line for line in lines_of(self.daemon.state))
                (found if is_there else missing).append(answer.json["exec_id"])

        for number in range(8):
            self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": f"of{number}"}).status)
        clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        self.assertEqual(([], 160), (missing, len(found)))
        self.whole()

    def test_what_nobody_waits_for_is_on_record_soon(self):
        self.asked("POST", "/v1/workspaces", {"id": "desk"})
        _, request = self.asked("GET", "/v1/workspaces/desk/files/?list=1")
        deadline = time.monotonic() + PATIENCE
        started = f'"request":"{request}","operation":"sandbox.start"'.encode()
        while not any(started in line for line in lines_of(self.daemon.state)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_what_was_changed_taken_out_or_moved_is_found_at_its_line(self):
        lines, head = self.some_records()
        n = len(lines)
        for at in (1, 2, n // 2, n - 1):
            with self.subTest(line=at):
                changed = lines[at - 1].replace(b'"actor":"', b'"actor":"m', 1)
                self.assertNotEqual(changed, lines[at - 1])
                self.broken([*lines[:at - 1], changed, *lines[at:]], at)
                self.broken([*lines[:at - 1], *lines[at:]], at)
                if at < n - 1:
                    self.broken([*lines[:at - 1], lines[at], lines[at - 1], *lines[at + 1:]], at)
                self.broken([*lines[:at], lines[at - 1], *lines[at:]], at + 1)
                self.broken([*lines[:at - 1], b"\n", *lines[at - 1:]], at)
                self.broken([*lines[:at - 1], lines[at - 1][:-5] + b"\n", *lines[at:]], at)
                self.broken([*lines[:at - 1], lines[at - 1].replace(b"Z", b"Z\0", 1), *lines[at:]], at)
        self.broken([*lines[:-1], lines[-1][:-9]], n)  # torn
        self.broken([*lines, b"{}\n"], n + 1)
        # Cut off at the end, or the last one changed: to be seen only with a hash that was kept elsewhere.
        self.broken(lines[:-1], n - 1, "--head", head)
        self.broken([*lines[:-1], lines[-1].replace(b'"actor":"', b'"actor":"m', 1)], n, "--head", head)
        self.broken([], 0, "--head", head)
        self.assertEqual(0, verify(self.daemon.state, "--head", head).returncode)

    def test_a_chain_that_was_written_anew_does_not_have_the_head_that_was_kept(self):
        """The rollback within a second: the last records again, with the same times and other contents."""
        lines, head = self.some_records()
        before, anew = lines[:-3], []
        for line in lines[-3:]:
            record = json.loads(line)
            record["prev"] = hashlib.sha256((anew or before)[-1].rstrip(b"\n")).hexdigest()
            record["actor"] = "somebody"
            anew.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self.broken([*before, *anew], len(lines), "--head", head)

    def test_a_daemon_does_not_go_on_with_a_record_that_was_changed(self):
        lines, _ = self.some_records()
        kept = f"{self.daemon.state}/audit/000000001.jsonl"
        with open(kept, "wb") as file:
            file.writelines([*lines[:2], lines[2].replace(b'"actor":"', b'"actor":"m', 1), *lines[3:]])
        done = carrel("serve", "--state", self.daemon.state, "--listen", "127.0.0.1:0", "--set", f"socket={self.daemon.socket}")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("line 3", done.stderr + done.stdout)
        with open(kept, "wb") as file:  # what a power cut leaves is cut off, and that is recorded
            file.writelines([*lines, lines[-1][:40]])
        self.daemon.start()
        self.assertIn("audit.repair", {r["operation"] for r in self.daemon.audit()[len(lines):]})
        self.whole()

    def test_whoever_verifies_while_it_is_written_sees_no_damage(self):
        self.workspace(id="desk")
        state, stop = self.daemon.state, threading.Event()

        def write_records():
            with contextlib.suppress(OSError):
                while not stop.is_set():
                    self.daemon.execute("desk", "true")
        writers = [threading.Thread(target=write_records) for _ in range(3)]
        for writer in writers:
            writer.start()
        try:
            seen = []
            for _ in range(40):
                done = verify(state, "--json")
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                seen.append(json.loads(done.stdout)["records"])
            self.assertGreater(seen[-1], seen[0], "nothing was written meanwhile")
            self.assertEqual(sorted(seen), seen)
        finally:
            stop.set()
            for writer in writers:
                writer.join()

    def test_a_line_that_was_torn_by_a_kill_is_told_as_such(self):
        lines, head = self.some_records()
        self.daemon.process.kill()
        self.daemon.process.wait()
        kept = f"{self.daemon.state}/audit/000000001.jsonl"
        for cut in (1, 40, len(lines[-1]) - 1):
            with open(kept, "wb") as file:
                file.writelines([*lines, lines[-1][:cut]])
            done = verify(self.daemon.state, "--head", head)
            self.assertEqual(1, done.returncode)
            self.assertIn("has no end", done.stderr)
            self.assertNotIn("broken", done.stdout + done.stderr)
            self.assertIn(head, done.stdout)
            told = json.loads(verify(self.daemon.state, "--json").stdout)
            self.assertEqual((False, len(lines) + 1, cut),
                             (told["whole"], told["problem"]["line"], told["problem"]["torn_bytes"]))
        self.daemon.start()
        self.whole()

    def test_nothing_that_somebody_names_becomes_a_line(self):
        count = len(self.daemon.audit())
        names = [FORGED[:190], "a\nb", "a\u2028b", "\x7f\x1b]52;c;eA==\x07", '","operation":"forged","x":"']
        for name in names:
            made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"], "name": name})
            self.assertIn(made.status, (201, 400), made.bytes)
            count += made.status == 201
        self.asked("POST", "/v1/workspaces", {"id": "desk", "labels": {FORGED: FORGED, "x": names[-1]}})
        self.asked("PATCH", "/v1/workspaces/desk", {"labels": {"l": FORGED}})
        for odd in (FORGED, "desk\n", 'desk","operation":"forged'):
            self.assertEqual(400, self.daemon.post("/v1/workspaces", {"id": odd}).status)
            self.assertEqual(400, self.daemon.post("/v1/workspaces", {"owner": odd}).status)
        at = "/v1/workspaces/desk/exec"
        execs = [{"command": f"echo '{FORGED}'"}, {"argv": ["touch", f"/{FORGED.replace('/', '')}"]}, {"argv": [FORGED]},
                 {"argv": ["sh", "-c", 'touch "/usr/$1"; cat "/etc/$1" "$1"; unshare -U "$1"', "sh", FORGED.replace("/", "")]},
                 {"argv": ["true"], "env": {"A\nB": FORGED}}, {"argv": ["bash", "-c", "exec -a \"$1\" /nope", "x", FORGED]}]
        for body in execs:
            self.asked("POST", at, body)
        answer = self.daemon.post(at, {"argv": ["true"], "cwd": f"/{FORGED.replace('/', '')}"})
        self.assertTrue(answer.status == 400 or answer.json["exit_code"] == 125, answer.bytes)
        self.daemon.request("GET", "/v1/workspaces/desk", headers={"User-Agent": names[-1], "X-Actor": names[-1]})
        time.sleep(0.3)
        records = self.daemon.audit()
        self.assertEqual(set(), {r["operation"] for r in records} - {
            "daemon.start", "key.create", "workspace.create", "workspace.update", "sandbox.start", "exec.start", "exec.end",
            "denial"})
        self.assertEqual(len(execs), sum(r["operation"] == "exec.end" for r in records) - (
            sum(r["operation"] == "exec.start" for r in records) - len(execs)), "an end without a start")
        for line in lines_of(self.daemon.state):
            self.assertNotRegex(line[:-1], rb"[\x00-\x1f\x7f]")
        self.whole()

    def test_filters_pages_and_following(self):
        for name in ("desk", "other"):
            self.asked("POST", "/v1/workspaces", {"id": name})
            self.asked("POST", f"/v1/workspaces/{name}/exec", {"command": "true"})
        self.daemon.execute("desk", "true")
        everything = self.daemon.audit()

        def got(query, key=None):
            return self.daemon.get(f"/v1/audit?{query}", key=key).json["records"]
        self.assertEqual(everything, got("limit=1000"))
        for name in ("workspace", "operation", "actor"):
            for value in {r[name] for r in everything} - {""}:
                wanted = [r for r in everything if r[name] == value]
                self.assertEqual(wanted, got(f"limit=1000&{name}={value}"), f"{name}={value}")
        both = [r for r in everything if (r["workspace"], r["operation"], r["actor"]) == ("desk", "exec.end", "socket")]
        self.assertEqual(1, len(both))
        self.assertEqual(both, got("workspace=desk&operation=exec.end&actor=socket"))
        self.assertEqual([], got("workspace=nobodys"))
        self.assertEqual(everything[5:], got("limit=1000&after=5"))
        self.assertEqual([], got("after=1000000"))
        paged, after = [], 0
        while after is not None:
            page = self.daemon.get(f"/v1/audit?limit=3&after={after}").json
            self.assertLessEqual(len(page["records"]), 3)
            paged, after = paged + page["records"], page["next"]
        self.assertEqual(everything, paged)
        for odd in ("after=-1", "after=x", "limit=0", "limit=1001", "follow=2"):
            with self.subTest(query=odd):
                self.assertEqual(400, self.daemon.get(f"/v1/audit?{odd}").status)
        self.follows(everything)

    def follows(self, everything):
        stream = self.daemon.stream("GET", "/v1/audit?follow=1")
        ends = self.daemon.stream("GET", f"/v1/audit?follow=1&after={len(everything)}&operation=exec.end&workspace=other")
        self.assertEqual("application/x-ndjson", stream.headers["Content-Type"])
        self.assertEqual(everything, [json.loads(stream.readline()) for _ in everything])
        self.daemon.execute("desk", "true")
        self.daemon.execute("other", "exit 5")
        end = json.loads(ends.readline())
        self.assertEqual(("exec.end", "other", 5), (end["operation"], end["workspace"], end["details"]["exit_code"]))
        while json.loads(stream.readline()) != end:
            pass
        stream.keep.close()
        ends.keep.close()


    def test_a_page_is_not_empty_because_what_is_looked_for_is_far_away(self):
        ws = self.workspace()
        for i in range(60):
            policy = {"env": {"A": f"{i}" + "x" * 20000}}
            self.assertEqual(200, self.daemon.request("PATCH", f"/v1/workspaces/{ws}", {"policy": policy}).status)
        self.daemon.key("late")
        page = self.daemon.get("/v1/audit?operation=key.create&after=3").json
        self.assertEqual(["late"], [r["details"]["owner"] for r in page["records"]])
        self.assertIsNone(page["next"])
        whole = self.daemon.get("/v1/audit?operation=policy.set&limit=1000").json
        self.assertEqual((60, None), (len(whole["records"]), whole["next"]))


class Cramped(Daemon):
    """A daemon whose record is on a file system of its own, and small; a helper beside it fills it, makes room, and
    brings out a copy of the record, as nobody else can look in."""

    def start(self):
        orders, answers = os.pipe(), os.pipe()

        def prepare():
            private_mounts()
            mount("tmpfs", f"{self.state}/audit", "tmpfs", "size=128k,mode=750")
            if os.fork() == 0:
                if os.fork() == 0:
                    keep = {orders[0], answers[1]}  # and nothing that somebody waits for the end of
                    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - keep:
                        with contextlib.suppress(OSError):
                            os.close(fd)
                    self.serve(orders[0], answers[1])
                os._exit(0)
            os.wait()
        os.makedirs(f"{self.state}/audit", mode=0o755)
        self.log = f"{self.state}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([CARREL, "serve", "--state", self.state, "--listen", "127.0.0.1:0",
                                             "--set", "socket=" + self.socket, "--set", "disk_floor=1M"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=TMP, preexec_fn=prepare)
        os.close(orders[0])
        os.close(answers[1])
        self.orders, self.answers = orders[1], answers[0]
        self.wait_ready()

    def serve(self, orders, answers):
        ballast = f"{self.state}/audit/ballast"
        try:
            while order := os.read(orders, 1):
                if order == b"f":
                    try:
                        with open(ballast, "wb", buffering=0) as file:
                            while True:
                                file.write(bytes(4096))
                    except OSError:
                        pass
                elif order == b"r":
                    os.unlink(ballast)
                else:
                    shutil.rmtree(f"{self.state}.copy", ignore_errors=True)
                    shutil.copytree(f"{self.state}/audit", f"{self.state}.copy/audit")
                os.write(answers, order)
        finally:
            os._exit(0)

    def order(self, what):
        os.write(self.orders, what)
        if os.read(self.answers, 1) != what:
            raise AssertionError("the helper has gone")

    def stop(self, *how):
        status = super().stop(*how)
        os.close(self.orders)
        os.close(self.answers)
        return status


class NoRoom(DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon.stop()
        shutil.rmtree(self.daemon.state)
        self.daemon = Cramped(self.path("s"))

    def state(self):
        """All that a change could have changed."""
        spaces = self.daemon.get("/v1/workspaces?limit=1000").json["workspaces"]
        keys = self.daemon.get("/v1/keys?limit=1000").json["keys"]
        execs = self.daemon.get("/v1/workspaces/desk/exec?state=running").json["execs"]
        return ([{**w, "state": None} for w in spaces], keys, execs,
                sorted(os.listdir(f"{self.daemon.state}/main/threads")),
                sorted(os.listdir(f"{self.daemon.state}/main/.carrel")))

    def test_what_cannot_be_recorded_is_not_done(self):
        self.assertEqual("desk", self.workspace(id="desk"))
        self.daemon.execute("desk", "echo kept > file")
        running = self.daemon.post("/v1/workspaces/desk/exec", {"command": "sleep 1000", "background": True}).json["exec_id"]
        self.daemon.order(b"f")
        for _ in range(100):  # the last page may have room for a few
            before = self.state()
            answer = self.daemon.post("/v1/workspaces", {})
            if answer.status != 201:
                break
        with self.subTest("the first one that finds the disk full"):
            self.assertEqual((507, "disk_full"), (answer.status, answer.code), answer.bytes)
        self.assertEqual(before, self.state(), "half of it was made")
        at = "/v1/workspaces/desk"
        for method, path, body in [
                ("POST", "/v1/workspaces", {"id": "more"}), ("POST", "/v1/keys", {"owner": "a", "scopes": ["user"]}),
                ("PATCH", at, {"labels": {"a": "b"}}), ("PATCH", at, {"policy": {"limits": {"timeout": "9s"}}}),
                ("DELETE", at, None), ("DELETE", f"{at}?purge=1", None), ("POST", f"{at}/exec", {"command": "touch made"}),
                ("POST", f"{at}/exec", {"command": "touch made", "background": True}),
                ("POST", f"{at}/exec/{running}/kill", {}), ("POST", f"{at}/exec/{running}/signal", {"signal": "KILL"}),
                ("PUT", f"{at}/files/made", b"made"), ("DELETE", f"{at}/files/file", None), ("POST", f"{at}/files-mkdir", {"path": "/made"}),
                ("POST", f"{at}/files-write", {"files": [{"path": "/made", "content": ""}]})]:
            with self.subTest(operation=f"{method} {path}"):
                answer = self.daemon.request(method, path, body)
                self.assertIn(answer.status, (500, 503, 507), answer.bytes)
                self.assertIn("audit", answer.json["error"]["message"])
                self.assertEqual(before, self.state(), "it was done all the same")
        self.assertEqual(["file"], [n for n in os.listdir(f"{self.daemon.state}/main/threads/desk") if n in ("file", "made")])
        self.assertEqual(200, self.daemon.get(at).status, "what changes nothing needs no record")
        self.daemon.order(b"r")
        deadline = time.monotonic() + PATIENCE
        while (answer := self.daemon.post("/v1/workspaces", {"id": "again"})).status != 201:
            self.assertLess(time.monotonic(), deadline, f"it does not recover: {answer.bytes}")
            time.sleep(0.1)
        self.assertEqual("kept\n", self.daemon.execute("desk", "cat file")["stdout"])
        self.assertEqual(204, self.daemon.post(f"{at}/exec/{running}/kill").status)
        time.sleep(0.5)
        self.daemon.order(b"c")
        done = verify(f"{self.daemon.state}.copy")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        records = [json.loads(line) for line in read(f"{self.daemon.state}.copy/audit/000000001.jsonl").splitlines()]
        made = {w["id"] for w in self.daemon.get("/v1/workspaces?limit=1000").json["workspaces"]}
        self.assertEqual(made, {r["workspace"] for r in records if r["operation"] == "workspace.create"})

    def test_a_change_under_way_when_the_record_fails_is_told(self):
        """The first one that finds the disk full has been made by then: that is what the answer says."""
        self.workspace(id="desk")
        top = f"{self.daemon.state}/main/threads/desk"
        self.assertEqual(201, self.daemon.post("/v1/workspaces/desk/files-mkdir", {"path": "/first"}).status)
        self.daemon.order(b"f")
        for number in range(1000):  # the last page may have room for a few
            answer = self.daemon.post("/v1/workspaces/desk/files-mkdir", {"path": f"/d{number}"})
            if answer.status != 201:
                break
        self.assertEqual((500, "not_recorded"), (answer.status, answer.code), answer.bytes)
        self.assertIn("was made but is not on record", answer.json["error"]["message"])
        self.assertTrue(os.path.isdir(f"{top}/d{number}"))
        answer = self.daemon.post("/v1/workspaces/desk/files-mkdir", {"path": "/later"})
        self.assertEqual((507, "disk_full"), (answer.status, answer.code), answer.bytes)
        self.assertFalse(os.path.lexists(f"{top}/later"), "from then on nothing is")
        self.daemon.order(b"r")
        deadline = time.monotonic() + PATIENCE
        while self.daemon.post("/v1/workspaces/desk/files-mkdir", {"path": "/again"}).status != 201:
            self.assertLess(time.monotonic(), deadline, "it does not recover")
            time.sleep(0.1)

    def test_an_end_that_could_not_be_recorded_is_recorded_later(self):
        self.workspace(id="desk")
        one = self.daemon.post("/v1/workspaces/desk/exec", {"command": "sleep 2; exit 7", "background": True}).json["exec_id"]
        self.daemon.order(b"f")
        while self.daemon.post("/v1/workspaces", {}).status == 201:
            pass
        out = self.daemon.get(f"/v1/workspaces/desk/exec/{one}/output?follow=1")
        self.assertEqual(7, json.loads(out.bytes.splitlines()[-1])["exit_code"], "its end waits for the disk")
        self.daemon.order(b"r")
        deadline = time.monotonic() + PATIENCE
        ends = []
        while not ends:
            self.assertLess(time.monotonic(), deadline, "the end is not on record")
            time.sleep(0.2)
            self.daemon.order(b"c")
            text = write(f"{self.daemon.state}.all", read(f"{self.daemon.state}.copy/audit/000000001.jsonl"))
            ends = [line for line in read(text).splitlines() if re.search(rf'"exec.end".*"{one}"', line)]
        self.assertEqual(1, len(ends))


if __name__ == "__main__":
    unittest.main(verbosity=0)
