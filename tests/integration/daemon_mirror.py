#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
"""The mirror of a workspace in a store: object by object what its tree is, whatever is killed, and told when it is not."""
import base64
import glob
import hashlib
import json
import os
import random
import signal
import socket
import stat
import threading
import time
import unittest

from carreltest import PATIENCE, carrel
from daemontest import Daemon
from storetest import S3, StoreTest, Webdav

LONG = bool(os.environ.get("LONG"))
OPERATIONS = 1000 if LONG else 150
KILLS = 200 if LONG else 12
SECRET = "carreltestsecret"
EXCLUDED = {"node_modules", ".venv", "__pycache__", ".cache"}
RESERVED = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp", ".cache"}


def is_plain(path):
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return False
    return not any(c < " " or c == "\\" for c in text) and not text.endswith((".rclonelink", " ", ".", "~")) and "/ " not in text and " /" not in text


class Mirrors(StoreTest):
    options = ("--set", "mirror_delay=50ms")

    def mirrored(self, ws="desk", store="work", **more):
        self.workspace(id=ws, store={"mirror": store, **more})
        return ws

    def tree(self, ws):
        return os.fsencode(f"{self.daemon.state}/main/threads/{ws}")

    def sync(self, ws="desk", expect=200):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/sync", {})
        self.assertEqual(expect, answer.status, answer.bytes)
        return answer.json

    def of(self, ws="desk"):
        return self.daemon.get(f"/v1/workspaces/{ws}").json["store"]

    def until(self, what, so):
        end = time.monotonic() + 4 * PATIENCE
        while not so():
            self.assertLess(time.monotonic(), end, f"{what}: {self.of()}")
            time.sleep(0.05)

    def expected(self, ws):
        """What the store has to have, from the tree alone: ({object: bytes}, what is in the manifest)."""
        top, objects, dirs, modes, raw, inodes = self.tree(ws), {}, [], [], [], {}
        for folder, subs, files in os.walk(top):
            below = os.path.relpath(folder, top)
            subs[:] = [name for name in subs if os.fsdecode(name) not in EXCLUDED and not (below == b"." and os.fsdecode(name) in RESERVED)]
            links = [name for name in subs if os.path.islink(os.path.join(folder, name))]
            subs[:] = [name for name in subs if name not in links]
            for name in subs:
                path = os.path.join(folder, name)
                mode = stat.S_IMODE(os.lstat(path).st_mode)
                if mode != 0o755 or not any(one for one in os.listdir(path)):
                    dirs.append((os.path.relpath(path, top), mode))
            for name in files + links:
                path = os.path.join(folder, name)
                short = os.path.relpath(path, top)
                st = os.lstat(path)
                if stat.S_ISLNK(st.st_mode):
                    content, end = os.readlink(path), b".rclonelink"
                elif stat.S_ISREG(st.st_mode):
                    with open(path, "rb") as file:
                        content, end = file.read(), b""
                    if stat.S_IMODE(st.st_mode) != 0o644:
                        modes.append((short, stat.S_IMODE(st.st_mode)))
                    if st.st_nlink > 1:
                        inodes.setdefault(st.st_ino, []).append(short)
                else:
                    continue
                if is_plain(short):
                    objects[f"threads/{ws}/{os.fsdecode(short + end)}"] = content
                else:
                    hashed = hashlib.sha256(short).hexdigest()
                    objects[f".carrel/{ws}/raw/{hashed}"] = content
                    raw.append((short, hashed))
        return objects, {"dirs": sorted(dirs), "modes": sorted(modes), "raw": sorted(raw),
                         "hardlinks": sorted(sorted(names) for names in inodes.values() if len(names) > 1)}

    @staticmethod
    def as_bytes(told):
        return base64.b64decode(told["b64"]) if isinstance(told, dict) else told.encode()

    def equal(self, server, ws="desk"):
        wanted, told = self.expected(ws)
        found = server.objects("bucket/desks")
        manifest = json.loads(found.pop(f".carrel/{ws}/manifest.json"))
        found.pop(".carrel/owner")
        self.assertEqual(sorted(wanted), sorted(found))
        self.assertEqual([], [name for name in wanted if wanted[name] != found[name]])
        for kind in ("dirs", "modes"):
            self.assertEqual(told[kind], sorted((self.as_bytes(one), mode) for one, mode in manifest[kind]), kind)
        self.assertEqual(told["raw"], sorted((self.as_bytes(one), hashed) for one, hashed, _ in manifest["raw"]))
        self.assertEqual(told["hardlinks"], sorted(sorted(self.as_bytes(one) for one in names) for names in manifest["hardlinks"]))

    # --- what is there ---

    def test_everything_that_a_tree_can_have(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        self.daemon.execute("desk", r"""mkdir -p a/b empty 'sp ace' closed node_modules/x; echo hi >a/b/c; ln -s a/b/c l; ln -s /etc/passwd out; ln -s none dangling
            ln a/b/c hard; echo x >"$(printf 'bad\377name')"; echo y >"$(printf 'new\nline')"; echo z >real.rclonelink; echo w >'tail '; echo v >'back\slash'
            ln -s x "$(printf 'l\376')"; mkfifo pipe; chmod 700 a/b/c; chmod 711 closed; echo secret >none; chmod 000 none; echo n >node_modules/x/y
            head -c 3000000 /dev/urandom >big; : >zero; echo u >'ünï'; printf '%0200d' 1 | xargs touch""")
        answer = self.sync()
        self.assertEqual((1, 1), (answer["last"]["skipped"], answer["last"]["unreadable"]), "the pipe, and what nobody may read")
        self.daemon.execute("desk", "rm -f none")
        self.sync()
        self.equal(server)

    def test_rclone_brings_it_back(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        self.daemon.execute("desk", "mkdir -p a/b; echo one >a/b/c; ln -s a/b/c l; touch -d '2001-02-03 04:05:06' a/b/c")
        self.sync()
        server.rclone("copy", "--links", "there:bucket/desks/threads/desk", f"{self.dir}/back")
        self.assertEqual("a/b/c", os.readlink(f"{self.dir}/back/l"))
        with open(f"{self.dir}/back/a/b/c", encoding="ascii") as file:
            self.assertEqual("one\n", file.read())
        self.assertEqual(os.stat(self.tree("desk") + b"/a/b/c").st_mtime_ns, os.stat(f"{self.dir}/back/a/b/c").st_mtime_ns)

    def change(self, dice, number):
        """One command that changes something."""
        names = ["a", "b", "c", "d/a", "d/b", "d/e/a", "d/e", "f/g/h/i", "l", "x y", "é"]
        one, two = dice.choice(names), dice.choice(names)
        return dice.choice([
            f"mkdir -p \"$(dirname '{one}')\" && echo {number} >'{one}'", f"mkdir -p \"$(dirname '{one}')\" && head -c {dice.randrange(200000)} /dev/urandom >'{one}'",
            f"echo {number} >>'{one}'", f"rm -rf '{one}'", f"mv '{one}' '{two}'", f"mkdir -p '{one}'", f"ln -s '{two}' '{one}'", f"ln '{one}' '{two}'",
            f"test -f '{one}' && chmod {dice.choice(['600', '644', '755'])} '{one}'", f"touch '{one}'", f"cp -a '{one}' '{two}'", "rm -rf d", "mkdir -p node_modules; date >node_modules/x"])

    def test_after_any_operations_the_mirror_is_as_the_tree(self):
        seed = random.randrange(1 << 32)
        dice = random.Random(seed)
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        with self.subTest(seed=seed):
            for number in range(0, OPERATIONS, 15):
                commands = [self.change(dice, number + i) for i in range(15)]
                if dice.random() < 0.3:
                    self.daemon.request("PUT", "/v1/workspaces/desk/files/put", body=b"by http %d" % number, headers={"Content-Type": "application/octet-stream"})
                self.daemon.execute("desk", "\n".join(f"( {command} ) 2>/dev/null" for command in commands) + "\ntrue")
                if dice.random() < 0.4:
                    self.sync()
                    self.equal(server)
            self.sync()
            self.equal(server)

    def test_it_is_mirrored_without_being_asked_and_the_cost_follows_the_change(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        self.daemon.execute("desk", "for i in $(seq 300); do echo $i >f$i; done")
        self.until("synced", lambda: self.of()["synced"] and self.of()["unsynced_seconds"] == 0 and self.of()["last"]["entries"] > 300)
        self.daemon.request("PUT", "/v1/workspaces/desk/files/f7", body=b"other", headers={"Content-Type": "application/octet-stream"})
        self.until("one file", lambda: self.of()["last"]["sent"] == 1)
        self.assertEqual(b"other", server.objects("bucket/desks/threads/desk")["f7"])
        self.assertRegex(carrel("ws", "ls", env={**os.environ, "CARREL_SOCKET": self.daemon.socket}).stdout, r"desk +admin .* synced ")
        metrics = self.daemon.get("/metrics").bytes.decode()
        self.assertIn("carrel_mirrors 1\n", metrics)
        self.assertIn("carrel_unsynced_bytes 0\n", metrics)

    def test_what_is_excluded_can_be_said_and_changed(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored(exclude=["*.tmp", "data/raw"])
        self.daemon.execute("desk", "mkdir -p data/raw node_modules x/data/raw; for f in a.tmp b data/raw/r data/k node_modules/n x/data/raw/r; do echo $f >$f; done")
        self.sync()
        names = set(server.objects("bucket/desks/threads/desk")) - {".bashrc"}
        self.assertEqual({"b", "data/k", "node_modules/n", "x/data/raw/r"}, names)
        self.daemon.request("PATCH", "/v1/workspaces/desk", {"store": {"mirror": "work", "exclude": ["b"]}})
        self.sync()
        names = set(server.objects("bucket/desks/threads/desk")) - {".bashrc"}
        self.assertEqual({"a.tmp", "data/k", "data/raw/r", "node_modules/n", "x/data/raw/r"}, names)
        for bad in ([""], ["-x"], ["a"] * 65, [3], "a", ["x" * 300]):
            self.assertEqual(400, self.daemon.request("PATCH", "/v1/workspaces/desk", {"store": {"mirror": "work", "exclude": bad}}).status)
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/desk", {"store": None}).status)
        self.assertNotIn("store", self.daemon.get("/v1/workspaces/desk").json)
        self.assertEqual("not_mirrored", self.daemon.post("/v1/workspaces/desk/sync", {}).code)

    def test_another_kind_of_store(self):
        server = self.serve(Webdav)
        self.store(server)
        self.mirrored()
        self.daemon.execute("desk", "mkdir -p a/b; echo one >a/b/c; echo two >d; ln -s d l")
        self.sync()
        self.daemon.execute("desk", "rm -rf a; echo file >a; rm d; mkdir d; echo in >d/in")
        self.sync()
        found = server.objects("bucket/desks/threads/desk")
        found.pop(".bashrc")
        self.assertEqual({"a": b"file\n", "d/in": b"in\n", "l.rclonelink": b"d"}, found)

    def test_a_file_that_never_rests_holds_up_no_other(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        started = self.daemon.post("/v1/workspaces/desk/exec", {"command": "while :; do head -c 300000 /dev/urandom >>log; done", "background": True}).json["exec_id"]
        self.daemon.execute("desk", "echo calm >calm")
        self.until("calm", lambda: "calm" in server.objects("bucket/desks/threads/desk"))
        self.daemon.post(f"/v1/workspaces/desk/exec/{started}/kill", {})
        self.until("rest", lambda: self.daemon.get(f"/v1/workspaces/desk/exec/{started}").json["state"] == "ended")
        self.sync()
        self.equal(server)

    # --- what goes wrong ---

    def test_a_store_that_is_away_is_told_and_nothing_is_lost(self):
        server = self.serve(Webdav)
        self.store(server)
        self.mirrored()
        self.sync()
        server.kill()
        self.daemon.execute("desk", "echo late >late")
        answer = self.daemon.post("/v1/workspaces/desk/sync", {})
        self.assertEqual((502, "store_failed"), (answer.status, answer.code))
        self.assertEqual("store_failed", self.of()["last_error"]["code"])
        self.assertIn("nothing answers", self.of()["last_error"]["message"])
        self.assertGreater(self.of()["unsynced_bytes"], 0)
        self.assertIn("carrel_mirrors_failing 1\n", self.daemon.get("/metrics").bytes.decode())
        server.start()
        self.until("by itself", lambda: self.of()["last_error"] is None)
        self.assertEqual(b"late\n", server.objects("bucket/desks/threads/desk")["late"])

    def test_answers_of_a_bad_day(self):
        server = self.serve(S3)
        proxy = Proxy(server.port)
        self.addCleanup(proxy.close)
        self.store(server, endpoint=f"http://127.0.0.1:{proxy.port}")
        self.mirrored()
        self.sync()
        for number, (how, words) in enumerate((("429 Too Many Requests", "more slowly"), ("500 Internal Server Error", "the store failed"), ("cut", ""))):
            with self.subTest(how):
                proxy.how = how
                self.daemon.execute("desk", f"echo {number} >f{number}")
                answer = self.daemon.post("/v1/workspaces/desk/sync", {})
                self.assertEqual((502, "store_failed"), (answer.status, answer.code))
                self.assertIn(words, answer.json["error"]["message"])
                proxy.how = None
                self.sync()
        self.equal(server)

    def test_two_daemons_do_not_share_a_path(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        self.sync()
        other = Daemon(self.path("other"), "--set", "mirror_delay=50ms")
        try:
            other.post("/v1/stores", {"name": "work", "path": "bucket/desks", "config": server.config()})
            other.post("/v1/workspaces", {"id": "desk", "store": {"mirror": "work"}})
            answer = other.post("/v1/workspaces/desk/sync", {})
            self.assertEqual((409, "store_taken"), (answer.status, answer.code))
            # The disk of the first was lost, and a new daemon takes its place: an empty workspace of that name takes nothing away.
            self.assertEqual(200, other.post("/v1/stores/work/check", {"take_over": True}).status)
            answer = other.post("/v1/workspaces/desk/sync", {})
            self.assertEqual((409, "store_has_copy"), (answer.status, answer.code))
        finally:
            other.stop()
        self.daemon.execute("desk", "echo more >more")
        self.assertEqual("store_taken", self.daemon.post("/v1/workspaces/desk/sync", {}).code, "the first one is told, too")
        self.assertIn("threads/desk/.bashrc", server.objects("bucket/desks"))

    def test_one_that_is_made_anew_does_not_take_the_copy_of_the_old_one_away(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        self.daemon.execute("desk", "echo old >old")
        self.sync()
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk?purge=1").status)
        self.mirrored()
        self.assertEqual("store_has_copy", self.daemon.post("/v1/workspaces/desk/sync", {}).code)
        self.assertIn("threads/desk/old", server.objects("bucket/desks"))

    def test_the_trash_and_back(self):
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        self.daemon.execute("desk", "echo one >one")
        self.sync()
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk").status)
        self.assertIn("threads/desk/one", server.objects("bucket/desks"))
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/undelete", {}).status)
        self.daemon.execute("desk", "echo two >two")
        self.sync()
        self.equal(server)

    def test_who_may(self):
        self.store(self.serve(S3))
        agent = self.daemon.key("alice", scopes=["agent"], workspaces=["t-*"])
        answer = self.daemon.post("/v1/workspaces", {"id": "t-1", "store": {"mirror": "work"}}, key=agent)
        self.assertEqual(403, answer.status, answer.bytes)
        owner = self.daemon.key("alice", scopes=["owner"])
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "t-2", "store": {"mirror": "work"}}, key=owner).status)
        self.assertEqual(200, self.daemon.post("/v1/workspaces/t-2/sync", {}, key=agent).status)
        self.assertEqual(403, self.daemon.request("PATCH", "/v1/workspaces/t-2", {"store": None}, key=agent).status)

    def test_killed_at_any_instant_it_converges(self):
        seed = random.randrange(1 << 32)
        dice = random.Random(seed)
        server = self.serve(Webdav)
        self.store(server)
        self.mirrored()
        with self.subTest(seed=seed):
            for number in range(KILLS):
                self.daemon.execute("desk", "\n".join(f"( {self.change(dice, number + i)} ) 2>/dev/null" for i in range(8)) + "\ntrue")
                time.sleep(dice.random() * 0.6)
                what = dice.choice(["mover", "front", "server", "daemon"])
                if what == "mover":
                    self.kill_movers()
                elif what == "front":
                    self.daemon.kill_front()
                elif what == "server":
                    server.kill()
                    server.start()
                else:
                    self.daemon.stop(signal.SIGKILL)
                    self.daemon.start()
                if dice.random() < 0.3:
                    self.until("a sync that succeeds", lambda: self.daemon.post("/v1/workspaces/desk/sync", {}).status == 200)
                    self.equal(server)
            self.until("a sync that succeeds", lambda: self.daemon.post("/v1/workspaces/desk/sync", {}).status == 200)
            self.equal(server)

    def kill_movers(self):
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    line = file.read()
                with open(path.replace("cmdline", "stat"), encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                if line.startswith(b"carrel-mover\0") and self.daemon.process.pid == parent:
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue

    def test_what_swaps_directories_for_links_gets_nothing_of_the_movers(self):
        """A path that was a file's when it was listed leads elsewhere when it is read."""
        server = self.serve(S3)
        self.store(server)
        self.mirrored()
        started = self.daemon.post("/v1/workspaces/desk/exec", {"background": True, "command": """mkdir -p real; for f in environ cmdline shadow work maps; do
            echo mine >real/$f; done; i=0; while :; do rm -rf d; cp -r real d; i=$((i + 1)); rm -rf d; case $((i % 5)) in 0) t=/proc/self;; 1) t=/etc;;
            2) t=../../../.carrel/stores;; 3) t=/tmp/state;; *) t=/proc/1;; esac; ln -s $t d; done"""}).json["exec_id"]
        for _ in range(10 if not LONG else 100):
            self.daemon.execute("desk", "date >now")
            time.sleep(0.3)
        self.daemon.post(f"/v1/workspaces/desk/exec/{started}/kill", {})
        for name, content in server.objects("bucket/desks").items():
            self.assertNotIn(SECRET.encode(), content, name)
            if name.startswith("threads/desk/d/"):
                self.assertIn(content, (b"mine\n", b""), name)


class Proxy:
    """Before a server: passes on what comes, or answers as on a bad day."""

    def __init__(self, port):
        self.to, self.how, self.open = port, None, True
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while self.open:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client):
        with client:
            if self.how == "cut":
                client.recv(100)
                return
            if self.how:
                client.recv(65536)
                client.sendall(f"HTTP/1.1 {self.how}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                return
            with socket.create_connection(("127.0.0.1", self.to)) as server:
                back = threading.Thread(target=self.pump, args=(server, client), daemon=True)
                back.start()
                self.pump(client, server)
                back.join()

    def pump(self, one, other):
        try:
            while piece := one.recv(65536):
                if self.how:
                    break
                other.sendall(piece)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.open = False
        self.socket.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
