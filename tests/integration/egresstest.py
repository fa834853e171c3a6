# SPDX-License-Identifier: Apache-2.0
"""What the tests of carrel-egress share: it and its upstream live in a network of the test's own, sandboxes are networks
beside that, whose sockets are handed to it as the broker would.

    outside: this process, carrel-egress, the upstream's servers on 127.0.0.x, at any port
    inside:  an Inside, a child that makes sockets there and hands them to us"""
import array
import collections
import ctypes
import fcntl
import os
import resource
import select
import socket
import socketserver
import struct
import subprocess
import threading
import time

from carreltest import PATIENCE, ROOT, TMP, check, libc

EGRESS = os.environ.get("EGRESS") or os.path.join(os.path.dirname(os.environ["CARREL"]), "carrel-egress")
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x40000000, 0x1000, 0x4000, 0x40000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, IFF_UP = 0x8913, 0x8914, 0x8916, 0x891C, 1
SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
NAMESERVER = "198.18.0.1"
NOBODY = 65534

# --- networks ---


def raise_loopback(address=None, mask=None):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        flags = struct.unpack("16sh", fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))[:18])[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
        for call, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, mask)):
            if value:
                fcntl.ioctl(s, call, struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(value)))


def leave_network():
    """This process into a network of its own, in which it may do anything, and mounts of its own."""
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(CLONE_NEWNET | CLONE_NEWNS | (0 if ROOT else CLONE_NEWUSER)), "unshare")
    if not ROOT:
        for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
    raise_loopback()
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")


class Reset:
    """A connection that was reset before we looked."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def recv(self, _):
        raise ConnectionResetError("before connect returned")

    def sendall(self, _):
        pass

    def close(self):
        pass


class Inside:
    """The network of one sandbox."""

    def __init__(self):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.ours.close()
                check(libc.unshare(CLONE_NEWNET), "unshare")
                raise_loopback(NAMESERVER, "255.254.0.0")
                self.serve(theirs)
            finally:
                os._exit(0)
        theirs.close()

    @staticmethod
    def serve(asked):
        while True:
            order = asked.recv(64).decode().split()
            if not order:
                return
            kind = socket.SOCK_STREAM if order[0] == "tcp" else socket.SOCK_DGRAM
            family, protocol = (socket.AF_NETLINK, SOCK_DIAG) if order[0] == "diag" else (socket.AF_INET, 0)
            with socket.socket(family, kind, protocol) as made:
                if len(order) > 1:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    made.bind((order[1], int(order[2])))
                    if kind == socket.SOCK_STREAM:
                        made.listen(1024)
                socket.send_fds(asked, [b"x"], [made.fileno()])

    def make(self, order):
        self.ours.send(order.encode())
        _, fds, _, _ = socket.recv_fds(self.ours, 16, 1)
        return socket.socket(fileno=fds[0])

    def sockets(self, ports):
        """What pid 1 makes for carrel-egress."""
        return [self.make(f"udp {NAMESERVER} 53"), self.make(f"tcp {NAMESERVER} 53"), self.make("diag"),
                *(self.make(f"tcp 0.0.0.0 {port}") for port in ports)]

    def connect(self, address, port, timeout=PATIENCE):
        made = self.make("tcp")
        made.settimeout(timeout)
        try:
            made.connect((address, port))
        except ConnectionResetError:  # so fast is the answer
            made.close()
            return Reset()
        except OSError:
            made.close()
            raise
        return made

    def ask(self, name, kind=1, tcp=False):
        """(code, addresses) of a question to the name server inside."""
        return read_answer(self.ask_bytes(question(name, kind), tcp))

    def ask_bytes(self, message, tcp=False, timeout=PATIENCE):
        if tcp:
            with self.connect(NAMESERVER, 53, timeout) as s:
                s.sendall(struct.pack(">H", len(message)) + message)
                return receive(s, struct.unpack(">H", receive(s, 2))[0])
        with self.make("udp") as s:
            s.settimeout(timeout)
            s.sendto(message, (NAMESERVER, 53))
            return s.recv(4096)

    def address(self, name):
        code, addresses = self.ask(name)
        assert code == 0 and len(addresses) == 1, f"{name}: {code} {addresses}"
        return addresses[0]

    def call(self, name, port, timeout=PATIENCE):
        return self.connect(self.address(name), port, timeout)

    def close(self):
        self.ours.send(b"")  # the others have a copy of it
        self.ours.close()
        os.waitpid(self.pid, 0)


def receive(s, n):
    got = b""
    while len(got) < n:
        piece = s.recv(n - len(got))
        if not piece:
            raise EOFError(f"{len(got)} of {n} bytes")
        got += piece
    return got


# --- DNS ---


def question(name, kind=1, ident=0x1234, flags=0x0100, tail=b"", counts=(1, 0, 0, 0), klass=1):
    labels = name if isinstance(name, bytes) else b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"
    return struct.pack(">HHHHHH", ident, flags, *counts) + labels + struct.pack(">HH", kind, klass) + tail


def skip_name(message, at):
    while message[at]:
        if message[at] & 0xC0:
            return at + 2
        at += 1 + message[at]
    return at + 1


def read_answer(message):
    flags, questions, answers = struct.unpack(">HHH", message[2:8])
    at = 12
    for _ in range(questions):
        at = skip_name(message, at) + 4
    found = []
    for _ in range(answers):
        at = skip_name(message, at)
        kind, _, _, length = struct.unpack(">HHIH", message[at:at + 10])
        data = message[at + 10:at + 10 + length]
        found += [socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data)] if kind in (1, 28) else []
        at += 10 + length
    return flags & 15, found


class Names(threading.Thread):
    """The upstream's name server. `names`: a name and its addresses, or a function that gives them; others do not exist."""

    def __init__(self, address=("127.0.0.1", 0)):
        super().__init__(daemon=True)
        self.names, self.asked = {}, collections.Counter()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(address)
        self.tcp = socket.create_server(self.udp.getsockname())
        self.address = "{}:{}".format(*self.udp.getsockname())
        self.stop = os.pipe()
        self.start()

    def answer(self, message, most):
        end = skip_name(message, 12)
        kind = struct.unpack(">H", message[end:end + 2])[0]
        parts, at = [], 12
        while message[at]:
            parts.append(message[at + 1:at + 1 + message[at]].decode().lower())
            at += 1 + message[at]
        name = ".".join(parts)
        self.asked[name] += kind == 1
        found = self.names.get(name)
        if found == "silence":
            return b""
        found = found(kind) if callable(found) else found
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        records = b""
        count = 0
        for address in found or []:
            if (":" in address) == (family == socket.AF_INET6) and family:
                data = socket.inet_pton(family, address)
                records += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 5, len(data)) + data
                count += 1
        code = 3 if found is None else 0
        whole = message[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, count, 0, 0) + message[12:end + 4] + records
        if len(whole) > most:
            return message[:2] + struct.pack(">HHHHH", 0x8380, 1, 0, 0, 0) + message[12:end + 4]
        return whole

    def run(self):
        while True:
            ready = select.select([self.udp, self.tcp, self.stop[0]], [], [])[0]
            if self.stop[0] in ready:
                return
            if self.udp in ready:
                message, peer = self.udp.recvfrom(4096)
                reply = self.answer(message, 512)
                if reply:
                    self.udp.sendto(reply, peer)
            if self.tcp in ready:
                client, _ = self.tcp.accept()
                with client:
                    message = receive(client, struct.unpack(">H", receive(client, 2))[0])
                    reply = self.answer(message, 65535)
                    client.sendall(struct.pack(">H", len(reply)) + reply)

    def close(self):
        os.close(self.stop[1])
        self.join()
        os.close(self.stop[0])
        self.udp.close()
        self.tcp.close()


class Server(socketserver.ThreadingTCPServer):
    """An upstream: `handle(socket)` for each connection; `heard` has what `record` was given."""
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 1024

    def __init__(self, address, port, handle):
        self.heard = []

        class Handler(socketserver.BaseRequestHandler):
            def handle(handler):  # noqa: N805
                try:
                    handle(handler.request)
                except OSError:
                    pass

        super().__init__((address, port), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


# --- messages: protocol/egress.h ---

ADD, CHANGE, SPEND, DROP, SECRET = 1, 2, 3, 4, 5
READY, OPENED, CLOSED, REFUSED, SPENT, DROPPED, REQUEST = 1, 2, 3, 4, 5, 6, 7
News = collections.namedtuple("News", "kind id connection host port rule why fix up down ms count group")


def pack_text(text):
    data = text.encode()
    return struct.pack("=I", len(data)) + data + b"\0"


def pack_order(kind, ident, name="box", rules=(), connections=0, bytes_per_hour=0, owner="", authority="", secret="", value="", places=""):
    return (struct.pack("=QQ", kind, ident) + pack_text(name) + struct.pack("=I", len(rules)) + b"".join(map(pack_text, rules))
            + struct.pack("=QQ", connections, bytes_per_hour) + b"".join(map(pack_text, (owner, authority, places, secret, value))))


def read_news(message):
    values, at = [], 0
    for field in News._fields:
        if field in ("host", "rule", "why", "fix"):
            n = struct.unpack_from("=I", message, at)[0]
            values.append(message[at + 4:at + 4 + n].decode())
            at += 4 + n + 1
        else:
            values.append(struct.unpack_from("=Q", message, at)[0])
            at += 8
    assert at == len(message), message
    return News(*values)


class Egress:
    def __init__(self, *options, files=None):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.log = os.path.join(TMP, f"egress-{os.getpid()}-{id(self)}.log")
        high = fcntl.fcntl(theirs, fcntl.F_DUPFD, 100)
        theirs.close()

        def prepare():
            os.dup2(high, 3)
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ROOT else {}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([EGRESS, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"LC_ALL": "C.UTF-8"} | {name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ},
                                            cwd="/", pass_fds=[3, high], preexec_fn=prepare, **as_nobody)  # noqa: PLW1509
        os.close(high)
        self.kept = []
        self.last_id = 0
        self.wait(READY)

    def order(self, message, fds=()):
        socket.send_fds(self.ours, [message], [fd.fileno() for fd in fds])

    def add(self, sockets, rules, **limits):
        self.last_id += 1
        self.order(pack_order(ADD, self.last_id, f"box-{self.last_id}", rules, **limits), sockets)
        return self.last_id

    def hear(self, timeout):
        poll = select.poll()  # there may be more descriptors than select knows
        poll.register(self.ours, select.POLLIN)
        if not poll.poll(timeout * 1000):
            return False
        message = self.ours.recv(1 << 16)
        if not message:
            raise AssertionError(f"carrel-egress has ended: {self.process.wait(PATIENCE)}\n{self.said()}")
        self.kept.append(read_news(message))
        return True

    def news(self):
        """All that have come and nobody has waited for."""
        while self.hear(0):
            pass
        kept, self.kept = self.kept, []
        return kept

    def wait(self, kind, timeout=PATIENCE, **wanted):
        """The first news of that kind with these values; they are taken out."""
        deadline = time.monotonic() + timeout
        while True:
            for news in self.kept:
                if news.kind == kind and all(getattr(news, name) == value for name, value in wanted.items()):
                    self.kept.remove(news)
                    return news
            if not self.hear(max(0, deadline - time.monotonic())):
                raise AssertionError(f"no news of kind {kind} {wanted}: {self.kept}\n{self.said()}")

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self):
        """Its socket ends, and so does it."""
        self.ours.close()
        status = self.process.wait(PATIENCE)
        said = self.said()
        os.unlink(self.log)
        return status, said
