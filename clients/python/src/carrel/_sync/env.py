# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..models import given

if TYPE_CHECKING:
    from .client import Carrel


class Env:
    """The Python and Node environments of a workspace."""

    def __init__(self, client: Carrel, workspace: str) -> None:
        self._client = client
        self._path = f"{workspace}/env"

    def show(self) -> dict[str, Any]:
        """What there is, and which interpreters there are."""
        return self._client.call("GET", self._path, wait=True)

    def python(self, version: str | None = None, *, clear: bool = False) -> dict[str, Any]:
        """One of its own, at /.venv; made when it is missing. clear=True: made anew. "created" says whether it was."""
        return self._client.call("POST", f"{self._path}/python", body=given(version=version, clear=clear or None), wait=True)

    def node(self) -> dict[str, Any]:
        """package.json and /node_modules, for bun, node and npm; made when they are missing."""
        return self._client.call("POST", f"{self._path}/node", body={}, wait=True)
