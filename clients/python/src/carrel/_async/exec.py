# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ..errors import ConnectionFailed, Unavailable
from ..models import Output, Result, text_or_bytes

if TYPE_CHECKING:
    from .client import AsyncCarrel

GIVE_UP_AFTER = 60.0  # seconds without the daemon, before a reader says that it is gone


class AsyncCommand:
    """A command that runs, or has run, in a workspace. It does not need us: iterating over it shows its output from the
    beginning, and goes on where it was when a connection breaks or the daemon is restarted. keep=False: the result is without the
    output, which is then in memory only while it is looked at."""

    def __init__(self, client: AsyncCarrel, workspace: str, exec_id: str | None = None, body: dict[str, Any] | None = None, keep: bool = True) -> None:
        self._client = client
        self._workspace = workspace
        self._keep = keep
        self._body = body  # of one that is still to be started
        self.id = exec_id or ""
        self.result: Result | None = None
        self._offset = 0
        self._out = bytearray()
        self._err = bytearray()
        self._texts = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr", "pty")}

    @property
    def _path(self) -> str:
        return f"/v1/workspaces/{self._workspace}/exec/{self.id}"

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._outputs()

    async def _outputs(self) -> AsyncIterator[Output]:
        alone_since: float | None = None
        while self.result is None:
            try:
                async with aclosing(self._events()) as events:
                    async for event in events:
                        alone_since = None
                        for output in self._take(event):
                            yield output
                if self.result is None:
                    raise ConnectionFailed("the stream ended before the command", code="connection_failed")
            except (ConnectionFailed, Unavailable):
                now = time.monotonic()
                alone_since = alone_since or now
                if not self.id or now - alone_since > GIVE_UP_AFTER:
                    raise
                await asyncio.sleep(0.2)

    def _events(self) -> AsyncGenerator[dict[str, Any], None]:
        if not self.id:  # begins it, and follows from the start
            body, self._body = self._body, None
            if body is None:
                raise ConnectionFailed("the connection broke before the daemon named the command: look with ws.execs() whether it runs",
                                       code="connection_failed")
            return self._client.lines(f"/v1/workspaces/{self._workspace}/exec", method="POST", body={**body, "stream": "ndjson"})
        return self._client.lines(f"{self._path}/output", params={"from": self._offset, "follow": 1, "format": "ndjson"})

    def _take(self, event: dict[str, Any]) -> list[Output]:
        kind = event.get("type")
        if kind == "start":
            self.id = event["exec_id"]
        elif kind == "end":
            self.result = Result.of(event, bytes(self._out), bytes(self._err))
            cut = {name: text.decode(b"", True) for name, text in self._texts.items()}  # the last letter, where it was never finished
            return [Output(name, b"", self._offset, text) for name, text in cut.items() if text]
        elif kind in ("stdout", "stderr", "pty"):
            data, at = text_or_bytes(event, "data") or b"", event["offset"]
            data = data[max(0, self._offset - at):]
            if data:
                self._offset = max(at, self._offset) + len(data)
                if self._keep:
                    (self._err if kind == "stderr" else self._out).extend(data)
                return [Output(kind, data, self._offset - len(data), self._texts[kind].decode(data))]
        return []

    async def wait(self) -> Result:
        """Its end, with all of its output."""
        async for _ in self:
            pass
        assert self.result is not None
        return self.result

    async def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Input, for a command that was started with stdin_open=True or a pty."""
        await self._client.call("POST", f"{self._path}/stdin", content=data.encode() if isinstance(data, str) else data,
                                params={"eof": 1} if eof else None)

    async def close_stdin(self) -> None:
        await self.write(b"", eof=True)

    async def signal(self, signal: str | int) -> None:
        await self._client.call("POST", f"{self._path}/signal", body={"signal": signal})

    async def resize(self, cols: int, rows: int) -> None:
        await self._client.call("POST", f"{self._path}/resize", body={"cols": cols, "rows": rows})

    async def kill(self) -> None:
        """Ends it and everything that it started."""
        await self._client.call("POST", f"{self._path}/kill")

    async def info(self) -> dict[str, Any]:
        return await self._client.call("GET", self._path)

    def __repr__(self) -> str:
        return f"<command {self.id or 'not started'} in {self._workspace}{f': exit {self.result.exit_code}' if self.result else ''}>"
