"""A tiny random model as a real layer library: pure OpenVINO graphs with true attention, loaded in milliseconds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

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

HIDDEN, HEADS, HEAD_SIZE, VOCAB = 32, 2, 16, 64


def toy_library(
    folder: Path, *, layers: int = 3, windows: Sequence[int] = (), seed: int = 0, softcap: bool = False
) -> Manifest:
    """Write a library and return its manifest.

    `windows[i]` > 0 makes layer i a sliding one; `softcap` bends the scores, which no fused attention expresses.
    """
    rng = np.random.default_rng(seed)
    units = [
        _save(folder, "rope-full", "rope", _rope()),
        _save(folder, "embed", "embed", _embed(rng)),
        _save(folder, "head", "head", _head(rng)),
    ]
    for index in range(layers):
        window = windows[index] if index < len(windows) else 0
        attention = Attention("sliding" if window else "full", HEADS, HEAD_SIZE, HEAD_SIZE, "rope-full", window)
        units.append(
            _save(folder, f"{index:03}", "layer", layer_graph(rng, softcap=softcap), index=index, attention=attention)
        )
    manifest = Manifest(
        FORMAT_VERSION, "toy", "1", "toy", layers, HIDDEN, VOCAB, 512, units, Tokens([], [2], 1, None, False, ""), {}
    )
    write_manifest(folder, manifest)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(manifest))


def replace_unit(folder: Path, manifest: Manifest, name: str, model: ov.Model) -> Manifest:
    """Write another graph in a unit's place, with a manifest that agrees with the files."""
    old = manifest.unit(name)
    new = _save(folder, name, old.kind, model, index=old.index, attention=old.attention)
    fields = {field: getattr(manifest, field) for field in manifest.__struct_fields__}
    changed = Manifest(**fields | {"units": [new if unit.name == name else unit for unit in manifest.units]})
    write_manifest(folder, changed)
    return changed


def layer_graph(rng: np.random.Generator, *, out: str = "out", heads: int = HEADS, softcap: bool = False) -> ov.Model:
    """Attention with rotary embedding and a gated residual: the ports of a decoder-layer unit."""
    hidden = _port("hidden", [-1, -1, HIDDEN])
    mask = _port("mask", [-1, 1, -1, -1])
    cos, sin = (_port(name, [-1, -1, HEAD_SIZE]) for name in ("cos", "sin"))
    past = {letter: _port(f"past_{letter}", [-1, heads, -1, HEAD_SIZE]) for letter in "kv"}
    split = {}
    for letter in "qkv":
        flat = op.matmul(hidden, _weight(rng, HIDDEN, heads * HEAD_SIZE), transpose_a=False, transpose_b=True)
        shaped = op.reshape(flat, _i64([0, 0, heads, HEAD_SIZE]), special_zero=True)
        split[letter] = op.transpose(shaped, _i64([0, 2, 1, 3]))
    query, key = (_rotate(split[letter], cos, sin) for letter in "qk")
    keys, values = op.concat([past["k"], key], 2), op.concat([past["v"], split["v"]], 2)
    attend = _softcapped if softcap else op.scaled_dot_product_attention
    mixed = op.transpose(attend(query, keys, values, mask), _i64([0, 2, 1, 3]))
    joined = op.reshape(mixed, _i64([0, 0, heads * HEAD_SIZE]), special_zero=True)
    projected = op.matmul(joined, _weight(rng, heads * HEAD_SIZE, HIDDEN), transpose_a=False, transpose_b=True)
    results = [_result(op.add(hidden, projected), out), _result(keys, "present_k"), _result(values, "present_v")]
    return ov.Model(results, [hidden, mask, cos, sin, past["k"], past["v"]], "layer")


def _softcapped(query: Any, keys: Any, values: Any, mask: Any) -> Any:
    scores = op.multiply(op.matmul(query, keys, False, True), op.constant(np.float32(HEAD_SIZE**-0.5)))
    weights = op.softmax(op.add(op.multiply(op.tanh(scores), op.constant(np.float32(2))), mask), 3)
    return op.matmul(weights, values, False, False)


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    low, high = op.split(x, _i64(3), 2).outputs()
    turned = op.concat([op.negative(high), low], 3)
    return op.add(op.multiply(x, op.unsqueeze(cos, _i64(1))), op.multiply(turned, op.unsqueeze(sin, _i64(1))))


def _rope() -> ov.Model:
    positions = _port("position_ids", [-1, -1], ov.Type.i64)
    frequencies = (100.0 ** -(np.arange(HEAD_SIZE // 2) * 2 / HEAD_SIZE)).astype(np.float32)
    angles = op.multiply(op.unsqueeze(op.convert(positions, "f32"), _i64(2)), op.constant(frequencies[None, None]))
    both = op.concat([angles, angles], 2)
    return ov.Model([_result(op.cos(both), "cos"), _result(op.sin(both), "sin")], [positions], "rope")


def _embed(rng: np.random.Generator) -> ov.Model:
    ids = _port("input_ids", [-1, -1], ov.Type.i64)
    return ov.Model([_result(op.gather(_weight(rng, HIDDEN, VOCAB), ids, _i64(0)), "hidden")], [ids], "embed")


def _head(rng: np.random.Generator) -> ov.Model:
    hidden = _port("hidden", [-1, -1, HIDDEN])
    logits = op.matmul(hidden, _weight(rng, HIDDEN, VOCAB), transpose_a=False, transpose_b=True)
    return ov.Model([_result(logits, "logits")], [hidden], "head")


def _weight(rng: np.random.Generator, inputs: int, outputs: int) -> Any:
    return op.constant(rng.normal(0, 1.5 / np.sqrt(inputs), (outputs, inputs)).astype(np.float32))


def _port(name: str, shape: list[int], element_type: ov.Type = ov.Type.f32) -> Any:
    node = op.parameter(shape, element_type)
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def _result(node: Any, name: str) -> Any:
    node.output(0).set_names({name})
    return op.result(node)


def _i64(value: int | list[int]) -> Any:
    return op.constant(np.array(value, np.int64))


def _save(
    folder: Path, name: str, kind: Any, model: ov.Model, *, index: int = -1, attention: Attention | None = None
) -> Unit:
    xml = folder / "units" / f"{name}.xml"
    xml.parent.mkdir(parents=True, exist_ok=True)
    ov.save_model(model, xml, compress_to_fp16=False)
    records = [_record(folder, path) for path in (xml, xml.with_suffix(".bin"))]
    return Unit(name, kind, index, records[0], records[1], Compression("none", 32.0), attention)


def _record(folder: Path, path: Path) -> FileRecord:
    data = path.read_bytes()
    return FileRecord(path.relative_to(folder).as_posix(), len(data), hashlib.sha256(data).hexdigest())
