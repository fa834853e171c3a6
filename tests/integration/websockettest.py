# SPDX-License-Identifier: Apache-2.0
"""A client of WebSockets for tests, as thin as it can be."""
import os
import socket
import struct

from carreltest import PATIENCE

UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
TEXT, BINARY, CLOSE = 1, 2, 8


def frames(data):
    """(opcode, payload) of each whole frame of a server, and what is left behind them."""
    found = []
    while len(data) >= 2:
        head, size = 2, data[1]
        if size >= 126:
            head = 4 if size == 126 else 10
            size = int.from_bytes(data[2:head], "big")
        if len(data) < head + size:
            break
        found.append((data[0] & 15, data[head:head + size]))
        data = data[head + size:]
    return found, data


class WebSocket:
    def __init__(self, daemon, path, key=None, connected=None):
        self.socket = connected or socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        if not connected:
            self.socket.connect(daemon.socket)
        auth = f"Authorization: Bearer {key}\r\n" if key else ""
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{auth}{UPGRADE}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.socket.recv(65536)
            assert piece, head
            head += piece
        self.head, _, self.rest = head.partition(b"\r\n\r\n")
        self.status = int(head[9:12])
        self.heard = []  # frames

    def send(self, data, opcode=None):
        """A text, or bytes; as one frame. Who has gone does not hear it."""
        opcode = opcode or (TEXT if isinstance(data, str) else BINARY)
        data = data.encode() if isinstance(data, str) else data
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xff" + struct.pack(">Q", len(data))
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        try:
            self.socket.sendall(bytes([0x80 | opcode]) + size + mask + masked)
        except OSError:
            pass

    def read(self, until=None):
        """What has come as bytes: up to there, or to the end."""
        while self.status == 101:
            more, self.rest = frames(self.rest)
            self.heard += more
            output = b"".join(payload for opcode, payload in self.heard if opcode == BINARY)
            if (until and until in output) or CLOSE in [opcode for opcode, _ in self.heard]:
                return output
            piece = self.socket.recv(65536)
            if not piece:
                return output
            self.rest += piece
        return b""

    def close(self):
        self.socket.close()
