#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Two owners with sandboxes of E2B's clients: no route, header, host name or token of one leads into the other's; and what is broken,
half said or made up is refused, and leaves the daemon alive."""
import base64
import hashlib
import json
import struct
import unittest

from daemontest import DaemonTest

ENVD = "49983"


def envelope(message, flags=0):
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(text)) + text


class Tenants(DaemonTest):
    def setUp(self):
        super().setUp()
        self.keys = {name: self.daemon.key(name, ("owner",)) for name in ("alice", "bob")}
        self.boxes = {name: self.create(name) for name in self.keys}

    def ask(self, method, path, body=None, **headers):
        return self.daemon.request(method, path, body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def create(self, name, **more):
        answer = self.ask("POST", "/v2/sandboxes", {"templateID": "base", "metadata": {"of": name}, **more}, X_API_Key=self.keys[name])
        self.assertEqual(answer.status, 201, answer.bytes)
        return answer.json

    def inside(self, box, method, path, body=None, token=None, **headers):
        if token:
            headers["X_Access_Token"] = token
        return self.ask(method, path, body, E2b_Sandbox_Id=box["sandboxID"], E2b_Sandbox_Port=headers.pop("port", ENVD), **headers)

    def test_the_api_shows_and_changes_ones_own(self):
        theirs = self.boxes["bob"]["sandboxID"]
        listed = self.ask("GET", "/v2/sandboxes", X_API_Key=self.keys["alice"]).json
        self.assertEqual([s["sandboxID"] for s in listed], [self.boxes["alice"]["sandboxID"]])
        for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 9}), ("POST", "/refreshes", {"duration": 9}),
                                   ("POST", "/pause", {}), ("POST", "/connect", {"timeout": 9}), ("POST", "/resume", {}), ("GET", "/metrics", None),
                                   ("GET", "/logs", None), ("PUT", "/network", {}), ("POST", "/fork", {}), ("POST", "/snapshots", {})):
            answer = self.ask(method, f"/sandboxes/{theirs}{path}", body, X_API_Key=self.keys["alice"])
            self.assertEqual((answer.status, answer.json["code"]), (404, 404), path)
            for key in ("", "ck_made_up", self.boxes["bob"]["envdAccessToken"]):
                answer = self.ask(method, f"/sandboxes/{theirs}{path}", body, X_API_Key=key)
                self.assertEqual((answer.status, answer.json["code"]), (401, 401), path)
        self.assertEqual(self.ask("GET", f"/sandboxes/{theirs}", X_API_Key=self.keys["bob"]).json["state"], "running")
        same = {"X_API_Key": self.keys["alice"], "Idempotency_Key": "one"}
        mine = self.ask("POST", "/v2/sandboxes", {"templateID": "base"}, **same).json["sandboxID"]
        other = self.ask("POST", "/v2/sandboxes", {"templateID": "base"}, **{**same, "X_API_Key": self.keys["bob"]}).json["sandboxID"]
        self.assertNotEqual(mine, other)

    def test_workspaces_that_are_no_sandboxes_are_none(self):
        self.assertEqual(self.daemon.post("/v1/workspaces", {"id": "desk"}, key=self.keys["alice"]).status, 201)
        self.assertEqual(self.ask("DELETE", "/sandboxes/desk", X_API_Key=self.keys["alice"]).status, 404)
        self.assertEqual(self.inside({"sandboxID": "desk"}, "GET", "/health").status, 502)
        self.assertEqual(self.daemon.get("/v1/workspaces/desk", key=self.keys["alice"]).status, 200)

    def test_a_token_opens_one_sandbox(self):
        alice, bob = self.boxes["alice"], self.boxes["bob"]
        routes = [("GET", "/envs", None), ("GET", "/files?path=x", None), ("POST", "/files?path=x", b"x")]
        routes += [("POST", f"/process.Process/{name}", {}) for name in ("List", "SendInput", "SendSignal", "CloseStdin", "Update")]
        routes += [("POST", f"/process.Process/{name}", envelope({"process": {"cmd": "true"}})) for name in ("Start", "Connect", "StreamInput")]
        routes += [("POST", f"/filesystem.Filesystem/{name}", {"path": "/"}) for name in
                   ("Stat", "ListDir", "MakeDir", "Move", "Remove", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher")]
        routes += [("POST", "/filesystem.Filesystem/WatchDir", envelope({"path": "/"}))]
        for method, path, body in routes:
            for token in (alice["envdAccessToken"], None, self.keys["bob"], "ct_"):
                answer = self.inside(bob, method, path, body, token=token)
                self.assertEqual((answer.status, answer.json["code"]), (401, 401), (path, token))
            host = f"{ENVD}-{bob['sandboxID']}.example.com"
            answer = self.ask(method, path, body, Host=host, X_Access_Token=alice["envdAccessToken"])
            self.assertEqual(answer.status, 401, path)
            # The name of the host wins over the headers, and a token over neither.
            answer = self.inside(alice, method, path, body, token=alice["envdAccessToken"], Host=host)
            self.assertEqual(answer.status, 401, path)
        # As a key of our own it is an agent's, of that workspace alone.
        mine, theirs = alice["sandboxID"], bob["sandboxID"]
        for path, wanted in ((f"/v1/workspaces/{mine}", 200), (f"/v1/workspaces/{theirs}", 404), ("/v1/keys", 403)):
            self.assertEqual(self.daemon.get(path, key=alice["envdAccessToken"]).status, wanted, path)
        listed = self.daemon.get("/v1/workspaces", key=alice["envdAccessToken"]).json["workspaces"]
        self.assertEqual([(w["id"], "token" in w["lifetime"]) for w in listed], [(mine, False)])
        self.assertEqual(self.daemon.request("PATCH", f"/v1/workspaces/{mine}", {"policy": {}}, key=alice["envdAccessToken"]).status, 403)
        self.assertEqual(self.ask("DELETE", f"/sandboxes/{mine}", X_API_Key=self.keys["alice"]).status, 204)
        self.assertEqual(self.daemon.get(f"/v1/workspaces/{mine}", key=alice["envdAccessToken"]).status, 401)

    def test_code_runs_for_who_has_the_token(self):
        alice, bob = self.boxes["alice"], self.boxes["bob"]
        for token in (None, alice["envdAccessToken"], self.keys["bob"], ""):
            answer = self.inside(bob, "POST", "/execute", {"code": "1+1"}, token=token, port="49999")
            self.assertEqual((answer.status, answer.json["code"]), (401, 401), token)
            answer = self.ask("POST", "/execute", {"code": "1+1"}, Host=f"49999-{bob['sandboxID']}.example.com", **({"X_Access_Token": token} if token else {}))
            self.assertEqual(answer.status, 401, token)
        answer = self.inside(bob, "POST", "/execute", {"code": "1+1"}, token=bob["envdAccessToken"], port="49999")
        self.assertIn(b'"text":"2"', answer.bytes.replace(b" ", b""))
        [context] = self.inside(bob, "GET", "/contexts", port="49999").json
        self.assertEqual(self.inside(alice, "GET", "/contexts", port="49999").json, [])
        for path in ("restart", ""):
            answer = self.inside(alice, "POST" if path else "DELETE", f"/contexts/{context['id']}/{path}".rstrip("/"), token=alice["envdAccessToken"], port="49999")
            self.assertEqual(answer.status, 404)
        answer = self.inside(alice, "POST", "/execute", {"code": "1+1", "context_id": context["id"]}, token=alice["envdAccessToken"], port="49999")
        self.assertEqual(answer.status, 404)

    def sign(self, box, path, operation="read", user="", expires=None):
        text = ":".join([path, operation, user, box["envdAccessToken"], *([str(expires)] if expires is not None else [])])
        return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=").replace("+", "%2B").replace("/", "%2F")

    def test_signed_addresses(self):
        alice, bob = self.boxes["alice"], self.boxes["bob"]
        written = self.ask("POST", f"/files?path=s&signature={self.sign(alice, 's', 'write')}", b"mine", Content_Type="application/octet-stream")
        self.assertEqual((written.status, written.json), (200, [{"name": "s", "type": "file", "path": "/home/user/s"}]))
        self.assertEqual(self.ask("GET", f"/files?path=s&signature={self.sign(alice, 's')}").bytes, b"mine")
        for why, query in (("invalid signature", f"path=s&signature={self.sign(alice, 't')}"),
                           ("invalid signature", f"path=s&signature={self.sign(alice, 's', 'write')}"),
                           ("invalid signature", f"path=s&username=root&signature={self.sign(alice, 's')}"),
                           ("invalid signature", "path=s&signature=v1_"), ("missing signature query parameter", "path=s"),
                           ("invalid signature", f"path=s&signature={self.sign(alice, 's')}&signature_expiration=9999999999"),
                           ("signature is already expired", f"path=s&signature={self.sign(alice, 's', expires=5)}&signature_expiration=5"),
                           ("signature is already expired", f"path=s&signature={self.sign(alice, 's', expires='x')}&signature_expiration=x")):
            answer = self.ask("GET", f"/files?{query}")
            self.assertEqual((answer.status, answer.json["message"]), (401, why), query)
        answer = self.inside(bob, "GET", f"/files?path=s&signature={self.sign(alice, 's')}")
        self.assertEqual((answer.status, answer.json["message"]), (401, "invalid signature"))

    def test_ports_and_half_said_places(self):
        bob = self.create("bob", network={"allowPublicTraffic": False})
        for token in ("", self.boxes["alice"]["envdAccessToken"], self.boxes["bob"]["envdAccessToken"]):
            answer = self.ask("GET", "/", Host=f"80-{bob['sandboxID']}.example.com", E2B_Traffic_Access_Token=token)
            self.assertEqual(answer.status, 403, answer.bytes)
        answer = self.ask("GET", "/", Host=f"80-{bob['sandboxID']}.example.com", E2B_Traffic_Access_Token=bob["trafficAccessToken"])
        self.assertEqual((answer.status, answer.json["message"]), (502, "The sandbox is running but port is not open"))
        for headers in ({"E2b_Sandbox_Id": bob["sandboxID"]}, {"E2b_Sandbox_Port": ENVD}, {"E2b_Sandbox_Id": "../x", "E2b_Sandbox_Port": ENVD},
                        {"E2b_Sandbox_Id": bob["sandboxID"], "E2b_Sandbox_Port": "0"}, {"E2b_Sandbox_Id": bob["sandboxID"], "E2b_Sandbox_Port": "x"},
                        {"E2b_Sandbox_Id": bob["sandboxID"], "E2b_Sandbox_Port": "65536"}):
            answer = self.ask("GET", "/health", **headers)
            self.assertIn(answer.status, (400, 404), headers)
        answer = self.inside({"sandboxID": "inone"}, "GET", "/health")
        self.assertEqual((answer.status, answer.json["message"]), (502, "The sandbox was not found"))

    def test_what_is_broken(self):
        box = self.boxes["alice"]
        token = box["envdAccessToken"]
        for body in (b"", b"\0", b"\0\0\0\0\xff{}", b"\x01\0\0\0\x02{}", b"\0\xff\xff\xff\xff{}", envelope(b"[]"), envelope(b"{"), envelope({}),
                     envelope({"process": {}}), envelope({"process": {"cmd": 5}}), envelope({}) + b"x"):
            for name in ("process.Process/Start", "process.Process/Connect", "filesystem.Filesystem/WatchDir"):
                if name.endswith("WatchDir") and (body == envelope({}) or b"process" in body):
                    continue  # the home, which can be watched
                answer = self.inside(box, "POST", f"/{name}", body, token=token, Content_Type="application/connect+json")
                self.assertEqual((answer.status, answer.bytes[0]), (200, 2), (name, body))
                self.assertIn("error", json.loads(answer.bytes[5:]), (name, body))
            answer = self.inside(box, "POST", "/process.Process/StreamInput", body, token=token)
            self.assertEqual(answer.status, 200, body)
        for body, why in ((b"", "boundary"), (b"x", "x"), (b"--b\r\n\r\nx", "middle"), (b"--b--", "no file"),
                          (b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--', "filename"),
                          (b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n'
                           b'--b\r\nContent-Disposition: form-data; name="file"; filename="./a"\r\n\r\n2\r\n--b--', "multiple files")):
            answer = self.inside(box, "POST", "/files", body, token=token, Content_Type="multipart/form-data; boundary=b")
            self.assertEqual((answer.status, answer.json["code"]), (400, 400), (body, why))
        answer = self.inside(box, "POST", "/files?path=z", b"not gzip", token=token, Content_Type="application/octet-stream", Content_Encoding="gzip")
        self.assertEqual(answer.status, 400)
        for path in ("~other/x", "/a\0b", "/" + "x" * 5000):
            answer = self.inside(box, "POST", "/filesystem.Filesystem/Stat", {"path": path}, token=token)
            self.assertIn(answer.status, (400, 404), path[:20])
        self.assertNotIn("front_died", self.daemon.said())
        self.assertEqual(self.inside(box, "GET", "/health").status, 204)


if __name__ == "__main__":
    unittest.main()
