"""Weights in 8-bit floating point: each is multiplied by the scale that is stored beside it.

Known are one scale for a matrix, one for a row, and one for a block of rows and columns. A weight whose scale has
another name is refused: read without its scale it would be nonsense that looks like a weight.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from shard_export.library.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from pathlib import Path

    import torch

METHODS = frozenset({"fp8", "fbgemm_fp8", "compressed-tensors"})
"""`quant_method` of checkpoints that may hold such weights; whether they do is seen from the tensors."""

SCALES = ("_scale_inv", "_scale")
# How activations were rounded at run time: we do not round them, so the result is only better without.
ACTIVATIONS = (".input_scale", ".activation_scale")


def is_beside_a_weight(name: str, present: Container[str]) -> bool:
    """Tell whether a tensor only says how another one is stored."""
    if name.endswith(ACTIVATIONS):
        return f"{name.rpartition('.')[0]}.weight" in present
    return any(name.endswith(suffix) and name.removesuffix(suffix) in present for suffix in SCALES)


def scale_of(name: str, present: Container[str], path: Path) -> str:
    """Name the scale of an 8-bit weight; raises CheckpointError when there is none with a known name."""
    for suffix in SCALES:
        if name + suffix in present:
            return name + suffix
    known = " or ".join(name + suffix for suffix in SCALES)
    raise CheckpointError(
        f"Tensor {name} of {path} is stored in 8 bits and its scale is not named {known}, so it cannot be read; "
        "use the 16-bit original."
    )


def scaled(weight: torch.Tensor, scale: torch.Tensor, settings: Mapping[str, Any], name: str) -> torch.Tensor:
    """Return an 8-bit weight as float32 with its scale applied; raises CheckpointError when the shapes do not fit."""
    import torch

    result, scale = weight.to(torch.float32), scale.to(torch.float32)
    if scale.numel() == 1:
        return result.mul_(scale.reshape(()))
    if result.ndim == 2 and scale.numel() == result.shape[0] and scale.shape[0] == result.shape[0]:
        return result.mul_(scale.reshape(-1, 1))
    block = settings.get("weight_block_size")
    if (
        result.ndim != 2
        or scale.ndim != 2
        or not (
            isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) and side > 0 for side in block)
        )
        or tuple(scale.shape) != tuple(math.ceil(size / side) for size, side in zip(result.shape, block, strict=True))
    ):
        raise CheckpointError(
            f"The scale of {name} has the shape {list(scale.shape)}, which does not fit a weight of "
            f"{list(result.shape)} in blocks of {block}; download the model again or use the 16-bit original."
        )
    for index, row in enumerate(scale):
        columns = row.repeat_interleave(block[1])[: result.shape[1]]
        result[index * block[0] : (index + 1) * block[0]].mul_(columns)
    return result
