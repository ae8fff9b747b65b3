"""GGUF blocks as OpenVINO compressed weights, code by code, so that nothing is rounded a second time.

A block is 32 weights with a scale d, or a superblock of 256 with a scale and perhaps a minimum per 16 or 32. Symmetric
formats (Q4_0, Q5_0, Q6_K, Q8_0) need only codes and scales. The others have a minimum m per group, which becomes a
fractional zero point, -m / d. The codes are the file's own. Scales and zero points are float16: of Q4_0, Q4_1, Q5_0,
Q5_1 and Q8_0 the scales are so in the file; the K formats' scales are products that float16 holds within 2^-11, and so
it holds the zero points, which is what a 16-bit copy of the weights would lose, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shard_export.build.packed import GGUF_FORMATS, Packed, Quantized, joined, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from shard_export.checkpoint.source import Blocks

SUPERBLOCK = 256
_MAX_ERROR = 2.0**-9

Array = np.ndarray[Any, Any]


class Groups(NamedTuple):
    """Decoded blocks: weight = scale * codes + minimum; codes [n, groups, group] signed, the others [n, groups]."""

    codes: Array
    scale: Array
    minimum: Array | None = None


def repack(blocks: Blocks, weight: Array) -> Packed | None:
    """Store a matrix in its own codes; `weight` [out, in] is what the checkpoint dequantizes it to.

    None when the format does not map, or when the codes do not give back that very matrix (a checkpoint may scale or
    cut tensors in ways we do not know): then the caller quantizes `weight` instead and the manifest says so.
    """
    if blocks.data.shape[0] != len(weight):
        return None
    parts = []
    for rows in row_blocks(weight.shape):
        part = _repack_rows(blocks._replace(data=blocks.data[rows]), weight[rows])
        if part is None:
            return None
        parts.append(part)
    return joined(parts)


def _repack_rows(blocks: Blocks, weight: Array) -> Packed | None:
    decode = _DECODERS.get(blocks.format)
    if decode is None:
        return None
    rows, width = weight.shape
    groups = decode(np.ascontiguousarray(blocks.data).reshape(-1, blocks.block_bytes))
    size = groups.codes.shape[-1]
    if rows * width != groups.codes.size:
        return None
    shaped = Groups(
        groups.codes.reshape(rows, -1, size),
        groups.scale.reshape(rows, -1),
        None if groups.minimum is None else groups.minimum.reshape(rows, -1),
    )
    with np.errstate(over="ignore"):
        packed = _packed(blocks.format, shaped)
    if not all(np.isfinite(part.astype(np.float16)).all() for part in packed.values[1:] if part is not None):
        return None
    error = np.abs(packed.dequantized() - weight)
    allowed = _MAX_ERROR * np.abs(weight.reshape(rows, -1, size)).max(-1, keepdims=True)
    return packed if (error.reshape(rows, -1, size) <= allowed + np.finfo(np.float16).tiny).all() else None


def _packed(name: str, groups: Groups) -> Packed:
    codes, scale, minimum = groups
    kind = np.uint8 if GGUF_FORMATS[name].startswith("u") else np.int8
    scale = scale.astype(np.float16).astype(np.float32)
    if minimum is None:
        return Packed(name, Quantized(codes.astype(kind), scale[..., None], None))
    # A group without a scale is its minimum, whatever its codes: one step below or above zero.
    flat = scale == 0
    scale = np.where(flat, np.abs(minimum), scale)
    zero = -minimum / np.where(scale == 0, 1, scale)
    return Packed(name, Quantized(np.where(flat[..., None], 0, codes).astype(kind), scale[..., None], zero[..., None]))


def _halves(part: Array) -> Array:
    return part.copy().view(np.float16).astype(np.float32)


def _nibbles(part: Array, run: int) -> Array:
    """Take bytes apart: of each `run` bytes first all low nibbles, then all high ones."""
    parts = part.reshape(len(part), -1, 1, run) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    return (parts & np.uint8(15)).reshape(len(part), -1).astype(np.int16)


def _fifth_bits(part: Array) -> Array:
    bits = part.copy().view(np.uint32) >> np.arange(32, dtype=np.uint32)
    return ((bits & np.uint32(1)) << np.uint32(4)).astype(np.int16)


def _q4_0(blocks: Array) -> Groups:
    return Groups(_nibbles(blocks[:, 2:], 16)[:, None] - 8, _halves(blocks[:, :2]))


def _q4_1(blocks: Array) -> Groups:
    return Groups(_nibbles(blocks[:, 4:], 16)[:, None], _halves(blocks[:, :2]), _halves(blocks[:, 2:4]))


def _q5_0(blocks: Array) -> Groups:
    codes = _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6])
    return Groups(codes[:, None] - 16, _halves(blocks[:, :2]))


def _q5_1(blocks: Array) -> Groups:
    codes = _nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8])
    return Groups(codes[:, None], _halves(blocks[:, :2]), _halves(blocks[:, 2:4]))


def _q8_0(blocks: Array) -> Groups:
    return Groups(blocks[:, 2:].copy().view(np.int8)[:, None], _halves(blocks[:, :2]))


def _k_scales(blocks: Array) -> tuple[Array, Array]:
    """Read the eight 6-bit scales and minima of superblocks whose first 16 bytes are d, dmin and those bits."""
    low, middle, high = (blocks[:, first : first + 4] for first in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], -1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 2) & 48)], -1)
    scale = _halves(blocks[:, :2]) * scales.astype(np.float32)
    return scale, -(_halves(blocks[:, 2:4]) * minima.astype(np.float32))


def _q4_k(blocks: Array) -> Groups:
    return Groups(_nibbles(blocks[:, 16:], 32).reshape(-1, 8, 32), *_k_scales(blocks))


def _q5_k(blocks: Array) -> Groups:
    # Bit g of byte i is the fifth bit of weight i of group g.
    high = (blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & np.uint8(1)
    codes = _nibbles(blocks[:, 48:], 32).reshape(-1, 8, 32) | (high.astype(np.int16) << 4)
    return Groups(codes, *_k_scales(blocks))


def _q6_k(blocks: Array) -> Groups:
    low = _nibbles(blocks[:, :128], 64).reshape(-1, 8, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3)).reshape(-1, 8, 32)
    codes = (low | (high.astype(np.int16) << 4)) - 32
    scale = _halves(blocks[:, 208:210]) * blocks[:, 192:208].copy().view(np.int8).astype(np.float32)
    return Groups(codes.reshape(-1, 16, 16), scale)


_DECODERS: dict[str, Callable[[Array], Groups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_0": _q8_0,
}
