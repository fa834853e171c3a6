#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Stores that do not do what is asked of them: each is told in words, and nothing half is shown."""
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from carreltest import PATIENCE, ROOT, TMP
from daemontest import Daemon
from storetest import CLEAN, S3, StoreTest, Webdav

LONG = bool(os.environ.get("LONG"))
KILLS = 200 if LONG else 8


class Between:
    """Before a server of HTTP: what is asked goes on with other words in it, or is answered at once."""

    def __init__(self, port, replace=(b"", b""), answer=None):
        self.to, self.replace, self.answer = port, replace, answer
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client):
        with client:
            try:
                if self.answer:
                    status, body = self.answer
                    client.recv(65536)
                    client.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                    return
                with socket.create_connection(("127.0.0.1", self.to)) as server:
                    threading.Thread(target=self.pump, args=(server, client, (b"", b"")), daemon=True).start()
                    self.pump(client, server, self.replace)
            except OSError:
                return

    def pump(self, one, other, replace):
        try:
            while piece := one.recv(65536):
                other.sendall(piece.replace(*replace) if replace[0] else piece)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self):
        self.socket.close()


class ReadOnlyWebdav(Webdav):
    def start(self):
        root = f"{TMP}/webdav-{self.port}"
        os.makedirs(root, exist_ok=True)
        self.run(["rclone", "serve", "webdav", root, "--addr", f"127.0.0.1:{self.port}", "--user", self.user, "--pass", self.password, "--read-only",
                  "--vfs-cache-mode", "off"])
        return self


class Sftp(Webdav):
    """Another kind: rclone's own server of SFTP."""

    def start(self):
        root = f"{TMP}/sftp-{self.port}"
        os.makedirs(root, exist_ok=True)
        self.run(["rclone", "serve", "sftp", root, "--addr", f"127.0.0.1:{self.port}", "--user", self.user, "--pass", self.password, "--vfs-cache-mode", "writes"],
                 {"HOME": root})
        return self

    def settings(self):
        hidden = subprocess.run(["rclone", "obscure", self.password], capture_output=True, text=True, env=CLEAN, check=True).stdout.strip()
        return {"type": "sftp", "host": "127.0.0.1", "port": str(self.port), "user": self.user, "pass": hidden, "shell_type": "none"}


class Bad(StoreTest):
    options = ("--set", "mirror_delay=50ms")

    def between(self, *args, **more):
        proxy = Between(*args, **more)
        self.addCleanup(proxy.close)
        return proxy

    def test_a_store_that_ignores_conditions_is_found_out(self):
        server = self.serve(S3)
        proxy = self.between(server.port, (b"If-None-Match", b"X-None-Matchs"))
        self.store(server, endpoint=proxy.url)
        answer = self.check()
        self.assertEqual((200, "read back"), (answer.status, answer.json.get("ownership")), answer.bytes)
        other = Daemon(self.path("other"))
        try:
            other.post("/v1/stores", {"name": "work", "path": "bucket/desks", "config": server.config(endpoint=proxy.url)})
            answer = other.post("/v1/stores/work/check", {})
            self.assertEqual((409, "store_taken"), (answer.status, answer.code), answer.bytes)
        finally:
            other.stop()

    def test_what_it_answers_is_told_in_words(self):
        server = self.serve(S3)
        for code, status, words in (("RequestTimeTooSkewed", "403 Forbidden", "clocks of this host and of the store differ"),
                                    ("SignatureDoesNotMatch", "403 Forbidden", "does not accept the secret key"),
                                    ("InvalidAccessKeyId", "403 Forbidden", "does not know the access key"),
                                    ("AccessDenied", "403 Forbidden", "the credentials do not allow that"),
                                    ("QuotaExceeded", "507 Insufficient Storage", "the store is full")):
            with self.subTest(code):
                proxy = self.between(0, answer=(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()))
                self.store(server, endpoint=proxy.url)
                answer = self.check()
                self.assertEqual((502, "store_failed"), (answer.status, answer.code), answer.bytes)
                self.assertIn(words, answer.json["error"]["message"])

    def test_one_that_may_only_be_read(self):
        self.store(self.serve(ReadOnlyWebdav))
        answer = self.check()
        self.assertEqual((502, "store_failed"), (answer.status, answer.code), answer.bytes)
        self.assertIn("write an object", answer.json["error"]["message"])

    def test_a_server_of_sftp(self):
        server = self.serve(Sftp)
        self.store(server, path="desks")
        self.assertEqual(200, self.check().status)
        self.workspace(id="desk", store={"mirror": "work"})
        self.daemon.execute("desk", "mkdir -p a/b; echo one >a/b/c; ln -s a/b/c l")
        answer = self.daemon.post("/v1/workspaces/desk/sync", {})
        self.assertEqual(200, answer.status, answer.bytes)
        found = server.objects("desks/threads/desk")
        self.assertEqual((b"one\n", b"a/b/c"), (found["a/b/c"], found["l.rclonelink"]))

    @unittest.skipUnless(ROOT, "a small disk is mounted")
    def test_a_disk_that_is_too_small_for_the_copy(self):
        server = self.serve(S3)
        self.store(server)
        self.workspace(id="desk", store={"mirror": "work"})
        self.daemon.execute("desk", "head -c 8000000 /dev/zero >big")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sync", {}).status)
        place = self.path("small")
        os.mkdir(place)
        os.chmod(place, 0o755)
        subprocess.run(["mount", "-n", "-t", "tmpfs", "-o", "size=128M,mode=755", "small", place], check=True)
        other = Daemon(f"{place}/s", *self.options)
        try:
            other.post("/v1/stores", {"name": "work", "path": "bucket/desks", "config": server.config()})
            self.assertEqual(200, other.post("/v1/stores/work/check", {"take_over": True}).status)
            answer = other.post("/v1/workspaces", {"id": "desk", "from_store": "work"})
            self.assertNotIn(answer.status, (200, 201, 500), answer.bytes)
            self.assertIn("MiB", answer.json["error"]["message"])
            self.assertEqual([], other.get("/v1/workspaces").json["workspaces"])
            self.assertFalse(os.path.exists(f"{other.state}/main/threads/desk"))
        finally:
            other.stop()
            subprocess.run(["umount", "-n", place], check=True)

    def test_killed_at_any_instant_a_copy_is_whole_or_not_there(self):
        seed = random.randrange(1 << 32)
        dice = random.Random(seed)
        server = self.serve(Webdav)
        self.store(server)
        self.workspace(id="desk", store={"mirror": "work"})
        self.daemon.execute("desk", "for i in $(seq 60); do mkdir -p d$((i % 7)); head -c $((i * 1000)) /dev/zero | tr '\\0' x >d$((i % 7))/f$i; done; ln -s d1 l; mkdir empty")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sync", {}).status)
        was = self.facts()
        self.daemon.stop()
        shutil.rmtree(self.daemon.state)
        self.daemon = Daemon(self.daemon.state, *self.options)
        self.store(server)
        self.assertEqual(200, self.check(take_over=True).status)
        with self.subTest(seed=seed):
            for _ in range(KILLS):
                asked = threading.Thread(target=self.create, daemon=True)
                asked.start()
                time.sleep(dice.random() * 0.8)
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
                asked.join(4 * PATIENCE)
                if self.there():
                    self.assertEqual(was, self.facts(), (what, self.daemon.get("/v1/workspaces/desk").bytes))
                    self.daemon.request("DELETE", "/v1/workspaces/desk?purge=1")
            end = time.monotonic() + 4 * PATIENCE
            while not self.there():
                self.assertLess(time.monotonic(), end, "it is never made")
                self.create()
                time.sleep(0.1)
            self.assertEqual(was, self.facts())

    def create(self):
        try:
            self.daemon.post("/v1/workspaces", {"id": "desk", "from_store": "work"})
        except OSError:
            pass  # who would have answered was killed

    def there(self):
        end = time.monotonic() + 2 * PATIENCE
        while True:
            try:
                answer = self.daemon.get("/v1/workspaces/desk")
                return answer.status == 200 and not answer.json.get("deleted")  # else it is on its way out
            except OSError:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)

    def facts(self):
        top = f"{self.daemon.state}/main/threads/desk"
        found = {}
        for folder, subs, files in os.walk(top):
            for name in subs + files:
                path = os.path.join(folder, name)
                if folder == top and name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp", ".cache"):
                    continue
                found[os.path.relpath(path, top)] = os.readlink(path) if os.path.islink(path) else os.path.getsize(path) if os.path.isfile(path) else None
        return found

    def kill_movers(self):
        done = subprocess.run(["pgrep", "-P", str(self.daemon.process.pid), "carrel-mover"], capture_output=True, text=True, check=False)
        for pid in done.stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
