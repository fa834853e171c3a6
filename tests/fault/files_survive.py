#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
"""kill -9 of the front, the file server or the broker amid thousands of writes: what was acknowledged is there and whole,
what was not is whole or not there, and nothing else is left.

INV-12: a file has its old content or its new one, whole."""
import base64
import hashlib
import http.client
import os
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from carreltest import PATIENCE  # noqa: E402
from filestest import LONG, Files, FilesTest, processes_of, snapshot  # noqa: E402

CLIENTS = 8
KILLS = 40 if LONG else 6
EACH = 200 if LONG else CLIENTS  # acknowledged between two of them
SIZES = (0, 1, 100, 4096, 70000, 300000)
NAMES = 40  # of each client: most writes replace something


def described(client, name, number, size):
    """Bytes that say whose they are, which they are and that they are whole."""
    r = random.Random(f"{client} {name} {number}")
    body = b"%d %d %d " % (client, name, number) + r.randbytes(size)
    return hashlib.sha256(body).hexdigest().encode() + b" " + body


def told(data):
    """(client, name, number) of whole bytes; None: they are not."""
    digest, _, body = data.partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    return tuple(int(word) for word in body.split(b" ", 3)[:3])


class Writer(threading.Thread):
    """One client: writes, batches, copies and removes files of its own, and notes what may be there now."""

    def __init__(self, daemon, space, client, stop):
        super().__init__()
        self.files = Files(daemon, space)
        self.client, self.stop = client, stop
        self.r = random.Random(client)
        self.may_be = {name: {None} for name in range(NAMES)}  # numbers of writes; None: no file
        self.number = self.acknowledged = 0
        self.odd = []

    def path(self, name):
        return f"/c{self.client}/d{name % 3}/f{name}"

    def run(self):
        while not self.stop.is_set():
            name = self.r.randrange(NAMES)
            kind = self.r.choice(("write",) * 6 + ("many", "remove", "copy"))
            try:
                getattr(self, kind)(name)
            except (OSError, http.client.HTTPException):  # the connection died with it
                time.sleep(0.01)
        self.files.close()

    def attempt(self, changes, ask):
        """Until the answer comes each of them may be as before or as asked for."""
        before = {name: set(self.may_be[name]) for name in changes}
        for name, value in changes.items():
            self.may_be[name] |= {value}
        answer = ask()
        if answer.status in (200, 201, 204):
            self.acknowledged += 1
            self.may_be.update({name: {value} for name, value in changes.items()})
        elif answer.status in (404, 429):  # nothing was done
            self.may_be.update(before)
        elif answer.status not in (500, 503, 409):
            self.odd.append((answer.status, answer.bytes[:300]))
        return answer

    def next(self, name):
        self.number += 1
        return self.number, described(self.client, name, self.number, self.r.choice(SIZES))

    def write(self, name):
        number, data = self.next(name)
        self.attempt({name: number}, lambda: self.files.put(self.path(name), data))

    def many(self, _name):
        names = self.r.sample(range(NAMES), 5)
        made = {name: self.next(name) for name in names}
        body = {"files": [{"path": self.path(name), "content_b64": to_base64(data)} for name, (_, data) in made.items()]}
        answer = self.attempt({name: number for name, (number, _) in made.items()}, lambda: self.files.act("write", body))
        if answer.status == 200 and not all(one.get("ok") for one in answer.json["results"]):
            self.odd.append((200, answer.bytes[:500]))

    def remove(self, name):
        self.attempt({name: None}, lambda: self.files.delete(self.path(name)))

    def copy(self, name):
        """A copy says that it is one of `name`, under another name: kept apart, and only looked at for being whole."""
        self.files.act("copy", {"from": self.path(name), "to": f"/copies/{self.client}-{name}"})


def to_base64(data):
    return base64.b64encode(data).decode()


class Survive(FilesTest):
    def amid_writes(self, kill):
        stop = threading.Event()
        writers = [Writer(self.daemon, self.space, client, stop) for client in range(CLIENTS)]
        for writer in writers:
            writer.start()
        dice = random.Random()
        for _ in range(KILLS):
            before = sum(w.acknowledged for w in writers)
            time.sleep(dice.uniform(0.05, 0.4))
            self.until(lambda least=before + EACH: sum(w.acknowledged for w in writers) >= least, "nobody writes any more")
            kill()
        time.sleep(0.2)
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
            self.assertEqual([], writer.odd)
        return writers

    def check(self, writers):
        print(f"{sum(w.acknowledged for w in writers)} acknowledged, {sum(w.number for w in writers)} files sent")
        seen = self.inside("find / -xdev -name '.carrel-*'")["stdout"]
        self.assertEqual("", seen, "temporary files are seen inside")
        self.daemon.post(f"/v1/workspaces/{self.space}/sleep")  # the next file server clears away
        self.files.stat("/")
        self.until(lambda: not [path for path in snapshot(self.host) if b".carrel-" in path], "temporary files are left")
        found = snapshot(self.host)
        expected = {w.path(name)[1:].encode(): (w, name) for w in writers for name in range(NAMES)}
        for path, (writer, name) in expected.items():
            data = found.get(path, (None, None, None))[2]
            which = told(data) if data is not None else (writer.client, name, None)
            self.assertIsNotNone(which, f"{path} is not whole: {len(data or b'')} bytes")
            self.assertEqual((writer.client, name), which[:2], path)
            self.assertIn(which[2], writer.may_be[name], f"{path} is not what was acknowledged last")
        for path, (kind, _, data) in found.items():
            if path.startswith(b"copies/"):
                self.assertIsNotNone(told(data), f"{path} is not whole")
            elif path.startswith(b"c") and kind == "file":
                self.assertIn(path, expected, "nobody wrote this")

    def test_the_file_server_dies(self):
        def kill():
            self.until(lambda: self.servers(), "there is no file server")
            for pid in self.servers():
                os.kill(pid, signal.SIGKILL)
        self.check(self.amid_writes(kill))

    def servers(self):
        """Those that have joined a sandbox, and the one that waits."""
        return processes_of(self.daemon, "carrel-files")

    def test_the_front_dies(self):
        self.check(self.amid_writes(self.daemon.kill_front))

    def test_the_broker_dies(self):
        def kill():
            self.daemon.stop(signal.SIGKILL)
            self.daemon.start()
        self.check(self.amid_writes(kill))
        self.until(lambda: len(self.servers()) <= 2, "file servers outlive their broker")

    def test_the_sandbox_dies(self):
        """Its pid 1, as an administrator or the kernel may end it: the files do not need it."""
        def kill():
            self.daemon.post(f"/v1/workspaces/{self.space}/sleep")
        self.check(self.amid_writes(kill))


if __name__ == "__main__":
    unittest.main(verbosity=0)
