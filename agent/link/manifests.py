"""Reading a library's manifest that came over the network: what could harm or confuse is refused here. No I/O.

A manifest names the files a stage folder is made of, so a path must stay inside the folder on every system, and no two
may be one; and it must be whole, so that whoever asks for a range of its layers finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from agent.link.parsing import UNREADABLE
from agent.link.store_errors import ManifestBad
from shard_export.library.counts import counted
from shard_export.library.manifest import FORMAT_VERSION, MANIFEST_NAME, FileRecord, Manifest

MAX_LAYERS = 4096
MAX_PATH_CHARS = 200
MAX_FILE_BYTES = 1 << 44
MAX_TOKENIZER_BYTES = 64 << 20
MAX_SIZE = 1 << 31
"""Of anything a manifest counts: far beyond real models, and what memory is reckoned with stays exact."""

TOKENIZER_NAME = "tokenizer.json"

_HEX = frozenset("0123456789abcdef")
_FORBIDDEN = frozenset('\\:*?"<>|')
_DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in "0123456789")])


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest that came over the network and refuse what could harm. Raises ManifestBad."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except UNREADABLE as error:
        raise ManifestBad(f"The library's manifest cannot be read ({error}); export the library again.") from None
    if manifest.format_version != FORMAT_VERSION:
        raise ManifestBad(
            f"The library has format {manifest.format_version}, this agent reads {FORMAT_VERSION}; update the agent."
        )
    _check_units(manifest)
    _check_sizes(manifest)
    _check_files(manifest.files())
    return manifest


def tokenizer_file(manifest: Manifest) -> FileRecord | None:
    """Return the file that says what the model's token ids mean; None: the library has none."""
    files = manifest.tokens.files
    return next((file for file in files if PurePosixPath(file.path).name == TOKENIZER_NAME), None)


def files_beside(manifest: Manifest, last: int) -> list[FileRecord]:
    """List what a stage with layers up to `last` needs beside its units: the tail keeps answers to grammars."""
    tokenizer = tokenizer_file(manifest) if last == manifest.layer_count else None
    return [tokenizer] if tokenizer is not None and tokenizer.size_bytes <= MAX_TOKENIZER_BYTES else []


def is_sha256(text: str) -> bool:
    """Whether a text is a SHA-256 in lower-case hex."""
    return len(text) == 64 and _HEX.issuperset(text)


def _check_units(manifest: Manifest) -> None:
    """Each layer once, one embed, one head, and every rope a layer uses."""
    if not 1 <= manifest.layer_count <= MAX_LAYERS:
        raise ManifestBad(
            f"The library's manifest speaks of {counted(manifest.layer_count, 'layer')}; export the library again."
        )
    names = {unit.name for unit in manifest.units}
    layers = [unit.index for unit in manifest.units if unit.kind == "layer"]
    ends = sorted(unit.name for unit in manifest.units if unit.kind in {"embed", "head"})
    ropes = {unit.name for unit in manifest.units if unit.kind == "rope"}
    used = {unit.attention.rope for unit in manifest.units if unit.attention is not None} - {""}
    whole = (
        len(names) == len(manifest.units)
        and sorted(layers) == list(range(manifest.layer_count))
        and ends == ["embed", "head"]
        and used <= ropes
    )
    if not whole:
        raise ManifestBad("The library's manifest lacks a unit or names one twice; export the library again.")


def _check_sizes(manifest: Manifest) -> None:
    counts = [manifest.hidden_size, manifest.vocab_size, manifest.context_tokens]
    for unit in manifest.units:
        if unit.attention is not None:
            attention = unit.attention
            counts += [attention.kv_heads, attention.k_head_size, attention.v_head_size, attention.window_tokens + 1]
    if not all(1 <= count <= MAX_SIZE for count in counts):
        raise ManifestBad("The library's manifest has a size that cannot be; export the library again.")


def _check_files(records: Iterable[FileRecord]) -> None:
    """Check every record, and that no path is another file's or lies below one, whatever the case of its letters."""
    paths, folders = dict[str, str](), set[str]()
    sizes = dict[str, int]()
    for record in records:
        if not is_sha256(record.sha256) or not 0 <= record.size_bytes <= MAX_FILE_BYTES:
            raise ManifestBad("The library's manifest has a file without a valid size and SHA-256; export it again.")
        if sizes.setdefault(record.sha256, record.size_bytes) != record.size_bytes:
            raise ManifestBad("The library's manifest gives one file two sizes; export it again.")
        path = PurePosixPath(record.path.casefold())
        if not _is_safe(record.path, path):
            raise ManifestBad("The library's manifest names a file outside its folder; do not use this library.")
        if paths.setdefault(str(path), record.sha256) != record.sha256:
            raise ManifestBad("The library's manifest gives two files one name; export it again.")
        folders.update(str(parent) for parent in path.parents)
    if not folders.isdisjoint(paths):
        raise ManifestBad("The library's manifest names a file as a folder; export it again.")


def _is_safe(text: str, path: PurePosixPath) -> bool:
    """Whether a path stays inside the folder and can be made on every system. `path` has its letters folded."""
    return (
        0 < len(text) <= MAX_PATH_CHARS
        and text.isprintable()
        and _FORBIDDEN.isdisjoint(text)
        and not path.is_absolute()
        and str(path) not in {".", MANIFEST_NAME}
        and not any(
            part.startswith(".") or part.endswith((".", " ")) or part.partition(".")[0] in _DEVICES
            for part in path.parts
        )
    )
