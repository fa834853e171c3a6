# SPDX-License-Identifier: Apache-2.0
"""An environment of Google's Agent Development Kit:

    from carrel.adk import CarrelEnvironment
    agent = Agent(…, tools=[EnvironmentToolset(environment=CarrelEnvironment("thread-1"))])
"""
from __future__ import annotations

from pathlib import Path

from google.adk.environment import BaseEnvironment, ExecutionResult

from ._async.client import AsyncCarrel
from ._async.workspace import AsyncWorkspace
from .models import Ends

OUTPUT_MOST = 1 << 20  # bytes of each of a command's streams


class CarrelEnvironment(BaseEnvironment):  # type: ignore[misc, unused-ignore]
    """workspace: an id, made when it is missing. The workspace and its files stay when it is closed."""

    def __init__(self, workspace: str, *, url: str | None = None, key: str | None = None) -> None:
        self._id = workspace
        self._where = (url, key)
        self._client: AsyncCarrel | None = None
        self._workspace: AsyncWorkspace | None = None

    @property
    def working_dir(self) -> Path:
        return Path("/")

    async def _there(self) -> AsyncWorkspace:
        if self._workspace is None:
            self._client = AsyncCarrel(*self._where)
            self._workspace = await self._client.workspace(self._id)
        return self._workspace

    async def initialize(self) -> None:
        await self._there()
        self.is_initialized = True

    async def close(self) -> None:
        client, self._client, self._workspace = self._client, None, None
        self.is_initialized = False
        if client:
            await client.close()

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        out, err = Ends(OUTPUT_MOST), Ends(OUTPUT_MOST)
        result = await (await self._there()).run(command, timeout=timeout, keep=False,
                                                 on_output=lambda output: (err if output.stream == "stderr" else out).add(output))
        texts = [bytes(kept).decode(errors="replace") for kept in (out, err)]
        return ExecutionResult(exit_code=result.exit_code, stdout=texts[0], stderr=texts[1], timed_out=result.timed_out)

    async def read_file(self, path: Path) -> bytes:
        """FileNotFoundError: there is no such file."""
        return await (await self._there()).files.read_bytes(path)

    async def write_file(self, path: Path, content: str | bytes) -> None:
        await (await self._there()).files.write(path, content)
