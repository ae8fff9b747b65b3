"""Small libraries in the real layout, with made-up bytes: for storing, fetching and serving, not for inference."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from shard_export.library.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    Attention,
    Compression,
    FileRecord,
    Manifest,
    Tokens,
    Unit,
    encode_manifest,
)


def make_file(folder: Path, path: str, data: bytes) -> FileRecord:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return FileRecord(path, len(data), hashlib.sha256(data).hexdigest())


def make_library(folder: Path, *, layers: int = 4, unit_bytes: int = 3000, **fields: Any) -> tuple[Manifest, str]:
    """Write a library of `layers` units; return its manifest and digest."""

    def unit(name: str, kind: Any, index: int = -1, attention: Attention | None = None) -> Unit:
        data = hashlib.sha256(name.encode()).digest() * (unit_bytes // 32)
        return Unit(
            name,
            kind,
            index,
            xml=make_file(folder, f"units/{name}.xml", f"<net name='{name}'/>".encode()),
            bin=make_file(folder, f"units/{name}.bin", data),
            compression=Compression("none", 16.0),
            attention=attention,
        )

    attention = Attention("full", 1, 8, 8, rope="rope-full")
    units = [unit("rope-full", "rope"), unit("embed", "embed"), unit("head", "head")]
    units += [unit(f"{index:03}", "layer", index, attention) for index in range(layers)]
    values: dict[str, Any] = {
        "format_version": FORMAT_VERSION, "model_id": "small", "revision": "1", "family": "llama",
        "layer_count": layers, "hidden_size": 8, "vocab_size": 32, "context_tokens": 128, "units": units,
        "tokens": Tokens([make_file(folder, "tokenizer/tokenizer.json", b"{}")], [2], 1, None, True, ""),
        "versions": {},
    }  # fmt: skip
    manifest = Manifest(**(values | fields))
    data = encode_manifest(manifest)
    (folder / MANIFEST_NAME).write_bytes(data)
    return manifest, hashlib.sha256(data).hexdigest()
