# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ..models import Ends
from .workspace import AsyncWorkspace

MOST = 1000  # names or lines in one answer
OUTPUT_MOST = 192 << 10  # bytes of a command's output


class AsyncTools:
    """What each tool of a model does, and says."""

    @staticmethod
    async def execute(workspace: AsyncWorkspace, command: str, timeout: int | None = None) -> str:
        kept = Ends(OUTPUT_MOST)
        result = await workspace.run(command, timeout=timeout, keep=False, on_output=kept.add)
        result.stdout_bytes = bytes(kept)  # both streams, in the order in which they came
        return str(result) or "(no output)"

    @staticmethod
    async def read_file(workspace: AsyncWorkspace, file_path: str, offset: int = 0, limit: int = 2000) -> str:
        page = await workspace.files.lines(file_path, offset=offset, limit=limit)
        if page.binary:
            return f"{file_path} is no text"
        if page.start_line is None:
            return f"{file_path} has {page.total_lines or 0} lines"
        more = f"\n[go on with offset {page.next_offset}]" if page.next_offset is not None else ""
        return page.content + more

    @staticmethod
    async def write_file(workspace: AsyncWorkspace, file_path: str, content: str) -> str:
        await workspace.files.write(file_path, content)
        return f"wrote {file_path}"

    @staticmethod
    async def edit_file(workspace: AsyncWorkspace, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        count = await workspace.files.edit(file_path, old_string, new_string, all=replace_all)
        return f"replaced {count} in {file_path}"

    @staticmethod
    async def delete(workspace: AsyncWorkspace, file_path: str) -> str:
        await workspace.files.rm(file_path, recursive=True)
        return f"deleted {file_path}"

    @staticmethod
    async def ls(workspace: AsyncWorkspace, path: str = "/") -> str:
        return listed([f"{entry.path}/" if entry.is_dir else entry.path for entry in await workspace.files.ls(path)])

    @staticmethod
    async def glob(workspace: AsyncWorkspace, pattern: str, path: str = "/") -> str:
        return listed(await workspace.files.glob(pattern, path, limit=MOST + 1))

    @staticmethod
    async def grep(workspace: AsyncWorkspace, pattern: str, path: str = "/", glob: str | None = None) -> str:
        found = await workspace.files.grep(pattern, path, globs=[glob] if glob else None, limit=MOST + 1)
        return listed([f"{match.path}:{match.line}:{match.text}" for match in found])


def listed(lines: list[str]) -> str:
    more = "\n[there are more]" if len(lines) > MOST else ""
    return ("\n".join(lines[:MOST]) or "(nothing)").encode(errors="replace").decode() + more
