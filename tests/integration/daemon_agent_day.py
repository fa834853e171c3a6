#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""A day of an agent over HTTP: a workspace, commands, streams, a server in the background, sleep and waking up."""
import json
import os
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from carreltest import PATIENCE
from daemontest import DaemonTest, data_of, events_of


class AgentDay(DaemonTest):
    options = ("--set", "idle=2s")

    def state_of(self, ws):
        return self.daemon.get(f"/v1/workspaces/{ws}").json["state"]

    def wait_for(self, what, because):
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), deadline, because)
            time.sleep(0.05)

    def test_a_day(self):
        ws = self.workspace(id="thread-1", labels={"project": "x"})
        self.assertEqual("thread-1", ws)
        self.assertEqual("asleep", self.state_of(ws))
        done = self.daemon.execute(ws, "echo hello; echo oops >&2; pwd > where; exit 3")
        self.assertEqual((3, "hello\n", "oops\n", "exit"),
                         (done["exit_code"], done["stdout"], done["stderr"], done["reason"]))
        self.assertEqual("awake", self.state_of(ws))
        # A stream, in order and whole.
        response = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec",
                                      {"command": "for i in 1 2 3; do echo $i; done; cat where", "stream": True})
        events = list(events_of(response))
        self.assertEqual("start", events[0]["type"])
        self.assertEqual(b"1\n2\n3\n/\n", b"".join(data_of(e) for e in events if e["type"] == "stdout"))
        self.assertEqual(("end", 0), (events[-1]["type"], events[-1]["exit_code"]))
        # A server in the background, and a second command that uses it.
        server = self.daemon.post(f"/v1/workspaces/{ws}/exec", {
            "argv": ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"], "background": True})
        self.assertEqual(202, server.status, server.bytes)
        one = server.json["exec_id"]
        used = self.daemon.execute(ws, "for i in $(seq 100); do python3 - <<'X' && exit 0 || sleep 0.1; done; exit 1\n"
                                       "import urllib.request\n"
                                       "print(urllib.request.urlopen('http://127.0.0.1:8000/where').read())\nX\n")
        self.assertEqual((0, "b'/\\n'\n"), (used["exit_code"], used["stdout"]), used)
        listed = self.daemon.get(f"/v1/workspaces/{ws}/exec?state=running").json["execs"]
        self.assertEqual([one], [e["exec_id"] for e in listed])
        # One of a shell's own stays after the shell has ended, and goes with its kill.
        left = self.daemon.execute(ws, "sleep 1000 >/dev/null 2>&1 & echo $!")
        self.assertEqual(0, left["exit_code"])
        self.assertEqual(0, self.daemon.execute(ws, f"kill -0 {left['stdout'].strip()}")["exit_code"])
        self.assertEqual(204, self.daemon.post(f"/v1/workspaces/{ws}/exec/{one}/kill").status)
        gone = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}/output?follow=1")
        last = json.loads(gone.bytes.splitlines()[-1])
        self.assertEqual(("end", "signal", 137), (last["type"], last["reason"], last["exit_code"]))
        self.assertEqual(204, self.daemon.post(f"/v1/workspaces/{ws}/exec/{left['exec_id']}/kill").status)
        # Idle: it sleeps, and wakes with its files.
        self.wait_for(lambda: self.state_of(ws) == "asleep", "it does not go to sleep")
        self.assertEqual("/\n", self.daemon.execute(ws, "cat where")["stdout"])

    def test_input_signals_and_terminals(self):
        ws = self.workspace()
        self.assertEqual("abc", self.daemon.execute(ws, "cat", stdin="abc")["stdout"])
        cat = self.daemon.post(f"/v1/workspaces/{ws}/exec",
                               {"argv": ["cat"], "stdin_open": True, "background": True}).json["exec_id"]
        at = f"/v1/workspaces/{ws}/exec/{cat}"
        for piece in (b"one ", b"two\n"):
            self.assertEqual(204, self.daemon.request("POST", f"{at}/stdin", piece).status)
        self.assertEqual(204, self.daemon.request("POST", f"{at}/stdin?eof=1", b"").status)
        self.assertEqual(b"one two\n", self.daemon.get(f"{at}/output?follow=1&format=raw").bytes)
        trap = self.daemon.post(f"/v1/workspaces/{ws}/exec", {
            "command": "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.05; done",
            "background": True}).json["exec_id"]
        at = f"/v1/workspaces/{ws}/exec/{trap}"
        self.wait_for(lambda: b"ready" in self.daemon.get(f"{at}/output?format=raw").bytes, "it does not start")
        self.assertEqual(204, self.daemon.post(f"{at}/signal", {"signal": "USR1"}).status)
        out = self.daemon.get(f"{at}/output?follow=1&format=raw&stream=stdout").bytes
        self.assertEqual(b"ready\ngot\n", out)  # the shell may say on stderr what killed its sleep
        self.assertEqual(7, self.daemon.get(at).json["result"]["exit_code"])
        terminal = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {
            "command": "test -t 0 && stty size", "pty": {"cols": 91, "rows": 17}, "stream": True})
        said = b"".join(data_of(e) for e in events_of(terminal) if e["type"] == "pty")
        self.assertEqual(b"17 91\r\n", said)

    def test_the_last_word_of_a_terminal_is_not_lost(self):
        """The kernel takes its time to bring what was written to a terminal: with many at once it has not, when a command ends."""
        ws = self.workspace()
        with ThreadPoolExecutor(12) as pool:
            said = set(pool.map(lambda _: self.daemon.execute(ws, "sh -c 'echo first'; echo last", pty={})["stdout"], range(600)))
        self.assertEqual({"first\r\nlast\r\n"}, said)
        left = self.daemon.execute(ws, "(trap '' HUP; while :; do echo more; done) & echo $!", pty={})  # it writes on
        self.assertEqual("exit", left["reason"])
        self.daemon.execute(ws, "pkill -9 bash; true")

    def test_deadlines_and_background_children(self):
        ws = self.workspace()
        began = time.monotonic()
        done = self.daemon.execute(ws, "trap '' TERM; (setsid sleep 1000 &) ; sleep 1000", timeout_ms=500)
        self.assertEqual((124, "timeout", True), (done["exit_code"], done["reason"], done["timed_out"]))
        self.assertLess(time.monotonic() - began, PATIENCE)
        self.wait_for(lambda: self.daemon.execute(ws, "ps -eo args | grep -c '[s]leep 1000'")["stdout"] == "0\n",
                      "the deadline has left something of its tree")

    def test_a_deadline_is_the_commands_and_what_it_leaves_behind_lives_until_it_is_killed(self):
        ws = self.workspace()
        done = self.daemon.execute(ws, "sleep 1234 >/dev/null 2>&1 &", timeout_ms=800)
        self.assertEqual((0, "exit", False), (done["exit_code"], done["reason"], done["timed_out"]))
        left = "ps -eo args | grep -c '[s]leep 1234'"
        time.sleep(1.2)
        self.assertEqual("1\n", self.daemon.execute(ws, left)["stdout"], "the deadline outlived its command")
        self.assertEqual(204, self.daemon.post(f"/v1/workspaces/{ws}/exec/{done['exec_id']}/kill").status)
        self.wait_for(lambda: self.daemon.execute(ws, left)["stdout"] == "0\n", "a kill does not reach what was left behind")

    def test_what_is_over_at_once_is_told_like_everything_else(self):
        """Of a command that takes less than 2 ms the front hears once, of others more often."""
        ws = self.workspace()
        self.daemon.execute(ws, "true")
        print_late = "import os, time\nos.write(1, b'soon')\nif os.fork() == 0:\n time.sleep(0.5)\n os.write(1, b'late')"
        for argv, out, err, code in (
                (["true"], "", "", 0), (["false"], "", "", 1), (["echo", "hello"], "hello\n", "", 0),
                (["nosuch"], "", "", 127), (["ls", "/nosuch"], "", "ls: cannot access '/nosuch': No such file or directory\n", 2),
                (["head", "-c", "300000", "/dev/zero"], "\0" * 300000, "", 0), (["sleep", "0.02"], "", "", 0),
                (["bash", "-c", "echo a; echo b >&2; sleep 0.01; echo c; exit 3"], "a\nc\n", "b\n", 3),
                (["python3", "-c", print_late], "soon", "", 0)):
            with self.subTest(argv=argv[0]):
                done = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"argv": argv}).json
                self.assertEqual((out, code), (done["stdout"], done["exit_code"]), done)
                self.assertIn(err, done["stderr"])
                row = self.daemon.get(f"/v1/workspaces/{ws}/exec/{done['exec_id']}").json
                self.assertEqual(("ended", code), (row["state"], row["result"]["exit_code"]))
                at = f"/v1/workspaces/{ws}/exec/{done['exec_id']}/output?format=raw"
                self.assertGreaterEqual(len(self.daemon.get(at).bytes), len(out + err))
        self.wait_for(lambda: self.daemon.get(at).bytes == b"soonlate", "what is left behind can print no more")

    def test_server_sent_events_and_one_stream_alone(self):
        ws = self.workspace()
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "echo a; echo b >&2"},
                                  headers={"Accept": "text/event-stream"})
        self.assertEqual("text/event-stream", answer.headers["Content-Type"])
        self.assertIn(b"event: stdout\n", answer.bytes)
        self.assertIn(b"event: end\n", answer.bytes)
        one = answer.headers["X-Exec-Id"]
        alone = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}/output?format=raw&stream=stderr")
        self.assertEqual(b"b\n", alone.bytes)

    def test_backup_and_restore(self):
        ws = self.workspace()
        self.daemon.execute(ws, "mkdir -p d/e; echo deep > d/e/f; ln -s d/e link; printf 'x\\377y' > bytes; chmod 750 d")
        archive = self.daemon.get(f"/v1/workspaces/{ws}/backup")
        self.assertEqual((200, "application/octet-stream"), (archive.status, archive.headers["Content-Type"]))
        other = self.workspace()
        done = self.daemon.request("POST", f"/v1/workspaces/{other}/restore", archive.bytes)
        self.assertEqual((200, 0), (done.status, done.json.get("exit_code")), done.bytes)
        look = "cat link/f; od -c bytes | head -1; stat -c %a d"
        self.assertEqual(self.daemon.execute(ws, look)["stdout"], self.daemon.execute(other, look)["stdout"])
        cut = self.daemon.request("POST", f"/v1/workspaces/{self.workspace()}/restore", archive.bytes[:1000])
        self.assertNotEqual(0, cut.json["exit_code"], "half an archive passed for a whole one")

    def test_trees_that_are_there_are_adopted_in_place(self):
        bucket = f"{self.daemon.state}/agents"
        for name in ("t1", "t2"):
            os.makedirs(f"{bucket}/threads/{name}")
            with open(f"{bucket}/threads/{name}/file", "w", encoding="ascii") as file:
                file.write(name)
        os.makedirs(f"{bucket}/skills/system")
        with open(f"{bucket}/skills/system/howto", "w", encoding="ascii") as file:
            file.write("do it")
        os.makedirs(f"{bucket}/skills/u1")
        if os.geteuid() == 0:
            for where, _, files in os.walk(bucket):
                for path in (where, *(f"{where}/{name}" for name in files)):
                    os.chown(path, 1000, 1000)
        seen = self.daemon.post("/v1/adopt", {"path": bucket, "dry_run": True}).json
        self.assertEqual([("t1", "adopt"), ("t2", "adopt")], sorted((w["id"], w["action"]) for w in seen["workspaces"]))
        self.assertEqual(404, self.daemon.get("/v1/workspaces/t1").status)
        self.assertEqual(["file"], os.listdir(f"{bucket}/threads/t1"), "it was not dry")
        self.assertEqual(2, self.daemon.post("/v1/adopt", {"path": "agents"}).json["adopted"])
        done = self.daemon.execute("t1", "cat file .solven/skills/system/howto; touch .solven/skills/system/x")
        self.assertEqual("t1do it", done["stdout"])
        self.assertIn("Read-only", done["stderr"])
        # What was said to be made is what the first command has made.
        planned = [w["made"] for w in seen["workspaces"] if w["id"] == "t1"][0]
        self.assertIn(".solven/skills/system", planned)
        self.assertEqual({place.split("/")[0] for place in planned}, set(os.listdir(f"{bucket}/threads/t1")) - {"file"})
        self.assertEqual(0, self.daemon.post("/v1/adopt", {"path": "agents"}).json["adopted"])
        os.mkdir(f"{bucket}/threads/t3")
        with open(f"{bucket}/threads/t3/usr", "w", encoding="ascii") as file:
            file.write("in the way")
        if os.geteuid() == 0:
            os.chown(f"{bucket}/threads/t3", 1000, 1000)
        seen = self.daemon.post("/v1/adopt", {"path": bucket, "dry_run": True}).json["workspaces"]
        self.assertIn("'usr'", [w["why"] for w in seen if w["id"] == "t3"][0])
        self.assertEqual(400, self.daemon.post("/v1/adopt", {"path": "/etc"}).status)

    def test_trash_and_purge(self):
        ws = self.workspace(id="old")
        self.daemon.execute(ws, "echo kept > file")
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/old").status)
        self.assertEqual(409, self.daemon.post("/v1/workspaces/old/exec", {"command": "true"}).status)
        self.assertEqual(["old"], [w["id"] for w in self.daemon.get("/v1/workspaces?deleted=1").json["workspaces"]])
        self.assertEqual(200, self.daemon.post("/v1/workspaces/old/undelete").status)
        self.assertEqual("kept\n", self.daemon.execute("old", "cat file")["stdout"])
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/old?purge=1").status)
        self.assertEqual(404, self.daemon.get("/v1/workspaces/old").status)
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "old"}).status, "its id stays taken")


if __name__ == "__main__":
    unittest.main(verbosity=0)
