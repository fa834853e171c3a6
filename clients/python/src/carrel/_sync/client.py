# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ..errors import Conflict, NotFound, stream_item
from ..models import given
from .connection import Connection
from .plans import Plan
from .workspace import Workspace


class Carrel(Connection):
    """A connection to the daemon. url: an address such as http://127.0.0.1:7070, or the path of its Unix socket; left out,
    CARREL_URL, CARREL_SOCKET and CARREL_KEY say, as on the command line, else the socket below the default state directory.
    timeout: seconds for a call that is quick by its nature; commands and transfers take as long as they take."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = 90.0) -> None:
        super().__init__(url, key, timeout)

    def __enter__(self) -> Carrel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<carrel at {self.at}>"

    # --- the daemon ---

    def version(self) -> str:
        return str((self.call("GET", "/v1/version"))["version"])

    def health(self) -> dict[str, Any]:
        return self.call("GET", "/healthz")

    def ready(self) -> dict[str, Any]:
        """Unavailable is raised while it starts or stops."""
        return self.call("GET", "/readyz")

    def host(self) -> dict[str, Any]:
        """What runs, and the bounds; for an administrator's key."""
        return self.call("GET", "/v1/host")

    def metrics(self) -> str:
        """Numbers as Prometheus reads them; for an administrator's key."""
        return (self.send("GET", "/metrics")).text

    # --- workspaces ---

    def workspace(self, id: str, *, create: bool = True, **how: Any) -> Workspace:
        """The workspace of that id, made when it is missing. how: policy, template, labels, links, owner, python, node."""
        path = f"/v1/workspaces/{quote(id, safe='')}"
        try:
            return Workspace(self, self.call("GET", path))
        except NotFound:
            if not create:
                raise
        try:
            return self.create_workspace(id, **how)
        except Conflict:  # another client was faster; if it is somebody else's, this says that it is not ours
            try:
                return Workspace(self, self.call("GET", path))
            except NotFound:
                pass
            raise

    def create_workspace(self, id: str | None = None, **how: Any) -> Workspace:
        """A new one; left out, the daemon chooses the id. how: as for workspace()."""
        return Workspace(self, self.call("POST", "/v1/workspaces", body=given(id=id, **how), wait=True))

    def workspaces(self, *, owner: str | None = None, deleted: bool = False) -> list[Workspace]:
        found = self.pages("/v1/workspaces", "workspaces", owner=owner, deleted=1 if deleted else None)
        return [Workspace(self, item) for item in found]

    def undelete(self, id: str) -> Workspace:
        """Out of the trash, with its tree as it was."""
        return Workspace(self, self.call("POST", f"/v1/workspaces/{quote(id, safe='')}/undelete", wait=True))

    def adopt(self, path: str | None = None, *, owner: str | None = None, dry_run: bool = False) -> dict[str, Any]:
        """Directories that lie in a bucket already become workspaces, where they are; for an administrator's key."""
        return self.call("POST", "/v1/adopt", body=given(path=path, owner=owner, dry_run=dry_run), wait=True)

    # --- plans of all workspaces, keys, templates ---

    def plans(self, *, state: str | None = None) -> list[Plan]:
        """Plans of all workspaces that this key may see, newest first; state="pending": those that wait for a person."""
        return [Plan(self, item) for item in self.pages("/v1/plans", "plans", state=state)]

    def keys(self) -> list[dict[str, Any]]:
        return [item for item in self.pages("/v1/keys", "keys")]

    def create_key(self, *, scopes: list[str], owner: str | None = None, workspaces: list[str] | None = None, name: str | None = None,
                         template: str | None = None, policy: dict[str, Any] | None = None) -> dict[str, Any]:
        """A new key; its secret is in the member "key", once."""
        return self.call("POST", "/v1/keys", body=given(scopes=scopes, owner=owner, workspaces=workspaces, name=name, template=template,
                                                              policy=policy))

    def revoke_key(self, id: str) -> None:
        self.call("DELETE", f"/v1/keys/{quote(id, safe='')}")

    def templates(self) -> list[dict[str, Any]]:
        return [item for item in self.pages("/v1/templates", "templates")]

    def template(self, name: str) -> dict[str, Any]:
        return self.call("GET", f"/v1/templates/{quote(name, safe='')}")

    def create_template(self, name: str, workspace: str, *, share_cache: bool | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
        """Of a workspace that becomes it; its state is "freezing" until it can be used."""
        body = given(name=name, workspace=workspace, share_cache=share_cache, spec=spec)
        return self.call("POST", "/v1/templates", body=body, wait=True)

    def delete_template(self, name: str) -> None:
        self.call("DELETE", f"/v1/templates/{quote(name, safe='')}", wait=True)

    # --- the record, and what happens ---

    def audit(self, *, follow: bool = False, **filters: Any) -> Iterator[dict[str, Any]]:
        """Records, oldest first; follow=True: also those that come. filters: workspace, operation, actor, result, after, to, until."""
        wanted = given(**filters)
        if follow:
            for record in self.lines("/v1/audit", params={**wanted, "follow": 1}):
                yield record
            return
        while True:
            answer = self.call("GET", "/v1/audit", params=wanted)
            for record in answer["records"]:
                yield record
            if answer.get("next") is None:
                return
            wanted["after"] = answer["next"]

    def events(self, workspace: str | None = None) -> Iterator[dict[str, Any]]:
        """What happens, as it happens."""
        for line in self.text_lines("GET", "/v1/events", params=given(workspace=workspace)):
            if line.startswith(b"data:"):
                yield stream_item(self.object_in(line[5:]))
