# SPDX-License-Identifier: Apache-2.0
"""Part "network": connections through carrel-egress, by name, beside the same from the bare host."""

import multiprocessing
import socket
import statistics
import struct
import threading

from measure import table

TITLE = "The network by name"
ABOUT = """\
- A connection: from connect(2) to the first byte of the answer, one after the other, to a server on this host. Through
  carrel-egress the name is asked for each time, of a name server on this host, in Python as the server is.
- Bulk: as much as one connection brings, in chunks of 1 MiB, in turns with the bare host."""
NAME = "bench.example.org"
CONNECT, BULK = b"\0", b"\1"
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


def measure(bench):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))
    helpers = [multiprocessing.Process(target=serve, args=(listener,), daemon=True), multiprocessing.Process(target=resolve, args=(names,), daemon=True)]
    for helper in helpers:
        helper.start()
    try:
        for place in bench.places:
            bench.say(f"connections by name, {place.words}")
            yield compared(place, listener.getsockname()[1], "127.0.0.1:{}".format(names.getsockname()[1]), 20 if bench.quick else 300,
                           1 if bench.quick else 3 * bench.scale, (64 if bench.quick else 1024) << 20)
    finally:
        for helper in helpers:
            helper.kill()
            helper.join()
