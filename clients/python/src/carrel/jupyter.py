# SPDX-License-Identifier: Apache-2.0
"""A cell of a notebook that is run in a workspace:

    %load_ext carrel.jupyter

    %%carrel thread-1
    pip list
"""
from __future__ import annotations

from typing import Any

from ._sync.client import Carrel
from .models import Result


def carrel(line: str, cell: str) -> Result:
    """%%carrel WORKSPACE [PROGRAM]: the cell is a script for bash, or for that program, such as python3."""
    words = line.split()
    if not words or len(words) > 2:
        raise ValueError("write %%carrel WORKSPACE, or %%carrel WORKSPACE python3")
    with Carrel() as client:
        workspace = client.workspace(words[0])
        if len(words) == 1:
            return workspace.run(cell)
        return workspace.run([words[1], "-c" if words[1].startswith("python") else "-e", cell])


def load_ipython_extension(shell: Any) -> None:
    shell.register_magic_function(carrel, "cell", "carrel")
