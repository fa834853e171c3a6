# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterator, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..models import Output, Result, absolute, given, text_or_bytes
from .env import Env
from .exec import Command
from .files import Files, chunks
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
        self.env = Env(client, self.path)

    def __repr__(self) -> str:
        return f"<workspace {self.id}>"

    def _repr_html_(self) -> str:
        return f"<b>workspace {html.escape(self.id)}</b> of {html.escape(str(self.info.get('owner')))}: <i>{html.escape(str(self.info.get('state')))}</i>"

    # --- commands ---

    def run(self, command: str | Sequence[str], *, check: bool = False, on_output: Callable[[Output], object] | None = None,
                  **how: Any) -> Result:
        """Runs a command to its end. how: cwd, env, stdin, timeout, pty, limits, keep. check=True: another status than 0 is an error.
        on_output is called with every piece of output as it comes."""
        command_run = self.stream(command, **how)
        for output in command_run:
            if on_output:
                on_output(output)
        assert command_run.result is not None
        return command_run.result.check() if check else command_run.result

    def stream(self, command: str | Sequence[str], *, keep: bool = True, **how: Any) -> Command:
        """A command that begins when it is iterated over; each item is a piece of output, .result its end. keep=False: the result is
        without the output, so that there may be any amount of it."""
        return Command(self.client, self.id, body=exec_body(command, **how), keep=keep)

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

    # --- snapshots ---

    def snapshot(self, name: str | None = None) -> dict[str, Any]:
        """Keeps the files as they are now; commands that run stand still for that moment ("frozen_ms")."""
        return self.client.call("POST", f"{self.path}/snapshots", body=given(name=name), wait=True)

    def snapshots(self) -> list[dict[str, Any]]:
        """The oldest first."""
        return list((self.client.call("GET", f"{self.path}/snapshots"))["snapshots"])

    def get_snapshot(self, snapshot: str) -> dict[str, Any]:
        """By its id or name."""
        return self.client.call("GET", f"{self.path}/snapshots/{quote(snapshot, safe='')}")

    def fork(self, id: str | None = None, *, snapshot: str | None = None, **body: Any) -> Workspace:
        """A new workspace that starts with its files, as they are now or were in a snapshot (id or name); its own changes are kept apart."""
        made = (self.get_snapshot(snapshot) if snapshot is not None else self.snapshot())
        return self.client.create_workspace(id, fork={"workspace": self.id, "snapshot": made["id"]}, **body)

    def restore_snapshot(self, snapshot: str) -> Plan:
        """A plan by which the files become what they were in the snapshot (id or name). Nothing changes before it is applied."""
        made = self.client.call("POST", f"{self.path}/snapshots/{quote(snapshot, safe='')}/restore", body={}, wait=True)
        return Plan(self.client, made)

    def merge(self, fork: str, *, prefer: str | None = None, decided: dict[str, str] | None = None) -> Plan:
        """A plan that brings in what the fork has changed. Conflicts are refused, or decided for "ours" or "theirs", by path or all (`prefer`)."""
        made = self.client.call("POST", f"{self.path}/merge", body=given(fork=fork, prefer=prefer, decided=decided), wait=True)
        return Plan(self.client, made)

    def compare(self, start: str, end: str | None = None, *, workspace: str | None = None) -> list[dict[str, Any]]:
        """What two versions have different: snapshots, "now", of a fork "base"; `end` may be of another workspace."""
        body = {"from": start, **given(to=end, workspace=workspace)}
        return list((self.client.call("POST", f"{self.path}/compare", body=body, wait=True))["changes"])

    def delete_snapshot(self, snapshot: str) -> None:
        self.client.call("DELETE", f"{self.path}/snapshots/{quote(snapshot, safe='')}", wait=True)

    # --- ports ---

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

    def reset_system(self) -> None:
        """Removes what it has changed of its own system; it has to be asleep."""
        self.client.call("POST", f"{self.path}/reset-system", wait=True)

    def delete(self, *, purge: bool = False) -> None:
        """Into the trash, out of which Carrel.undelete() takes it; purge=True: for good."""
        self.client.call("DELETE", self.path, params={"purge": 1} if purge else None, wait=True)

    def backup(self, local: str | os.PathLike[str]) -> None:
        """Its whole tree, as a tar archive, into that file; which is not there when it breaks off."""
        part = f"{os.fspath(local)}.part"
        try:
            with open(part, "wb") as file:
                with self.client.stream("GET", f"{self.path}/backup") as answer:
                    for piece in answer.iter_bytes():
                        file.write(piece)
            os.replace(part, local)
        finally:
            if os.path.exists(part):
                os.unlink(part)

    def restore(self, local: str | os.PathLike[str]) -> Result:
        """What backup() wrote, over what is there; .ok says whether all of it was."""
        with open(local, "rb") as file:
            answer = self.client.call("POST", f"{self.path}/restore", content=chunks(file), headers={"Content-Type": "application/x-tar"},
                                            wait=True)
        return Result.of(answer, text_or_bytes(answer, "stdout") or b"", text_or_bytes(answer, "stderr") or b"")

    def events(self) -> Iterator[dict[str, Any]]:
        """What happens in it, as it happens."""
        for event in self.client.events(self.id):
            yield event

    def audit(self, **how: Any) -> Iterator[dict[str, Any]]:
        """Its records, oldest first; how: as Carrel.audit()."""
        for record in self.client.audit(workspace=self.id, **how):
            yield record
