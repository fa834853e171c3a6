# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is: found as the command line finds it."""
from __future__ import annotations

import os
from dataclasses import dataclass


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


def find(url: str | None = None, key: str | None = None) -> Where:
    """url: an http(s) address, or the path of a socket; else CARREL_URL, CARREL_SOCKET, the default state directory."""
    key = key or os.environ.get("CARREL_KEY") or None
    address = url or os.environ.get("CARREL_URL")
    if address and address.startswith(("http://", "https://")):
        return Where(address.rstrip("/"), None, key)
    if address and not url:
        raise ValueError(f"CARREL_URL {address!r}: write an address such as http://127.0.0.1:7070")
    socket = url.removeprefix("unix:") if url else os.environ.get("CARREL_SOCKET")
    return Where("http://carrel", socket or os.path.join(state_dir(), "carrel.sock"), key)
