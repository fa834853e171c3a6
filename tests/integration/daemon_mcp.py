#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 30
"""/mcp: both protocols on one address, every tool, progress, cancelling and leaving, who may what, and what is wrong."""
import base64
import http.client
import http.server
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time
import unittest
import zlib

from carreltest import CARREL, PATIENCE, ROOT
from daemontest import DaemonTest
from mcptest import LEGACY, META, MODERN, Mcp


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


class McpTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.ws = self.workspace(id="desk")

    def running(self):
        return [e["exec_id"] for e in self.daemon.get("/v1/workspaces/desk/exec?state=running").json["execs"]]

    def wait_for(self, what):
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def clients(self, **more):
        return [Mcp(self.daemon, modern=modern, query="?workspace=desk", **more) for modern in (True, False)]


class Protocols(McpTest):
    def test_the_older_opens_with_a_session_that_ends(self):
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY):
            client = Mcp(self.daemon, modern=False, version=version)
            self.assertEqual(version, client.opened.result["protocolVersion"])
            self.assertEqual("carrel", client.opened.result["serverInfo"]["name"])
            self.assertEqual({}, client.ask("ping").result)
        other = Mcp(self.daemon, modern=False)
        gone = self.daemon.request("DELETE", "/mcp", headers={"Mcp-Session-Id": client.session})
        self.assertEqual(204, gone.status)
        self.assertEqual(404, client.ask("ping").status)
        self.assertEqual(404, self.daemon.request("DELETE", "/mcp", headers={"Mcp-Session-Id": client.session}).status)
        self.assertEqual({}, other.ask("ping").result)
        future = other.ask("initialize", {"protocolVersion": "2099-01-01", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        self.assertEqual(LEGACY, future.result["protocolVersion"])

    def test_a_session_is_its_keys_alone(self):
        client = Mcp(self.daemon, key=self.daemon.key("alice"), modern=False)
        client.key = self.daemon.key("bob")
        self.assertEqual(404, client.ask("ping").status)
        client.key = None
        self.assertEqual(404, client.ask("ping").status)

    def test_an_owner_has_so_many_sessions_and_no_more(self):
        key = self.daemon.key("alice")
        kept = Mcp(self.daemon, key=self.daemon.key("bob"), modern=False)
        first = Mcp(self.daemon, key=key, modern=False)
        second = Mcp(self.daemon, key=key, modern=False)
        for _ in range(126):
            Mcp(self.daemon, key=key, modern=False)
        self.assertEqual({}, first.ask("ping").result)  # now it is second that was not used for the longest time
        Mcp(self.daemon, key=key, modern=False)
        self.assertEqual(200, first.ask("ping").status)
        self.assertEqual(404, second.ask("ping").status)
        self.assertEqual(200, kept.ask("ping").status)

    def test_the_newer_says_with_each_request_what_it_is(self):
        client = Mcp(self.daemon)
        found = client.ask("server/discover").result
        self.assertEqual([MODERN], found["supportedVersions"])
        self.assertEqual("complete", found["resultType"])
        self.assertEqual("carrel", found["_meta"][META + "serverInfo"]["name"])
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"):
            answer = client.ask(method)
            self.assertEqual((404, -32601), (answer.status, answer.error["code"]), method)
        for method in ("GET", "DELETE"):
            self.assertEqual(405, self.daemon.request(method, "/mcp", headers={"MCP-Protocol-Version": MODERN}).status)

    def test_head_and_body_have_to_agree(self):
        client = Mcp(self.daemon)
        message = client.message("tools/call", {"name": "workspace_list", "arguments": {}})
        for head in ({"MCP-Protocol-Version": "2025-11-25"}, {"MCP-Protocol-Version": None}, {"Mcp-Method": "tools/list"}, {"Mcp-Method": None},
                     {"Mcp-Name": "ls"}, {"Mcp-Name": None}, {"Mcp-Name": "=?base64?bHM=?="}, {"Mcp-Name": "=?base64?!?="}):
            answer = client.post(message, client.headers(message, **head))
            self.assertEqual((400, -32020, message["id"]), (answer.status, answer.error["code"], answer.last["id"]), head)
        encoded = "=?base64?" + base64.b64encode(b"workspace_list").decode() + "?="
        self.assertEqual(200, client.post(message, client.headers(message, **{"Mcp-Name": encoded})).status)
        message["params"]["_meta"][META + "protocolVersion"] = "1999-01-01"
        answer = client.post(message, client.headers(message, **{"MCP-Protocol-Version": "1999-01-01"}))
        self.assertEqual((400, -32022, {"supported": [MODERN], "requested": "1999-01-01"}),
                         (answer.status, answer.error["code"], answer.error["data"]))
        for missing in ("protocolVersion", "clientCapabilities"):
            message = client.message("tools/list")
            del message["params"]["_meta"][META + missing]
            answer = client.post(message)
            self.assertEqual((400, -32602), (answer.status, answer.error["code"]))

    def test_what_is_no_message_is_refused(self):
        client = Mcp(self.daemon, modern=False)
        head = client.headers({})
        for body, code in ((b"", -32700), (b"{", -32700), (b"[]", -32600), (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600), (b"{}", -32600),
                           (b'{"jsonrpc":"2.0","id":1}', -32600), (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
                           (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
                           (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
                           (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600), (b'"ping"', -32700), (b"\xff", -32700), (b"[" * 5000, -32700)):
            answer = client.post(body, head)
            self.assertEqual((400, code), (answer.status, answer.error["code"]), body[:80])
        self.assertEqual(202, client.post({"jsonrpc": "2.0", "method": "notifications/no_such"}).status)
        self.assertEqual(202, client.post({"jsonrpc": "2.0", "id": 7, "result": {}}).status)
        self.assertEqual(400, client.post(client.message("ping"), client.headers({}, **{"Mcp-Session-Id": None})).status)
        self.assertEqual(400, client.post(client.message("ping"), client.headers({}, **{"MCP-Protocol-Version": "1999-01-01"})).status)

    def test_host_and_origin(self):
        def over_tcp(headers):
            own = http.client.HTTPConnection("127.0.0.1", int(re.findall(r"address='?127\.0\.0\.1:(\d+)", self.daemon.said())[-1]), timeout=PATIENCE)
            client = Mcp(self.daemon, key=self.key)
            message = client.message("tools/list")
            own.request("POST", "/mcp", body=json.dumps(message), headers=client.headers(message, **headers))
            status = own.getresponse().status
            own.close()
            return status
        self.key = self.daemon.key("alice")
        for head in ({}, {"Host": "localhost"}, {"Host": "localhost:1"}, {"Host": "192.0.2.1:80"}, {"Host": "[::1]:80"}, {"Origin": "http://localhost:3000"},
                     {"Origin": "http://127.0.0.1"}):
            self.assertEqual(200, over_tcp(head), head)
        for head in ({"Host": "evil.example"}, {"Host": "localhost.evil.example"}, {"Host": "127.0.0.1.evil.example"}, {"Origin": "http://evil.example"},
                     {"Origin": "null"}, {"Origin": "http://localhost.evil.example"}, {"Origin": "http://localhost@evil.example"}, {"Origin": "evil://localhost"}):
            self.assertEqual(403, over_tcp(head), head)
        self.daemon.stop()
        self.daemon.options = ("--set", "mcp_hosts=desk.example, other.example", "--set", "mcp_origins=https://app.example")
        self.daemon.start()
        self.assertEqual(200, over_tcp({"Host": "desk.example:8443", "Origin": "https://app.example"}))
        self.assertEqual(403, over_tcp({"Host": "evil.example"}))
        self.assertEqual(403, over_tcp({"Origin": "https://app.example.evil"}))


class Tools(McpTest):
    def test_every_one_is_described(self):
        for client in self.clients():
            tools = client.ask("tools/list").result["tools"]
            self.assertGreaterEqual(len(tools), 23)
            for tool in tools:
                self.assertTrue(tool["description"] and tool["title"])
                self.assertEqual(("object", False), (tool["inputSchema"]["type"], tool["inputSchema"]["additionalProperties"]))
                self.assertEqual("object", tool["outputSchema"]["type"])
                self.assertLessEqual(len(tool["name"]), 35)
                self.assertNotIn("workspace", tool["inputSchema"]["properties"])  # the address says which
                self.assertIs(bool, type(tool["annotations"]["readOnlyHint"]))
        names = [tool["name"] for tool in Mcp(self.daemon).ask("tools/list").result["tools"]]
        self.assertIn("workspace_create", names)
        self.assertFalse([name for name in names if "approve" in name or "reject" in name or "key" in name])

    def test_files(self):
        for client in self.clients():
            made = client.do("write_file", path="/notes/a b.md", content="one\ntwo\nthree\n")
            self.assertEqual(("/notes/a b.md", 14), (made["path"], made["size"]))
            self.assertEqual("two\n", client.do("read_file", file_path="notes/a b.md", offset=1, limit=1)["content"])
            self.assertEqual(1, client.do("edit_file", path="/notes/a b.md", old_string="two", new_string="zwei")["occurrences"])
            self.assertIn("not found", client.fail("edit_file", path="/notes/a b.md", old_string="no such", new_string="x"))
            client.do("write_file", path="/notes/a b.md", content="end ü%\n", append=True)
            self.assertEqual("one\nzwei\nthree\nend ü%\n", client.do("read_file", path="/notes/a b.md")["content"])
            self.assertEqual(["/notes/a b.md"], [e["path"] for e in client.do("ls", path="/notes")["entries"]])
            self.assertEqual(["/notes/a b.md"], [m["path"] for m in client.do("glob", pattern="**/*.md")["matches"]])
            self.assertEqual(["/notes"], [m["path"] for m in client.do("glob", pattern="not*", directories=True)["matches"]])
            self.assertEqual([2], [m["line"] for m in client.do("grep", pattern="zwei", path="/")["matches"]])
            client.do("move", source="/notes/a b.md", destination="/b#c?.md")
            self.assertEqual("one\n", client.do("read_file", path="/b#c?.md", limit=1)["content"])
            self.assertEqual({"ok": True}, client.do("delete", path="/b#c?.md"))
            self.assertIn("not_found", client.fail("read_file", path="/b#c?.md"))
            client.do("delete", path="/notes", recursive=True)

    def test_images_are_shown_and_other_bytes_are_not(self):
        for name, data in (("/a.png", png()), ("/b.png", b"no image\0"), ("/c.bin", bytes(range(256)) * 4)):
            self.assertIn(self.daemon.request("PUT", f"/v1/workspaces/desk/files{name}", body=data).status, (200, 201))
        for client in self.clients():
            shown = client.call("read_file", path="/a.png").result
            self.assertEqual(("image", "image/png", png()), (shown["content"][0]["type"], shown["content"][0]["mimeType"],
                                                            base64.b64decode(shown["content"][0]["data"])))
            self.assertIn("9 bytes", client.fail("read_file", path="/b.png"))
            self.assertIn("1024 bytes", client.fail("read_file", path="/c.bin"))

    def test_a_command_and_its_output_as_it_comes(self):
        for client in self.clients():
            reply = client.call("execute", progress="token", command="echo one; sleep 0.3; echo two >&2; exit 3", env={"A": "1"}, cwd="/")
            self.assertEqual("text/event-stream", reply.type)
            done = reply.result
            self.assertEqual((3, "one\ntwo\n", False), (done["structuredContent"]["exit_code"], done["structuredContent"]["output"], done["isError"]))
            self.assertIn("[exit code 3]", done["content"][0]["text"])
            self.assertEqual("one\ntwo\n", "".join(note["params"]["message"] for note in reply.notes))
            progress = [note["params"]["progress"] for note in reply.notes]
            self.assertEqual(sorted(set(progress)), progress)
            self.assertEqual({"token"}, {note["params"]["progressToken"] for note in reply.notes})
            self.assertEqual([], client.call("execute", command="echo quiet").notes)
            self.assertTrue(client.do("execute", command="sleep 60", timeout_ms=200)["timed_out"])
            self.assertEqual("1", client.do("execute", command="printf $A", env={"A": "1"})["output"])
            self.assertEqual("in", client.do("execute", command="cat", stdin="in")["output"])
            self.assertEqual("\ufffd\0", client.do("execute", command=r"printf '\377\0'")["output"])

    def test_of_much_output_the_middle_is_left_out(self):
        for client in self.clients():
            done = client.do("execute", command="seq 1 2000000")
            self.assertTrue(done["truncated"])
            self.assertTrue(done["output"].startswith("1\n2\n") and done["output"].endswith("1999999\n2000000\n"))
            self.assertLess(len(done["output"]), 220000)

    def test_an_answer_that_is_too_large_says_how_to_ask_for_less(self):
        for client in self.clients():
            client.do("execute", command="yes 'hit, and a line that goes on for a while after that' | head -n 100000 > many")
            self.assertIn("'limit'", client.fail("grep", pattern="hit", path="/many", limit=100000))
            found = client.do("grep", pattern="hit", path="/many", limit=1000)
            self.assertEqual((1000, True), (len(found["matches"]), found["truncated"]))

    def test_processes(self):
        for client in self.clients():
            started = client.do("start_process", command="while read line; do echo got $line; done; echo over")
            process = started["exec_id"]
            self.assertIn(process, [e["exec_id"] for e in client.do("list_processes", state="running")["execs"]])
            client.do("write_process", process_id=process, input="a\nb\n")
            read, offset = "", 0
            while read.count("\n") < 2:
                piece = client.do("read_process", process_id=process, offset=offset, wait_ms=20000)
                read, offset = read + piece["output"], piece["next_offset"]
                self.assertEqual("running", piece["state"])
            self.assertEqual("got a\ngot b\n", read)
            self.assertEqual("got", client.do("read_process", process_id=process, limit=3)["output"])
            client.do("write_process", process_id=process, input="", eof=True)
            while piece["state"] == "running":
                piece = client.do("read_process", process_id=process, offset=offset, wait_ms=20000)
                read, offset = read + piece["output"], piece["next_offset"]
            self.assertEqual(("got a\ngot b\nover\n", 0), (read, piece["exit_code"]))
            self.assertIn("ended", client.fail("write_process", process_id=process, input="x"))
            other = client.do("start_process", command="sleep 1000")["exec_id"]
            self.assertEqual("", client.do("read_process", process_id=other, wait_ms=100)["output"])
            client.do("kill_process", process_id=other)
            self.wait_for(lambda: other not in self.running())
            self.assertIn("not_found", client.fail("kill_process", process_id="xnosuch"))

    def test_plans(self):
        for client in self.clients():
            client.do("write_file", path="/keep.txt", content="old\n")
            ran = client.do("plan_run", command="echo new > keep.txt; echo more > made.txt")
            plan = ran["plan"]["id"]
            self.assertEqual("old\n", client.do("read_file", path="/keep.txt")["content"])
            self.assertIn(plan, [p["id"] for p in client.do("plan_list")["plans"]])
            self.assertEqual(2, client.do("plan_show", plan=plan)["operations"] if isinstance(client.do("plan_show", plan=plan)["operations"], int)
                             else len(client.do("plan_show", plan=plan)["operations"]))
            self.assertIn("+new", client.do("plan_diff", plan=plan)["diff"])
            client.do("plan_verify", plan=plan)
            self.assertEqual("applied", client.do("plan_apply", plan=plan)["state"])
            self.assertEqual("new\n", client.do("read_file", path="/keep.txt")["content"])
            client.do("plan_undo", plan=plan)
            self.assertEqual("old\n", client.do("read_file", path="/keep.txt")["content"])
            other = client.do("plan_run", command="rm keep.txt")["plan"]["id"]
            client.do("plan_discard", plan=other)
            client.fail("plan_apply", plan=other)

    def test_arguments_that_are_wrong(self):
        for client in self.clients():
            for tool, arguments in (("no_such", {}), ("execute", {}), ("execute", {"command": 1}), ("execute", {"command": "a", "comand": "b"}),
                                    ("execute", {"command": "a", "env": {"A": 1}}), ("execute", {"command": "a", "timeout_ms": 0}),
                                    ("grep", {"pattern": "a", "globs": "b"}), ("ls", {"path": "/", "limit": 10001}), ("workspace_list", {}),
                                    ("execute", {"command": "a", "workspace": "other"}), ("read_file", {"path": "/" + "a" * 20000})):
                answer = client.call(tool, **arguments)
                self.assertEqual((200, -32602), (answer.status, answer.error["code"]), (tool, arguments))
            self.assertIn("..", client.fail("read_file", path="/../../etc/shadow"))
        client = Mcp(self.daemon)
        self.assertIn("'workspace' is missing", client.call("ls", path="/").error["message"])
        self.assertIn("no workspace", client.fail("ls", path="/", workspace="nowhere"))
        self.assertEqual(-32602, client.call("ls", path="/", workspace="../desk").error["code"])

    def test_resources(self):
        for client in self.clients():
            client.do("write_file", path="/a b.txt", content="text\n")
            self.daemon.request("PUT", "/v1/workspaces/desk/files/blob.dat", body=b"\xff\0")
            plan = client.do("plan_run", command="echo x > p.txt")["plan"]["id"]
            uris = [r["uri"] for r in client.ask("resources/list").result["resources"]]
            self.assertLessEqual({"carrel://desk/a%20b.txt", "carrel://desk/blob.dat", f"carrel-plan://desk/{plan}"}, set(uris))
            self.assertEqual("text\n", client.ask("resources/read", {"uri": "carrel://desk/a%20b.txt"}).result["contents"][0]["text"])
            self.assertEqual("/wA=", client.ask("resources/read", {"uri": "carrel://desk/blob.dat"}).result["contents"][0]["blob"])
            self.assertIn("+x", client.ask("resources/read", {"uri": f"carrel-plan://desk/{plan}"}).result["contents"][0]["text"])
            for uri in ("carrel://desk/none", "carrel://other/a", "carrel://desk/../../x", "carrel://desk/a?list=1", "http://desk/a", "carrel://desk"):
                answer = client.ask("resources/read", {"uri": uri})
                self.assertEqual(-32602 if client.modern else -32002, answer.error["code"], uri)
            self.assertEqual(2, len(client.ask("resources/templates/list").result["resourceTemplates"]))
            self.assertEqual([], client.ask("prompts/list").result["prompts"])


class Ends(McpTest):
    def begin(self, client):
        """A command that has begun, and the open connection of its call."""
        message = client.message("tools/call", {"name": "execute", "arguments": {"command": "echo begun; sleep 1000"}}, id="the-one", progress=1)
        own = client.post(message, wait=False)
        response = own.getresponse()
        line = b""
        while b"begun" not in line:
            line = response.readline()
            self.assertTrue(line, "it broke off")
        return own, response

    def test_cancelled_notification_ends_it(self):
        client = Mcp(self.daemon, modern=False, query="?workspace=desk")
        own, response = self.begin(client)
        other = Mcp(self.daemon, modern=False)
        other.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "the-one"}})  # of another session
        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "another"}})
        self.assertEqual(1, len(self.running()))
        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "the-one", "reason": "enough"}})
        self.assertNotIn(b"result", response.read())
        self.wait_for(lambda: not self.running())
        own.close()

    def test_leaving_ends_it_in_the_newer_protocol_only(self):
        client = Mcp(self.daemon, query="?workspace=desk")
        own, response = self.begin(client)
        response.close()
        own.close()
        self.wait_for(lambda: not self.running())
        client = Mcp(self.daemon, modern=False, query="?workspace=desk")
        own, response = self.begin(client)
        response.close()
        own.close()
        client.do("ls", path="/")
        self.assertEqual(1, len(self.running()))
        client.do("kill_process", process_id=self.running()[0])

    def test_leaving_over_tcp_and_before_it_has_begun(self):
        client = Mcp(self.daemon, key=self.daemon.key("alice"), query="?workspace=mine")
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "mine"}, key=client.key).status)
        for marker, leave in (("data: ", socket.socket.close), ("data: ", lambda own: own.shutdown(socket.SHUT_WR)), ("", socket.socket.close)):
            message = client.message("tools/call", {"name": "execute", "arguments": {"command": "echo begun; sleep 1000"}}, progress=1)
            body = json.dumps(message).encode()
            head = "".join(f"{name}: {value}\r\n" for name, value in client.headers(message).items())
            with socket.create_connection(("127.0.0.1", self.daemon.tcp_port()), timeout=PATIENCE) as own:
                own.sendall(f"POST /mcp?workspace=mine HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body)
                got = b""
                while marker.encode() not in got:
                    got += own.recv(65536)
                leave(own)
                self.wait_for(lambda: not marker or not self.daemon.get("/v1/workspaces/mine/exec?state=running").json["execs"])
            self.wait_for(lambda: any(e["command"].startswith("echo begun") for e in self.daemon.get("/v1/workspaces/mine/exec").json["execs"]) or not marker)
            self.wait_for(lambda: not self.daemon.get("/v1/workspaces/mine/exec?state=running").json["execs"])

    def test_a_reader_that_is_slow_stalls_its_command_and_nobody_else(self):
        client = Mcp(self.daemon, query="?workspace=desk")
        message = client.message("tools/call", {"name": "execute", "arguments": {"command": "yes 0123456789012345678901234567890 | head -c 30000000"}}, progress=1)
        own = client.post(message, wait=False)
        other = Mcp(self.daemon, query="?workspace=desk")
        self.assertEqual("ok\n", other.do("execute", command="echo ok")["output"])
        reply = own.getresponse().read()
        own.close()
        last = json.loads(reply.decode().strip().split("data: ")[-1])
        self.assertEqual(0, last["result"]["structuredContent"]["exit_code"])

    def test_without_an_event_stream_there_is_one_answer(self):
        client = Mcp(self.daemon, query="?workspace=desk")
        message = client.message("tools/call", {"name": "execute", "arguments": {"command": "echo one"}}, progress=1)
        answer = client.post(message, client.headers(message, Accept="application/json"))
        self.assertEqual(("application/json", "one\n"), (answer.type, answer.result["structuredContent"]["output"]))

    @unittest.skipUnless(ROOT, "who is not root cannot look into the front")
    def test_nothing_is_left_of_many(self):
        client = Mcp(self.daemon, query="?workspace=desk")
        count = lambda: len(os.listdir(f"/proc/{self.daemon.front_pid()}/fd"))
        client.do("execute", command="true")
        before = count()
        for _ in range(50):
            client.do("ls", path="/")
            own, response = self.begin(client) if _ % 10 == 0 else (None, None)
            if own:
                response.close()
                own.close()
        self.wait_for(lambda: not self.running())
        self.wait_for(lambda: count() <= before + 2)


class Keys(McpTest):
    def test_each_key_reaches_what_it_reaches_otherwise(self):
        self.assertEqual(401, Mcp(self.daemon, key="kwrong").ask("tools/list").status)
        alice, bob = self.daemon.key("alice"), self.daemon.key("bob")
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "hers"}, key=alice).status)
        self.assertEqual("hers\n", Mcp(self.daemon, key=alice).do("execute", workspace="hers", command="echo hers")["output"])
        self.assertIn("no workspace", Mcp(self.daemon, key=bob).fail("execute", workspace="hers", command="id"))
        self.assertEqual([], Mcp(self.daemon, key=bob).do("workspace_list")["workspaces"])
        reader = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["read"]}).json["key"]
        self.assertEqual(["/.bashrc"], [e["path"] for e in Mcp(self.daemon, key=reader).do("ls", workspace="hers", path="/")["entries"]])
        for tool, more in (("execute", {"command": "id"}), ("write_file", {"path": "/a", "content": ""}), ("delete", {"path": "/a"})):
            self.assertIn("lacks the scope", Mcp(self.daemon, key=reader).fail(tool, workspace="hers", **more))

    def test_a_key_of_one_workspace_need_not_name_it(self):
        key = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["agent"], "workspaces": ["thread-1"]}).json["key"]
        client = Mcp(self.daemon, key=key)
        self.assertEqual("thread-1", client.do("workspace_create", id="thread-1")["id"])
        self.assertEqual("hi\n", client.do("execute", command="echo hi")["output"])
        self.assertIn("no workspace", client.fail("execute", command="id", workspace="desk"))

    def test_an_agent_of_planned_writes_changes_nothing_by_itself(self):
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "planned", "owner": "alice", "policy": {"writes": "plan"}}).status)
        person = self.daemon.key("alice")
        self.daemon.request("PUT", "/v1/workspaces/planned/files/a.txt", body=b"old\n", key=person)
        key = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["agent"], "workspaces": ["planned"]}).json["key"]
        for modern in (True, False):
            agent = Mcp(self.daemon, key=key, modern=modern)
            agent.do("write_file", path="/a.txt", content="new\n")
            agent.do("edit_file", path="/a.txt", old_string="new", new_string="newer")
            plan = agent.do("execute", command="echo made > b.txt; cat a.txt")
            self.assertEqual("newer\n", plan["output"])
            agent.do("move", source="/b.txt", destination="/c.txt")
            agent.do("start_process", command="echo d > d.txt; sleep 1000")
            seen = self.daemon.get("/v1/workspaces/planned/files/?list=1", key=person).json["entries"]
            self.assertEqual([("/a.txt", 4)], [(e["path"], e["size"]) for e in seen if e["path"] != "/.bashrc"])
            number = plan["plan"]["id"]
            agent.do("plan_close", plan=number)
            self.assertIn("+newer", agent.do("plan_diff", plan=number)["diff"])
            agent.do("plan_discard", plan=number)
            self.assertEqual(b"old\n", self.daemon.get("/v1/workspaces/planned/files/a.txt", key=person).bytes)

    def test_five_hundred_files_in_a_plan_that_a_person_approves(self):
        policy = {"writes": "plan", "plan": {"approval": "required"}}
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "planned", "owner": "alice", "policy": policy}).status)
        person = self.daemon.key("alice", ("owner",))
        files = [{"path": f"/in/{n}.txt", "content": f"{n}\n"} for n in range(500)]
        self.assertEqual(200, self.daemon.post("/v1/workspaces/planned/files-write", {"files": files}, key=person).status)
        key = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["agent"], "workspaces": ["planned"]}).json["key"]
        agent = Mcp(self.daemon, key=key)
        count = lambda path: len(Mcp(self.daemon, key=person).do("glob", workspace="planned", pattern="*.txt", path=path)["matches"])
        plan = agent.do("execute", command="mkdir -p /even /odd; cd /in; for n in *.txt; do [ $((${n%.txt} % 2)) = 0 ] && mv $n /even || mv $n /odd; done")["plan"]
        shown = agent.do("plan_close", plan=plan["id"])
        self.assertIn("approval", agent.fail("plan_apply", plan=plan["id"]))
        self.assertEqual(500, count("/in"))
        approved = self.daemon.post(f"/v1/workspaces/planned/plans/{plan['id']}/approve", {"hash": shown["hash"]}, key=person)
        self.assertEqual(200, approved.status, approved.bytes)
        self.assertEqual("applied", agent.do("plan_apply", plan=plan["id"], hash=shown["hash"])["state"])
        self.assertEqual((250, 250), (count("/even"), count("/odd")))
        Mcp(self.daemon, key=person).do("plan_undo", workspace="planned", plan=plan["id"])
        self.assertEqual(500, count("/in"))

    def test_it_is_on_record_as_what_the_key_did(self):
        key = self.daemon.key("alice")
        client = Mcp(self.daemon, key=key)
        client.do("workspace_create", id="hers")
        client.do("write_file", workspace="hers", path="/a", content="b")
        client.do("execute", workspace="hers", command="true")
        records = [r for r in self.daemon.audit() if r.get("workspace") == "hers"]
        self.assertEqual(1, len({r["actor"] for r in records}), records)
        self.assertTrue(records[0]["actor"].startswith("key:"))

    def test_what_is_revoked_ends_and_starts_nothing(self):
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        client = Mcp(self.daemon, key=made["key"], modern=False)
        client.do("workspace_create", id="hers")
        self.daemon.request("DELETE", f"/v1/keys/{made['id']}")
        self.assertEqual(401, client.ask("ping").status)

    def test_a_stream_is_told_that_its_key_was_revoked(self):
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        for modern in (True, False):
            made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
            client = Mcp(self.daemon, key=made["key"], modern=modern)
            name = f"hers-{modern}".lower()
            client.do("workspace_create", id=name)
            message = client.message("tools/call", {"name": "execute", "arguments": {"command": "echo begun; sleep 1000", "workspace": name}}, progress=1)
            own = client.post(message, wait=False)
            response = own.getresponse()
            line = b""
            while b"begun" not in line:
                line = response.readline()
                self.assertTrue(line, "it broke off")
            self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{made['id']}").status)
            last = json.loads(response.read().decode().strip().split("data: ")[-1])
            self.assertIn("no longer valid", json.dumps(last))
            own.close()


class Stdio(McpTest):
    """carrel mcp: the same on standard input and output."""
    def start(self, *options, **env):
        process = subprocess.Popen([CARREL, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**os.environ, "CARREL_SOCKET": self.daemon.socket, **env}, cwd=self.dir)
        self.processes.append(process)
        return process

    def setUp(self):
        super().setUp()
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
        super().tearDown()

    def say(self, process, message):
        process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        process.stdin.flush()

    def hear(self, process, id=...):
        """The next message; or the answer to that request."""
        while True:
            line = process.stdout.readline()
            self.assertTrue(line, "it ended")
            message = json.loads(line)
            if id is ... or message.get("id") == id and "method" not in message:
                return message

    def open(self, process, version=LEGACY):
        self.say(process, {"jsonrpc": "2.0", "id": 0, "method": "initialize",
                           "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
        self.say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})  # without waiting for the answer
        self.assertEqual(version, self.hear(process, 0)["result"]["protocolVersion"])

    def call(self, id, tool, progress=None, modern=False, **arguments):
        params = {"name": tool, "arguments": arguments}
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}} if modern else {}
        if progress:
            meta["progressToken"] = progress
        return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {**params, **({"_meta": meta} if meta else {})}}

    def test_both_protocols_and_several_requests_at_a_time(self):
        process = self.start("--workspace", "desk")
        self.open(process)
        self.say(process, self.call("slow", "execute", progress="p", command="echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over"))
        self.assertEqual("begun\n", self.hear(process)["params"]["message"])
        self.say(process, self.call("a", "write_file", modern=True, path="/go", content=""))
        self.assertEqual("/go", self.hear(process, "a")["result"]["structuredContent"]["path"])
        self.assertEqual("begun\nover\n", self.hear(process, "slow")["result"]["structuredContent"]["output"])
        self.say(process, self.call("r", "read_file", modern=True, path="/n\u00e4me"))
        self.assertTrue(self.hear(process, "r")["result"]["isError"])
        self.say(process, {"jsonrpc": "2.0", "id": "u", "method": "resources/read", "params": {
            "uri": "carrel://desk/\u00e4 ", "_meta": {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}}})
        self.assertEqual(-32602, self.hear(process, "u")["error"]["code"])
        self.say(process, self.call("other", "ls", workspace="other", path="/"))
        self.assertEqual(-32602, self.hear(process, "other")["error"]["code"])
        process.stdin.close()
        self.assertEqual((0, b""), (process.wait(PATIENCE), process.stderr.read()))

    def test_what_is_no_message(self):
        process = self.start()
        for line, code in ((b"{", -32700), (b"[]", -32600), (b"\xff", -32700), (b'{"jsonrpc":"2.0","id":1}', -32600)):
            self.say(process, line)
            self.assertEqual(code, self.hear(process)["error"]["code"], line)
        self.say(process, b"   ")
        self.open(process)

    def test_cancelling_ends_a_command_in_both(self):
        process = self.start("--workspace", "desk")
        self.open(process)
        for modern in (False, True):
            self.say(process, self.call("one", "execute", progress="p", modern=modern, command="echo begun; sleep 1000"))
            self.assertEqual("begun\n", self.hear(process)["params"]["message"])
            self.say(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "one"}})
            self.wait_for(lambda: not self.running())
            self.say(process, self.call("two", "ls", path="/", modern=modern))
            self.assertEqual("two", self.hear(process)["id"])  # and nothing about the first

    def test_cancelling_among_many(self):
        """More than are passed on at a time: the others have their turn, and each of them can be cancelled."""
        for modern in (False, True):
            process = self.start("--workspace", "desk")
            self.open(process)
            for n in range(70):
                self.say(process, self.call(n, "read_process", modern=modern, process_id="xnone") if n == 69 else
                         self.call(n, "execute", modern=modern, command=f"echo {n} >> begun; sleep 1000"))
            begun = lambda: self.daemon.get("/v1/workspaces/desk/files/begun").bytes.decode().split()
            self.wait_for(lambda: len(begun()) == 64)
            for n in range(64, 69):  # they have not begun
                self.say(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n}})
            self.say(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}})
            self.assertTrue(self.hear(process, 69)["result"]["isError"])
            self.wait_for(lambda: len(self.running()) == 63)
            self.assertEqual([str(n) for n in range(64)], sorted(begun(), key=int))
            for exec_id in self.running():
                self.daemon.post(f"/v1/workspaces/desk/exec/{exec_id}/kill", {})
            self.wait_for(lambda: not self.running())
            self.daemon.request("DELETE", "/v1/workspaces/desk/files/begun")

    def test_a_daemon_that_begins_anew(self):
        process = self.start("--workspace", "desk")
        self.open(process)
        self.daemon.kill_front()
        for n in range(3):
            self.say(process, self.call(n, "execute", command=f"echo {n}"))
        for n in range(3):
            found = self.hear(process)
            self.assertEqual(f"{found['id']}\n", found["result"]["structuredContent"]["output"])

    def test_a_front_that_dies_in_the_middle_of_a_call(self):
        process = self.start("--workspace", "desk")
        self.open(process)
        for modern in (False, True):
            self.say(process, self.call("one", "execute", progress="p", modern=modern, command="echo begun; sleep 1000"))
            self.assertEqual("begun\n", self.hear(process)["params"]["message"])
            self.daemon.kill_front()
            self.assertIn("error", self.hear(process, "one"))  # it is told, and does not wait for ever
            self.say(process, self.call("two", "list_processes", modern=modern, state="running"))
            [left] = self.hear(process, "two")["result"]["structuredContent"]["execs"]
            self.say(process, self.call("three", "kill_process", modern=modern, process_id=left["exec_id"]))
            self.assertEqual({"ok": True}, self.hear(process, "three")["result"]["structuredContent"])
            self.wait_for(lambda: not self.running())

    def test_what_the_daemon_does_not_read_is_answered_under_its_id(self):
        process = self.start("--workspace", "desk")
        self.open(process)
        for modern in (False, True):
            self.say(process, self.call("nul", "write_file", modern=modern, path="/a", content="b\0c"))
            self.assertIn("JSON", self.hear(process, "nul")["error"]["message"])

    def test_a_session_that_could_not_be_begun_anew_at_once(self):
        """The daemon forgets the session, is away when another is asked for, and comes back."""
        opened = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, message=None, *head):
                body = json.dumps(message).encode() if message else b""
                self.send_response(status)
                for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *head):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                session = self.headers.get("Mcp-Session-Id")
                if message["method"] == "initialize":
                    opened.append(message)
                    result = {"protocolVersion": LEGACY, "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}}
                    if len(opened) == 2:
                        self.answer(503, {"error": {"code": "unavailable", "message": "not now"}})
                    else:
                        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, ("Mcp-Session-Id", f"s{len(opened)}"))
                elif "id" not in message:
                    self.answer(202)
                elif session == "s3":
                    self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})
                else:
                    self.answer(404 if session else 400, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32600, "message": "no session"}})

            def do_DELETE(self):
                self.answer(204)

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                process = self.start(CARREL_SOCKET="", CARREL_URL=f"http://127.0.0.1:{server.server_port}", CARREL_KEY="k")
                self.open(process)
                self.say(process, self.call(1, "ls", path="/"))
                self.assertIn("error", self.hear(process, 1))
                self.say(process, self.call(2, "ls", path="/"))
                self.assertEqual({"content": []}, self.hear(process, 2)["result"])
                self.assertEqual(3, len(opened))
                process.stdin.close()
                process.wait(PATIENCE)
            finally:
                server.shutdown()
                thread.join()

    def test_no_daemon_and_no_key(self):
        process = self.start(CARREL_SOCKET="", CARREL_URL=f"http://127.0.0.1:{self.daemon.tcp_port()}", CARREL_KEY="kwrong")
        self.say(process, self.call(1, "ls", path="/"))
        self.assertIn("CARREL_KEY", self.hear(process, 1)["error"]["message"])
        process = self.start(CARREL_SOCKET=self.path("none"))
        self.say(process, self.call(1, "ls", path="/"))
        self.assertIn("carrel serve", self.hear(process, 1)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
