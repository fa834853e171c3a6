#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""What people run into in their first hour with the daemon: names, spellings and habits of other tools."""
import base64
import json
import os
import unittest

from daemontest import DaemonTest


class FirstHour(DaemonTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="desk")

    def test_python_is_there_for_commands_and_for_calls_on_files(self):
        if not os.path.exists("/usr/bin/python3"):
            self.skipTest("no python3 here")
        done = self.daemon.execute("desk", "python -c 'print(6 * 7)'")
        self.assertEqual((0, "42\n"), (done["exit_code"], done["stdout"]), done)
        self.daemon.execute("desk", "mkdir -p .venv/bin && printf '#!/bin/sh\\necho mine\\n' >.venv/bin/python && chmod +x .venv/bin/python")
        self.assertEqual("mine\n", self.daemon.execute("desk", "python -c 1")["stdout"])
        seen = self.daemon.get("/v1/workspaces/desk/files/etc/carrel/bin/python?stat=1")
        self.assertEqual((200, "symlink"), (seen.status, seen.json["type"]))
        gone = self.daemon.request("DELETE", "/v1/workspaces/desk/files/etc/carrel/bin/python")
        self.assertNotEqual(204, gone.status)

    def test_base64_that_is_none_is_refused_everywhere(self):
        at = "/v1/workspaces/desk"
        for bad in ("A=BC", "====", "AB==", "AAB=", "QQ==QQ==", "QQ=", "QQ", "Q\nQ=", "-_--"):
            with self.subTest(bad=bad):
                for path, body in (("/exec", {"argv": ["cat"], "stdin_b64": bad}),
                                   ("/files-write", {"files": [{"path": "/x", "content_b64": bad}]}),
                                   ("/files-mkdir", {"path_b64": bad}),
                                   ("/plans", {"creations": [{"path": "x", "content_b64": bad}]})):
                    self.assertEqual(400, self.daemon.post(at + path, body).status, path)
        for size in range(5):
            data = bytes(range(250, 250 + size))
            done = self.daemon.post(f"{at}/exec", {"argv": ["base64"], "stdin_b64": base64.b64encode(data).decode()})
            self.assertEqual(base64.b64encode(data).decode(), done.json["stdout"].strip())

    def test_tmp_and_cache_are_fresh_for_each_command_where_the_policy_says_so(self):
        self.workspace(id="fresh", policy={"tmp": "exec"})
        at = "/v1/workspaces/fresh"
        mess = "touch /tmp/a /.cache/a; echo kept >>/log; sleep 1000 & ls -A /tmp /.cache"
        for _ in range(3):
            self.assertEqual("/.cache:\na\n\n/tmp:\na\n", self.daemon.execute("fresh", mess)["stdout"])
            self.assertEqual("/.cache:\n\n/tmp:\n", self.daemon.execute("fresh", "ls -A /tmp /.cache")["stdout"])
            self.assertEqual("", self.daemon.execute("fresh", "pgrep sleep || :")["stdout"])  # what it left has ended
        self.assertEqual("kept\n" * 3, self.daemon.execute("fresh", "cat /log")["stdout"])
        # One that runs keeps them, for those beside it and for calls on files.
        long = self.daemon.post(f"{at}/exec", {"command": "echo long >/tmp/long; read line", "stdin_open": True, "background": True}).json
        self.daemon.execute("fresh", "while [ ! -s /tmp/long ]; do sleep 0.01; done; touch /tmp/beside")
        self.assertEqual(b"long\n", self.daemon.get(f"{at}/files/tmp/long").bytes)
        self.assertEqual("beside\nlong\n", self.daemon.execute("fresh", "ls /tmp")["stdout"])
        self.daemon.post(f"{at}/exec/{long['exec_id']}/kill")
        self.daemon.get(f"{at}/exec/{long['exec_id']}/output?follow=1")
        self.assertEqual("", self.daemon.execute("fresh", "ls /tmp")["stdout"])
        # When none runs, what calls on files put there is for the next command, and goes with it.
        self.assertEqual(201, self.daemon.request("PUT", f"{at}/files/tmp/for-you", b"x").status)
        self.assertEqual("for-you\n", self.daemon.execute("fresh", "ls /tmp")["stdout"])
        self.assertEqual(404, self.daemon.get(f"{at}/files/tmp/for-you").status)
        for i in range(20):  # a call on files that comes while the sandbox of a command is being made or is ending
            beside = self.daemon.stream("POST", f"{at}/exec", {"argv": ["true"]}, wait=False)
            self.assertIn(self.daemon.request("PUT", f"{at}/files/n{i}", b"x").status, (200, 201))
            answer = beside.getresponse()
            self.assertEqual((200, 0), (answer.status, json.loads(answer.read())["exit_code"]))
            beside.close()
        ends = [r["details"]["why"] for r in self.daemon.audit() if r["operation"] == "sandbox.end" and r["workspace"] == "fresh"]
        self.assertEqual({'its commands have ended, and "tmp" is "exec"'}, set(ends))

    def test_tmp_lasts_as_long_as_the_sandbox_otherwise_and_nothing_else_may_be_said(self):
        self.daemon.execute("desk", "touch /tmp/a")
        self.assertEqual("a\n", self.daemon.execute("desk", "ls /tmp")["stdout"])
        for bad in ("command", "", None, True, 1):
            self.assertEqual(400, self.daemon.post("/v1/workspaces", {"id": "bad", "policy": {"tmp": bad}}).status, bad)
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/desk", {"policy": {"tmp": "sandbox"}}).status)


if __name__ == "__main__":
    unittest.main(verbosity=0)
