#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Calls on files that are under way when who asked may no more, or has left."""
import contextlib
import io
import json
import os
import signal
import tarfile
import time
import unittest

from filestest import Files, FilesTest, processes_of, snapshot


def spent(pid):
    """Processor time of a process, in ticks."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        return sum(int(word) for word in f.read().rsplit(")", 1)[1].split()[11:13])


def states(pid):
    """Of its threads."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as f:
            yield f.read().rsplit(")", 1)[1].split()[0]


class Leave(FilesTest):
    def setUp(self):
        super().setUp()
        self.other = self.workspace(owner="alice")
        self.url = f"/v1/workspaces/{self.other}/files"
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        self.id, self.key = made["id"], made["key"]
        self.theirs = Files(self.daemon, self.other)
        self.addCleanup(self.theirs.close)
        self.theirs.put("/kept", b"old")

    def revoke(self):
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{self.id}").status)

    def begin(self, method, url, n, first):
        """A request of which a part of the body is sent."""
        connection = self.daemon.connect()
        self.addCleanup(connection.close)
        connection.putrequest(method, url)
        connection.putheader("Authorization", f"Bearer {self.key}")
        connection.putheader("Content-Length", str(n))
        connection.endheaders(first)
        return connection

    def stop_servers(self):
        """All threads of all of them, so that what is asked is not answered; their ids."""
        servers = processes_of(self.daemon, "carrel-files")
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        for pid in servers:
            self.until(lambda pid=pid: set(states(pid)) == {"T"}, "it does not stop")
        return servers

    def test_a_write_that_a_revoked_key_began_is_not_made(self):
        before = snapshot(self.host_path(self.other))
        put = self.begin("PUT", f"{self.url}/kept", 10, b"new")
        append = self.begin("PUT", f"{self.url}/kept?append=1", 10, b"new")
        time.sleep(0.2)
        self.revoke()
        for connection in (put, append):
            connection.send(b"content")
            self.assertEqual(401, connection.getresponse().status)
        self.until(lambda: before == snapshot(self.host_path(self.other)), "something of it is left")
        written = f"/v1/audit?workspace={self.other}&operation=file.write"
        self.until(lambda: "failed: no longer allowed" in [record["result"] for record in self.daemon.get(written).json["records"]],
                   "that it was broken off is not on record")

    def test_an_archive_that_a_revoked_key_sends_goes_no_further(self):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name in "ab":
                entry = tarfile.TarInfo(name)
                entry.size = 1 << 20
                archive.addfile(entry, io.BytesIO(bytes(entry.size)))
        half = (3 << 19) + 4096
        sent = self.begin("POST", f"{self.url}-unpack", len(packed.getvalue()), packed.getvalue()[:half])
        self.revoke()
        sent.send(packed.getvalue()[half:])
        self.assertEqual(401, sent.getresponse().status)
        self.assertEqual(404, self.theirs.get("/b").status)

    def test_a_watch_of_a_revoked_key_tells_nothing_more(self):
        watch = self.daemon.stream("GET", f"{self.url}-watch?path=/", key=self.key)
        self.addCleanup(watch.keep.close)
        self.assertIn(b"ready", watch.readline())
        self.theirs.put("/one", b"x")
        self.assertIn(b"/one", watch.readline())
        self.revoke()
        self.theirs.put("/two", b"x")
        rest = watch.read()
        self.assertNotIn(b"/two", rest)
        self.assertEqual("unauthorized", json.loads(rest.splitlines()[-1])["error"]["code"])

    def test_a_read_is_not_asked_again_for_a_revoked_key(self):
        stopped = self.stop_servers()
        asked = self.daemon.stream("GET", f"{self.url}/kept", key=self.key, wait=False)
        self.addCleanup(asked.close)
        time.sleep(0.2)
        self.revoke()
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(401, asked.getresponse().status)

    def test_a_read_is_not_asked_again_of_the_next_one_of_that_id(self):
        stopped = self.stop_servers()
        asked = self.daemon.stream("GET", f"{self.url}/kept", key=self.key, wait=False)
        self.addCleanup(asked.close)
        time.sleep(0.2)
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{self.other}?purge=1").status)
        for pid in stopped:  # the spare one is among them
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.workspace(owner="bob", id=self.other)
        self.theirs.put("/kept", b"bob's")
        self.assertNotIn(b"bob", asked.getresponse().read())

    def test_nobody_hashes_for_who_has_left(self):
        self.inside("truncate -s 8T /huge || truncate -s 1T /huge")
        asked = self.daemon.stream("POST", f"{self.files.url}-inventory", {"path": "/"}, wait=False)
        servers = processes_of(self.daemon, "carrel-files")
        self.until(lambda: sum(map(spent, servers)) > 20, "it has not begun")
        asked.close()

        def rests():
            before = sum(map(spent, servers))
            time.sleep(0.3)
            return sum(map(spent, servers)) - before <= 2
        self.until(rests, "it goes on", 20)

    def test_an_empty_condition_is_none_that_is_understood(self):
        for name in ("If-Match", "If-None-Match"):
            answer = self.files.request("PUT", f"{self.files.url}/x", b"x", {name: ""})
            self.assertEqual((400, "invalid_request"), (answer.status, answer.code))


if __name__ == "__main__":
    unittest.main(verbosity=0)
