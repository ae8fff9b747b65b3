"""A layer library on disk: read it, check it, write it so that a half-written one is never taken for a whole one.

A build writes into a work folder `.NAME.partial` beside the target and renames it when everything, the manifest
last, is on the disk. Readers therefore see either no library or a complete one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from shard_export.library.errors import (
    DiskFull,
    ExportError,
    LibraryDamaged,
    LibraryError,
    LibraryExists,
    LibraryIncomplete,
    LibraryTooNew,
)
from shard_export.library.manifest import FORMAT_VERSION, MANIFEST_NAME, FileRecord, Manifest, encode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HASH_CHUNK_BYTES = 1 << 20
READ_ONLY = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
MAX_MANIFEST_BYTES = 64 << 20
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class _Version(msgspec.Struct):
    format_version: int


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex, reading it in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def record_of(folder: Path, relative: str) -> FileRecord:
    """Describe a file of a library folder by size and hash."""
    path = folder / relative
    return FileRecord(path=relative, size_bytes=path.stat().st_size, sha256=sha256_of(path))


def load_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a library, not its files.

    Raises LibraryIncomplete (no manifest), LibraryTooNew, LibraryDamaged (not a manifest, or contradicts itself).
    """
    path = folder / MANIFEST_NAME
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_MANIFEST_BYTES:
            raise LibraryDamaged(f"{path} is too big to be a manifest ({size_bytes} bytes); build the library again.")
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise LibraryIncomplete(
            f"{folder} holds no {MANIFEST_NAME}, so it is no finished layer library; build it with fallow-export build."
        ) from None
    try:
        version = msgspec.json.decode(raw, type=_Version).format_version
        if version > FORMAT_VERSION:
            raise LibraryTooNew(
                f"{folder} has library format {version} and this program reads up to {FORMAT_VERSION}; update Fallow."
            )
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LibraryDamaged(f"{path} cannot be read as a manifest ({error}); build the library again.") from None
    _check_consistent(manifest, path)
    return manifest


def verify_library(folder: Path) -> Manifest:
    """Check that a library is complete and unchanged: every file there, right size and hash, and nothing else.

    Raises LibraryIncomplete, LibraryDamaged or LibraryTooNew with the first fault found.
    """
    manifest = load_manifest(folder)
    records = manifest.files()
    for record in records:
        verify_file(folder, record)
    known = {record.path for record in records} | {MANIFEST_NAME}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if path.is_symlink() or (not path.is_dir() and relative not in known):
            raise LibraryDamaged(f"{path} does not belong to the library; move it away or build the library again.")
    return manifest


def verify_file(folder: Path, record: FileRecord) -> None:
    """Check one file against its record; raises LibraryIncomplete or LibraryDamaged."""
    path = folder / record.path
    if not path.is_file():
        raise LibraryIncomplete(f"{path} is missing; build the library again or copy the file from where it is whole.")
    size_bytes = path.stat().st_size
    if size_bytes != record.size_bytes or sha256_of(path) != record.sha256:
        raise LibraryDamaged(f"{path} differs from what was published (SHA-256); build the library again.")


def work_folder_of(out: Path) -> Path:
    """Name the folder a build of `out` works in."""
    return out.parent / f".{out.name}.partial"


def check_target(out: Path, *, replace: bool) -> None:
    """Raise LibraryExists unless `out` is free, or holds a library that may be replaced."""
    if not out.exists() and not out.is_symlink():
        return
    if out.is_dir() and not any(out.iterdir()):
        return
    try:
        load_manifest(out)
    except (LibraryError, OSError) as error:  # many a program has a manifest.json of its own
        what = "a newer layer library" if isinstance(error, LibraryTooNew) else "no layer library"
        raise LibraryExists(f"{out} exists and is {what}, so it is not touched; choose another folder.") from None
    if not replace:
        raise LibraryExists(f"{out} already holds a library; choose another folder or replace it with --force.")


def publish(work: Path, out: Path, manifest: Manifest, *, replace: bool = False) -> None:
    """Turn a finished work folder into the library `out`: sync the files, write the manifest, rename.

    A published library never changes: its files are read-only, and those that a library beside it holds already are
    stored once, as hard links.
    Raises LibraryExists when `out` was taken meanwhile, DiskFull, ExportError for other faults of the disk.
    """
    check_target(out, replace=replace)
    with disk_errors(out):
        for record in manifest.files():
            _sync(work / record.path)
        share_files(work, out.parent, manifest)
        write_synced(work / MANIFEST_NAME, encode_manifest(manifest))
        for name in [record.path for record in manifest.files()] + [MANIFEST_NAME]:
            (work / name).chmod(READ_ONLY)
        for folder in {(work / record.path).parent for record in manifest.files()} | {work}:
            _sync_folder(folder)
        if out.is_dir() and any(out.iterdir()):
            _swap(work, out)
        else:
            if out.is_dir():
                out.rmdir()  # Windows renames only onto nothing
            work.replace(out)
        _sync_folder(out.parent)


def share_files(work: Path, neighbours: Path, manifest: Manifest) -> int:
    """Replace files of `work` by hard links to equal ones of the libraries in `neighbours`; returns the bytes saved.

    A neighbour's file is read before it is trusted. Where the file system has no hard links nothing happens.
    """
    known = _files_of_libraries(neighbours)
    saved_bytes = 0
    for record in manifest.files():
        for path in known.get((record.sha256, record.size_bytes), ()):
            target = work / record.path
            with contextlib.suppress(OSError):
                if path.samefile(target) or sha256_of(path) != record.sha256:
                    continue
                link = target.with_name(f"{target.name}.link")
                link.unlink(missing_ok=True)
                link.hardlink_to(path)
                link.replace(target)
                saved_bytes += record.size_bytes
                break
    return saved_bytes


def _files_of_libraries(folder: Path) -> dict[tuple[str, int], list[Path]]:
    known: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(folder.glob(f"*/{MANIFEST_NAME}")):
        with contextlib.suppress(LibraryError, OSError):
            for record in load_manifest(path.parent).files():
                known.setdefault((record.sha256, record.size_bytes), []).append(path.parent / record.path)
    return known


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, read-only files too; what cannot be removed stays."""

    def retry_writable(remove: Callable[[str], object], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):  # Windows removes no read-only file, and none that is open
            Path(path).chmod(stat.S_IRUSR | stat.S_IWUSR)
            remove(path)

    shutil.rmtree(folder, onerror=retry_writable)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn the operating system's write errors into DiskFull or ExportError, with `target` in the sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise disk_full(target) from error
        raise ExportError(f"Writing {target} failed: {error.strerror or error}; check the disk and rights.") from error


def disk_full(target: Path, need_bytes: int = 0) -> DiskFull:
    """Make the DiskFull error for a library folder; `need_bytes` 0 means the room was used up while writing."""
    free_bytes = shutil.disk_usage(existing_parent(target)).free
    need = f"needs about {need_bytes / 1e9:.2f} GB" if need_bytes else "ran out of room"
    return DiskFull(
        f"The disk of {target} is full: the library {need} and {free_bytes / 1e9:.2f} GB are free; "
        "free some space or choose another disk."
    )


def existing_parent(path: Path) -> Path:
    """Return `path` or its nearest ancestor that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _swap(work: Path, out: Path) -> None:
    old = out.parent / f".{out.name}.old"
    if old.exists():
        remove_tree(old)
    out.replace(old)
    try:
        work.replace(out)
    except OSError:
        old.replace(out)
        raise
    remove_tree(old)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_consistent(manifest: Manifest, path: Path) -> None:
    names = [unit.name for unit in manifest.units]
    files = [record.path for record in manifest.files()]
    indexes = [unit.index for unit in manifest.units if unit.kind == "layer"]
    ropes = {unit.name for unit in manifest.units if unit.kind == "rope"}
    wanted = {unit.attention.rope for unit in manifest.units if unit.attention is not None and unit.attention.rope}
    faults = [
        (len(set(names)) != len(names), "a unit is named twice"),
        (len(set(files)) != len(files), "a file is named twice"),
        (sorted(indexes) != list(range(manifest.layer_count)), "layers are missing"),
        (not {"embed", "head"} <= set(names), "embed or head is missing"),
        (not wanted <= ropes, "a rope unit is missing"),
        (any(not _is_inside(name) for name in files), "a path leads out of the library"),
        (any(record.size_bytes < 0 for record in manifest.files()), "a size is negative"),
    ]
    for is_fault, what in faults:
        if is_fault:
            raise LibraryDamaged(f"{path} contradicts itself ({what}); build the library again.")


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\\" not in name and ":" not in name
