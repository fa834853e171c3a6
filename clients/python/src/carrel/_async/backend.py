# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from deepagents.backends.protocol import (DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileUploadResponse, GlobResult,
                                          GrepResult, LsResult, ReadResult, WriteResult)

from .. import _backend as say
from ..errors import CarrelError
from ..models import Ends
from .workspace import AsyncWorkspace

GLOB_MOST = 10_000
OUTPUT_MOST = 10 << 20  # bytes of a command's output, of which a model is shown a part at most
GREP_MOST = 100_000
GREP_SKIPS = (".git",)  # packed objects, in which nothing legible is found


class AsyncOperations:
    """The operations of a deepagents backend on one workspace."""

    def __init__(self, workspace: AsyncWorkspace, timeout: float | None) -> None:
        self.workspace = workspace
        self.files = workspace.files
        self.timeout = timeout

    async def execute(self, command: str, timeout: int | None) -> ExecuteResponse:
        try:
            kept = Ends(OUTPUT_MOST)
            result = await self.workspace.run(command, timeout=say.timeout_of(timeout, self.timeout), keep=False, on_output=kept.add)
        except CarrelError as error:  # the model reads why, and can do something else
            return ExecuteResponse(output=f"Error: {error}", exit_code=125)
        return say.execute_response(result, kept)

    async def ls(self, path: str) -> LsResult:
        try:
            return say.ls_result(await self.files.ls(path))
        except CarrelError as error:
            return say.ls_failed(path, error)

    async def read(self, path: str, offset: int, limit: int) -> ReadResult:
        try:
            entry = await self.files.stat(path, follow=True)
            if entry.type != "file":
                return ReadResult(error=f"File '{path}': not_a_file")
            if entry.size and limit <= 0:
                return say.no_lines()
            if not say.is_media(path):
                page = await self.files.lines(path, offset=max(0, offset), limit=max(1, limit))
                if not page.binary:
                    return say.read_page(path, page, entry.size or 0, max(0, offset))
            if (entry.size or 0) > say.BINARY_MOST:
                return say.too_large(path)
            return say.read_binary(path, await self.files.read_bytes(path))
        except CarrelError as error:
            return say.too_large(path) if error.code == "too_large" else say.read_failed(path, error)

    async def write(self, path: str, content: str) -> WriteResult:
        try:
            await self.files.write(path, content)
        except CarrelError as error:
            return say.write_failed(path, error)
        return WriteResult(path=path)

    async def edit(self, path: str, old: str, new: str, replace_all: bool) -> EditResult:
        try:
            return EditResult(path=path, occurrences=await self.files.edit(path, old, new, all=replace_all))
        except CarrelError as error:
            if error.code != "string_not_found" or "\n" not in old or "\r\n" in old:
                return say.edit_failed(path, old, error)
        try:  # a file with the line ends of Windows keeps them
            more = await self.files.edit(path, old.replace("\n", "\r\n"), new.replace("\n", "\r\n"), all=replace_all)
            return EditResult(path=path, occurrences=more)
        except CarrelError as error:
            return say.edit_failed(path, old, error)

    async def delete(self, path: str) -> DeleteResult:
        try:
            await self.files.rm(path, recursive=True)
        except CarrelError as error:
            return say.delete_failed(path, error)
        return DeleteResult(path=path)

    async def grep(self, pattern: str, path: str | None, glob: str | None, max_count: int | None) -> GrepResult:
        top = path or "/"
        try:
            found = await self.files.grep(pattern, top, globs=[glob] if glob else None, limit=GREP_MOST)
        except CarrelError as error:
            return GrepResult(error=str(error))
        below = len(top.rstrip("/"))
        return say.grep_result([m for m in found if not set(m.path[below:].split("/")) & set(GREP_SKIPS)], max_count, found.truncated)

    async def glob(self, pattern: str, path: str | None) -> GlobResult:
        try:
            return say.glob_result(await self.files.glob(pattern, path or "/", limit=GLOB_MOST + 1), GLOB_MOST)
        except CarrelError as error:
            return GlobResult(error=error.code or str(error))

    async def upload(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        wrong = [say.bad_path(path) for path, _ in files]
        good = [item for item, error in zip(files, wrong, strict=True) if error is None]
        done = iter(await self.files.write_list(good) if good else [])
        return say.uploaded([path for path, _ in files], [error if error else next(done) for error in wrong])

    async def download(self, paths: list[str]) -> list[FileDownloadResponse]:
        wrong = [say.bad_path(path) for path in paths]
        good = [path for path, error in zip(paths, wrong, strict=True) if error is None]
        done = iter(await self.files.read_many(good) if good else [])
        return say.downloaded(paths, [error if error else next(done) for error in wrong])
