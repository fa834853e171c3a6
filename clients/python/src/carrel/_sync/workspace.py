# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..models import Output, Result, absolute
from .exec import Command
from .files import Files
from .plans import OpenPlan, Plan

if TYPE_CHECKING:
    from .client import Carrel


def exec_body(command: str | Sequence[str], *, cwd: str | None = None, env: dict[str, str] | None = None, stdin: str | bytes | None = None,
              stdin_open: bool = False, timeout: float | None = None, pty: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """A text is a line for bash, a list a program and its arguments. timeout in seconds, pty as (columns, rows)."""
    body: dict[str, Any] = {"command": command} if isinstance(command, str) else {"argv": list(command)}
    if isinstance(stdin, bytes):
        body["stdin_b64"] = base64.b64encode(stdin).decode()
    elif stdin is not None:
        body["stdin"] = stdin
    if timeout is not None:
        if timeout <= 0:
            raise ValueError("timeout: give seconds above 0, or leave it out for the policy's")
        body["timeout_ms"] = max(1, int(timeout * 1000))
    if pty is not None:
        body["pty"] = {"cols": pty[0], "rows": pty[1]}
    if stdin_open:
        body["stdin_open"] = True
    if cwd is not None:
        body["cwd"] = absolute(cwd)
    if env:
        body["env"] = env
    body.update({name: value for name, value in more.items() if value is not None})
    return body


class Workspace:
    """A workspace: a directory that its commands see as /, and whose files stay."""

    def __init__(self, client: Carrel, info: dict[str, Any]) -> None:
        self.client = client
        self.info = info
        self.id: str = info["id"]
        self.path = f"/v1/workspaces/{quote(self.id, safe='')}"
        self.files = Files(client, self.path)

    def __repr__(self) -> str:
        return f"<workspace {self.id}>"

    # --- commands ---

    def run(self, command: str | Sequence[str], *, check: bool = False, on_output: Callable[[Output], object] | None = None,
                  **how: Any) -> Result:
        """Runs a command to its end. how: cwd, env, stdin, timeout, pty, limits. check=True: another status than 0 is an error.
        on_output is called with every piece of output as it comes."""
        command_run = self.stream(command, **how)
        for output in command_run:
            if on_output:
                on_output(output)
        assert command_run.result is not None
        return command_run.result.check() if check else command_run.result

    def stream(self, command: str | Sequence[str], **how: Any) -> Command:
        """A command that begins when it is iterated over; each item is a piece of output, .result its end."""
        return Command(self.client, self.id, body=exec_body(command, **how))

    def start(self, command: str | Sequence[str], **how: Any) -> Command:
        """Starts a command in the background."""
        started = self.client.call("POST", f"{self.path}/exec", body={**exec_body(command, **how), "background": True})
        return Command(self.client, self.id, started["exec_id"])

    def command(self, exec_id: str) -> Command:
        """One that was started before, here or elsewhere."""
        return Command(self.client, self.id, exec_id)

    def execs(self, *, state: str | None = None) -> list[dict[str, Any]]:
        return [item for item in self.client.pages(f"{self.path}/exec", "execs", state=state)]

    # --- plans ---

    def plan(self) -> OpenPlan:
        """A plan to be made: `with ws.plan() as p: p.run("…")`. Nothing in the workspace changes until it is applied."""
        return OpenPlan(self)

    def plans(self, *, state: str | None = None) -> list[Plan]:
        return [Plan(self.client, item) for item in self.client.pages(f"{self.path}/plans", "plans", state=state)]

    def get_plan(self, id: str) -> Plan:
        return Plan(self.client, self.client.call("GET", f"{self.path}/plans/{quote(id, safe='')}"))

    def submit_plan(self, operations: dict[str, Any] | list[dict[str, Any]]) -> Plan:
        """A plan that is written, not run: {"moves": [...], "deletions": [...], "creations": [...], "validations": [...]}."""
        return Plan(self.client, self.client.call("POST", f"{self.path}/plans", body=operations, wait=True))

    # --- environments and ports ---

    def environments(self) -> dict[str, Any]:
        return self.client.call("GET", f"{self.path}/env")

    def make_python(self, *, version: str | None = None, clear: bool = False) -> dict[str, Any]:
        """A Python environment of its own, at /.venv."""
        wanted = {name: value for name, value in (("version", version), ("clear", clear or None)) if value is not None}
        return self.client.call("POST", f"{self.path}/env/python", body=wanted, wait=True)

    def make_node(self) -> dict[str, Any]:
        return self.client.call("POST", f"{self.path}/env/node", body={}, wait=True)

    def open_port(self, port: int, *, access: str = "key") -> dict[str, Any]:
        """An address under which a server inside is reached; access="token": by whoever has the address."""
        return self.client.call("POST", f"{self.path}/ports/{port}", body={"access": access})

    def close_port(self, port: int) -> None:
        self.client.call("DELETE", f"{self.path}/ports/{port}")

    def ports(self) -> list[dict[str, Any]]:
        return list((self.client.call("GET", f"{self.path}/ports"))["ports"])

    # --- itself ---

    def refresh(self) -> Workspace:
        self.info = self.client.call("GET", self.path)
        return self

    def update(self, **changes: Any) -> Workspace:
        """changes: policy, links, labels."""
        self.info = self.client.call("PATCH", self.path, body=changes)
        return self

    def sleep(self) -> None:
        """Ends its sandbox; the next command wakes it."""
        self.client.call("POST", f"{self.path}/sleep", wait=True)

    def delete(self, *, purge: bool = False) -> None:
        """Into the trash; purge=True: for good."""
        self.client.call("DELETE", self.path, params={"purge": 1} if purge else None, wait=True)
