#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""Workspaces whose policy names hosts: what they reach and do not, what is on record of it, rules that change while a
sandbox lives, and carrel-egress killed in the middle."""
import json
import os
import signal
import threading
import time
import unittest
import unittest.mock

import daemontest
from carreltest import PATIENCE, carrel, write
from daemontest import Daemon, DaemonTest, events_of
from nettest import Names, Web, babbling, egress_of

FETCH = ("import sys, urllib.request\n"
         "for url in sys.argv[1:]:\n"
         "    try: print(urllib.request.urlopen(url, timeout=20).read().decode(), end='')\n"
         "    except OSError as error: print('failed')\n")
HOSTS = ("api.example.org", "www.example.org", "other.example.net")


class NetworkTest(DaemonTest):
    more = ()

    def setUp(self):
        self.web = Web()
        self.names = Names({name: ["127.0.0.1"] for name in HOSTS})
        self.addCleanup(self.web.close)
        self.addCleanup(self.names.close)
        private = ",".join(f"{name}:{self.web.port}" for name in HOSTS)
        self.options = ("--set", f"nameservers={self.names.address}", "--set", f"network_private={private}", *self.more)
        super().setUp()

    def rules(self, *names, **more):
        return {"network": {"allow": [f"{name}:{self.web.port}" for name in names], **more}}

    def url(self, name, path="/"):
        return f"http://{name}:{self.web.port}{path}"

    def fetch(self, ws, *urls, **more):
        result = self.daemon.execute(ws, "python3 -c \"$FETCH\" " + " ".join(urls), env={"FETCH": FETCH}, **more)
        return result["stdout"].splitlines(), result

    def reached(self, ws, *names):
        """Of these, those that are reached."""
        lines, _ = self.fetch(ws, *(self.url(name) for name in names))
        return [name for name, line in zip(names, lines) if line.startswith("from")]

    def ledger(self, ws, **kwargs):
        return self.daemon.get(f"/v1/workspaces/{ws}/net", **kwargs).json["records"]

    def policy(self, ws, policy):
        answer = self.daemon.request("PATCH", f"/v1/workspaces/{ws}", {"policy": policy})
        self.assertEqual(200, answer.status, answer.bytes)

    def egress(self):
        return egress_of(self.daemon.process.pid)

    def until(self, so, what):
        deadline = time.monotonic() + PATIENCE
        while not so():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)


class Reached(NetworkTest):
    def test_what_the_policy_names_is_reached_and_all_is_on_record(self):
        self.assertIsNone(self.egress(), "nobody needs it yet")
        ws = self.workspace(policy=self.rules("api.example.org"))
        lines, result = self.fetch(ws, self.url("api.example.org", "/a"), self.url("other.example.net"))
        self.assertEqual([f"from api.example.org:{self.web.port} /a", "failed"], lines)
        denials = {one["what"]: one for one in result["denials"]}
        self.assertIn('"allow": ["other.example.net"]', denials["look up other.example.net"]["fix"])
        self.until(lambda: len(self.ledger(ws)) >= 3, "three records")
        rows = {row["operation"]: row for row in self.ledger(ws)}
        self.assertEqual({"net.open", "net.close", "net.refuse"}, set(rows))
        for operation in ("net.open", "net.close"):
            details = rows[operation]["details"]
            self.assertEqual(("api.example.org", self.web.port, f"api.example.org:{self.web.port}"),
                             (details["host"], details["port"], details["rule"]))
        self.assertGreater(rows["net.close"]["details"]["down"], 20)
        self.assertEqual(("other.example.net", "denied"), (rows["net.refuse"]["details"]["host"], rows["net.refuse"]["result"]))
        self.assertEqual([ws], list({row["workspace"] for row in rows.values()}))

    def test_the_record_says_which_command_it_was(self):
        """Of one alone always; of several at once where each has a control group, and nothing false otherwise."""
        ws = self.workspace(policy=self.rules("api.example.org"))
        result = self.daemon.execute(ws, f"python3 -c \"$FETCH\" {self.url('api.example.org')} {self.url('alone.example.net')}", env={"FETCH": FETCH})
        self.until(lambda: len(self.ledger(ws)) >= 3, "three records")
        self.assertEqual({result["exec_id"]}, {row["details"].get("exec") for row in self.ledger(ws)})
        begun = {}  # with a limit each has a group, where there are any
        more = {"limits": {"pids": 60}}
        grouped = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true", **more}).status == 200
        more = more if grouped else {}
        for at in range(3):
            self.names.table[f"h{at}.example.net"] = ["127.0.0.1"]
            answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {
                **more, "command": f"while [ ! -e /go ]; do sleep 0.05; done; python3 -c \"$FETCH\" {self.url('api.example.org', f'/{at}')} {self.url(f'h{at}.example.net')}; sleep 1000",
                "env": {"FETCH": FETCH}, "background": True})
            begun[f"h{at}.example.net"] = answer.json["exec_id"]
        self.daemon.request("PUT", f"/v1/workspaces/{ws}/files/go", b"")
        self.until(lambda: {row["details"]["host"] for row in self.ledger(ws)} >= set(begun), "their records")
        self.until(lambda: len([row for row in self.ledger(ws) if row["operation"] == "net.close"]) >= 4, "their ends")
        rows = self.ledger(ws)
        refused = {row["details"]["host"]: row["details"].get("exec") for row in rows if row["details"]["host"] in begun}
        opened = {row["details"]["connection"]: row["details"].get("exec") for row in rows if row["operation"] == "net.open"}
        closed = {row["details"]["connection"]: row["details"].get("exec") for row in rows if row["operation"] == "net.close"}
        self.assertEqual(opened, closed)
        for host, exec_id in begun.items():
            self.assertIn(refused[host], (exec_id, None))
        if grouped and self.has_groups():
            self.assertEqual(begun, refused)
            self.assertEqual({result["exec_id"], *begun.values()}, set(opened.values()))
        shown = carrel("net", "log", ws, env=dict(os.environ, CARREL_SOCKET=self.daemon.socket)).stdout
        self.assertIn(result["exec_id"], shown)

    def has_groups(self):
        """Whether this host gives each command a control group of v2."""
        daemon = self.daemon.process.pid
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            tops = [line.split()[4] for line in file if " - cgroup2 " in line]
        return any(name.startswith(f"carrel-{daemon}-k") for top in tops for _, names, _ in os.walk(top) for name in names)

    def test_a_denial_is_told_while_the_command_runs(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        response = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {
            "command": "python3 -c \"$FETCH\" " + self.url("other.example.net") + "; while [ ! -e /go ]; do sleep 0.1; done", "env": {"FETCH": FETCH},
            "stream": True})
        for event in events_of(response):
            if event["type"] == "denial":
                break
        self.assertEqual(("look up other.example.net", "denial"), (event["what"], event["type"]))
        self.assertIn("other.example.net", event["fix"])
        self.daemon.request("PUT", f"/v1/workspaces/{ws}/files/go", b"")
        end = list(events_of(response))[-1]
        response.keep.close()
        self.assertEqual(("end", ["look up other.example.net"]), (end["type"], [one["what"] for one in end["denials"]]))
        self.assertRegex(self.daemon.get("/metrics").bytes.decode(), r"(?m)^carrel_net_refused_total [1-9]")

    def test_each_has_its_own_rules_and_nobody_sees_anothers_ledger(self):
        alice, bob = self.daemon.key("alice"), self.daemon.key("bob")
        ids = {}
        for key, name, owner in ((alice, "api.example.org", "a"), (bob, "www.example.org", "b")):
            answer = self.daemon.post("/v1/workspaces", {"id": owner, "policy": self.rules(name)}, key=key)
            self.assertEqual(201, answer.status, answer.bytes)
            ids[owner] = answer.json["id"]
        self.assertEqual(["api.example.org"], self.reached("a", *HOSTS))
        self.assertEqual(["www.example.org"], self.reached("b", *HOSTS))
        self.assertEqual(404, self.daemon.get("/v1/workspaces/a/net", key=bob).status)
        self.assertEqual(404, self.daemon.get("/v1/workspaces/a/net/try?url=https://api.example.org/", key=bob).status)
        self.assertEqual({"b"}, {row["workspace"] for row in self.ledger("b", key=bob)})
        everything = self.daemon.get("/v1/audit?operation=net.*", key=bob).json["records"]
        self.assertEqual({"b"}, {row["workspace"] for row in everything})

    def test_it_sleeps_and_is_woken(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        for _ in range(3):
            self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))
            self.assertLess(self.daemon.post(f"/v1/workspaces/{ws}/sleep").status, 300)

    def test_a_front_that_dies_takes_no_connection_with_it(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        exec_id = self.background(ws, "/wait")
        self.until(lambda: any(path == "/wait" for _, path in self.web.seen), "it is asked")
        self.daemon.kill_front()
        self.web.hold.set()
        self.until(lambda: self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}").json["state"] != "running", "its end")
        shown = self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}/output").bytes
        self.assertIn(b"from api.example.org", shown)

    def background(self, ws, path):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "python3 -c \"$FETCH\" " + self.url("api.example.org", path),
                                                                "env": {"FETCH": FETCH}, "background": True})
        self.assertIn(answer.status, (200, 201, 202), answer.bytes)
        return answer.json["exec_id"]

    def test_egress_is_killed_in_the_middle(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        exec_id = self.background(ws, "/wait")
        self.until(lambda: any(path == "/wait" for _, path in self.web.seen), "it is asked")
        before = self.egress()
        os.kill(before, signal.SIGKILL)
        self.until(lambda: self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}").json["state"] != "running", "its end")
        self.assertIn(b"failed", self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}/output").bytes)
        self.until(lambda: self.egress() not in (None, before), "another one")
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))
        starts = [row for row in self.daemon.audit() if row["operation"] == "sandbox.start"]
        self.assertEqual(1, len(starts), "the sandbox stays")

    def test_bytes_of_an_hour_are_the_workspaces(self):
        """Not its sandbox's, and not carrel-egress's."""
        ws = self.workspace(policy=self.rules("api.example.org", bytes_per_hour="2K"))
        done = 0
        for round_ in range(30):
            if not self.reached(ws, "api.example.org"):
                break
            done += 1
            if round_ % 2:
                self.assertLess(self.daemon.post(f"/v1/workspaces/{ws}/sleep").status, 300)
            else:
                before = self.egress()
                self.until(lambda: len([row for row in self.ledger(ws) if row["operation"] == "net.close"]) >= done, "it is told")
                os.kill(before, signal.SIGKILL)
                self.until(lambda: self.egress() not in (None, before), "another one")
        self.assertTrue(3 <= done <= 10, done)  # about 270 bytes each
        self.assertIn("bytes of this hour", json.dumps([row for row in self.ledger(ws) if row["operation"] == "net.refuse"]))
        other = self.workspace(policy=self.rules("api.example.org", bytes_per_hour="2K"))
        self.assertEqual(["api.example.org"], self.reached(other, "api.example.org"))

    def test_many_at_once_before_and_after(self):
        count = 12
        for at in range(count):
            self.names.table[f"h{at}.example.org"] = ["127.0.0.1"]
        self.daemon.stop()
        self.daemon = Daemon(self.path("s"), *self.options, "--set", "network_private=*.example.org")
        ids = [self.workspace(policy=self.rules(f"h{at}.example.org")) for at in range(count)]
        names = [f"h{at}.example.org" for at in range(count)]

        def all_reach_their_own():
            got = [None] * count

            def one(at):
                got[at] = self.reached(ids[at], names[at], names[(at + 1) % count])
            threads = [threading.Thread(target=one, args=(at,)) for at in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual([[name] for name in names], got)
        all_reach_their_own()
        before = self.egress()
        os.kill(before, signal.SIGKILL)
        self.until(lambda: self.egress() not in (None, before), "another one")
        self.until(lambda: self.reached(ids[0], names[0]), "it serves")
        all_reach_their_own()

    def test_it_ends_with_the_daemon(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))
        egress = self.egress()
        self.daemon.stop()
        self.assertFalse(os.path.exists(f"/proc/{egress}"))


class Led(NetworkTest):
    def test_ports_inside_are_led_to_also_where_names_have_such_ports(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "echo page > /page; exec python3 -m http.server -b 127.0.0.1 8123",
                                                       "background": True})
        path = self.daemon.post(f"/v1/workspaces/{ws}/ports/8123").json["path"] + "page"
        self.until(lambda: self.daemon.get(path).status == 200, "the port's page")
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))


class Changed(NetworkTest):
    def test_rules_hold_for_what_lives(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "python3 -c \"$FETCH\" " + self.url("api.example.org", "/wait"),
                                                                "env": {"FETCH": FETCH}, "background": True})
        exec_id = answer.json["exec_id"]
        self.until(lambda: any(path == "/wait" for _, path in self.web.seen), "it is asked")
        self.policy(ws, self.rules("www.example.org"))
        self.until(lambda: self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}").json["state"] != "running",
                   "what is not allowed any more ends")
        self.assertIn(b"failed", self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}/output").bytes)
        self.assertEqual(["www.example.org"], self.reached(ws, *HOSTS))
        self.policy(ws, self.rules("www.example.org", "other.example.net"))
        self.assertEqual(["www.example.org", "other.example.net"], self.reached(ws, *HOSTS))
        starts = [row for row in self.daemon.audit() if row["operation"] == "sandbox.start"]
        self.assertEqual(1, len(starts), "in one sandbox")

    def test_no_network_any_more_ends_what_is_connected(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        command = {"command": "python3 -c \"$FETCH\" " + self.url("api.example.org", "/wait") + "; sleep 1000", "env": {"FETCH": FETCH},
                   "background": True}
        exec_id = self.daemon.post(f"/v1/workspaces/{ws}/exec", command).json["exec_id"]
        self.until(lambda: any(path == "/wait" for _, path in self.web.seen), "it is asked")
        self.policy(ws, {})
        self.until(lambda: b"failed" in self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}/output").bytes, "the connection ends")
        self.policy(ws, self.rules("api.example.org"))  # what was cut off once is another sandbox's
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"})
        self.assertEqual(409, answer.status, answer.bytes)
        self.daemon.post(f"/v1/workspaces/{ws}/exec/{exec_id}/kill")
        self.until(lambda: self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"}).status == 200, "room")
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))

    def test_other_ports_are_another_sandbox(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))
        self.policy(ws, {"network": {"allow": [f"api.example.org:{self.web.port}", "api.example.org:8"]}})
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))
        starts = [row for row in self.daemon.audit() if row["operation"] == "sandbox.start"]
        self.assertEqual(2, len(starts))


class Tried(NetworkTest):
    def test_which_rule_would_decide(self):
        ws = self.workspace(policy={"network": {"allow": ["*.example.org", "db.example.net:5432"], "deny": ["up.example.org"]}})
        rows = [("https://a.example.org/x?y", True, "*.example.org"), ("http://A.Example.ORG.", True, "*.example.org"),
                ("a.example.org", True, "*.example.org"), ("https://a.example.org:8443/", False, None),
                ("https://up.example.org", False, "!up.example.org"), ("https://example.org", False, None),
                ("https://db.example.net:5432", True, "db.example.net:5432"), ("https://db.example.net", False, None)]
        for url, allowed, rule in rows:
            answer = self.daemon.get(f"/v1/workspaces/{ws}/net/try?url={url.replace('?', '%3F')}").json
            self.assertEqual((allowed, rule), (answer["allowed"], answer["rule"]), url)
            self.assertTrue(answer["why"])
        for url in ("", "ftp://a.example.org", "https://127.0.0.1/", "https://user@a.example.org/", "https://a.example.org:0/", "https://[::1]/"):
            self.assertEqual(400, self.daemon.get(f"/v1/workspaces/{ws}/net/try?url={url}").status, url)
        self.assertEqual(400, self.daemon.get(f"/v1/workspaces/{ws}/net/try").status)
        self.policy(ws, {})
        self.assertFalse(self.daemon.get(f"/v1/workspaces/{ws}/net/try?url=https://a.example.org").json["allowed"])
        self.assertEqual([], self.names.asked)

    def test_the_command_line_shows_both(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        self.reached(ws, "api.example.org", "other.example.net")
        env = dict(os.environ, CARREL_SOCKET=self.daemon.socket)
        self.until(lambda: len(self.ledger(ws)) >= 3, "three records")
        shown = carrel("net", "log", ws, env=env)
        self.assertRegex(shown.stdout, r"(?m)refuse +other\.example\.net .*no rule")
        self.assertRegex(shown.stdout, r"(?m)close +api\.example\.org +%d +\d+ +\d+" % self.web.port)
        lines = carrel("net", "log", "--json", ws, env=env).stdout.splitlines()
        self.assertEqual([row["seq"] for row in self.ledger(ws)], [json.loads(line)["seq"] for line in lines])
        self.assertRegex(carrel("net", "try", ws, "https://other.example.net/", env=env).stdout, r"^refused: .*no rule")
        self.assertRegex(carrel("net", "try", ws, self.url("api.example.org"), env=env).stdout, r"^allowed: ")
        self.one_line(carrel("net", "try", ws, env=env), "address")
        self.one_line(carrel("net", env=env), "net log")


class Bounded(NetworkTest):
    more = ("--set", "network_limit=*.example.org, other.example.net:9")

    def test_policies_go_no_further_than_the_setting(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"})
        self.assertEqual(403, answer.status, answer.bytes)
        self.assertIn("network_limit", answer.json["error"]["message"])
        self.policy(ws, {"network": {"allow": ["api.example.org"]}})
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"}).status)


class Idle(NetworkTest):
    more = ("--set", "idle=1s")

    def test_what_it_listens_at_for_names_keeps_nobody_awake(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        self.daemon.execute(ws, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & exit 0")
        self.until(lambda: self.daemon.get(f"/v1/workspaces/{ws}").json["state"] == "asleep", "it falls asleep")
        self.daemon.execute(ws, "setsid python3 -m http.server 9999 >/dev/null 2>&1 </dev/null & sleep 1")
        time.sleep(2.5)
        self.assertEqual("awake", self.daemon.get(f"/v1/workspaces/{ws}").json["state"], "a server of its own does")
        self.daemon.post(f"/v1/workspaces/{ws}/sleep")


class Misspelt(NetworkTest):
    def test_settings_that_are_no_names_are_refused_at_the_start(self):
        for setting in ("network_limit=*", "network_limit=a.org,10.0.0.1", "network_private=127.0.0.1", "network_private=!a.org",
                        "nameservers=resolver.example.org"):
            done = carrel("serve", "--state", self.path("other"), "--listen", "", "--set", setting)
            self.one_line(done, setting.partition("=")[0])


class Forbidden(NetworkTest):
    more = ("--set", "allow_net=no")

    def test_no_policy_names_hosts(self):
        ws = self.workspace(policy=self.rules("api.example.org"))
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"})
        self.assertEqual(403, answer.status, answer.bytes)
        self.assertIn("allow_net", answer.json["error"]["message"])
        self.assertEqual("allow_net", answer.json["error"]["details"]["reason"])


class Sets(NetworkTest):
    def setUp(self):
        super().setUp()
        self.daemon.stop()
        os.mkdir(self.path("sets"))
        write(self.path("sets/mine"), f"www.example.org:{self.web.port}\n")
        self.daemon = Daemon(self.path("s"), *self.options, "--set", "networks=" + self.path("sets"))

    def test_a_set_is_what_its_file_says_now(self):
        ws = self.workspace(policy={"network": {"allow": ["@mine"]}})
        self.assertEqual(["www.example.org"], self.reached(ws, *HOSTS))
        write(self.path("sets/mine"), f"api.example.org:{self.web.port}\n")
        self.assertEqual(["api.example.org"], self.reached(ws, *HOSTS))
        self.policy(ws, {"network": {"allow": ["@other"]}})
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"})
        self.assertEqual(404, answer.status, answer.bytes)
        self.assertIn("@other", answer.json["error"]["message"])

    def test_an_index_of_the_intranet_that_the_settings_name_is_in_the_set_and_reached(self):
        self.daemon.stop()
        write(self.path("sets/python"), "mirrors pip\n")
        options = ("--set", f"nameservers={self.names.address}", "--set", "networks=" + self.path("sets"))
        ws = None
        for more, want in (((), []), (("--set", f"package_index=http://user:word@api.example.org:{self.web.port}/simple/"), ["api.example.org"])):
            self.daemon = Daemon(self.path("s"), *options, *more)
            ws = ws or self.workspace(policy={"network": {"allow": ["@python"], "deny": ["other.example.org"]}})
            self.assertEqual(want, self.reached(ws, *HOSTS))
            if not more:
                self.daemon.stop()

    def test_what_is_no_rule_is_refused_where_the_policy_is_set(self):
        for entry in ("*", "10.0.0.1", "@../x", {"host": "a.example.org", "methods": ["TRACE"]}, {"host": "a.example.org", "udp": True}, 7):
            answer = self.daemon.post("/v1/workspaces", {"policy": {"network": {"allow": [entry]}}})
            self.assertEqual(400, answer.status, entry)


class Babbling(DaemonTest):
    """carrel-egress was taken over."""

    def test_one_that_never_stops_talking_does_not_hold_up_the_daemon(self):
        self.daemon.stop()
        with unittest.mock.patch.object(daemontest, "CARREL", babbling(self.path("bin"))):
            self.daemon = Daemon(self.path("babbling"))
        ws = self.workspace(policy={"network": {"allow": ["api.example.org"]}})
        for _ in range(5):
            began = time.monotonic()
            self.assertEqual("hello\n", self.daemon.execute(ws, "sleep 0.5; echo hello")["stdout"])
            self.assertLess(time.monotonic() - began, PATIENCE / 2)
        self.assertNotIn("front_died", self.daemon.said())


if __name__ == "__main__":
    unittest.main()
