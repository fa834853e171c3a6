# SPDX-License-Identifier: Apache-2.0
"""What deepagents says of files and what Carrel says, translated: no input, no output."""
from __future__ import annotations

import base64
import os

from deepagents.backends.protocol import (DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileInfo, FileUploadResponse, GlobResult,
                                          GrepMatch, GrepResult, LsResult, ReadResult, WriteResult)

from .errors import CarrelError, FileNotFound
from .models import Ends, Entry, Match, Page, Result, printable

BINARY_MOST = 512_000
EMPTY = "System reminder: File exists but has empty contents"
# Kinds that a model looks at, and does not read line by line.
MEDIA = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".heic", ".heif", ".bmp", ".tiff", ".mp3", ".wav", ".ogg", ".flac", ".aac", ".aiff", ".m4a",
         ".mp4", ".mov", ".avi", ".mkv", ".webm", ".mpeg", ".mpg", ".wmv", ".flv", ".3gpp", ".pdf", ".ppt", ".pptx"}
TRUNCATED = ("\n\n[Output was truncated due to size limits. This paginated read result exceeded the sandbox stdout limit. "
             "Continue reading with a larger offset or smaller limit to inspect the rest of the file.]")
# Words of the daemon's that the protocol has others for.
FILE_CODES = {"not_a_directory": "invalid_path", "invalid_request": "invalid_path", "forbidden": "permission_denied"}


def is_media(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in MEDIA


def file_error(error: CarrelError) -> str:
    """As the responses to uploads and downloads say it."""
    return FILE_CODES.get(error.code, error.code or str(error))


def execute_response(result: Result, output: Ends) -> ExecuteResponse:
    refused = "".join(f"\n[refused: {d['what']} ({d['rule']}); {d['fix']}]" for d in result.denials if result.exit_code)
    return ExecuteResponse(output=bytes(output).decode(errors="replace") + refused, exit_code=result.exit_code,
                           truncated=result.truncated or output.missing > 0)


def no_lines() -> ReadResult:
    return ReadResult(file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True)


def read_failed(path: str, error: CarrelError) -> ReadResult:
    code = {"is_directory": "not_a_file", "not_a_directory": "file_not_found"}.get(error.code, error.code or str(error))
    return ReadResult(error=f"File '{path}': {code}")


def read_binary(path: str, data: bytes) -> ReadResult:
    if not data:
        return ReadResult(file_data={"content": EMPTY, "encoding": "utf-8"})
    return ReadResult(file_data={"content": base64.b64encode(data).decode(), "encoding": "base64"})


def too_large(path: str) -> ReadResult:
    return ReadResult(error=f"File '{path}': Binary file exceeds maximum preview size of {BINARY_MOST} bytes")


def read_page(path: str, page: Page, size: int, offset: int) -> ReadResult:
    if size == 0:
        return ReadResult(file_data={"content": EMPTY, "encoding": "utf-8"})
    if page.start_line is None:
        return ReadResult(error=f"File '{path}': Line offset {offset} exceeds file length ({page.total_lines or 0} lines)")
    return ReadResult(file_data={"content": page.content.removesuffix("\n"), "encoding": "utf-8"}, total_lines=page.total_lines, start_line=page.start_line,
                      end_line=page.end_line, next_offset=page.next_offset)


def ls_result(entries: list[Entry]) -> LsResult:
    return LsResult(entries=[file_info(entry) for entry in entries])


def ls_failed(path: str, error: CarrelError) -> LsResult:
    code = "path_not_found" if isinstance(error, FileNotFound) else error.code or str(error)
    return LsResult(error=f"Path '{path}': {code}")


def file_info(entry: Entry) -> FileInfo:
    info: FileInfo = {"path": printable(entry.path), "is_dir": entry.is_dir}
    if entry.size is not None:
        info["size"] = entry.size
    if entry.mtime is not None:
        info["modified_at"] = entry.mtime
    return info


def write_failed(path: str, error: CarrelError) -> WriteResult:
    return WriteResult(error=f"Failed to write file '{path}': {file_error(error)}")


def edit_failed(path: str, old: str, error: CarrelError) -> EditResult:
    said = {"file_not_found": f"Error: File '{path}' not found", "permission_denied": f"Error: Permission denied editing file '{path}'",
            "not_a_file": f"Error: '{path}' is not a regular file", "is_directory": f"Error: '{path}' is not a regular file",
            "not_a_text_file": f"Error: File '{path}' is not a text file", "string_not_found": f"Error: String not found in file: '{old}'",
            "multiple_occurrences": f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."}
    return EditResult(error=said.get(error.code, f"Error editing file '{path}': {error}"))


def delete_failed(path: str, error: CarrelError) -> DeleteResult:
    if isinstance(error, FileNotFound):
        return DeleteResult(error=f"Error: '{path}' not found")
    return DeleteResult(error=f"Error deleting file '{path}': {error}")


def grep_result(matches: list[Match], most: int | None, cut: bool) -> GrepResult:
    found: list[GrepMatch] = [{"path": printable(match.path), "line": match.line, "text": match.text} for match in matches]
    if most is not None and len(found) > most:
        return GrepResult(matches=found[:most], truncated=True)
    return GrepResult(matches=found, truncated=cut)


def glob_result(paths: list[str], most: int) -> GlobResult:
    cut = len(paths) > most
    return GlobResult(matches=[{"path": printable(path), "is_dir": False} for path in paths[:most]], truncated=cut, truncation_reason="budget" if cut else None)


def uploaded(paths: list[str], failures: list[CarrelError | None]) -> list[FileUploadResponse]:
    return [FileUploadResponse(path=path, error=file_error(failure) if failure else None) for path, failure in zip(paths, failures, strict=True)]


def downloaded(paths: list[str], contents: list[bytes | CarrelError]) -> list[FileDownloadResponse]:
    return [FileDownloadResponse(path=path, error=file_error(content)) if isinstance(content, CarrelError)
            else FileDownloadResponse(path=path, content=content) for path, content in zip(paths, contents, strict=True)]


def timeout_of(seconds: int | None, default: float | None) -> float | None:
    """0 is no bound of ours: the workspace's policy has one."""
    return default if seconds is None else float(seconds) or None


def bad_path(path: str) -> CarrelError | None:
    if not path.startswith("/"):
        return CarrelError("give an absolute path", code="invalid_path")
    return None


