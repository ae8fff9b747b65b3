"""Packed matrices as constants of a unit's graph, and what a unit's graph says about how it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from shard_export.build.packed import FORMATS, GGUF_FORMATS, PER_CHANNEL, Array, Packed
from shard_export.library.errors import CompressionError
from shard_export.library.manifest import Compression
from shard_export.library.minima import nibble_constant

_PARTS = ("codes", "scale", "zero")
NAMED = tuple(f"/{part}" for part in _PARTS)
"""Endings of the names of constants that `read_compression` understands."""

_BITS = {"u4": 4, "i4": 4, "u8": 8, "i8": 8, "f16": 16, "f32": 32, "bf16": 16}
_TYPES = {"u4": ov.Type.u4, "i4": ov.Type.i4, "u8": ov.Type.u8, "i8": ov.Type.i8}


def read_compression(model: ov.Model, none: bool = False) -> Compression:
    """Tell from a unit's graph how its matrices are really stored; `none` expects no compressed matrix."""
    formats: dict[str, str] = {}
    group_sizes: dict[str, int] = {}
    bits = weights = compressed = eights = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant":
            continue
        kind, shape, name = (
            node.get_element_type().get_type_name(),
            list(node.get_output_shape(0)),
            str(node.get_friendly_name()),
        )
        size = int(np.prod(shape)) if shape else 1
        matrix, applied, part = name.rsplit("/", 2) if name.endswith(NAMED) else ("", "", "")
        if part == "codes":
            weights, bits = weights + size, bits + size * _BITS[kind]
            compressed, eights = compressed + size, eights + (size if _BITS[kind] == 8 else 0)
            group_sizes[matrix] = shape[-1] if len(shape) == 3 else PER_CHANNEL
            formats[matrix] = applied
            if FORMATS.get(applied) != kind:
                raise CompressionError(f"The matrix {matrix} was stored as {kind}, which is not {applied}.")
        elif part:
            bits += size * _BITS[kind]
        elif kind in _BITS and size > 1:
            weights, bits = weights + size, bits + size * _BITS[kind]
    if bool(formats) == none:
        found = mode_of(formats) if formats else "uncompressed"
        raise CompressionError(f"A unit was stored as {found}, which was not asked for.")
    return Compression(
        mode=mode_of(formats),
        bits_per_weight=round(bits / weights, 4) if weights else 0.0,
        group_sizes=dict(sorted(group_sizes.items())),
        formats=dict(sorted(formats.items())),
        int8_share=round(eights / compressed, 4) if compressed else 0.0,
    )


def mode_of(formats: dict[str, str]) -> str:
    """Name a unit by what its matrices are stored as: one format, `gguf`, several joined by `+`, or `none`."""
    kinds = {"gguf" if applied in GGUF_FORMATS else applied for applied in formats.values()}
    return "+".join(sorted(kinds)) or "none"


def weight_node(packed: Packed, name: str, experts: int = 0) -> Any:
    """Build the float32 matrix [out, in] of stored parts.

    With `experts` the rows are those of all experts, and the node is [experts, out * groups, group]: runtimes pick
    experts out of compressed weights only when no reshape stands between.
    """
    codes, scale, zero = packed.values
    rows, groups, _ = codes.shape
    stem, kind = f"{name}/{packed.format}", _TYPES[FORMATS[packed.format]]
    if experts:
        shape = experts, -1
        codes, scale = codes.reshape(*shape, codes.shape[-1]), scale.reshape(*shape, 1)
        zero = zero.reshape(*shape, 1) if zero is not None else None
    elif groups == 1:
        codes, scale, zero = codes[:, 0], scale[:, 0], zero[:, 0] if zero is not None else None
    node = op.convert(_constant(codes, kind, f"{stem}/codes"), ov.Type.f16)
    if zero is not None:
        if np.issubdtype(zero.dtype, np.floating):
            point = op.constant(zero.astype(np.float16))
            point.set_friendly_name(f"{stem}/zero")
        else:
            point = op.convert(_constant(zero, kind, f"{stem}/zero"), ov.Type.f16)
        node = op.subtract(node, point)
    factor = op.constant(scale.astype(np.float16))
    factor.set_friendly_name(f"{stem}/scale")
    node = op.multiply(node, factor)
    if groups > 1 and not experts:
        node = op.reshape(node, op.constant(np.array([rows, -1], np.int64)), False)
    return op.convert(node, ov.Type.f32)


def _constant(codes: Array, kind: ov.Type, name: str) -> Any:
    node = nibble_constant(codes, kind) if kind in {ov.Type.u4, ov.Type.i4} else op.constant(codes)
    node.set_friendly_name(name)
    return node
