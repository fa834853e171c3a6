#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
"""Many sandboxes at one carrel-egress, each with a list of its own, with all their connections at once; it is killed in the
middle, and the next serves the same sockets. Full size (1,000 and 2,000) with LONG."""
import os
import resource
import select
import signal
import socket
import threading
import time
import unittest

from carreltest import check, libc
from egresstest import CLONE_NEWNET, NAMESERVER, SOCK_DIAG, Egress, Inside, Names, leave_network, pack_order, raise_loopback, receive, ADD

BOXES, EACH = (1000, 2) if os.environ.get("LONG") else (60, 2)


class Crowd(Inside):
    """The networks of many sandboxes, made by one child: "AT KIND [ADDRESS PORT]" asks it for a socket in one."""

    @staticmethod
    def serve(asked):
        networks = []
        for _ in range(BOXES):
            check(libc.unshare(CLONE_NEWNET), "unshare")
            raise_loopback(NAMESERVER, "255.254.0.0")
            networks.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        asked.send(b"ready")
        while True:
            order = asked.recv(64).decode().split()
            if not order:
                return
            check(libc.setns(networks[int(order[0])], CLONE_NEWNET), "setns")
            family, protocol = (socket.AF_NETLINK, SOCK_DIAG) if order[1] == "diag" else (socket.AF_INET, 0)
            with socket.socket(family, socket.SOCK_STREAM if order[1] == "tcp" else socket.SOCK_DGRAM, protocol) as made:
                if len(order) > 2:
                    made.bind((order[2], int(order[3])))
                    if order[1] == "tcp":
                        made.listen(64)
                socket.send_fds(asked, [b"x"], [made.fileno()])

    def at(self, number):
        one = Inside.__new__(Inside)
        one.make = lambda order: self.make(f"{number} {order}")
        return one


class Echo(threading.Thread):
    """Gives back what it is sent, on any number of connections; `taken` counts them."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 7), backlog=4096)
        self.socket.setblocking(False)
        self.taken, self.open = 0, {}
        self.start()

    def run(self):
        poll = select.epoll()
        poll.register(self.socket, select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.socket.fileno():
                    connection, _ = self.socket.accept()
                    self.taken += 1
                    self.open[connection.fileno()] = connection
                    poll.register(connection, select.EPOLLIN)
                    continue
                try:
                    data = self.open[fd].recv(65536)
                    self.open[fd].sendall(data)
                except OSError:
                    data = b""
                if not data:
                    poll.unregister(fd)
                    self.open.pop(fd).close()


class CrowdTest(unittest.TestCase):
    def setUp(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self.names, self.echo, self.crowd = Names(), Echo(), Crowd()
        self.names.names = {f"h{at}.x.test": ["127.0.0.1"] for at in range(BOXES)}
        self.assertEqual(b"ready", self.crowd.ours.recv(16))
        self.boxes = [self.crowd.at(at) for at in range(BOXES)]
        self.sockets = [box.sockets([7]) for box in self.boxes]
        self.egress = None

    def tearDown(self):
        if self.egress:
            self.egress.close()
        for fds in self.sockets:
            for fd in fds:
                fd.close()
        self.crowd.close()
        self.names.close()

    def begin(self):
        """carrel-egress with all of them, as the broker starts one in the place of one that has died."""
        self.egress = Egress("--nameservers", self.names.address, "--private", "*.x.test")
        for at in range(BOXES):
            self.egress.order(pack_order(ADD, at + 1, f"box-{at}", [f"h{at}.x.test:7"]), self.sockets[at])
            self.egress.news()
        self.boxes[-1].ask("nobody.test")  # it has heard of all

    def open_all(self):
        opened = []
        for at, box in enumerate(self.boxes):
            address = box.address(f"h{at}.x.test")
            self.assertEqual(3, box.ask(f"h{(at + 1) % BOXES}.x.test")[0], "another's name")
            for _ in range(EACH):
                opened.append((at, box.connect(address, 7)))
                opened[-1][1].sendall(b"\0%6d" % at)  # who says nothing is not waited for until all are there
            self.egress.news()
        for at, s in opened:
            self.assertEqual(b"\0%6d" % at, receive(s, 7))
            self.egress.news()
        return [s for _, s in opened]

    def test_all_at_once_and_killed_in_the_middle(self):
        self.begin()
        empty = self.egress.descriptors()
        opened = self.open_all()
        self.assertEqual(BOXES * EACH, self.echo.taken)
        self.assertLessEqual(self.egress.descriptors() - empty, 2 * len(opened) + 64, "two for each, and the pool of pipes")
        self.egress.process.kill()
        self.egress.process.wait()
        for s in opened:
            with s:
                try:
                    self.assertEqual(b"", s.recv(1))
                except ConnectionResetError:
                    pass
        # Nobody is there: what is connected now leads nowhere.
        taken = self.echo.taken
        waiting = self.boxes[0].connect("198.18.7.7", 7)
        waiting.sendall(b"\0x")
        self.assertEqual(taken, self.echo.taken)
        self.egress.close()
        began = time.monotonic()
        self.begin()
        with self.boxes[-1].call(f"h{BOXES - 1}.x.test", 7) as s:
            s.sendall(b"\0y")
            self.assertEqual(b"\0y", receive(s, 2))
        print(f"{BOXES} sandboxes, {len(opened)} connections: the next one serves after {1000 * (time.monotonic() - began):.0f} ms")
        with waiting:
            with self.assertRaises((EOFError, OSError)):
                receive(waiting, 1)
        self.assertEqual(taken + 1, self.echo.taken)
        for s in self.open_all():
            s.close()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    leave_network()
    unittest.main()
