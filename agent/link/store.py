"""The agent's content-addressed store: every file of every library lies under its SHA-256, once. No network here.

Blocking; call it from a worker thread. One process per folder. A file appears under its name only after its bytes
were hashed and flushed; `.part` files are what a cut download left, and are continued where they end.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from agent.link.manifests import is_sha256, parse_manifest
from agent.link.store_errors import FileDamaged, ManifestBad, StoreFull, disk_errors
from shard_export.library.manifest import MANIFEST_NAME, FileRecord, Manifest, Unit

_HASH_BLOCK_BYTES = 1 << 20
_RESERVE_BYTES = 64 << 20
"""Room left on the disk for everybody else."""


class Store:
    """Files by SHA-256 below `root/store`, stage folders of hard links below `root/stages`.

    `budget_bytes` bounds what lies in the store (0: only the disk does): files nobody used for longest make room for
    new ones. Files that are pinned never do.
    """

    def __init__(self, root: Path, budget_bytes: int = 0) -> None:
        self._budget_bytes = budget_bytes
        self._pins: dict[str, frozenset[str]] = {}
        self._files = root / "store"
        self._stages = root / "stages"
        with disk_errors():
            self._files.mkdir(parents=True, exist_ok=True)
            self._stages.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return where a file lies or would lie. Raises ManifestBad for what is not a SHA-256 in lower-case hex."""
        if not is_sha256(sha256):
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
        with disk_errors():
            return sorted(path.name for path in self._files.glob("??/*") if is_sha256(path.name))

    def read(self, sha256: str) -> bytes:
        """Return a small file's bytes, hashed again. Raises FileDamaged (the file is then gone) or StoreBroken."""
        with disk_errors():
            data = self.path(sha256).read_bytes()
            if hashlib.sha256(data).hexdigest() != sha256:
                self.path(sha256).unlink(missing_ok=True)
                raise FileDamaged("A stored file changed on disk and was deleted; it is fetched again.")
        return data

    def open_part(self, sha256: str) -> Part:
        """Start or continue a download. Raises StoreBroken or StoreFull."""
        return Part(self.path(sha256), sha256)

    def find(self, sha256: str) -> tuple[Path, int] | None:
        """Return where a whole file lies and its size in bytes, or None."""
        try:
            path = self.path(sha256)
            return path, path.stat().st_size
        except (ManifestBad, OSError):
            return None

    def pin(self, name: str, sha256: Iterable[str]) -> None:
        """Keep these files until `name` is pinned to others or unpinned. Thread-safe."""
        self._pins = {**self._pins, name: frozenset(sha256)}

    def unpin(self, name: str) -> None:
        """Let go of what only `name` kept. Thread-safe."""
        self._pins = {known: files for known, files in self._pins.items() if known != name}

    def make_room(self, size_bytes: int) -> list[str]:
        """Delete what was not used for longest until `size_bytes` more fit; return the files that are gone.

        Raises StoreFull when what may go is not enough; nothing is deleted then.
        """
        with disk_errors():
            lacking = self._lacking(size_bytes)
            if lacking <= 0:
                return []
            going: list[Path] = []
            for _, size, path in self._removable():
                going.append(path)
                lacking -= size
                if lacking <= 0:
                    break
            if lacking > 0:
                raise self._full(size_bytes)
            for path in going:
                path.unlink(missing_ok=True)
        return [path.name for path in going if is_sha256(path.name)]

    def _lacking(self, size_bytes: int) -> int:
        free = shutil.disk_usage(self._files).free
        lacking = size_bytes + _RESERVE_BYTES - free
        if self._budget_bytes:
            used = sum(path.stat().st_size for path in self._files.glob("??/*"))
            lacking = max(lacking, used + size_bytes - self._budget_bytes)
        return lacking

    def _removable(self) -> list[tuple[float, int, Path]]:
        pinned = frozenset().union(*self._pins.values())
        found = []
        for path in self._files.glob("??/*"):
            if path.name.partition(".")[0] not in pinned:
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _full(self, size_bytes: int) -> StoreFull:
        free = shutil.disk_usage(self._files).free
        budget = f" of a budget of {self._budget_bytes >> 20} MiB" if self._budget_bytes else ""
        return StoreFull(
            f"{size_bytes >> 20} MiB of model files{budget} and a reserve of {_RESERVE_BYTES >> 20} MiB are needed, "
            f"the disk has {free >> 20} MiB free and what else is stored is in use; free some space or raise store_gb."
        )

    def manifest(self, digest: str) -> Manifest:
        """Parse and check a stored manifest. Raises ManifestBad, FileDamaged or StoreBroken."""
        return parse_manifest(self.read(digest))

    def materialise(self, digest: str, units: Sequence[Unit], name: str, extra: Sequence[FileRecord] = ()) -> Path:
        """Build `stages/name` in the library's layout: the manifest, these units and files, as hard links (or copies).

        Links already right stay; the manifest comes last, so its presence means complete. Raises StoreError.
        """
        folder = self._stages / name
        files = [*(record for unit in units for record in (unit.xml, unit.bin)), *extra]
        names = {digest, *(record.sha256 for record in files)}
        self.pin(_stage_pin(name), names)
        with disk_errors():
            for file in names:
                os.utime(self.path(file))  # the time of the last use: what was not used for longest goes first
            for record in files:
                self._place(self.path(record.sha256), folder / record.path)
            self._place(self.path(digest), folder / MANIFEST_NAME)
        return folder

    def discard_stage(self, name: str) -> None:
        """Delete a stage folder; the files it linked stay in the store, but may make room for others."""
        self.unpin(_stage_pin(name))
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
        fresh = target.with_name(f".{target.name}.new")  # no file of a library begins with a dot
        fresh.unlink(missing_ok=True)
        try:
            fresh.hardlink_to(source)
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise
            shutil.copyfile(source, fresh)
        fresh.replace(target)


def _stage_pin(name: str) -> str:
    return f"stage {name}"


class Part:
    """A file being downloaded. `offset` is how many bytes are here; the next one is written there."""

    def __init__(self, target: Path, sha256: str) -> None:
        self._target = target
        self.sha256 = sha256
        self._path = target.with_name(target.name + ".part")
        self._hash = hashlib.sha256()
        self.offset = 0
        with disk_errors():
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
        with disk_errors():
            self._file.close()

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises StoreFull or StoreBroken."""
        with disk_errors():
            self._file.write(data)
        self._hash.update(data)
        self.offset += len(data)

    def finish(self) -> None:
        """Check the hash, flush to disk and give the file its name. Raises FileDamaged (and deletes) or StoreError."""
        if self._hash.hexdigest() != self.sha256:
            self.discard()
            raise FileDamaged("A fetched file is not what its name promises and was deleted; check the network.")
        with disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(self._target)

    def discard(self) -> None:
        """Delete what is here."""
        self._file.close()
        self._path.unlink(missing_ok=True)
