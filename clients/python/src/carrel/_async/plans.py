# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import html
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import CarrelError, TimedOut
from ..models import Diff, Operations, Result, Shown, given, printable

if TYPE_CHECKING:
    from .client import AsyncCarrel
    from .workspace import AsyncWorkspace


class AsyncPlan:
    """A list of file operations on a workspace, of which nothing is done until it is applied."""

    def __init__(self, client: AsyncCarrel, info: dict[str, Any]) -> None:
        self.client = client
        self.info = info
        self.id: str = info["id"]
        self.workspace: str = info["workspace"]
        self._path = f"/v1/workspaces/{quote(self.workspace, safe='')}/plans/{quote(self.id, safe='')}"

    @property
    def state(self) -> str:
        return str(self.info["state"])

    @property
    def hash(self) -> str | None:
        """What is approved and applied is what has this hash."""
        return self.info.get("hash")

    async def _ask(self, verb: str, body: dict[str, Any] | None = None) -> AsyncPlan:
        self.info = await self.client.call("POST", f"{self._path}/{verb}", body=body, wait=True)
        return self

    async def refresh(self) -> AsyncPlan:
        self.info = await self.client.call("GET", self._path)
        return self

    async def close(self) -> AsyncPlan:
        """Ends what still runs in it; what was done so far is the plan."""
        return await self._ask("close")

    async def operations(self) -> Operations:
        """What it would do, one object an operation."""
        return Operations([item async for item in self.client.pages(self._path, "items", operations=1, limit=10000)])

    async def diff(self, path: str | None = None) -> Diff:
        return Diff((await self.client.send("GET", f"{self._path}/diff{f'?path={quote(os.fsencode(path))}' if path else ''}", wait=True)).text)

    async def show(self) -> Shown:
        """For a person: its state and every operation."""
        lines = [f"plan {self.id} of {self.workspace}: {self.state}", *(f"  {Operations.line(item)}" for item in await self.operations())]
        return Shown(printable("\n".join(lines)))

    async def verify(self, check: Sequence[str] | None = None) -> AsyncPlan:
        return await self._ask("verify", {"check": list(check)} if check else {})

    async def approve(self, comment: str | None = None) -> AsyncPlan:
        """Of what this object shows: a plan that has changed since is refused."""
        return await self._ask("approve", {"hash": self.hash, **({"comment": comment} if comment else {})})

    async def reject(self, comment: str | None = None) -> AsyncPlan:
        return await self._ask("reject", {"hash": self.hash, **({"comment": comment} if comment else {})})

    async def apply(self, *, keep_going: bool = False, background: bool = False) -> AsyncPlan:
        """All of it or nothing; keep_going=True: what can be done. background=True: it is queued, and wait() waits for it."""
        return await self._ask("apply", given(hash=self.hash, keep_going=keep_going, **{"async": background or None}))

    async def undo(self, paths: Sequence[str] | None = None, *, force: bool = False) -> AsyncPlan:
        return await self._ask("undo", {**({"paths": list(paths)} if paths else {}), "force": force})

    async def cancel(self) -> AsyncPlan:
        """Out of the queue of those that are to be applied."""
        return await self._ask("cancel")

    async def discard(self) -> None:
        self.info = await self.client.call("DELETE", self._path)

    async def wait(self, *, seconds: float = 600.0) -> AsyncPlan:
        """Until it is neither queued, applied nor undone any more."""
        until = time.monotonic() + seconds
        while (await self.refresh()).state in ("queued", "applying", "undoing"):
            if time.monotonic() > until:
                raise TimedOut(f"plan {self.id} is still {self.state} after {seconds:g} s", code="timed_out")
            await asyncio.sleep(0.1)
        return self

    def __repr__(self) -> str:
        count = self.info.get("operations")
        return f"<plan {self.id} of {self.workspace}: {self.state}{'' if count is None else f', {count} operations'}>"

    def _repr_html_(self) -> str:
        counts = ", ".join(f"{number} {html.escape(kind)}" for kind, number in (self.info.get("counts") or {}).items() if number)
        return f"<b>plan {html.escape(self.id)}</b> of {html.escape(self.workspace)}: <i>{html.escape(self.state)}</i><br><small>{counts}</small>"


class AsyncOpenPlan:
    """`async with ws.plan() as p`: every command in it sees what the ones before it did, and the workspace stays as it is. Closed at
    the end of the block; p.plan is then what a person looks at, and p.apply(), p.undo() and the rest work on it."""

    def __init__(self, workspace: AsyncWorkspace) -> None:
        self._workspace = workspace
        self.plan: AsyncPlan | None = None

    async def __aenter__(self) -> AsyncOpenPlan:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.plan is None:
            return
        if kind is not None:  # what is half done is no plan
            await self.plan.discard()
        elif self.plan.state == "open":
            await self.plan.close()

    async def run(self, command: str | Sequence[str], **how: Any) -> Result:
        more: dict[str, Any] = {"plan": self.plan.id} if self.plan else {}
        result = await self._workspace.run(command, mode="plan", keep_open=True, **more, **how)
        if self.plan is None:
            if not result.plan:
                raise CarrelError("the daemon made no plan of this command", code="plan_invalid")
            self.plan = await self._workspace.get_plan(result.plan["id"])
        return result

    def _made(self) -> AsyncPlan:
        if self.plan is None:
            raise CarrelError("no command has run in this plan yet", code="plan_not_found")
        return self.plan

    async def show(self) -> Shown:
        return await self._made().show()

    async def diff(self, path: str | None = None) -> Diff:
        return await self._made().diff(path)

    async def apply(self, **how: Any) -> AsyncPlan:
        return await self._made().apply(**how)

    async def undo(self, *paths: str, force: bool = False) -> AsyncPlan:
        return await self._made().undo(list(paths) or None, force=force)

    async def discard(self) -> None:
        await self._made().discard()

    def __repr__(self) -> str:
        return repr(self.plan) if self.plan else f"<open plan of {self._workspace.id}, empty>"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() if self.plan else html.escape(repr(self))
