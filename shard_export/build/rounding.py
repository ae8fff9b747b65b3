"""Packing the matrices of one unit in ways that need more than their values; each is let go of once it is packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shard_export.build.gptq import BLOCK_COLUMNS, round_by_inputs
from shard_export.build.packed import PER_CHANNEL, group_size_for
from shard_export.build.quantize import pack_plain
from shard_export.build.repack import repack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shard_export.build.calibration import Inputs
    from shard_export.build.packed import Packed
    from shard_export.checkpoint.source import Blocks

Array = np.ndarray[Any, Any]

# Small matrices that read the same inputs are rounded together, in one loop over the columns; large ones gain nothing.
_TOGETHER_WEIGHTS = 1 << 24


class Matrices:
    """The matrices of a unit by their names in the checkpoint, found by their values: tracing drops names."""

    def __init__(self, named: dict[str, torch.Tensor]) -> None:
        self._named = named

    def find(self, values: Array) -> str:
        """Return the name of a matrix, empty when it is unknown."""
        return next((name for name, tensor in self._named.items() if _is_same(tensor, values)), "")

    def full_names(self, short: Iterable[str]) -> list[str]:
        """Return the names in the checkpoint of matrices that are named as in their layer."""
        return [name for one in short for name in self._named if name.endswith(f".{one}")]

    def of(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Return those of the named matrices that are still there."""
        return {name: self._named[name] for name in names if name in self._named}

    def release(self, name: str) -> None:
        """Let go of a matrix."""
        self._named.pop(name, None)


class KeepBlocks:
    """Keeps the blocks of a quantized file."""

    def __init__(self, matrices: Matrices, blocks: Callable[[str], Blocks | None]) -> None:
        self._matrices, self._blocks = matrices, blocks

    def __call__(self, values: Array) -> Packed | None:
        """Pack W[out, in]; None for what has no blocks, or such as do not map."""
        name = self._matrices.find(values)
        self._matrices.release(name)
        blocks = self._blocks(name) if name else None
        return repack(blocks, values) if blocks is not None else None


class RoundByInputs:
    """Rounds the matrices of a layer to four bits by what they read, and those named in `in_eight` to eight bits."""

    def __init__(
        self, matrices: Matrices, inputs: Sequence[Inputs], group_size: int | None, in_eight: Iterable[str] = ()
    ) -> None:
        self._matrices, self._group_size = matrices, group_size
        self._in_eight = frozenset(matrices.full_names(in_eight))
        self._read = {
            name: (names, moments)
            for names, moments in ((matrices.full_names(found.names), found.moments) for found in inputs)
            for name in names
        }
        self._packed: dict[str, Packed] = {}

    def __call__(self, values: Array) -> Packed | None:
        """Pack W[out, in]; None leaves it to the plain mode."""
        name = self._matrices.find(values)
        if name in self._in_eight:
            packed: Packed | None = pack_plain(values, name, "int8_asym", None)
        else:
            if name in self._read and name not in self._packed:
                self._packed.update(self._round(name))
            packed = self._packed.pop(name, None)
        self._matrices.release(name)
        return packed

    def _round(self, name: str) -> dict[str, Packed]:
        names, moments = self._read[name]
        parts = self._matrices.of(other for other in names if other not in self._in_eight)
        if sum(part.numel() for part in parts.values()) > _TOGETHER_WEIGHTS:
            parts = {name: parts[name]}
        width = next(iter(parts.values())).shape[1]
        size = group_size_for(width, self._group_size, name)
        if size == PER_CHANNEL or (len(moments) > 1 and BLOCK_COLUMNS % size):
            return {}
        whole = round_by_inputs(torch.cat(list(parts.values())) if len(parts) > 1 else parts[name], moments, size)
        found, first = {}, 0
        for one, part in parts.items():
            found[one] = whole.rows(slice(first, first + len(part)))
            first += len(part)
        return found


def _is_same(tensor: torch.Tensor, values: Array) -> bool:
    if tensor.is_meta or tuple(tensor.shape) != values.shape:
        return False
    ours = tensor.numpy()
    # Most often it is the very memory, which spares the comparison.
    return ours.ctypes.data == values.ctypes.data or np.array_equal(ours, values)
