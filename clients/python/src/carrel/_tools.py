# SPDX-License-Identifier: Apache-2.0
"""The tools that a model is given, each written once: what it takes, and how it is done with and without await."""
from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from ._async.tools import AsyncTools
from ._sync.tools import Tools


class Execute(BaseModel):
    """Run a shell command in the workspace, whose root is /. The answer is its output; where it fails, also its exit status."""
    command: str = Field(description="a line for bash")
    timeout: int | None = Field(default=None, description="seconds after which it is ended", gt=0)


class ReadFile(BaseModel):
    """Read lines of a text file."""
    file_path: str = Field(description="absolute")
    offset: int = Field(default=0, description="lines to pass over", ge=0)
    limit: int = Field(default=2000, description="most lines", gt=0)


class WriteFile(BaseModel):
    """Write a file, whole; the directories above it are made."""
    file_path: str = Field(description="absolute")
    content: str


class EditFile(BaseModel):
    """Replace a text in a file. It must occur once, or replace_all be true."""
    file_path: str = Field(description="absolute")
    old_string: str
    new_string: str
    replace_all: bool = False


class Delete(BaseModel):
    """Delete a file, or a directory with all that is in it."""
    file_path: str = Field(description="absolute")


class Ls(BaseModel):
    """List a directory; names of directories end with a slash."""
    path: str = Field(default="/", description="absolute")


class Glob(BaseModel):
    """Find files by name, such as **/*.py."""
    pattern: str
    path: str = Field(default="/", description="absolute; below it")


class Grep(BaseModel):
    """Find a text, to the letter, in files."""
    pattern: str
    path: str = Field(default="/", description="absolute; below it")
    glob: str | None = Field(default=None, description="only in files of this name, such as *.py")


TOOLS: list[tuple[str, type[BaseModel], Any, Any]] = [
    ("execute", Execute, Tools.execute, AsyncTools.execute), ("read_file", ReadFile, Tools.read_file, AsyncTools.read_file),
    ("write_file", WriteFile, Tools.write_file, AsyncTools.write_file), ("edit_file", EditFile, Tools.edit_file, AsyncTools.edit_file),
    ("delete", Delete, Tools.delete, AsyncTools.delete), ("ls", Ls, Tools.ls, AsyncTools.ls), ("glob", Glob, Tools.glob, AsyncTools.glob),
    ("grep", Grep, Tools.grep, AsyncTools.grep),
]
