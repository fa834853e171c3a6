# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from ..errors import Conflict, NotFound, stream_item
from ..models import given
from .connection import AsyncConnection
from .plans import AsyncPlan
from .workspace import AsyncWorkspace


class AsyncCarrel(AsyncConnection):
    """A connection to the daemon. url: an address such as http://127.0.0.1:7070, or the path of its Unix socket; left out,
    CARREL_URL, CARREL_SOCKET and CARREL_KEY say, as on the command line, else the socket below the default state directory.
    timeout: seconds for a call that is quick by its nature; commands and transfers take as long as they take."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = 90.0) -> None:
        super().__init__(url, key, timeout)

    async def __aenter__(self) -> AsyncCarrel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<carrel at {self.at}>"

    # --- the daemon ---

    async def version(self) -> str:
        return str((await self.call("GET", "/v1/version"))["version"])

    async def health(self) -> dict[str, Any]:
        return await self.call("GET", "/healthz")

    async def ready(self) -> dict[str, Any]:
        """Unavailable is raised while it starts or stops."""
        return await self.call("GET", "/readyz")

    async def host(self) -> dict[str, Any]:
        """What runs, and the bounds; for an administrator's key."""
        return await self.call("GET", "/v1/host")

    async def metrics(self) -> str:
        """Numbers as Prometheus reads them; for an administrator's key."""
        return (await self.send("GET", "/metrics")).text

    # --- workspaces ---

    async def workspace(self, id: str, *, create: bool = True, **how: Any) -> AsyncWorkspace:
        """The workspace of that id, made when it is missing. how: policy, template, labels, links, owner, python, node."""
        path = f"/v1/workspaces/{quote(id, safe='')}"
        try:
            return AsyncWorkspace(self, await self.call("GET", path))
        except NotFound:
            if not create:
                raise
        try:
            return await self.create_workspace(id, **how)
        except Conflict:  # another client was faster; if it is somebody else's, this says that it is not ours
            try:
                return AsyncWorkspace(self, await self.call("GET", path))
            except NotFound:
                pass
            raise

    async def create_workspace(self, id: str | None = None, **how: Any) -> AsyncWorkspace:
        """A new one; left out, the daemon chooses the id. how: as for workspace()."""
        return AsyncWorkspace(self, await self.call("POST", "/v1/workspaces", body=given(id=id, **how), wait=True))

    async def workspaces(self, *, owner: str | None = None, deleted: bool = False) -> list[AsyncWorkspace]:
        found = self.pages("/v1/workspaces", "workspaces", owner=owner, deleted=1 if deleted else None)
        return [AsyncWorkspace(self, item) async for item in found]

    async def undelete(self, id: str) -> AsyncWorkspace:
        """Out of the trash, with its tree as it was."""
        return AsyncWorkspace(self, await self.call("POST", f"/v1/workspaces/{quote(id, safe='')}/undelete", wait=True))

    async def adopt(self, path: str | None = None, *, owner: str | None = None, dry_run: bool = False) -> dict[str, Any]:
        """Directories that lie in a bucket already become workspaces, where they are; for an administrator's key."""
        return await self.call("POST", "/v1/adopt", body=given(path=path, owner=owner, dry_run=dry_run), wait=True)

    # --- plans of all workspaces, keys, templates ---

    async def plans(self, *, state: str | None = None) -> list[AsyncPlan]:
        """Plans of all workspaces that this key may see, newest first; state="pending": those that wait for a person."""
        return [AsyncPlan(self, item) async for item in self.pages("/v1/plans", "plans", state=state)]

    async def keys(self) -> list[dict[str, Any]]:
        return [item async for item in self.pages("/v1/keys", "keys")]

    async def create_key(self, *, scopes: list[str], owner: str | None = None, workspaces: list[str] | None = None, name: str | None = None,
                         template: str | None = None, policy: dict[str, Any] | None = None) -> dict[str, Any]:
        """A new key; its secret is in the member "key", once."""
        return await self.call("POST", "/v1/keys", body=given(scopes=scopes, owner=owner, workspaces=workspaces, name=name, template=template,
                                                              policy=policy))

    async def revoke_key(self, id: str) -> None:
        await self.call("DELETE", f"/v1/keys/{quote(id, safe='')}")

    async def templates(self) -> list[dict[str, Any]]:
        return [item async for item in self.pages("/v1/templates", "templates")]

    async def template(self, name: str) -> dict[str, Any]:
        return await self.call("GET", f"/v1/templates/{quote(name, safe='')}")

    async def create_template(self, name: str, workspace: str, *, share_cache: bool | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
        """Of a workspace that becomes it; its state is "freezing" until it can be used."""
        body = given(name=name, workspace=workspace, share_cache=share_cache, spec=spec)
        return await self.call("POST", "/v1/templates", body=body, wait=True)

    async def delete_template(self, name: str) -> None:
        await self.call("DELETE", f"/v1/templates/{quote(name, safe='')}", wait=True)

    # --- the record, and what happens ---

    async def audit(self, *, follow: bool = False, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """Records, oldest first; follow=True: also those that come. filters: workspace, operation, actor, result, after, to, until."""
        wanted = given(**filters)
        if follow:
            async for record in self.lines("/v1/audit", params={**wanted, "follow": 1}):
                yield record
            return
        while True:
            answer = await self.call("GET", "/v1/audit", params=wanted)
            for record in answer["records"]:
                yield record
            if answer.get("next") is None:
                return
            wanted["after"] = answer["next"]

    async def events(self, workspace: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """What happens, as it happens."""
        async for line in self.text_lines("GET", "/v1/events", params=given(workspace=workspace)):
            if line.startswith(b"data:"):
                yield stream_item(self.object_in(line[5:]))
