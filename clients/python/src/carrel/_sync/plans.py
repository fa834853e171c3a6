# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

import html
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import CarrelError, TimedOut
from ..models import Diff, Operations, Result, Shown, given, printable

if TYPE_CHECKING:
    from .client import Carrel
    from .workspace import Workspace


class Plan:
    """A list of file operations on a workspace, of which nothing is done until it is applied."""

    def __init__(self, client: Carrel, info: dict[str, Any]) -> None:
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

    def _ask(self, verb: str, body: dict[str, Any] | None = None) -> Plan:
        self.info = self.client.call("POST", f"{self._path}/{verb}", body=body, wait=True)
        return self

    def refresh(self) -> Plan:
        self.info = self.client.call("GET", self._path)
        return self

    def close(self) -> Plan:
        """Ends what still runs in it; what was done so far is the plan."""
        return self._ask("close")

    def operations(self) -> Operations:
        """What it would do, one object an operation."""
        return Operations([item for item in self.client.pages(self._path, "items", operations=1, limit=10000)])

    def diff(self, path: str | None = None) -> Diff:
        return Diff((self.client.send("GET", f"{self._path}/diff{f'?path={quote(os.fsencode(path))}' if path else ''}", wait=True)).text)

    def show(self) -> Shown:
        """For a person: its state and every operation."""
        lines = [f"plan {self.id} of {self.workspace}: {self.state}", *(f"  {Operations.line(item)}" for item in self.operations())]
        return Shown(printable("\n".join(lines)))

    def verify(self, check: Sequence[str] | None = None) -> Plan:
        return self._ask("verify", {"check": list(check)} if check else {})

    def approve(self, comment: str | None = None) -> Plan:
        """Of what this object shows: a plan that has changed since is refused."""
        return self._ask("approve", {"hash": self.hash, **({"comment": comment} if comment else {})})

    def reject(self, comment: str | None = None) -> Plan:
        return self._ask("reject", {"hash": self.hash, **({"comment": comment} if comment else {})})

    def apply(self, *, keep_going: bool = False, background: bool = False) -> Plan:
        """All of it or nothing; keep_going=True: what can be done. background=True: it is queued, and wait() waits for it."""
        return self._ask("apply", given(hash=self.hash, keep_going=keep_going, **{"async": background or None}))

    def undo(self, paths: Sequence[str] | None = None, *, force: bool = False) -> Plan:
        return self._ask("undo", {**({"paths": list(paths)} if paths else {}), "force": force})

    def cancel(self) -> Plan:
        """Out of the queue of those that are to be applied."""
        return self._ask("cancel")

    def discard(self) -> None:
        self.info = self.client.call("DELETE", self._path)

    def wait(self, *, seconds: float = 600.0) -> Plan:
        """Until it is neither queued, applied nor undone any more."""
        until = time.monotonic() + seconds
        while (self.refresh()).state in ("queued", "applying", "undoing"):
            if time.monotonic() > until:
                raise TimedOut(f"plan {self.id} is still {self.state} after {seconds:g} s", code="timed_out")
            time.sleep(0.1)
        return self

    def __repr__(self) -> str:
        count = self.info.get("operations")
        return f"<plan {self.id} of {self.workspace}: {self.state}{'' if count is None else f', {count} operations'}>"

    def _repr_html_(self) -> str:
        counts = ", ".join(f"{number} {html.escape(kind)}" for kind, number in (self.info.get("counts") or {}).items() if number)
        return f"<b>plan {html.escape(self.id)}</b> of {html.escape(self.workspace)}: <i>{html.escape(self.state)}</i><br><small>{counts}</small>"


class OpenPlan:
    """`with ws.plan() as p`: every command in it sees what the ones before it did, and the workspace stays as it is. Closed at
    the end of the block; p.plan is then what a person looks at, and p.apply(), p.undo() and the rest work on it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.plan: Plan | None = None

    def __enter__(self) -> OpenPlan:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.plan is None:
            return
        if kind is not None:  # what is half done is no plan
            self.plan.discard()
        elif self.plan.state == "open":
            self.plan.close()

    def run(self, command: str | Sequence[str], **how: Any) -> Result:
        more: dict[str, Any] = {"plan": self.plan.id} if self.plan else {}
        result = self._workspace.run(command, mode="plan", keep_open=True, **more, **how)
        if self.plan is None:
            if not result.plan:
                raise CarrelError("the daemon made no plan of this command", code="plan_invalid")
            self.plan = self._workspace.get_plan(result.plan["id"])
        return result

    def _made(self) -> Plan:
        if self.plan is None:
            raise CarrelError("no command has run in this plan yet", code="plan_not_found")
        return self.plan

    def show(self) -> Shown:
        return self._made().show()

    def diff(self, path: str | None = None) -> Diff:
        return self._made().diff(path)

    def apply(self, **how: Any) -> Plan:
        return self._made().apply(**how)

    def undo(self, *paths: str, force: bool = False) -> Plan:
        return self._made().undo(list(paths) or None, force=force)

    def discard(self) -> None:
        self._made().discard()

    def __repr__(self) -> str:
        return repr(self.plan) if self.plan else f"<open plan of {self._workspace.id}, empty>"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() if self.plan else html.escape(repr(self))
