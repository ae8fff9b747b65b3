"""What a build has finished, so that a killed one goes on at its first unfinished layer with identical bytes.

A step is the embedding (index -1) or a layer. When its unit is written and checked, the parity chains behind it are
saved and one line is appended that names both with their SHA-256. Nothing here is trusted when it is read again: a
line counts only if every file it names still has the promised bytes, so a torn write costs one step, not the library.
The first line is the key: source, options and versions. Work under another key is thrown away.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import shard_export
from shard_export.library.errors import LibraryError
from shard_export.library.manifest import FileRecord, Unit
from shard_export.library.store import record_of, remove_tree, verify_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EMBED = -1
PACKAGES = ("fallow", "numpy", "openvino", "torch", "transformers")
_JOURNAL = "journal.jsonl"

Array = np.ndarray[Any, Any]


class Key(msgspec.Struct, frozen=True):
    """What decides the bytes of a library."""

    source: dict[str, tuple[int, int]]
    options: Any
    versions: dict[str, str]

    def difference(self, other: Key) -> str:
        """Name what changed between two keys, as the end of a sentence; empty when they are the same."""
        pairs = (("the model's files", "source"), ("the options", "options"), ("the exporter", "versions"))
        changed = [words for words, name in pairs if getattr(self, name) != getattr(other, name)]
        return " and ".join(changed)


class Step(msgspec.Struct, frozen=True):
    """One finished step: its unit and the chains behind it."""

    index: int
    unit: Unit
    chains: FileRecord


class Journal:
    """The finished steps in `folder` of the library in `library`; both are made if need be."""

    def __init__(self, folder: Path, library: Path, key: Key) -> None:
        self._folder, self._library, self._key = folder, library, key
        self.restarted_because = ""
        self.steps: list[Step] = []
        if folder.exists() or library.exists():
            self._read()
        if not self.steps:
            for place in (folder, library):
                if place.exists():
                    remove_tree(place)
        for place in (folder, library / "units"):
            place.mkdir(parents=True, exist_ok=True)
        self._rewrite()

    @property
    def finished_layers(self) -> int:
        """How many layers are finished, counted from the first."""
        return sum(step.index >= 0 for step in self.steps)

    @property
    def size_bytes(self) -> int:
        """How much of the library is on the disk already."""
        return sum(step.unit.size_bytes for step in self.steps)

    def chains(self) -> list[Array]:
        """Read the chains behind the last finished step."""
        with np.load(self._folder / self.steps[-1].chains.path, allow_pickle=False) as arrays:
            return [arrays[name] for name in arrays.files]

    def add(self, index: int, unit: Unit, chains: Sequence[Array]) -> None:
        """Note a finished step; its unit's files must be written."""
        name = _chains_name(index)
        np.savez(self._folder / name, *chains)
        self.steps.append(Step(index, unit, record_of(self._folder, name)))
        with (self._folder / _JOURNAL).open("ab") as file:
            file.write(msgspec.json.encode(self.steps[-1]) + b"\n")
        # The one before stays: if this one turns out torn, the build goes back by one step.
        (self._folder / _chains_name(index - 2)).unlink(missing_ok=True)

    def _read(self) -> None:
        lines = _lines(self._folder / _JOURNAL)
        try:
            known = msgspec.json.decode(next(lines, b""), type=Key)
        except msgspec.DecodeError:
            self.restarted_because = "its journal cannot be read"
            return
        if difference := known.difference(self._key):
            self.restarted_because = f"{difference} changed"
            return
        steps = list(_whole_steps(lines, self._library))
        while steps and not _is_whole(self._folder, steps[-1].chains):
            steps.pop()
        self.steps = steps

    def _rewrite(self) -> None:
        """Leave only what counts: no torn line, no unit that the journal does not name."""
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in (self._key, *self.steps))
        fresh = self._folder / f"{_JOURNAL}.new"
        fresh.write_bytes(content)
        fresh.replace(self._folder / _JOURNAL)
        named = {record.path for step in self.steps for record in (step.unit.xml, step.unit.bin)}
        for path in self._library.rglob("*"):
            if path.is_file() and path.relative_to(self._library).as_posix() not in named:
                path.unlink()


def make_key(source: Path, options: Any) -> Key:
    """Describe the source by its files' names, sizes and times, and the exporter by its versions and its own code."""
    folder = source if source.is_dir() else source.parent
    files = sorted(path for path in (folder.iterdir() if source.is_dir() else [source]) if path.is_file())
    stats = {path.name: path.stat() for path in files}
    return Key(
        source={name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()},
        options=msgspec.to_builtins(options),
        versions={**versions(), "code": _code_digest()},
    )


def versions() -> Mapping[str, str]:
    """Return the versions of the packages that decide a library's bytes."""
    return {name: metadata.version(name) for name in PACKAGES}


@functools.cache
def _code_digest() -> str:
    root = Path(shard_export.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _chains_name(index: int) -> str:
    return f"chains-{index:03d}.npz"


def _lines(path: Path) -> Iterator[bytes]:
    if path.is_file():
        # A line without its end is one that was being written.
        yield from (line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))


def _whole_steps(lines: Iterator[bytes], library: Path) -> Iterator[Step]:
    """Yield steps, in order and without a gap, as long as their unit's files are what the line says."""
    for index, line in enumerate(lines, EMBED):
        try:
            step = msgspec.json.decode(line, type=Step)
        except msgspec.DecodeError:
            return
        if step.index != index or not all(_is_whole(library, file) for file in (step.unit.xml, step.unit.bin)):
            return
        yield step


def _is_whole(folder: Path, record: FileRecord) -> bool:
    try:
        verify_file(folder, record)
    except LibraryError:
        return False
    return True
