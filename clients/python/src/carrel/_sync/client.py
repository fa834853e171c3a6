# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from .._find import find
from ..errors import ConnectionFailed, NotFound, Conflict, from_answer, stream_item
from .plans import Plan
from .workspace import Workspace

NO_TIMEOUT = httpx.Timeout(None, connect=10.0)


class Carrel:
    """A connection to the daemon. url: an address such as http://127.0.0.1:7070, or the path of its Unix socket; left out,
    CARREL_URL, CARREL_SOCKET and CARREL_KEY say, as on the command line, else the socket below the default state directory."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = 90.0) -> None:
        self.where = find(url, key)
        headers = {"Authorization": f"Bearer {self.where.key}"} if self.where.key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        transport = httpx.HTTPTransport(uds=self.where.socket, limits=limits) if self.where.socket else httpx.HTTPTransport(limits=limits)
        self.http = httpx.Client(base_url=self.where.url, headers=headers, transport=transport,
                                      timeout=httpx.Timeout(timeout, connect=10.0))

    def __enter__(self) -> Carrel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    # --- how every call is made ---

    def unreachable(self, error: Exception) -> ConnectionFailed:
        at = self.where.socket or self.where.url
        return ConnectionFailed(f"the daemon at {at} cannot be reached ({str(error) or type(error).__name__}); is `carrel serve` running there?",
                                code="connection_failed")

    def send(self, method: str, path: str, *, params: dict[str, Any] | None = None, body: Any = None, content: Any = None,
                   headers: dict[str, str] | None = None, wait: bool = False) -> httpx.Response:
        """One request. wait: the answer may take as long as it likes."""
        extra: dict[str, Any] = {"timeout": NO_TIMEOUT} if wait else {}
        try:
            answer = self.http.request(method, path, params=params, json=body, content=content, headers=headers, **extra)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        if answer.status_code >= 400:
            raise failure(answer)
        return answer

    def call(self, method: str, path: str, **how: Any) -> dict[str, Any]:
        """One request whose answer is a JSON object, or nothing."""
        answer = self.send(method, path, **how)
        if answer.status_code == 204 or not answer.content:
            return {}
        return dict(answer.json())

    @contextmanager
    def stream(self, method: str, path: str, *, params: dict[str, Any] | None = None, body: Any = None,
                     headers: dict[str, str] | None = None) -> Iterator[httpx.Response]:
        """One request whose answer is read as it comes."""
        try:
            with self.http.stream(method, path, params=params, json=body, headers=headers, timeout=NO_TIMEOUT) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise failure(answer)
                yield answer
        except httpx.TransportError as error:
            raise self.unreachable(error) from error

    def lines(self, path: str, *, method: str = "GET", params: dict[str, Any] | None = None, body: Any = None) -> Iterator[dict[str, Any]]:
        """JSON objects, one a line, as they come."""
        with self.stream(method, path, params=params, body=body) as answer:
            rest = b""
            for piece in answer.iter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield stream_item(json.loads(line))

    def pages(self, path: str, member: str, **params: Any) -> Iterator[dict[str, Any]]:
        """The items of a list that comes in pages."""
        wanted = {name: value for name, value in params.items() if value is not None}
        while True:
            answer = self.call("GET", path, params=wanted)
            for item in answer[member]:
                yield item
            if not answer.get("next"):
                return
            wanted["cursor"] = answer["next"]

    # --- workspaces ---

    def workspace(self, id: str, *, create: bool = True, **how: Any) -> Workspace:
        """The workspace of that id, made when it is missing. how: policy, template, labels, owner, python, node."""
        path = f"/v1/workspaces/{quote(id, safe='')}"
        try:
            return Workspace(self, self.call("GET", path))
        except NotFound:
            if not create:
                raise
        wanted = {name: value for name, value in how.items() if value is not None}
        try:
            return Workspace(self, self.call("POST", "/v1/workspaces", body={"id": id, **wanted}, wait=True))
        except Conflict:  # another client was faster; if it is somebody else's, this says that it is not ours
            try:
                return Workspace(self, self.call("GET", path))
            except NotFound:
                pass
            raise

    def workspaces(self, *, owner: str | None = None, deleted: bool = False) -> list[Workspace]:
        found = self.pages("/v1/workspaces", "workspaces", owner=owner, deleted=1 if deleted else None)
        return [Workspace(self, item) for item in found]

    # --- plans of all workspaces, keys, templates, the record ---

    def plans(self, *, state: str | None = None) -> list[Plan]:
        """Plans of all workspaces that this key may see, newest first; state="pending": those that wait for a person."""
        return [Plan(self, item) for item in self.pages("/v1/plans", "plans", state=state)]

    def keys(self) -> list[dict[str, Any]]:
        return [item for item in self.pages("/v1/keys", "keys")]

    def create_key(self, *, scopes: list[str], owner: str | None = None, workspaces: list[str] | None = None, name: str | None = None,
                         **more: Any) -> dict[str, Any]:
        """A new key; its secret is in the member "key", once."""
        wanted = {"scopes": scopes, "owner": owner, "workspaces": workspaces, "name": name, **more}
        return self.call("POST", "/v1/keys", body={name: value for name, value in wanted.items() if value is not None})

    def revoke_key(self, id: str) -> None:
        self.call("DELETE", f"/v1/keys/{quote(id, safe='')}")

    def templates(self) -> list[dict[str, Any]]:
        return [item for item in self.pages("/v1/templates", "templates")]

    def audit(self, *, follow: bool = False, **filters: Any) -> Iterator[dict[str, Any]]:
        """Records, oldest first; follow=True: also those that come. filters: workspace, operation, actor, result, after."""
        wanted = {name: value for name, value in filters.items() if value is not None}
        if follow:
            for record in self.lines("/v1/audit", params={**wanted, "follow": 1}):
                yield record
            return
        while True:
            answer = self.call("GET", "/v1/audit", params=wanted)
            for record in answer["records"]:
                yield record
            if answer.get("next") is None or not answer["records"]:
                return
            wanted["after"] = answer["next"]

    def events(self, workspace: str | None = None) -> Iterator[dict[str, Any]]:
        """What happens, as it happens."""
        with self.stream("GET", "/v1/events", params={"workspace": workspace} if workspace else None) as answer:
            rest = b""
            for piece in answer.iter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        yield stream_item(json.loads(line[5:]))

    def version(self) -> str:
        return str((self.call("GET", "/healthz"))["version"])


def failure(answer: httpx.Response) -> Exception:
    try:
        body = answer.json()
    except ValueError:
        body = None
    return from_answer(answer.status_code, body, answer.headers.get("x-request-id", ""))
