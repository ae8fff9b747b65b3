"""Matrices in 4 or 8 bits before they become part of a graph: codes in groups, with their scales and zero points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from shard_export.library.errors import CompressionError

if TYPE_CHECKING:
    from collections.abc import Sequence

PlainMode = Literal["int4_asym", "int4_sym", "int8_asym"]
Mode = Literal["int4_asym", "int4_sym", "int8_asym", "int4_gptq", "gguf"]
DEFAULT_GROUP_SIZE = 32
PER_CHANNEL = -1
BLOCK_WEIGHTS = 1 << 24
"""How many weights are rounded at once: the intermediate values of larger blocks would outweigh a layer."""

GGUF_FORMATS = {
    "Q4_0": "i4",
    "Q4_1": "u4",
    "Q4_K": "u4",
    "Q5_0": "i8",
    "Q5_1": "i8",
    "Q5_K": "i8",
    "Q6_K": "i8",
    "Q8_0": "i8",
}
"""Block formats that are stored code by code, with the type their codes get."""

FORMATS = {"int4_asym": "u4", "int4_sym": "i4", "int8_asym": "u8", "int4_gptq": "u4", **GGUF_FORMATS}

Array = np.ndarray[Any, Any]


class Quantized(NamedTuple):
    """A matrix in groups: `codes` [out, groups, group], `scale` and `zero` [out, groups, 1].

    No zero when symmetric; it is an integer of the codes' type, or a float that float16 will hold.
    """

    codes: Array
    scale: Array
    zero: Array | None


class Packed(NamedTuple):
    """A matrix ready to be stored in one of FORMATS."""

    format: str
    values: Quantized

    def rows(self, part: slice) -> Packed:
        """Return some of the rows."""
        codes, scale, zero = self.values
        return Packed(self.format, Quantized(codes[part], scale[part], None if zero is None else zero[part]))

    def dequantized(self) -> Array:
        """Return W[out, in] in float32 as the stored parts give it (scales and fractional zero points in float16)."""
        codes, scale, zero = self.values
        weight = codes.astype(np.float32)
        if zero is not None:
            weight = weight - zero.astype(np.float16).astype(np.float32)
        weight = weight * scale.astype(np.float16).astype(np.float32)
        return weight.reshape(len(codes), -1)


def group_size_for(width: int, wanted: int | None, matrix: str) -> int:
    """Choose the group size of a matrix with `width` input columns.

    Without a wish it is the largest power of two up to 32 that divides the width, else one group per channel. A wish
    that does not divide raises CompressionError, for a library must not claim a group size it does not have.
    """
    if wanted is None:
        size = DEFAULT_GROUP_SIZE
        while size > 4 and width % size:
            size //= 2
        return size if width % size == 0 else PER_CHANNEL
    if wanted == PER_CHANNEL:
        return PER_CHANNEL
    if wanted < 1 or width % wanted:
        raise CompressionError(
            f"Group size {wanted} does not divide the {width} input columns of {matrix}; "
            "choose one that does or leave out --group-size."
        )
    return wanted


def row_blocks(shape: Sequence[int]) -> list[slice]:
    """Cut the rows of a matrix [out, in] into blocks that can be worked on without much memory."""
    rows = max(1, BLOCK_WEIGHTS // max(1, shape[1]))
    return [slice(first, min(first + rows, shape[0])) for first in range(0, shape[0], rows)]


def joined(parts: list[Packed]) -> Packed:
    """Put blocks of rows together again."""
    if len(parts) == 1:
        return parts[0]
    codes, scale, zero = zip(*(part.values for part in parts), strict=True)
    zeros = None if zero[0] is None else np.concatenate(zero)
    return Packed(parts[0].format, Quantized(np.concatenate(codes), np.concatenate(scale), zeros))
