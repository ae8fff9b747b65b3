"""The agent's content-addressed store: every file of every library lies under its SHA-256, once. No network here.

Blocking; call it from a worker thread. One process per folder. A file appears under its name only after its bytes
were hashed and flushed; `.part` files are what a cut download left, and are continued where they end.

StoreError
 ├─ FileDamaged    the bytes that arrived are not the ones their name promises
 ├─ StoreFull      the disk has no room
 ├─ ManifestBad    a manifest cannot be used
 └─ StoreBroken    the folder cannot be read or written
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from shard_export.library.manifest import FORMAT_VERSION, MANIFEST_NAME, FileRecord, Manifest, Unit

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HASH_BLOCK_BYTES = 1 << 20
_RESERVE_BYTES = 64 << 20
"""Room left on the disk for everybody else."""


class StoreError(Exception):
    """Base of the tree: `str(error)` is one sentence saying what happened and what to do."""


class FileDamaged(StoreError):
    """The bytes that arrived are not the ones their name promises."""


class StoreFull(StoreError):
    """The disk has no room."""


class ManifestBad(StoreError):
    """A manifest cannot be used."""


class StoreBroken(StoreError):
    """The folder cannot be read or written."""


class Store:
    """Files by SHA-256 below `root/store`, stage folders of hard links below `root/stages`."""

    def __init__(self, root: Path) -> None:
        self._files = root / "store"
        self._stages = root / "stages"
        with _disk_errors():
            self._files.mkdir(parents=True, exist_ok=True)
            self._stages.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return where a file lies or would lie. Raises ManifestBad for what is not a SHA-256 in lower-case hex."""
        if not _SHA256.fullmatch(sha256):
            raise ManifestBad("A file is named by something that is not a SHA-256; export the library again.")
        return self._files / sha256[:2] / sha256

    def has(self, sha256: str, size_bytes: int | None = None) -> bool:
        """Whether a file is here, of the size it should have (a torn one is not)."""
        try:
            found = self.path(sha256).stat().st_size
        except OSError:
            return False
        return size_bytes is None or found == size_bytes

    def held(self) -> list[str]:
        """List the SHA-256 of every whole file."""
        with _disk_errors():
            return sorted(path.name for path in self._files.glob("??/*") if _SHA256.fullmatch(path.name))

    def read(self, sha256: str) -> bytes:
        """Return a small file's bytes, hashed again. Raises FileDamaged (the file is then gone) or StoreBroken."""
        with _disk_errors():
            data = self.path(sha256).read_bytes()
            if hashlib.sha256(data).hexdigest() != sha256:
                self.path(sha256).unlink(missing_ok=True)
                raise FileDamaged("A stored file changed on disk and was deleted; it is fetched again.")
        return data

    def open_part(self, sha256: str) -> Part:
        """Start or continue a download. Raises StoreBroken or StoreFull."""
        return Part(self.path(sha256), sha256)

    def require_room(self, size_bytes: int) -> None:
        """Raise StoreFull when `size_bytes` more would fill the disk."""
        with _disk_errors():
            free = shutil.disk_usage(self._files).free
        if free < size_bytes + _RESERVE_BYTES:
            raise StoreFull(
                f"The disk has {free >> 20} MiB free, but {size_bytes >> 20} MiB of model files and a reserve of "
                f"{_RESERVE_BYTES >> 20} MiB are needed; free some space."
            )

    def manifest(self, digest: str) -> Manifest:
        """Parse and check a stored manifest. Raises ManifestBad, FileDamaged or StoreBroken."""
        return parse_manifest(self.read(digest))

    def materialise(self, digest: str, units: Sequence[Unit], name: str) -> Path:
        """Build `stages/name` in the library's layout: the manifest and these units, as hard links (or copies).

        Links already right stay; the manifest comes last, so its presence means complete. Raises StoreError.
        """
        folder = self._stages / name
        files = [record for unit in units for record in (unit.xml, unit.bin)]
        with _disk_errors():
            for record in files:
                self._place(self.path(record.sha256), folder / record.path)
            self._place(self.path(digest), folder / MANIFEST_NAME)
        return folder

    def discard_stage(self, name: str) -> None:
        """Delete a stage folder; the files it linked stay in the store."""
        shutil.rmtree(self._stages / name, ignore_errors=True)

    def discard_all_stages(self) -> None:
        """Delete what a process that was killed left loaded. Only before the first stage is built."""
        for folder in self._stages.iterdir():
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _place(source: Path, target: Path) -> None:
        with contextlib.suppress(OSError):
            if target.samefile(source):
                return
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            fresh.hardlink_to(source)
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise
            shutil.copyfile(source, fresh)
        fresh.replace(target)


class Part:
    """A file being downloaded. `offset` is how many bytes are here; the next one is written there."""

    def __init__(self, target: Path, sha256: str) -> None:
        self._target = target
        self.sha256 = sha256
        self._path = target.with_name(target.name + ".part")
        self._hash = hashlib.sha256()
        self.offset = 0
        with _disk_errors():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self._path.open("ab+")
            self._file.seek(0)
            while block := self._file.read(_HASH_BLOCK_BYTES):
                self._hash.update(block)
                self.offset += len(block)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and keep it for later. Raises StoreFull or StoreBroken."""
        with _disk_errors():
            self._file.close()

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises StoreFull or StoreBroken."""
        with _disk_errors():
            self._file.write(data)
        self._hash.update(data)
        self.offset += len(data)

    def finish(self) -> None:
        """Check the hash, flush to disk and give the file its name. Raises FileDamaged (and deletes) or StoreError."""
        if self._hash.hexdigest() != self.sha256:
            self.discard()
            raise FileDamaged("A fetched file is not what its name promises and was deleted; check the network.")
        with _disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(self._target)

    def discard(self) -> None:
        """Delete what is here."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest that came over the network and refuse what could harm. Raises ManifestBad."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ManifestBad(f"The library's manifest cannot be read ({error}); export the library again.") from None
    if manifest.format_version != FORMAT_VERSION:
        raise ManifestBad(
            f"The library has format {manifest.format_version}, this agent reads {FORMAT_VERSION}; update the agent."
        )
    for record in manifest.files():
        _check_record(record)
    return manifest


def _check_record(record: FileRecord) -> None:
    path = PurePosixPath(record.path)
    unsafe = path.is_absolute() or not path.parts or ".." in path.parts or "\\" in record.path or ":" in record.path
    if unsafe or record.path == MANIFEST_NAME:
        raise ManifestBad("The library's manifest names a file outside its folder; do not use this library.")
    if record.size_bytes < 0 or not _SHA256.fullmatch(record.sha256):
        raise ManifestBad("The library's manifest has a file without a valid size and SHA-256; export it again.")


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull("The disk is full; free some space and try again.") from error
        raise StoreBroken(
            f"The model store cannot be used ({error.strerror or error}); check the folder's permissions and disk."
        ) from error
