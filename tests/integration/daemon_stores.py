#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""Stores: kept, tried, told in words what is wrong with them; and nothing secret gets out."""
import glob
import os
import subprocess
import unittest

from carreltest import CARREL, ROOT, carrel
from storetest import S3, StoreTest, Webdav, free_port

SECRET = "carreltestsecret"


class Stores(StoreTest):
    def test_a_store_on_s3_works_and_writes_on_conditions(self):
        self.store(self.serve(S3))
        answer = self.check()
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual("conditional", answer.json["ownership"])
        self.assertTrue(answer.json["can"]["metadata"])
        self.assertEqual([".carrel/owner"], sorted(self.servers[0].objects("bucket/desks")), "the probe is gone, the marker stays")
        self.assertEqual(200, self.check().status, "once more: it is ours")

    def test_a_store_of_another_kind_works_and_says_that_it_is_weaker(self):
        self.store(self.serve(Webdav))
        answer = self.check()
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual("read back", answer.json["ownership"])

    def test_what_is_wrong_is_said_in_words(self):
        s3, dav = self.serve(S3), self.serve(Webdav)
        hidden = subprocess.run(["rclone", "obscure", "wrong"], capture_output=True, text=True, check=True).stdout.strip()
        for name, server, path, other, words in (
                ("nobucket", s3, "none-such/x", {}, "the bucket does not exist"),
                ("nobody", s3, "bucket/x", {"endpoint": f"http://127.0.0.1:{free_port()}"}, "nothing answers at the store's address"),
                ("nohost", s3, "bucket/x", {"endpoint": "http://store.invalid"}, "has no address"),
                ("password", dav, "x", {"pass": hidden}, "does not accept the credentials")):
            with self.subTest(name):
                self.store(server, name, path, **other)
                answer = self.check(name)
                self.assertEqual((502, "store_failed"), (answer.status, answer.code), answer.bytes)
                self.assertIn(words, answer.json["error"]["message"])
                self.assertNotIn(SECRET, answer.json["error"]["message"])

    def test_a_path_belongs_to_one_daemon(self):
        server = self.serve(S3)
        self.store(server)
        self.assertEqual(200, self.check().status)
        marker = f"{self.dir}/marker"
        with open(marker, "w", encoding="ascii") as file:
            file.write('{"carrel":1,"daemon":"0123456789abcdef0123456789abcdef"}')
        server.rclone("copyto", marker, "there:bucket/desks/.carrel/owner")
        answer = self.check()
        self.assertEqual((409, "store_taken"), (answer.status, answer.code), answer.bytes)
        self.assertIn("0123456789abcdef", answer.json["error"]["message"])
        self.assertEqual(200, self.check(take_over=True).status)
        self.assertEqual(200, self.check().status)

    def test_what_leads_to_this_host_is_refused(self):
        for config in ({"type": "local"}, {"type": "alias", "remote": "/etc"}, {"type": "sftp", "host": "h", "ssh": "/bin/sh -c id"},
                       {"type": "sftp", "host": "h", "key_file": "/root/.ssh/id_rsa"}, {"type": "s3", "env_auth": "true"},
                       {"type": "webdav", "url": "http://h", "bearer_token_command": "id"}, {"type": "crypt", "remote": "other:"},
                       {"type": "google cloud storage", "service_account_file": "/etc/passwd"}):
            with self.subTest(config):
                answer = self.daemon.post("/v1/stores", {"name": "x", "path": "b", "config": config})
                self.assertEqual((403, "forbidden"), (answer.status, answer.code), answer.bytes)
        for path in ("", "/etc", "a/../b", "a//b", "b/", "./a", "a b", "a/.carrel", "-x", "a\nb", "b" * 600):
            with self.subTest(path):
                self.assertEqual(400, self.daemon.post("/v1/stores", {"name": "x", "path": path, "config": {"type": "s3"}}).status)
        for config in ({"type": "s3", "Key": "x"}, {"type": "s3", "a b": "x"}, {"type": "s3", "x": "y\n[other]\ntype = local"}, {"@path": "x", "type": "s3"},
                       {"type": "s3", "x = y\ntype": "local"}):
            with self.subTest(config):
                self.assertEqual(400, self.daemon.post("/v1/stores", {"name": "x", "path": "b", "config": config}).status)
        self.assertEqual([], self.daemon.get("/v1/stores").json["stores"])

    def test_what_is_secret_is_with_the_broker_alone(self):
        self.store(self.serve(S3))
        self.assertEqual(200, self.check().status)
        kept = f"{self.daemon.state}/.carrel/stores/work"
        self.assertEqual((0o600, os.geteuid()), (os.stat(kept).st_mode & 0o777, os.stat(kept).st_uid))
        self.assertNotIn(SECRET, self.daemon.get("/v1/stores").bytes.decode())
        self.daemon.stop()
        found = []
        for path in glob.glob(f"{self.daemon.state}/**", recursive=True, include_hidden=True) + [self.daemon.log]:
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    if SECRET.encode() in file.read():
                        found.append(path)
        self.assertEqual([kept], found)
        self.daemon.start()
        self.assertEqual(200, self.check().status, "it is kept")

    def test_another_configuration_takes_its_place_and_it_can_be_forgotten(self):
        server = self.serve(S3)
        self.store(server, endpoint=f"http://127.0.0.1:{free_port()}")
        self.assertEqual(502, self.check().status)
        self.store(server)
        self.assertEqual(200, self.check().status)
        self.assertEqual(["work"], [one["name"] for one in self.daemon.get("/v1/stores").json["stores"]])
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/stores/work").status)
        self.assertEqual(404, self.daemon.request("DELETE", "/v1/stores/work").status)
        self.assertEqual(404, self.check().status)
        self.assertEqual(["store.set", "store.check", "store.set", "store.check"],
                         [one["operation"] for one in self.daemon.audit() if one["operation"].startswith("store.")][:4])

    def test_only_an_administrator_may(self):
        self.store(self.serve(S3))
        for scopes in (["owner"], ["user"], ["read"]):
            key = self.daemon.key("alice", scopes=scopes)
            for method, path, body in (("GET", "/v1/stores", None), ("POST", "/v1/stores", {"name": "x", "path": "b", "config": {"type": "s3"}}),
                                       ("DELETE", "/v1/stores/work", None), ("POST", "/v1/stores/work/check", {})):
                self.assertEqual(403, self.daemon.request(method, path, body, key=key).status)

    def test_the_command_line(self):
        server = self.serve(Webdav)
        config = "# mine\n[dav]\n" + "".join(f"{key} = {value}\n" for key, value in server.config().items())
        env = {**os.environ, "CARREL_SOCKET": self.daemon.socket}
        done = carrel("store", "add", "work", "--path", "desks", "--config", "-", input=config, env=env)
        self.assertEqual((0, ""), (done.returncode, done.stdout), done.stderr)
        self.assertIn("the store works", done.stderr)
        self.assertRegex(carrel("store", "ls", env=env).stdout, r"work +webdav +desks")
        done = carrel("store", "add", "work", "--path", "desks", "--config", "-", input=config.replace("opensesame", "").replace("desk\n", "other\n"), env=env)
        self.assertEqual(125, done.returncode)
        self.assertIn("mend it with 'carrel store add'", done.stderr)
        for bad, words in (("[a]\ntype = s3\n[b]\n", "more than one section"), ("nonsense", "a line without '='"), ("", "'type' is missing")):
            done = carrel("store", "add", "x", "--path", "desks", "--config", "-", input=bad, env=env)
            self.assertEqual(125, done.returncode)
            self.assertIn(words, done.stderr)
        self.assertEqual(0, carrel("store", "rm", "work", env=env).returncode)

    @unittest.skipUnless(ROOT, "as an ordinary user all of Carrel's processes are that user's")
    def test_the_mover_is_a_user_of_its_own_without_rights(self):
        server = self.serve(Webdav)
        self.store(server)
        server.process.send_signal(19)  # it answers nobody: the mover waits
        try:
            connection = self.daemon.connect()
            connection.request("POST", "/v1/stores/work/check", "{}", {"Content-Type": "application/json"})
            status = self.of_mover()
        finally:
            server.process.send_signal(18)
        self.assertEqual(200, connection.getresponse().status)
        connection.close()
        uids = set(status["Uid"].split())
        self.assertEqual(1, len(uids))
        self.assertGreater(int(uids.pop()), 1 << 30)
        self.assertEqual({"0" * 16}, {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")})
        self.assertEqual("1", status["NoNewPrivs"])
        self.assertEqual("", status["Groups"].strip())

    def of_mover(self):
        import time
        for _ in range(1000):
            for path in glob.glob("/proc/[0-9]*/status"):
                try:
                    with open(path, encoding="utf-8") as file:
                        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                    with open(path.replace("status", "cmdline"), "rb") as file:
                        line = file.read()
                    with open(f"/proc/{status['PPid'].strip()}/stat", encoding="ascii") as file:
                        daemon = int(file.read().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if status.get("Name") == "rclone" and b"--use-json-log" in line and daemon == self.daemon.process.pid:
                    return status
            time.sleep(0.01)
        raise AssertionError("no rclone of a mover was seen")


if __name__ == "__main__":
    assert CARREL
    unittest.main(verbosity=2)
