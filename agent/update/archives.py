"""The archive of a release: one gzipped tar of a program's folder, without a folder around it. Blocking.

What it holds is decided by whoever signed it, and bounded all the same: an entry lies below the folder it is unpacked
into and nowhere else, is a file, a folder or a symbolic link to something beside it, and all entries together are as
many and as large as the signed description says.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from agent.update.errors import ArchiveRefused
from agent.update.releases import MAX_ARCHIVE_BYTES, MAX_ENTRIES, MAX_UNPACKED_BYTES

_BLOCK_BYTES = 1 << 20
_PACKED_MODES = 0o755, 0o644
MAX_NAME_LETTERS = 1000
_COMPRESSION = 6


class Packed(msgspec.Struct, frozen=True):
    """What an archive holds; sizes in bytes."""

    size_bytes: int
    sha256: str
    unpacked_bytes: int
    entries: int


def pack(folder: Path, archive: Path) -> Packed:
    """Write the contents of a folder as an archive, the same bytes for the same contents. Raises ArchiveRefused."""
    unpacked = entries = 0
    with (
        archive.open("wb") as file,
        # Neither name nor time in the header.
        gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            member = _plain(tar.gettarinfo(path, path.relative_to(folder).as_posix()))
            _check(member)
            entries += 1
            unpacked += member.size
            if member.isfile():
                with path.open("rb") as content:
                    tar.addfile(member, content)
            else:
                tar.addfile(member)
    if not (0 < unpacked <= MAX_UNPACKED_BYTES and entries <= MAX_ENTRIES):
        raise ArchiveRefused(f"{folder} holds nothing, or too much for a release; look at what was built.")
    size, sha256 = measure(archive)
    if size > MAX_ARCHIVE_BYTES:
        raise ArchiveRefused(f"{archive.name} is larger than {MAX_ARCHIVE_BYTES >> 20} MiB; look at what was built.")
    return Packed(size, sha256, unpacked, entries)


def measure(path: Path) -> tuple[int, str]:
    """Return a file's size in bytes and SHA-256."""
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, folder: Path, signed: Packed) -> None:
    """Unpack into a new, empty folder. Raises ArchiveRefused for what was not signed so, or OSError.

    The archive's own bytes are compared with what was signed before the first of them is unpacked.
    """
    if archive.stat().st_size != signed.size_bytes or measure(archive)[1] != signed.sha256:
        raise ArchiveRefused("The archive is not the one that was signed, and nothing of it is used; fetch it again.")
    left = msgspec.structs.replace(signed)
    try:
        with gzip.open(archive, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                left = _counted(left, member)
                _place(tar, member, folder)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        raise ArchiveRefused(f"The archive cannot be unpacked ({error}); build the release again.") from None
    if left.entries or left.unpacked_bytes:
        raise ArchiveRefused("The archive holds less than was signed, and nothing of it is used; sign it again.")


def _counted(left: Packed, member: tarfile.TarInfo) -> Packed:
    left = msgspec.structs.replace(
        left, entries=left.entries - 1, unpacked_bytes=left.unpacked_bytes - (member.size if member.isfile() else 0)
    )
    if left.entries < 0 or left.unpacked_bytes < 0:
        raise ArchiveRefused("The archive holds more than was signed, and nothing of it is used; sign it again.")
    _check(member)
    return left


def _check(member: tarfile.TarInfo) -> None:
    if not (member.isfile() or member.isdir() or member.issym()):
        raise ArchiveRefused(f"The archive holds {member.name[:80]!r}, which is neither file, folder nor link.")
    if not is_inside(member.name):
        raise ArchiveRefused(f"The archive holds {member.name[:80]!r}, which would lie outside of its folder.")
    if member.issym():
        target = posixpath.join(posixpath.dirname(member.name), member.linkname)
        if member.linkname.startswith("/") or not is_inside(posixpath.normpath(target)):
            raise ArchiveRefused(f"The archive holds {member.name[:80]!r}, a link to outside of its folder.")


def is_inside(name: str) -> bool:
    """Say whether a name with slashes stays below its folder, on every system."""
    parts = name.split("/")
    odd = any(letter in name for letter in '\\:*?"<>|\0')
    return 0 < len(name) <= MAX_NAME_LETTERS and not odd and not any(part in ("", ".", "..") for part in parts)


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Make one entry. Its parents are real folders below `folder`: a link among them could lead elsewhere."""
    target = folder
    for part in member.name.split("/")[:-1]:
        target /= part
        if target.is_symlink():
            raise ArchiveRefused(f"The archive puts {member.name[:80]!r} behind a link, and nothing of it is used.")
        target.mkdir(exist_ok=True)
    target /= member.name.rpartition("/")[2]
    if member.isdir():
        if target.is_symlink():
            raise ArchiveRefused(f"The archive puts {member.name[:80]!r} behind a link, and nothing of it is used.")
        target.mkdir(exist_ok=True)
    elif member.issym():
        target.symlink_to(member.linkname)
    else:
        source = tar.extractfile(member)
        if source is None:
            raise ArchiveRefused(f"The archive holds {member.name[:80]!r} without contents.")
        with source, target.open("xb") as file:
            for block in _blocks(source):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        target.chmod(_PACKED_MODES[0] if member.mode & 0o100 else _PACKED_MODES[1])


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    while block := source.read(_BLOCK_BYTES):
        yield block


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made it, when, and what else differs from one build to the next."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = _PACKED_MODES[0] if member.isdir() or member.mode & 0o100 else _PACKED_MODES[1]
    if not member.isfile():
        member.size = 0
    return member
