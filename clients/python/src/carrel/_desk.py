# SPDX-License-Identifier: Apache-2.0
"""What the adapters of frameworks share: whose workspace a call is for, with which key it works, and a connection for each event loop."""
from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import suppress
from typing import Any, Literal

from ._async.client import AsyncCarrel
from ._async.workspace import AsyncWorkspace
from ._find import Where
from ._sync.client import Carrel
from ._sync.plans import Plan
from ._sync.workspace import Workspace
from .errors import CarrelError

Writes = Literal["direct", "plan"]


class Loops:
    """Connections with await: each belongs to the event loop it was opened in, and all workspaces of one key share it."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Where, AsyncCarrel]] = weakref.WeakKeyDictionary()

    def client(self, where: Where) -> AsyncCarrel:
        made = self._made.setdefault(asyncio.get_running_loop(), {})
        if where not in made:
            made[where] = AsyncCarrel(where.socket or where.url, where.key)
        return made[where]

    async def aclose(self) -> None:
        """Those of the event loop that this runs in."""
        for client in self._made.pop(asyncio.get_running_loop(), {}).values():
            await client.close()


class Desk:
    """One workspace. workspace: what the agent works with. person: the same, with the key of whoever decides about its plans."""

    def __init__(self, workspace: Workspace, person: Workspace, loops: Loops) -> None:
        self.workspace = workspace
        self.person = person
        self._loops = loops

    def in_this_loop(self) -> AsyncWorkspace:
        return AsyncWorkspace(self._loops.client(self.workspace.client.where), self.workspace.info)

    # --- plans ---

    def close_plan(self) -> Plan | None:
        """What the agent has changed so far, as a plan that a person can look at; None: nothing."""
        for plan in self.workspace.plans(state="open"):
            if plan.info.get("shared"):  # an agent's key acts on its own only; others are refused
                try:
                    closed = plan.close()
                except CarrelError as error:
                    if error.code == "forbidden":
                        continue
                    raise
                if closed.info.get("operations"):
                    return closed.verify()  # whoever decides sees what was found
                closed.discard()
        return None

    def carry_out(self, id: str, hash: str) -> Plan:
        """Approves and applies the plan that a person has seen under this hash. Once: of one that is applied already nothing is done again."""
        plan = self.person.get_plan(id)
        if plan.hash != hash:
            raise CarrelError(f"plan {id} is not the one that was approved", code="plan_stale")
        if plan.state == "pending":
            plan.approve()
        if plan.state in ("applying", "queued"):
            plan.wait()
        if plan.state == "applied":
            return plan
        try:
            return plan.apply()
        except CarrelError as error:
            if error.code != "approval_required":
                raise
        return plan.refresh().approve().apply()  # the daemon found only now that somebody has to look

    def turn_down(self, id: str, why: str | None) -> Plan:
        plan = self.person.get_plan(id)
        if plan.state == "pending":
            return plan.reject(why)
        if plan.state == "closed":  # nobody's approval was needed, so there is nothing to reject
            plan.discard()
        return plan


class Desks:
    """The desk that a call is for: one that was named, or that of the LangGraph thread in which the call is made."""

    def __init__(self, workspace: str | Workspace | None, *, client: Carrel | None, url: str | None, key: str | None, writes: Writes,
                 person: Carrel | None, agent_key: str | None) -> None:
        if writes not in ("direct", "plan"):
            raise ValueError(f'writes: "direct" or "plan", not {writes!r}')
        if writes != "plan" and (person or agent_key):
            raise ValueError('person and agent_key are for writes="plan"')
        self._named = workspace
        named = workspace.client if isinstance(workspace, Workspace) else None
        self.client = client or named or Carrel(url, key)
        self._own_client = client is None and named is None
        self.writes = writes
        self._person = person
        self._agent_key = agent_key
        self._made: dict[str, Desk] = {}
        self._loops = Loops()
        self._deciders: dict[str, Carrel] = {}  # by owner
        self._keys: list[str] = []
        self._clients: list[Carrel] = []
        self._lock = threading.Lock()
        self._forgotten = weakref.finalize(self, revoke, self.client, self._keys)  # also at the end of the program
        if workspace is not None:
            self.here()

    def id(self) -> str:
        if isinstance(self._named, Workspace):
            return self._named.id
        return self._named or thread_id()

    def here(self) -> Desk:
        return self.of(self.id())

    def of(self, id: str) -> Desk:
        with self._lock:
            if id not in self._made:
                self._made[id] = self._planned(id) if self.writes == "plan" else self._direct(id)
            return self._made[id]

    async def here_in_loop(self) -> AsyncWorkspace:
        desk = self._made.get(self.id())
        if desk is None:
            desk = await asyncio.to_thread(self.here)
        return desk.in_this_loop()

    def _direct(self, id: str) -> Desk:
        workspace = self._named if isinstance(self._named, Workspace) and self._named.id == id else self.client.workspace(id)
        return Desk(workspace, workspace, self._loops)

    # --- planned writes: the agent works with a key of its own, whose changes all go into a plan ---

    def _planned(self, id: str) -> Desk:
        workspace = self.client.workspace(id, policy={"writes": "plan"})
        policy = workspace.info.get("policy") or {}
        if policy.get("writes") != "plan":
            workspace.update(policy={**policy, "writes": "plan"})
        person = (self._person or self._decider(workspace)).workspace(id, create=False)
        key = self._agent_key or self._key(workspace, "agent")
        return Desk(self._with_key(key).workspace(id, create=False), person, self._loops)

    def _decider(self, workspace: Workspace) -> Carrel:
        # Over the socket without a key nobody would be on record as the one who approved.
        if self.client.where.key:
            return self.client
        owner = workspace.info["owner"]
        if owner not in self._deciders:
            self._deciders[owner] = self._with_key(self._key(workspace, "owner"))
        return self._deciders[owner]

    def _key(self, workspace: Workspace, scope: str) -> str:
        made = self.client.create_key(scopes=[scope], owner=workspace.info["owner"], name=f"carrel for Python, {scope}",
                                      workspaces=[workspace.id] if scope == "agent" else None)
        self._keys.append(made["id"])
        return str(made["key"])

    def _with_key(self, key: str) -> Carrel:
        where = self.client.where
        self._clients.append(Carrel(where.socket or where.url, key))
        return self._clients[-1]

    # --- the end ---

    def close(self) -> None:
        """Revokes the keys that were made here, and ends the connections. Plans and workspaces stay."""
        while self._keys:
            self.client.revoke_key(self._keys[-1])
            self._keys.pop()
        for client in self._clients:
            client.close()
        if self._own_client:
            self.client.close()

    async def aclose(self) -> None:
        await self._loops.aclose()
        await asyncio.to_thread(self.close)


def revoke(client: Carrel, keys: list[str]) -> None:
    """Of somebody who forgot close(); where that is not possible any more the keys are seen in `carrel key ls`."""
    with suppress(CarrelError, RuntimeError):
        for key in keys:
            client.revoke_key(key)


def thread_id() -> str:
    """Of the LangGraph run in which this is called."""
    from langgraph.config import get_config

    try:
        configurable: dict[str, Any] = get_config().get("configurable", {})
    except RuntimeError:
        configurable = {}
    id = configurable.get("thread_id")
    if not id:
        raise CarrelError('no workspace: name one, or run with config={"configurable": {"thread_id": "…"}}, whose id it then has', code="not_found")
    return str(id)
