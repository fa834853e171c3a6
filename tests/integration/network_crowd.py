#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
"""Many workspaces at once, each with a list of its own and two connections that stand: carrel-egress is killed in the middle.
Connections end, new ones work soon, and none leads where its own list does not. Full size (1,000 and
2,000, or what the limit on open files leaves room for) with LONG."""
import os
import resource
import select
import signal
import socket
import threading
import time
import unittest

from daemontest import DaemonTest
from nettest import Names, egress_of

FILES = 25  # of the broker, for a sandbox and its command: a hard limit on open files bounds the size here
BOXES = min(1000, (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1000) // FILES) if os.environ.get("LONG") else 16
PATIENT = 30 + BOXES / 4  # seconds
# Two that stand, a third to a neighbour's name that must not; when both have ended, one more.
INSIDE = r"""
if (exec 6<>/dev/tcp/$OTHER/$PORT && printf 'astray %s\n' $ME >&6) 2>/dev/null; then echo astray; fi
exec 3<>/dev/tcp/$NAME/$PORT 4<>/dev/tcp/$NAME/$PORT
printf 'one %s\n' $ME >&3; printf 'two %s\n' $ME >&4
cat <&3 >/dev/null; cat <&4 >/dev/null
until (exec 5<>/dev/tcp/$NAME/$PORT && printf 'again %s\n' $ME >&5) 2>/dev/null; do sleep 0.1; done
"""


class Listening(threading.Thread):
    """Takes any number of connections and answers none; `heard` has their lines, `open` those that stand."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.socket.getsockname()[1]
        self.open, self.heard = {}, set()
        self.start()

    def run(self):
        poll = select.epoll()
        poll.register(self.socket, select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.socket.fileno():
                    connection, _ = self.socket.accept()
                    self.open[connection.fileno()] = connection
                    poll.register(connection, select.EPOLLIN)
                    continue
                try:
                    data = self.open[fd].recv(65536)
                except OSError:
                    data = b""
                self.heard.update(data.decode().splitlines())
                if not data:
                    poll.unregister(fd)
                    self.open.pop(fd).close()

    def count(self, word):
        return sum(line.startswith(f"{word} ") for line in list(self.heard))


class Crowd(DaemonTest):
    def setUp(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self.server = Listening()
        self.names = Names({f"h{at}.crowd.test": ["127.0.0.1"] for at in range(BOXES)})
        self.addCleanup(self.names.close)
        self.options = ("--set", f"nameservers={self.names.address}", "--set", f"network_private=*.crowd.test:{self.server.port}",
                        "--set", "max_sandboxes=0", "--set", "owner_sandboxes=0")
        super().setUp()

    def egress(self):
        return egress_of(self.daemon.process.pid)

    def until(self, so, what):
        deadline = time.monotonic() + PATIENT
        while not so():
            self.assertLess(time.monotonic(), deadline, what())
            time.sleep(0.01)

    def test_all_at_once_and_killed_in_the_middle(self):
        began = time.monotonic()
        for at in range(BOXES):
            name = f"h{at}.crowd.test"
            ws = self.workspace(policy={"network": {"allow": [f"{name}:{self.server.port}"]}})
            env = {"NAME": name, "OTHER": f"h{(at + 1) % BOXES}.crowd.test", "PORT": str(self.server.port), "ME": str(at)}
            answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "exec bash -c \"$INSIDE\"", "env": {**env, "INSIDE": INSIDE}, "background": True})
            self.assertLess(answer.status, 300, (at, answer.bytes))
        self.until(lambda: self.server.count("one") == self.server.count("two") == BOXES,
                   lambda: f"{self.server.count('one')} and {self.server.count('two')} of {BOXES} are there")
        self.assertEqual(2 * BOXES, len(self.server.open))
        egress, took = self.egress(), time.monotonic() - began
        os.kill(egress, signal.SIGKILL)
        killed = time.monotonic()
        self.until(lambda: self.server.count("again"), lambda: "no new connection")
        first = time.monotonic() - killed
        self.until(lambda: self.server.count("again") == BOXES, lambda: f"{self.server.count('again')} of {BOXES} new ones")
        print(f"{BOXES} sandboxes, {2 * BOXES} connections after {took:.1f} s; "
              f"killed: the first new one after {1000 * first:.0f} ms, all after {time.monotonic() - killed:.1f} s")
        self.assertEqual(0, self.server.count("astray"), "another's name was reached")
        self.assertNotIn(egress, (None, self.egress()))


if __name__ == "__main__":
    unittest.main(verbosity=0)
