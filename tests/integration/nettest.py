# SPDX-License-Identifier: Apache-2.0
"""Upstreams of the tests' own, on loopback: a name server that notes what it is asked, and a server of HTTP."""
import http.server
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading


def egress_of(daemon):
    """The process of that daemon's, or None."""
    with open(f"/proc/{daemon}/task/{daemon}/children", encoding="ascii") as file:
        for pid in file.read().split():
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                    if comm.read().strip() == "carrel-egress":
                        return int(pid)
            except OSError:
                pass
    return None


class Names:
    """A name server over UDP: `table` has the addresses of names; others do not exist."""

    def __init__(self, table):
        self.table, self.asked = table, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    @staticmethod
    def name_of(question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        return ".".join(labels), at + 5

    def answer(self, question):
        name, end = self.name_of(question)
        kind = struct.unpack(">H", question[end - 4:end - 2])[0]
        self.asked.append(name)
        known = self.table.get(name)
        if callable(known):
            known = known()
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        rows = []
        for address in known or []:
            if family and (":" in address) == (family == socket.AF_INET6):
                data = socket.inet_pton(family, address)
                rows.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data)
        flags = 0x8180 if known is not None else 0x8183
        return question[:2] + struct.pack(">HHHHH", flags, 1, len(rows), 0, 0) + question[12:end] + b"".join(rows)

    def serve(self):
        while True:
            try:
                question, client = self.socket.recvfrom(4096)
                self.socket.sendto(self.answer(question), client)
            except OSError:
                return

    def close(self):
        self.socket.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.headers.get("Host"), self.path))
        if self.path.startswith("/wait"):
            self.server.hold.wait(60)
        body = f"from {self.headers.get('Host')} {self.path}\n".encode()
        self.send_response(302 if self.path.startswith("/to/") else 200)
        if self.path.startswith("/to/"):
            self.send_header("Location", "http://" + self.path[4:])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Web(http.server.ThreadingHTTPServer):
    """`seen` has the Host and path of each request; a request for /wait is answered when `hold` is set."""
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address="127.0.0.1"):
        super().__init__((address, 0), Handler)
        self.seen, self.hold = [], threading.Event()
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.hold.set()
        self.shutdown()
        self.server_close()


class Listener:
    """Takes connections and keeps what comes on each; `answer` is given (connection, all that came) after each piece."""

    def __init__(self, address="127.0.0.1", port=0, answer=None):
        self.got, self.answer = [], answer
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.create_server((address, port), family=family)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.got.append(b"")
            threading.Thread(target=self.read, args=(connection, len(self.got) - 1), daemon=True).start()

    def read(self, connection, at):
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                except OSError:
                    return
                if not data:
                    return
                self.got[at] += data
                if self.answer:
                    try:
                        self.answer(connection, self.got[at])
                    except OSError:
                        return

    def has(self, what):
        return any(what in one for one in self.got)

    def close(self):
        self.socket.close()


BABBLER = r"""
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static char m[2048];
static size_t n;
static void put(const void *p, size_t size) { memcpy(m + n, p, size); n += size; }
static void number(uint64_t v) { put(&v, sizeof(v)); }
static void text(const char *t) { uint32_t l = strlen(t); put(&l, sizeof(l)); put(t, l + 1); }
static char words[300];
static void pack(uint64_t kind, uint64_t id)
{
    n = 0;
    number(kind); number(id); number(1); text("a.test"); number(443); text(words); text(words); text(words);
    number(0); number(0); number(0); number(1); number(0);
}
int main(void)
{
    memset(words, 'x', sizeof(words) - 1);
    pack(1, 0);
    send(3, m, n, 0);
    sleep(1); /* it is handed its sockets */
    fork(); fork(); fork();
    for (;;) {
        pack(4, 1);
        if (send(3, m, n, MSG_NOSIGNAL) < 0)
            return 0;
    }
}
"""


def babbling(place):
    """Carrel's programs in a directory of their own, with a carrel-egress that was taken over and never stops talking; the path of carrel."""
    os.mkdir(place, 0o755)
    above = os.path.dirname(os.environ["CARREL"])
    for name in os.listdir(above):
        if name.startswith("carrel") and os.access(f"{above}/{name}", os.X_OK) and os.path.isfile(f"{above}/{name}"):
            shutil.copy(f"{above}/{name}", f"{place}/{name}")
    subprocess.run(["cc", "-O1", "-xc", "-", "-o", f"{place}/carrel-egress"], input=BABBLER.encode(), check=True)
    return f"{place}/carrel"


class Attack:
    """What escape tests of the network share: a run, and how it is judged."""

    def __init__(self):
        self.carrel, self.ws = os.environ["CARREL"], f"{os.environ['TMP']}/ws"
        self.escapes, self.reached = [], 0
        os.makedirs(self.ws, exist_ok=True)

    def run(self, options, script, *args):
        """A Python script inside; its standard output."""
        done = subprocess.run([self.carrel, "run", "--workspace", self.ws, "--timeout", "60s", *options, "--", "/usr/bin/python3", "-c", script, *map(str, args)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        if done.returncode:
            print(f"UNCLEAR: status {done.returncode}: {done.stderr[-500:]}")
            sys.exit(2)
        return done.stdout

    def must(self, true, what):
        if not true:
            self.escapes.append(what)

    def end(self, works=True, what=""):
        """`works`: what is allowed has got through, so that the rest says something."""
        for one in self.escapes:
            print(f"ESCAPED: {one}")
        if not self.escapes and not works:
            print(f"UNCLEAR: {what}")
            sys.exit(2)
        print("contained" if not self.escapes else f"{len(self.escapes)} escapes")
        sys.exit(1 if self.escapes else 0)
