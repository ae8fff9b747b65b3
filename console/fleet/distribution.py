"""What the console serves on bulk links, by SHA-256: files of registered libraries and releases, and no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from agent.link.manifests import parse_manifest
from agent.link.store_errors import ManifestBad
from console.fleet.errors import LibraryNotServed
from shard_export.library.manifest import MANIFEST_NAME


class _Source(msgspec.Struct, frozen=True):
    path: Path
    size_bytes: int


class Distribution:
    """The index of what may be fetched. Registering is safe from any thread."""

    def __init__(self) -> None:
        self._libraries: dict[str, dict[str, _Source]] = {}
        self._files: dict[str, _Source] = {}

    def register(self, folder: Path) -> str:
        """Serve a library folder from now on; return its digest. Blocks on the disk.

        Raises LibraryNotServed when the manifest cannot be read or a file is missing or of another size. Hashes
        are not computed here (`fallow-export verify` does); the agent checks every file it gets.
        """
        path = folder / MANIFEST_NAME
        try:
            data = path.read_bytes()
            manifest = parse_manifest(data)
        except OSError as error:
            raise LibraryNotServed(f"{path} cannot be read ({error}); export the library again.") from error
        except ManifestBad as error:
            raise LibraryNotServed(f"{folder}: {error}") from error
        digest = hashlib.sha256(data).hexdigest()
        sources = {digest: _Source(path, len(data))}
        root = folder.resolve()
        for record in manifest.files():
            file = folder / record.path
            inside = file.resolve().is_relative_to(root)
            if not inside or not file.is_file() or file.stat().st_size != record.size_bytes:
                raise LibraryNotServed(
                    f"{file} is missing or not as the manifest says; run `fallow-export verify` and export it again."
                )
            sources[record.sha256] = _Source(file, record.size_bytes)
        self._libraries = {**self._libraries, digest: sources}
        return digest

    def unregister(self, digest: str) -> None:
        """Stop serving a library. Files that another library shares stay."""
        self._libraries = {name: sources for name, sources in self._libraries.items() if name != digest}

    def register_file(self, sha256: str, path: Path, size_bytes: int) -> None:
        """Serve a single file from now on; whoever gets it checks it."""
        self._files = {**self._files, sha256: _Source(path, size_bytes)}

    def unregister_file(self, sha256: str) -> None:
        """Stop serving a single file."""
        self._files = {name: source for name, source in self._files.items() if name != sha256}

    def find(self, sha256: str) -> tuple[Path, int] | None:
        """Return where a file lies and its size in bytes, or None when no registered library holds it."""
        for sources in (*self._libraries.values(), self._files):
            source = sources.get(sha256)
            if source is not None:
                return source.path, source.size_bytes
        return None
