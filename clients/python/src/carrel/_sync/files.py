# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
from __future__ import annotations

import base64
import io
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from .._archive import pack, unpack
from ..errors import CarrelError, ConnectionFailed, NotFound, Unauthorized, from_answer
from ..models import Change, Entry, Found, Match, Page, given, name_of, path_field, path_url, text_or_bytes

if TYPE_CHECKING:
    from .client import Carrel

Path = str | bytes | os.PathLike[str]
CHUNK = 1 << 20
BATCH = 16 << 20  # bytes of content in one call for many files; larger files go one by one


class Files:
    """The files of a workspace, as its commands see them; no process is started for any of these."""

    def __init__(self, client: Carrel, workspace: str) -> None:
        self._client = client
        self._path = workspace

    def _at(self, path: Path) -> str:
        return f"{self._path}/files{path_url(path)}"

    def _act(self, action: str, body: dict[str, Any], **how: Any) -> dict[str, Any]:
        return self._client.call("POST", f"{self._path}/files-{action}", body=body, **how)

    def _look(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._act(action, body, wait=True, again=True)

    # --- content ---

    def read(self, path: Path) -> str:
        return (self.read_bytes(path)).decode()

    def read_bytes(self, path: Path, *, start: int | None = None, end: int | None = None) -> bytes:
        """All of it, or the bytes from `start` up to and without `end`."""
        if start is not None and end is not None and end <= start:
            return b""
        ranged = start is not None or end is not None
        headers = {"Range": f"bytes={start or 0}-{'' if end is None else end - 1}"} if ranged else None
        return (self._client.send("GET", self._at(path), headers=headers, wait=True)).content

    def pieces(self, path: Path) -> Iterator[bytes]:
        """All of it, piece by piece: for what is larger than one wants in memory."""
        with self._client.stream("GET", self._at(path)) as answer:
            for piece in answer.iter_bytes(CHUNK):
                yield piece

    def lines(self, path: Path, *, offset: int = 0, limit: int = 2000) -> Page:
        """A page of lines; .next_offset is where the next one begins."""
        return Page.of(self._client.call("GET", self._at(path), params={"format": "text", "offset": offset, "limit": limit}))

    def write(self, path: Path, content: str | bytes, *, mode: int | None = None, append: bool = False,
                    if_match: str | None = None, new: bool = False) -> Entry:
        """The whole file, with the directories above it: on disk, all of it or nothing, when this returns. if_match: only while it has
        this etag; new=True: only where there is no file yet."""
        params: dict[str, Any] = {"parents": 1}
        if mode is not None:
            params["mode"] = f"{mode:04o}"
        if append:
            params["append"] = 1
        headers = {"If-Match": if_match} if if_match else {"If-None-Match": "*"} if new else None
        data = content.encode() if isinstance(content, str) else content
        return Entry.of(self._client.call("PUT", self._at(path), params=params, content=data, headers=headers, wait=True))

    def edit(self, path: Path, old: str, new: str, *, all: bool = False) -> int:
        """Puts `new` in the place of `old`, which must occur once unless all=True. Returns how many were replaced."""
        return int((self._act("edit", {**path_field(path), "old": old, "new": new, "all": all}))["occurrences"])

    def read_many(self, paths: Iterable[Path]) -> list[bytes | CarrelError]:
        """In the order of the paths: the content, or the error."""
        paths = list(paths)
        answer = self._look("read", {"paths": [path_field(path) for path in paths]})
        found = [from_answer(404, {"error": item["error"]}) if "error" in item else text_or_bytes(item, "content") or b"" for item in answer["results"]]
        for at, (path, item) in enumerate(zip(paths, found, strict=True)):
            if isinstance(item, CarrelError) and item.code == "too_large":  # for one call: it comes by itself
                try:
                    found[at] = self.read_bytes(path)
                except CarrelError as error:
                    found[at] = error
        return found

    def write_many(self, files: Mapping[str, str | bytes]) -> list[CarrelError | None]:
        """In the order of the files: None, or the error."""
        return self.write_list(list(files.items()))

    def write_list(self, files: Iterable[tuple[Path, str | bytes]]) -> list[CarrelError | None]:
        """As write_many, of pairs."""
        done: list[CarrelError | None] = []
        for some in batches(files, BATCH):
            if len(some) == 1:
                done.append(self._write_one(*some[0]))
                continue
            items = [{**path_field(path), **content_field(data)} for path, data in some]
            answer = self._act("write", {"files": items}, wait=True)
            done += [from_answer(409, {"error": item["error"]}) if "error" in item else None for item in answer["results"]]
        return done

    def _write_one(self, path: Path, data: str | bytes) -> CarrelError | None:
        try:
            self.write(path, data)
        except (ConnectionFailed, Unauthorized):  # of the call, not of the file
            raise
        except CarrelError as error:
            return error
        return None

    # --- what there is ---

    def ls(self, path: Path = "/", *, depth: int = 1) -> list[Entry]:
        found: list[Entry] = []
        params: dict[str, Any] = {"list": 1, "depth": depth}
        while True:
            answer = self._client.call("GET", self._at(path), params=params)
            found += [Entry.of(item) for item in answer["entries"]]
            if not answer.get("next"):
                return found
            params["cursor"] = answer["next"]

    def stat(self, path: Path, *, follow: bool = False) -> Entry:
        return Entry.of(self._client.call("GET", self._at(path), params={"stat": 1, "follow": int(follow)}))

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
        except NotFound:
            return False
        except CarrelError as error:
            if error.code == "not_a_directory":
                return False
            raise
        return True

    def glob(self, pattern: str, path: Path = "/", *, directories: bool = False, limit: int = 10000) -> Found[str]:
        """Paths of files, with directories=True also of directories, that match; a pattern without a slash does so at any depth."""
        entries = self.find(pattern, path, directories=directories, limit=limit)
        return Found([entry.path for entry in entries], entries.truncated)

    def find(self, pattern: str, path: Path = "/", *, directories: bool = False, limit: int = 10000) -> Found[Entry]:
        """As glob, with all facts."""
        wanted = given(pattern=pattern, limit=limit, directories=directories or None, **path_field(path))
        answer = self._look("glob", wanted)
        return Found([Entry.of(item) for item in answer["matches"]], answer["truncated"])

    def grep(self, pattern: str, path: Path = "/", *, regex: bool = False, ignore_case: bool = False, globs: list[str] | None = None,
                   limit: int | None = None) -> Found[Match]:
        """Lines with a text, or with a match of a regular expression; 1000 of them unless limit says otherwise, see .truncated."""
        wanted: dict[str, Any] = {"pattern": pattern, "regex": regex, "ignore_case": ignore_case, **path_field(path)}
        if globs:
            wanted["globs"] = globs
        if limit is not None:
            wanted["limit"] = limit
        answer = self._look("grep", wanted)
        lines = [Match(name_of(item), item["line"], (text_or_bytes(item, "text") or b"").decode(errors="replace")) for item in answer["matches"]]
        return Found(lines, answer["truncated"])

    def inventory(self, path: Path = "/", *, hash: bool = True) -> Iterator[dict[str, Any]]:
        """The whole tree below it, with a hash of each file; the last item is {"summary": …}, without which it is not whole."""
        summary = None
        for item in self._client.lines(f"{self._path}/files-inventory", method="POST", body={**path_field(path), "hash": hash}):
            summary = item.get("summary", summary)
            yield item
        if summary is None:
            raise ConnectionFailed("the inventory broke off before its end", code="connection_failed")

    def watch(self, path: Path = "/", *, recursive: bool = True) -> Iterator[Change]:
        """Changes as they happen; the first has the event "ready": nothing is missed from there on."""
        for item in self._client.lines(f"{self._path}/files-watch?path={path_url(path)}&recursive={int(recursive)}"):
            yield Change.of(item)

    # --- changes ---

    def mkdir(self, path: Path, *, parents: bool = True) -> None:
        self._act("mkdir", {**path_field(path), "parents": parents})

    def rm(self, path: Path, *, recursive: bool = False) -> None:
        self._client.call("DELETE", self._at(path), params={"recursive": 1} if recursive else None, wait=True)

    def mv(self, source: Path, target: Path, *, replace: bool = False, parents: bool = True) -> None:
        self._act("move", {**path_field(source, "from"), **path_field(target, "to"), "replace": replace, "parents": parents}, wait=True)

    def cp(self, source: Path, target: Path, *, replace: bool = False, parents: bool = True, recursive: bool = True) -> None:
        self._act("copy", {**path_field(source, "from"), **path_field(target, "to"), "replace": replace, "parents": parents,
                                 "recursive": recursive}, wait=True)

    def chmod(self, path: Path, mode: int, *, recursive: bool = False) -> None:
        self._act("chmod", {**path_field(path), "mode": f"{mode:04o}", "recursive": recursive}, wait=True)

    def symlink(self, path: Path, target: str, *, replace: bool = False) -> None:
        self._act("symlink", {**path_field(path), "target": target, "replace": replace, "parents": True})

    def repair(self, path: Path = "/") -> dict[str, Any]:
        """Makes what is below it the owner's again, to read, write and search."""
        return self._act("repair", path_field(path), wait=True)

    # --- trees ---

    def upload(self, local: str | os.PathLike[str], path: Path) -> None:
        """A file to that path, or what is in a directory into that one."""
        if not os.path.isdir(local):
            with open(local, "rb") as file:
                facts = os.fstat(file.fileno())
                self._client.call("PUT", self._at(path), params={"parents": 1, "mode": f"{facts.st_mode & 0o777:04o}"}, content=chunks(file),
                                        headers={"Content-Length": str(facts.st_size)}, wait=True)
            return
        self.mkdir(path)
        with tempfile.TemporaryFile() as archive:
            pack(local, archive)
            self.unpack(archive, path)

    def unpack(self, archive: IO[bytes] | bytes, path: Path = "/", *, format: str = "tar") -> dict[str, Any]:
        """An archive, tar or zip, below that directory; the answer says what was left out."""
        return self._client.call("POST", f"{self._path}/files-unpack?path={path_url(path)}&format={format}",
                                       content=archive if isinstance(archive, bytes) else chunks(archive),
                                       headers={"Content-Type": f"application/{'zip' if format == 'zip' else 'x-tar'}"}, wait=True)

    def download(self, path: Path, local: str | os.PathLike[str]) -> None:
        """The other way; nothing is written outside of `local`, whatever the workspace holds."""
        if not (self.stat(path, follow=True)).is_dir:
            with open(local, "wb") as file:
                for piece in self.pieces(path):
                    file.write(piece)
            return
        with tempfile.TemporaryFile() as archive:
            with self._client.stream("GET", self._at(path), params={"archive": "tar"}) as answer:
                for piece in answer.iter_bytes(CHUNK):
                    archive.write(piece)
            archive.seek(0)
            unpack(archive, local)

    def tar(self, path: Path = "/") -> tarfile.TarFile:
        """The tree below it, opened for reading."""
        answer = self._client.send("GET", self._at(path), params={"archive": "tar"}, wait=True)
        return tarfile.open(fileobj=io.BytesIO(answer.content))


def content_field(data: str | bytes) -> dict[str, str]:
    """Text as it is; what the daemon takes for no text, as base64."""
    if isinstance(data, str) and "\0" not in data:
        return {"content": data}
    return {"content_b64": base64.b64encode(data.encode() if isinstance(data, str) else data).decode()}


def batches(files: Iterable[tuple[Path, str | bytes]], most: int) -> Iterator[list[tuple[Path, str | bytes]]]:
    """In their order, so many at a time that their content is not more than that."""
    some: list[tuple[Path, str | bytes]] = []
    size = 0
    for path, data in files:
        if some and (size + len(data) > most or len(some) == 10000):
            yield some
            some, size = [], 0
        some.append((path, data))
        size += len(data)
    if some:
        yield some


def chunks(file: Any) -> Iterator[bytes]:
    while data := file.read(CHUNK):
        yield data
