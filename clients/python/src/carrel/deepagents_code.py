# SPDX-License-Identifier: Apache-2.0
"""A sandbox provider of the deepagents command line (`dcode --sandbox carrel`), which finds it by its entry point."""
from __future__ import annotations

from typing import Any
from uuid import uuid4

from deepagents_code.integrations.sandbox_provider import (SandboxError, SandboxInstallHint, SandboxNotFoundError, SandboxProvider,
                                                           SandboxProviderMetadata)

from ._sync.client import Carrel
from .deepagents import CarrelBackend
from .errors import CarrelError, NotFound


class CarrelProvider(SandboxProvider):
    """The daemon is found as always: CARREL_URL with CARREL_KEY, CARREL_SOCKET, or the one that you run yourself."""

    def __init__(self, **_: Any) -> None:
        self._client = Carrel()

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(name="carrel", working_dir="/", install=SandboxInstallHint(kind="package", name="carrel[deepagents]"),
                                       supports_sandbox_id=True, supports_snapshot_name=False, backend_module="carrel.deepagents")

    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> CarrelBackend:
        """Left out, a new workspace; an id that there is not is an error, as the interface wants it."""
        try:
            workspace = self._client.workspace(sandbox_id, create=False) if sandbox_id else self._client.workspace(f"dcode-{uuid4().hex[:12]}")
        except NotFound as error:
            raise SandboxNotFoundError(f"there is no workspace {sandbox_id!r}") from error
        except CarrelError as error:
            raise SandboxError(str(error)) from error
        return CarrelBackend(workspace)

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Into the trash, out of which `carrel ws undelete` takes it."""
        try:
            self._client.workspace(sandbox_id, create=False).delete()
        except NotFound:
            return
        except CarrelError as error:
            raise SandboxError(str(error)) from error
