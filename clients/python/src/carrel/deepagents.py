# SPDX-License-Identifier: Apache-2.0
"""A deepagents backend: every file operation is a call to the daemon, not a process.

    from carrel.deepagents import CarrelBackend
    agent = create_deep_agent(model=..., backend=CarrelBackend("thread-1"))
"""
from __future__ import annotations

import asyncio
import weakref

from deepagents.backends.protocol import (DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileUploadResponse, GlobResult,
                                          GrepResult, LsResult, ReadResult, SandboxBackendProtocol, WriteResult)

from ._async.backend import AsyncOperations
from ._async.client import AsyncCarrel
from ._async.workspace import AsyncWorkspace
from ._sync.backend import Operations
from ._sync.client import Carrel
from ._sync.workspace import Workspace


class CarrelBackend(SandboxBackendProtocol):
    """workspace: an id (made when it is missing) or a workspace object; a LangGraph thread's id is a good one.
    timeout: seconds for each command, where the model names none; left out, the policy's."""

    def __init__(self, workspace: str | Workspace, *, client: Carrel | None = None, url: str | None = None, key: str | None = None,
                 timeout: float | None = None) -> None:
        if isinstance(workspace, str):
            workspace = (client or Carrel(url, key)).workspace(workspace)
        self.workspace = workspace
        self._timeout = timeout
        self._sync = Operations(workspace, timeout)
        # A connection belongs to the event loop it was opened in.
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOperations] = weakref.WeakKeyDictionary()

    @property
    def id(self) -> str:
        return self.workspace.id

    def _async(self) -> AsyncOperations:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            where = self.workspace.client.where
            client = AsyncCarrel(where.socket or where.url, where.key)
            self._loops[loop] = AsyncOperations(AsyncWorkspace(client, self.workspace.info), self._timeout)
        return self._loops[loop]

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._sync.execute(command, timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return await self._async().execute(command, timeout)

    def ls(self, path: str) -> LsResult:
        return self._sync.ls(path)

    async def als(self, path: str) -> LsResult:
        return await self._async().ls(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return self._sync.read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await self._async().read(file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._sync.write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await self._async().write(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return self._sync.edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return await self._async().edit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        return self._sync.delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        return await self._async().delete(file_path)

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        return self._sync.grep(pattern, path, glob, max_count)

    async def agrep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        return await self._async().grep(pattern, path, glob, max_count)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._sync.glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        return await self._async().glob(pattern, path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._sync.upload(files)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return await self._async().upload(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._sync.download(paths)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return await self._async().download(paths)
