# SPDX-License-Identifier: Apache-2.0
"""Trees as tar archives, in and out."""
from __future__ import annotations

import os
import tarfile
from typing import IO


def pack(local: str | os.PathLike[str], archive: IO[bytes]) -> None:
    """What is in a directory, without who owns it."""
    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(local)):
            tar.add(os.path.join(local, name), arcname=name, filter=anonymous)
    archive.seek(0)


def unpack(archive: IO[bytes], local: str | os.PathLike[str]) -> None:
    """Into a directory. The workspace's files are an agent's: links that lead out of it, devices and the like are refused."""
    os.makedirs(local, exist_ok=True)
    with tarfile.open(fileobj=archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(local, filter="data")
            return
        top = os.path.realpath(local)  # a Python without filters: the same rules
        for member in tar:
            target = os.path.realpath(os.path.join(top, member.name))
            leads = [target]
            if member.issym():
                leads.append(os.path.realpath(os.path.join(os.path.dirname(os.path.join(top, member.name)), member.linkname)))
            elif member.islnk():
                leads.append(os.path.realpath(os.path.join(top, member.linkname)))
            elif not (member.isfile() or member.isdir()):
                raise tarfile.TarError(f"{member.name!r} is a device or the like")
            if any(os.path.commonpath([top, path]) != top for path in leads):
                raise tarfile.TarError(f"{member.name!r} leads out of {top}")
            member.mode &= 0o755
            tar.extract(member, top, set_attrs=not member.issym())
