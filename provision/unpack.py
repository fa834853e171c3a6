# SPDX-License-Identifier: Apache-2.0
"""Single files out of an archive (zip, tar.gz). Nothing in the archive says where anything goes: a member is taken by its
name, if it is asked for, to the place that is asked for."""
import os
import stat
import tarfile
import zipfile
import zlib

from words import Failure

BLOCK = 1 << 16
MOST = 1 << 30  # bytes of one member
MOST_MEMBERS = 1 << 16

BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


def plain_zip(archive):
    """(name, whether it is a plain file, how to open it) of each member."""
    for info in archive.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        yield info.filename, not info.is_dir() and kind in (0, stat.S_IFREG), lambda info=info: archive.open(info)


def plain_tar(archive):
    for info in archive:
        yield info.name, info.isreg(), lambda info=info: archive.extractfile(info)


def write(source, directory, to, name):
    """As a program (mode 0755)."""
    try:
        fd = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700, dir_fd=directory)
    except OSError as error:
        raise Failure(f"make '{to}'", error) from None
    with open(fd, "wb", buffering=0) as file:
        total = 0
        while True:
            try:
                piece = source.read(BLOCK)
            except BROKEN as error:
                raise Failure(f"{name} cannot be unpacked: {str(error)[:120] or 'it is damaged'}") from None
            if not piece:
                break
            total += len(piece)
            if total > MOST:
                raise Failure(f"{name} holds a file of more than 1 GiB")
            try:
                while piece:
                    piece = piece[file.write(piece):]
            except OSError as error:
                raise Failure(f"unpack {name}", error) from None
        try:
            os.fchmod(fd, 0o755)
            os.fsync(fd)
        except OSError as error:
            raise Failure(f"unpack {name}", error) from None


def members(file, name, wanted, directory):
    """All of `wanted`, {name in the archive: place below `directory`}, or a Failure; what was written by then is left.
    `name` is the archive's, for messages."""
    seen = set()
    try:
        file.seek(0)
        is_zip = name.endswith(".whl")
        archive = zipfile.ZipFile(file) if is_zip else tarfile.open(fileobj=file, mode="r:gz")
        with archive:
            for number, (member, is_plain, opened) in enumerate(plain_zip(archive) if is_zip else plain_tar(archive)):
                if number == MOST_MEMBERS:
                    raise Failure(f"{name} holds more than {MOST_MEMBERS} files")
                if member not in wanted:
                    continue
                if not is_plain:
                    raise Failure(f"'{member}' in {name} is no plain file")
                if member in seen:
                    raise Failure(f"'{member}' is in {name} twice")
                seen.add(member)
                with opened() as source:
                    write(source, directory, wanted[member], name)
    except BROKEN as error:
        raise Failure(f"{name} cannot be unpacked: {str(error)[:120] or 'it is damaged'}") from None
    for member in wanted:
        if member not in seen:
            raise Failure(f"'{member}' is missing in {name}")
