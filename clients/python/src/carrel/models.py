# SPDX-License-Identifier: Apache-2.0
"""What the daemon answers, as objects that print well."""
from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from .errors import CommandFailed

T = TypeVar("T")


def text_or_bytes(item: dict[str, Any], name: str) -> bytes | None:
    """A member that comes as text, or in base64 where it is no UTF-8."""
    if name in item:
        return str(item[name]).encode()
    raw = item.get(f"{name}_b64")
    return base64.b64decode(raw) if raw is not None else None


def name_of(item: dict[str, Any], name: str = "path") -> str:
    """A path; bytes that are no UTF-8 become surrogates, as in os.fsdecode."""
    return os.fsdecode(text_or_bytes(item, name) or b"")


def path_field(path: str | bytes | os.PathLike[str], name: str = "path") -> dict[str, str]:
    """The other way: a path as a member of a request."""
    raw = os.fsencode(absolute(path))
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(raw).decode()}


def absolute(path: str | bytes | os.PathLike[str]) -> str:
    """Paths count from the workspace's root, where a command starts, too."""
    return "/" + "/".join(part for part in os.fsdecode(path).split("/") if part not in ("", "."))


def given(**members: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def path_url(path: str | bytes | os.PathLike[str]) -> str:
    return quote(os.fsencode(absolute(path)), safe="/")


@dataclass
class Result:
    """How a command ended, with its output."""
    exit_code: int
    reason: str
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    exec_id: str = ""
    signal: int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    truncated: bool = False
    duration_ms: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)
    denials: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, end: dict[str, Any], out: bytes, err: bytes) -> Result:
        named = {name: end[name] for name in ("exit_code", "reason", "exec_id", "signal", "timed_out", "oom_killed", "truncated",
                                              "duration_ms", "usage", "denials", "plan") if name in end}
        return cls(stdout_bytes=out, stderr_bytes=err, raw=end, **named)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    def check(self) -> Result:
        """Itself; raises CommandFailed where the status is not 0."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    def __str__(self) -> str:
        refused = "".join(f"\n[refused: {d['what']} ({d['rule']}); {d['fix']}]" for d in self.denials)
        state = "" if self.ok else f"\n[exit {self.exit_code}: {self.reason}]"
        return (self.stdout + self.stderr).rstrip("\n") + state + refused

    def _repr_html_(self) -> str:
        colour = "inherit" if self.ok else "#b00020"
        return (f"<pre style='margin:0'>{html.escape(self.stdout)}<span style='color:#b00020'>{html.escape(self.stderr)}</span></pre>"
                f"<small style='color:{colour}'>exit {self.exit_code} ({html.escape(self.reason)}), {self.duration_ms:.0f} ms</small>")


@dataclass(frozen=True)
class Output:
    """A piece of a command's output."""
    stream: str  # "stdout", "stderr", "pty"
    data: bytes
    offset: int
    text: str  # what of it is whole: a letter that is cut comes with the next piece


class Ends:
    """The first and the last of an output, whatever its size; between them something may be left out."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, output: Output) -> None:
        data = output.data
        self._size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[:-self._half]

    @property
    def missing(self) -> int:
        return self._size - len(self._head) - min(len(self._tail), self._half)

    def __bytes__(self) -> bytes:
        word = f"\n[... {self.missing} bytes are left out here ...]\n".encode() if self.missing else b""
        return bytes(self._head) + word + bytes(self._tail[-self._half:])


@dataclass(frozen=True)
class Entry:
    """Something in a directory."""
    path: str
    type: str
    size: int | None = None
    mode: str | None = None
    mtime: str | None = None
    etag: str | None = None
    target: str | None = None

    @classmethod
    def of(cls, item: dict[str, Any]) -> Entry:
        target = text_or_bytes(item, "target")
        return cls(name_of(item), item["type"], item.get("size"), item.get("mode"), item.get("mtime"), item.get("etag"),
                   None if target is None else os.fsdecode(target))

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"


class Found(list[T]):
    """What was found; truncated: there is more than was asked for."""

    def __init__(self, items: Iterable[T], truncated: bool) -> None:
        super().__init__(items)
        self.truncated = truncated


@dataclass(frozen=True)
class Match:
    """A line that grep found."""
    path: str
    line: int
    text: str


@dataclass(frozen=True)
class Page:
    """Some lines of a text file."""
    path: str
    content: str
    total_lines: int | None
    start_line: int | None
    end_line: int | None
    next_offset: int | None
    binary: bool
    etag: str
    data: bytes  # of a binary file

    @classmethod
    def of(cls, item: dict[str, Any]) -> Page:
        data = text_or_bytes(item, "content") or b""
        return cls(name_of(item), data.decode(errors="replace"), item["total_lines"], item["start_line"], item["end_line"],
                   item["next_offset"], item["binary"], item["etag"], data)


@dataclass(frozen=True)
class Change:
    """Something that happened to a file that is watched."""
    path: str
    event: str
    is_dir: bool
    to: str | None = None

    @classmethod
    def of(cls, item: dict[str, Any]) -> Change:
        to = text_or_bytes(item, "to")
        return cls(name_of(item), item["event"], item["is_dir"], None if to is None else os.fsdecode(to))


class Shown(str):
    """A text for a person, which a notebook shows as it is laid out."""

    def _repr_html_(self) -> str:
        return f"<pre style='margin:0'>{html.escape(self)}</pre>"


class Diff(str):
    """What would change, as `diff -u` says it."""

    COLOURS = {"+": "#0a7d28", "-": "#b00020", "@": "#5b5bd6"}

    def _repr_html_(self) -> str:
        lines = []
        for line in self.splitlines():
            colour = self.COLOURS.get(line[:1])
            lines.append(f"<span style='color:{colour}'>{html.escape(line)}</span>" if colour else html.escape(line))
        return "<pre style='margin:0'>" + "\n".join(lines) + "</pre>"


class Operations(list[dict[str, Any]]):
    """What a plan would do."""

    @staticmethod
    def line(item: dict[str, Any]) -> str:
        source = f"{name_of(item, 'from')} -> " if "from" in item or "from_b64" in item else ""
        return f"{item.get('op', '?'):8} {source}{name_of(item)}"

    def __str__(self) -> str:
        return "\n".join(self.line(item) for item in self)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(str(item.get('op', '?')))}</td><td style='text-align:left'>{html.escape(printable(self.line(item)[9:]))}</td></tr>"
                       for item in self)
        return f"<table>{rows}</table>"


def printable(text: str) -> str:
    """Without the surrogates that stand for bytes which are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()
