# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is: found as the command line finds it."""
from __future__ import annotations

import inspect
import os
import socket as sockets
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

# A host that is gone without a word is noticed by a stream within a minute, not never.
KEEP_ALIVE = [(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)]
for name, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
    if hasattr(sockets, name):
        KEEP_ALIVE.append((sockets.IPPROTO_TCP, getattr(sockets, name), seconds))


@dataclass(frozen=True)
class Where:
    url: str
    socket: str | None  # the path of the Unix socket; None: TCP
    key: str | None


def state_dir() -> str:
    """The state directory of a daemon that was given none."""
    if os.geteuid() == 0:
        return "/var/lib/carrel"
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # the specification says to ignore others
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "carrel")


def checked(url: str, told_by: str) -> str:
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{told_by} {url!r}: write an address such as http://127.0.0.1:7070")
    return url.rstrip("/")


def find(url: str | None = None, key: str | None = None) -> Where:
    """url: an http(s) address, or the path of a socket; else CARREL_URL, CARREL_SOCKET, the default state directory."""
    key = key or os.environ.get("CARREL_KEY") or None
    address = url or os.environ.get("CARREL_URL")
    if address and address.startswith(("http://", "https://")):
        return Where(checked(address, "url" if url else "CARREL_URL"), None, key)
    if address and not url:
        raise ValueError(f"CARREL_URL {address!r}: write an address such as http://127.0.0.1:7070")
    socket = url.removeprefix("unix:") if url else os.environ.get("CARREL_SOCKET")
    return Where("http://carrel", socket or os.path.join(state_dir(), "carrel.sock"), key)


def options(where: Where, keep_alive: list[tuple[int, int, int]]) -> dict[str, Any]:
    """How an httpx transport gets there. An httpx without socket_options does without them."""
    if where.socket:
        return {"uds": where.socket}
    return {"socket_options": keep_alive} if "socket_options" in inspect.signature(httpx.HTTPTransport.__init__).parameters else {}
