# SPDX-License-Identifier: Apache-2.0
"""A deepagents backend: every file operation is a call to the daemon, not a process.

    from carrel.deepagents import CarrelBackend
    agent = create_deep_agent(model=..., backend=CarrelBackend("thread-1"))

With writes="plan" nothing changes that a person has not approved:

    backend = CarrelBackend(writes="plan")
    agent = create_deep_agent(model=..., backend=backend, middleware=backend.approval(), checkpointer=...)
    result = agent.invoke(..., config)                       # ends in result["__interrupt__"], with the plan
    agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepagents.backends.protocol import (DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileUploadResponse, GlobResult,
                                          GrepResult, LsResult, ReadResult, SandboxBackendProtocol, WriteResult)

from ._async.backend import AsyncOperations
from ._desk import Desks, Writes
from ._sync.backend import Operations
from ._sync.client import Carrel
from ._sync.workspace import Workspace

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware


class CarrelBackend(SandboxBackendProtocol):
    """workspace: an id (made when it is missing) or a workspace object; left out, that of the LangGraph thread in which it is used.
    timeout: seconds for each command, where the model names none; left out, the policy's.
    writes="plan": the agent works with a key of its own, under the policy {"writes": "plan"}, which the workspace gets: all that it changes
    goes into a plan. person: a client with the key of who decides about that; left out, this client's. agent_key: a key that was made for
    the agent, for runs that go on in another process; left out, one is made, and revoked by close()."""

    def __init__(self, workspace: str | Workspace | None = None, *, client: Carrel | None = None, url: str | None = None, key: str | None = None,
                 timeout: float | None = None, writes: Writes = "direct", person: Carrel | None = None, agent_key: str | None = None) -> None:
        self._desks = Desks(workspace, client=client, url=url, key=key, writes=writes, person=person, agent_key=agent_key)
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self._desks.id()

    @property
    def workspace(self) -> Workspace:
        """What the agent works with."""
        return self._desks.here().workspace

    def close(self) -> None:
        """Ends its connections; keys that it has made are revoked, plans and workspaces stay."""
        self._desks.close()

    async def aclose(self) -> None:
        """Likewise, with the connections of this event loop."""
        await self._desks.aclose()

    def __enter__(self) -> CarrelBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- planned writes ---

    def approval(self) -> list[AgentMiddleware[Any, Any, Any]]:
        """For create_deep_agent(middleware=…): when the agent is done its plan is handed to LangGraph's interrupt, and applied when approved."""
        from .langchain import approval

        if self._desks.writes != "plan":
            raise ValueError('approval() is for CarrelBackend(…, writes="plan"); otherwise there is nothing to approve')
        return approval(self._desks)

    def for_thread(self, id: str) -> Workspace:
        """Its workspace, with the key of the person who decides: plans are looked at and undone there."""
        return self._desks.of(id).person

    # --- environments ---

    def ensure_python_init(self) -> bool:
        """A Python environment of the workspace's own, at /.venv. Made by the owner's key, not as part of a plan."""
        self._desks.client.workspace(self.id).env.python()
        return True

    def ensure_node_init(self) -> bool:
        """Likewise for bun, node and npm, at /node_modules."""
        self._desks.client.workspace(self.id).env.node()
        return True

    # --- the protocol ---

    @property
    def _sync(self) -> Operations:
        return Operations(self._desks.here().workspace, self._timeout)

    async def _async(self) -> AsyncOperations:
        return AsyncOperations(await self._desks.here_in_loop(), self._timeout)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._sync.execute(command, timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return await (await self._async()).execute(command, timeout)

    def ls(self, path: str) -> LsResult:
        return self._sync.ls(path)

    async def als(self, path: str) -> LsResult:
        return await (await self._async()).ls(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return self._sync.read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await (await self._async()).read(file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._sync.write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await (await self._async()).write(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return self._sync.edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return await (await self._async()).edit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        return self._sync.delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        return await (await self._async()).delete(file_path)

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        return self._sync.grep(pattern, path, glob, max_count)

    async def agrep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        return await (await self._async()).grep(pattern, path, glob, max_count)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._sync.glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        return await (await self._async()).glob(pattern, path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._sync.upload(files)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return await (await self._async()).upload(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._sync.download(paths)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return await (await self._async()).download(paths)
