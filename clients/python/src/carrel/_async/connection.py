# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from .._find import KEEP_ALIVE, find, options
from ..errors import ConnectionFailed, InvalidRequest, TimedOut, WrongServer, from_answer, stream_item, version_fits

NO_TIMEOUT = httpx.Timeout(None, connect=10.0)
HELLO_TIMEOUT = httpx.Timeout(10.0)


class AsyncConnection:
    """How every call to the daemon is made. What it raises is a CarrelError, with the daemon's own sentence where there is one."""

    def __init__(self, url: str | None, key: str | None, timeout: float) -> None:
        self.where = find(url, key)
        self.timeout = timeout
        headers = {"Authorization": f"Bearer {self.where.key}"} if self.where.key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        transport = httpx.AsyncHTTPTransport(limits=limits, **options(self.where, KEEP_ALIVE))
        self.http = httpx.AsyncClient(base_url=self.where.url, headers=headers, transport=transport,
                                      timeout=httpx.Timeout(timeout, connect=10.0))
        self.server_version: str | None = None  # None: not asked yet
        self.streams = 0  # that are open

    async def close(self) -> None:
        for _ in range(50):  # streams that were left in the middle are closed by the event loop, which has to have its turn
            if not self.streams:
                break
            await asyncio.sleep(0.002)
        await self.http.aclose()

    @property
    def at(self) -> str:
        return self.where.socket or self.where.url

    def unreachable(self, error: Exception) -> ConnectionFailed:
        why = str(error) or type(error).__name__
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
            return ConnectionFailed(f"the daemon at {self.at} cannot be reached ({why}); is `carrel serve` running there?", code="connection_failed")
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(f"the daemon at {self.at} has not answered within {self.timeout:g} s; what was asked for may still be done",
                            code="timed_out")
        return ConnectionFailed(f"the connection to the daemon at {self.at} broke before the answer ({why}); what was asked for may be done or not",
                                code="connection_failed")

    async def greet(self) -> None:
        """Once, before the first call: whether this is a daemon that this client can talk to."""
        if self.server_version is not None:
            return
        try:
            answer = await self.http.get("/v1/version", timeout=HELLO_TIMEOUT)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        self.server_version = version_fits(self.at, answer.status_code, body_of(answer))

    async def send(self, method: str, path: str, *, params: dict[str, Any] | None = None, body: Any = None, content: Any = None,
                   headers: dict[str, str] | None = None, wait: bool = False, again: bool = False) -> httpx.Response:
        """One request. wait: the answer may take as long as it likes. again: it only looks, so it is made a second time when its connection
        breaks, as it does when the daemon is restarted."""
        await self.greet()
        extra: dict[str, Any] = {"timeout": NO_TIMEOUT} if wait else {}
        tries = 2 if again or method == "GET" else 1
        while True:
            tries -= 1
            try:
                answer = await self.http.request(method, path, params=params, json=body, content=content, headers=headers, **extra)
                break
            except UnicodeEncodeError as error:
                raise no_text(error) from error
            except httpx.TransportError as error:
                if not tries or isinstance(error, httpx.TimeoutException):
                    raise self.unreachable(error) from error
        if answer.status_code >= 400:
            raise from_answer(answer.status_code, body_of(answer), answer.headers.get("x-request-id", ""))
        return answer

    async def call(self, method: str, path: str, **how: Any) -> dict[str, Any]:
        """One request whose answer is a JSON object, or nothing."""
        answer = await self.send(method, path, **how)
        if answer.status_code == 204 or not answer.content:
            return {}
        body = body_of(answer)
        if not isinstance(body, dict):
            raise WrongServer(f"the server at {self.at} answered {method} {path} not as Carrel does; is the address right?", code="wrong_server")
        return body

    @asynccontextmanager
    async def stream(self, method: str, path: str, *, params: dict[str, Any] | None = None, body: Any = None, content: Any = None,
                     headers: dict[str, str] | None = None, soon: bool = False) -> AsyncIterator[httpx.Response]:
        """One request whose answer is read as it comes. soon: it begins at once, and then takes its time."""
        await self.greet()
        self.streams += 1
        timeout = httpx.Timeout(None, connect=10.0, read=self.timeout if soon else None)
        try:
            async with self.http.stream(method, path, params=params, json=body, content=content, headers=headers, timeout=timeout) as answer:
                answer.request.extensions["timeout"]["read"] = None
                if answer.status_code >= 400:
                    await answer.aread()
                    raise from_answer(answer.status_code, body_of(answer), answer.headers.get("x-request-id", ""))
                yield answer
        except UnicodeEncodeError as error:
            raise no_text(error) from error
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        finally:
            self.streams -= 1

    async def text_lines(self, method: str, path: str, **how: Any) -> AsyncIterator[bytes]:
        """The lines of an answer, as they come."""
        async with self.stream(method, path, soon=True, **how) as answer:
            rest = b""
            async for piece in answer.aiter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line

    async def lines(self, path: str, *, method: str = "GET", **how: Any) -> AsyncGenerator[dict[str, Any], None]:
        """JSON objects, one a line, as they come."""
        async for line in self.text_lines(method, path, **how):
            if line.strip():
                yield stream_item(self.object_in(line))

    def object_in(self, line: bytes) -> dict[str, Any]:
        try:
            item = json.loads(line)
        except ValueError:
            item = None
        if not isinstance(item, dict):
            raise WrongServer(f"the server at {self.at} sent {line[:80]!r} in a stream, not as Carrel does", code="wrong_server")
        return item

    async def pages(self, path: str, member: str, **params: Any) -> AsyncIterator[dict[str, Any]]:
        """The items of a list that comes in pages."""
        wanted = {name: value for name, value in params.items() if value is not None}
        while True:
            answer = await self.call("GET", path, params=wanted)
            for item in answer[member]:
                yield item
            if not answer.get("next"):
                return
            wanted["cursor"] = answer["next"]


def no_text(error: UnicodeEncodeError) -> InvalidRequest:
    return InvalidRequest(f"{error.object!r} is no UTF-8; only paths of files, input and content may be anything else", code="invalid_request")


def body_of(answer: httpx.Response) -> Any:
    """The JSON that it holds; None: it holds none."""
    try:
        return answer.json()
    except ValueError:
        return None
