#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""A workspace from its copy in a store: as it was, or not at all; and whatever names a bucket has, nothing leads out of the tree."""
import hashlib
import json
import os
import shutil
import stat
import unittest
import urllib.request

from daemontest import Daemon
from storetest import S3, StoreTest


class Hydrates(StoreTest):
    options = ("--set", "mirror_delay=50ms")

    def tree(self, ws, daemon=None):
        return os.fsencode(f"{(daemon or self.daemon).state}/main/threads/{ws}")

    def facts(self, top):
        """All that a copy has to have again; what Carrel mounts on is made by the first command."""
        found, inodes = {}, {}
        for folder, subs, files in os.walk(top):
            for name in subs + files:
                path = os.path.join(folder, name)
                short, st = os.path.relpath(path, top), os.lstat(path)
                if short in (b"usr", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"etc", b"proc", b"dev", b"tmp", b".cache"):
                    continue
                content = os.readlink(path) if stat.S_ISLNK(st.st_mode) else b""
                if stat.S_ISREG(st.st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                inodes.setdefault(st.st_ino, []).append(short)
                found[short] = (stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), content)
        return found, sorted(sorted(names) for names in inodes.values() if len(names) > 1)

    def anew(self, server):
        """The disk is lost: a daemon that knows nothing, on the same store."""
        self.daemon.stop()
        shutil.rmtree(self.daemon.state)
        self.daemon = Daemon(self.daemon.state, *self.options)
        self.store(server)
        self.assertEqual(200, self.check(take_over=True).status)

    def create(self, ws="desk", expect=201, **more):
        answer = self.daemon.post("/v1/workspaces", {"id": ws, "from_store": "work", "store": {"mirror": "work"}, **more})
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def test_what_was_mirrored_is_there_again_after_the_disk_was_lost(self):
        server = self.serve(S3)
        self.store(server)
        self.workspace(id="desk", store={"mirror": "work"})
        self.daemon.execute("desk", r"""mkdir -p a/b empty 'sp ace' shut/in; echo hi >a/b/c; ln -s a/b/c l; ln -s /etc/passwd out; ln -s none dangling; ln a/b/c hard
            echo x >"$(printf 'bad\377name')"; echo y >"$(printf 'new\nline')"; echo z >real.rclonelink; ln -s x "$(printf 'l\376')"; chmod 700 a/b/c
            head -c 3000000 /dev/urandom >big; : >zero; echo u >'ünï'; for i in $(seq 200); do echo $i >a/f$i; done; chmod 500 shut/in; chmod 711 shut""")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sync", {}).status)
        was = self.facts(self.tree("desk"))
        self.anew(server)
        self.create()
        self.assertEqual(was, self.facts(self.tree("desk")))
        synced = self.daemon.post("/v1/workspaces/desk/sync", {}).json
        self.assertEqual((0, 0), (synced["last"]["sent"], synced["last"]["removed"]), "what came is not sent again")
        self.assertEqual("hi\n", self.daemon.execute("desk", "cat l")["stdout"])

    def test_what_cannot_be_leaves_nothing(self):
        server = self.serve(S3)
        self.store(server)
        self.assertEqual(404, self.daemon.post("/v1/workspaces", {"id": "none", "from_store": "work"}).status)
        self.assertEqual(404, self.daemon.get("/v1/workspaces/none").status)
        self.assertFalse(os.path.exists(self.tree("none")))
        self.assertEqual(404, self.daemon.post("/v1/workspaces", {"id": "none", "from_store": "nowhere"}).status)
        for bad in ({"from_store": "work"}, {"id": "x", "from_store": "../x"}, {"id": "x", "from_store": 3}):
            self.assertEqual(400, self.daemon.post("/v1/workspaces", bad).status, bad)
        owner = self.daemon.key("alice", scopes=["owner"])
        self.assertEqual(403, self.daemon.post("/v1/workspaces", {"id": "desk", "from_store": "work"}, key=owner).status)
        server.kill()
        self.assertEqual(502, self.daemon.post("/v1/workspaces", {"id": "none", "from_store": "work"}).status)
        self.assertEqual([], self.daemon.get("/v1/workspaces").json["workspaces"])

    def test_an_object_that_is_gone_is_no_empty_file(self):
        server = self.serve(S3)
        self.store(server)
        self.workspace(id="desk", store={"mirror": "work"})
        self.daemon.execute("desk", r"""echo x >"$(printf 'bad\377name')"; : >"$(printf 'zero\377')" """)
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sync", {}).status)
        was = self.facts(self.tree("desk"))
        self.anew(server)
        self.create()
        self.assertEqual(was, self.facts(self.tree("desk")))
        self.anew(server)
        name = hashlib.sha256(b"bad\377name").hexdigest()
        server.rclone("deletefile", f"there:bucket/desks/.carrel/desk/raw/{name}")
        self.assertIn("did not come whole", self.create(expect=502)["error"]["message"])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/desk").status)

    def test_hostile_names_and_manifests_stay_out(self):
        """Attack 77: what a bucket lists is anybody's text."""
        server = self.serve(S3)
        self.store(server)
        self.workspace(id="desk", store={"mirror": "work"})
        self.daemon.execute("desk", "echo good >good")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sync", {}).status)
        self.anew(server)
        for name in ("../out", "a/../../out", "/abs", "//abs", "a//b", "usr/bin/x", "clash", "clash/in", "l.rclonelink", "l/through", "dot/./x", "n" * 300,
                     "evil.rclonelink", "evil/passwd"):
            request = urllib.request.Request(f"{server.url}/bucket/desks/threads/desk/{name}", data=b"/etc" if name.endswith("link") else b"evil", method="PUT",
                                             headers={"Content-Type": "application/octet-stream", "Authorization": "AWS4-HMAC-SHA256 Credential=carreltest/20260101/us-east-1/s3/aws4_request, "
                                                                       "SignedHeaders=host, Signature=0"})
            urllib.request.urlopen(request, timeout=30).close()
        manifest = {"carrel": 1, "workspace": "desk", "dirs": [["../outdir", 511], ["/abs", 511], ["usr", 511], ["ok", 511 | 0o6000]],
                    "modes": [["../../../admin.key", 511], ["good", 0o4777]], "hardlinks": [["good", "../stolen"], ["../../../admin.key", "key"]],
                    "raw": [["../raw", "0" * 64, "file"], ["x", "../../owner", "file"], [{"b64": "Li4vZXNj"}, "0" * 64, "link"]]}
        path = f"{self.dir}/manifest.json"
        with open(path, "w", encoding="ascii") as file:
            json.dump(manifest, file)
        server.rclone("copyto", path, "there:bucket/desks/.carrel/desk/manifest.json")
        mode = os.stat(f"{self.daemon.state}/admin.key").st_mode
        self.create()
        self.assertEqual([b"desk"], os.listdir(os.path.dirname(self.tree("desk"))))
        self.assertEqual(mode, os.stat(f"{self.daemon.state}/admin.key").st_mode)
        found, linked = self.facts(self.tree("desk"))
        self.assertEqual([], linked)
        self.assertEqual(b"good\n", found[b"good"][2])
        self.assertEqual(0o777, found[b"good"][1], "no set-id bits")
        self.assertEqual((stat.S_IFDIR, 0o777), found[b"ok"][:2])
        for name in (b"usr", b"out", b"key", b"x", b"outdir"):
            self.assertNotIn(name, found)
        self.assertFalse(os.path.exists("/etc/through") or os.path.exists("/etc/out"))
        with open("/etc/passwd", "rb") as file:
            self.assertNotEqual(b"evil", file.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
