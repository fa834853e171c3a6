# SPDX-License-Identifier: Apache-2.0
"""Part "network": connections through carrel-egress, by name, beside the same from the bare host."""

import multiprocessing
import os
import pathlib
import socket
import ssl
import statistics
import struct
import subprocess
import tempfile
import threading
import time

from measure import table

TITLE = "The network by name"
ABOUT = """\
- A connection: from connect(2) to the first byte of the answer, one after the other, to a server on this host. Through
  carrel-egress the name is asked for each time, of a name server on this host, in Python as the server is.
- Bulk: as much as one connection brings, in chunks of 1 MiB, in turns with the bare host.
- The same over TLS, one answer of HTTP to Python's ssl: TLS passes through, or ends in carrel-egress (a rule of methods)
  and begins again there, beside the bare host's.
- A run of /bin/true: without network, and with one name allowed, for which carrel-egress is started."""
NAME = "bench.example.org"
CONNECT, BULK = b"\0", b"\1"
LOW_PORTS = range(700, 1000)  # as most rules name; from 1024 on the engine leads connections to another one
CHUNK = 1 << 20
CLIENT = """
import socket, sys, time
host, port, count, size = sys.argv[1], *map(int, sys.argv[2:])
at = (socket.gethostbyname(host), port)
for _ in range(count):
    began = time.perf_counter()
    with socket.create_connection(at) as s:
        s.sendall(b"\\0")
        s.recv(1)
        print("connect", 1000 * (time.perf_counter() - began))
room = bytearray(1 << 20)
with socket.create_connection(at) as s:
    s.sendall(b"\\1" + size.to_bytes(8, "big"))
    began, got = time.perf_counter(), 0
    while got < size:
        got += s.recv_into(room) or sys.exit("cut off")
    print("bulk", got / (time.perf_counter() - began) / 1e9)
"""

TLS_CLIENT = """
import http.client, ssl, sys, time
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
client.request("GET", "/" + str(size))
answer, room, got = client.getresponse(), bytearray(1 << 20), 0
began = time.perf_counter()
while got < size:
    got += answer.readinto(room) or sys.exit("cut off")
print("bulk", got / (time.perf_counter() - began) / 1e9)
"""


def answer(connection):
    with connection:
        if connection.recv(1) == CONNECT:
            connection.sendall(CONNECT)
            return
        left, chunk = int.from_bytes(connection.recv(8), "big"), bytes(CHUNK)
        while left > 0:
            connection.sendall(chunk[:left])
            left -= CHUNK


def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer_tls(connection, context):
    with context.wrap_socket(connection, server_side=True) as wrapped:
        head = b""
        while b"\r\n\r\n" not in head:
            head += wrapped.recv(4096)
        left, chunk = int(head.split()[1][1:]), bytes(CHUNK)
        wrapped.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left > 0:
            wrapped.sendall(chunk[:left])
            left -= CHUNK


def serve_tls(listener, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer_tls, args=(connection, context), daemon=True).start()


def certify(where):
    """A certificate that is its own authority, readable by all."""
    certificate = pathlib.Path(where) / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=bench",
                    "-addext", f"subjectAltName=DNS:{NAME},DNS:localhost", "-keyout", certificate, "-out", f"{certificate}.part"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    certificate.write_text(certificate.read_text(encoding="ascii") + pathlib.Path(f"{certificate}.part").read_text(encoding="ascii"), encoding="ascii")
    certificate.chmod(0o644)
    pathlib.Path(where).chmod(0o755)
    return str(certificate)


def listen():
    for port in LOW_PORTS if os.geteuid() == 0 else ():
        try:
            return socket.create_server(("127.0.0.1", port), backlog=1024)
        except OSError:
            pass
    return socket.create_server(("127.0.0.1", 0), backlog=1024)


def resolve(server):
    """Every name is at 127.0.0.1."""
    while True:
        question, client = server.recvfrom(512)
        end = question.index(b"\0", 12) + 5
        found = question[end - 4:end - 2] == b"\0\1"
        record = b"\xc0\x0c" + struct.pack(">HHIH4s", 1, 1, 60, 4, b"\x7f\0\0\1") if found else b""
        server.sendto(question[:2] + struct.pack(">HHHHH", 0x8180, 1, int(found), 0, 0) + question[12:end] + record, client)


def measured(place, argv, host, port, count, size):
    lines = place.lines([*argv, "/usr/bin/python3", "-c", CLIENT, host, port, count, size])
    return {what: [float(value) for name, value in lines if name == what] for what in ("connect", "bulk")}


def compared(place, port, nameserver, count, turns, size):
    ours = [*place.carrel, "--nameserver", nameserver, "--allow", f"{NAME}:{port}", "--allow-private", f"{NAME}:{port}", "--"]
    bare, through = [], []
    for _ in range(turns):
        bare.append(measured(place, [], "127.0.0.1", port, count, size))
        through.append(measured(place, ours, NAME, port, count, size))

    def median(found, what):
        return statistics.median(value for one in found for value in one[what])
    rows = []
    for what, label, unit in (("connect", "a connection, to its first byte", "ms"), ("bulk", "bulk", "GB/s")):
        host, names = median(bare, what), median(through, what)
        rows.append({"row": what, "label": label, "unit": unit, "host": host, "names": names, "x": names / host,
                     "adds_ms": names - host if what == "connect" else None})
    columns = (("unit", "unit", "s"), ("bare host", "host", ".3f"), ("by name", "names", ".3f"), ("×", "x", ".2f"), ("adds ms", "adds_ms", ".3f"))
    return table(f"{place.name}-network", f"{place.words}, connections", columns, rows)


def compared_tls(place, port, nameserver, certificate, turns, size):
    allowed = [*place.carrel, "--nameserver", nameserver, "--allow-private", f"{NAME}:{port}", "--trust", certificate]
    through = {"bulk-tls": ("bulk over TLS, passed through", ["--allow", f"{NAME}:{port}"], ["--env", "SSL_CERT_FILE=/tmp/ca.pem"]),
               "bulk-inspected": ("bulk over TLS, ended and begun again", ["--allow", f"{NAME}:{port} methods=GET"], [])}
    found = {name: [] for name in ("host", *through)}

    def once(argv, host):
        return float(place.lines([*argv, "/usr/bin/python3", "-c", TLS_CLIENT, host, port, size])[0][1])
    for _ in range(turns):
        found["host"].append(once(["env", f"SSL_CERT_FILE={certificate}"], "localhost"))
        for name, (_, rule, more) in through.items():
            mount = ["--ro", f"{certificate}:/tmp/ca.pem"] if more else []
            found[name].append(once([*allowed, *rule, *mount, *more, "--"], NAME))
    host = statistics.median(found["host"])
    rows = [{"row": name, "label": through[name][0], "unit": "GB/s", "host": host, "names": statistics.median(found[name]),
             "x": statistics.median(found[name]) / host} for name in through]
    columns = (("unit", "unit", "s"), ("bare host", "host", ".3f"), ("by name", "names", ".3f"), ("×", "x", ".2f"))
    return table(f"{place.name}-network-tls", f"{place.words}, TLS", columns, rows)


def compared_starts(place, nameserver, count):
    rows = []
    options = {"none": ("without network", []), "names": ("with one name", ["--nameserver", nameserver, "--allow", NAME]),
               "inspected": ("with one name, requests looked at", ["--nameserver", nameserver, "--allow", f"{NAME} methods=GET"])}
    took = {name: [] for name in options}
    for _ in range(count):
        for name, (_, words) in options.items():
            began = time.perf_counter()
            place.run([*place.carrel, *words, "--", "/bin/true"])
            took[name].append(1000 * (time.perf_counter() - began))
    for name, (label, _) in options.items():
        ordered = sorted(took[name])
        rows.append({"row": name, "label": label, "p50": statistics.median(ordered), "p90": ordered[int(0.9 * len(ordered))],
                     "adds_ms": statistics.median(ordered) - statistics.median(took["none"])})
    columns = (("p50 ms", "p50", ".2f"), ("p90 ms", "p90", ".2f"), ("adds ms", "adds_ms", ".2f"))
    return table(f"{place.name}-network-starts", f"{place.words}, a run of /bin/true, started from Python", columns, rows)


def measure(bench):
    listener, tls = listen(), listen()
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))
    nameserver = "127.0.0.1:{}".format(names.getsockname()[1])
    with tempfile.TemporaryDirectory() as where:
        certificate = certify(where)
        helpers = [multiprocessing.Process(target=target, args=args, daemon=True)
                   for target, args in ((serve, (listener,)), (serve_tls, (tls, certificate)), (resolve, (names,)))]
        for helper in helpers:
            helper.start()
        try:
            for place in bench.places:
                bench.say(f"connections by name, {place.words}")
                turns = 1 if bench.quick else 3 * bench.scale
                yield compared(place, listener.getsockname()[1], nameserver, 20 if bench.quick else 300, turns, (64 if bench.quick else 1024) << 20)
                yield compared_tls(place, tls.getsockname()[1], nameserver, certificate, turns, (64 if bench.quick else 512) << 20)
                yield compared_starts(place, nameserver, 10 if bench.quick else 100)
        finally:
            for helper in helpers:
                helper.kill()
                helper.join()
