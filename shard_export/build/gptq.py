"""Rounding that looks at what a matrix is fed: GPTQ (Frantar et al., 2022, arXiv:2210.17323) with real minima.

Columns are rounded one after the other, and the error each makes in the layer's output is taken up by the columns not
rounded yet, as the second moments of the inputs (`inputs^T inputs`) say best. Ours differs in three things. A group
keeps its real minimum as a fractional zero point. The range of a group is searched for the least weighted error (as
AWQ, arXiv:2306.00978, does for its scales). At the end the minima of all groups of a row are fitted once more, in
closed form. Deterministic: the same text gives the same bytes on the same machine.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shard_export.build.packed import Packed, Quantized

if TYPE_CHECKING:
    from collections.abc import Iterator

DAMPING = 0.01
"""Share of the mean second moment that is added to each: with little text some directions were never seen."""

BLOCK_COLUMNS = 2048
"""Wider matrices are treated in blocks of columns, so that second moments take 16 MB and not a gigabyte."""

BLOCK_ROWS = 4096

_SHRINKS = (1.0, 0.94, 0.88, 0.82, 0.75)
_TOP = 15
_FARTHEST_ZERO = 64
_TINY = float(np.finfo(np.float16).tiny)

Array = np.ndarray[Any, Any]


def blocks_of(width: int) -> list[slice]:
    """Cut `width` columns into the blocks whose second moments `round_by_inputs` wants."""
    return [slice(first, min(first + BLOCK_COLUMNS, width)) for first in range(0, width, BLOCK_COLUMNS)]


def round_by_inputs(weight: torch.Tensor, moments: list[torch.Tensor], group_size: int) -> Packed:
    """Store W[out, in] in four bits; `moments` are mean(x^T x) [b, b] of the inputs, one per block of columns.

    `group_size` divides the width of each block.
    """
    rows, width = weight.shape
    codes = np.empty((rows, width // group_size, group_size), np.uint8)
    scale, zero = (np.empty((rows, width // group_size, 1), np.float32) for _ in range(2))
    for columns, moment in zip(blocks_of(width), moments, strict=True):
        damped = _damped(moment)
        factor = _inverse_factor(damped)
        groups = slice(columns.start // group_size, columns.stop // group_size)
        # Rows do not know of one another, and a few thousand at a time take little memory.
        for first in range(0, rows, BLOCK_ROWS):
            part = slice(first, min(first + BLOCK_ROWS, rows))
            found = _round_block(weight[part, columns], damped, factor, group_size)
            codes[part, groups] = found[0].T.reshape(-1, groups.stop - groups.start, group_size).numpy()
            scale[part, groups, 0], zero[part, groups, 0] = found[1].T.numpy(), found[2].T.numpy()
    return Packed("int4_gptq", Quantized(codes, scale, zero))


def _damped(moment: torch.Tensor) -> torch.Tensor:
    moment = moment.double()
    mean = float(moment.diagonal().mean()) or 1.0
    return moment + DAMPING * mean * torch.eye(len(moment), dtype=torch.float64)


def _round_block(
    original: torch.Tensor, moment: torch.Tensor, factor: torch.Tensor, group_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return codes [b, out], scale and zero [groups, out] of a block [out, b] of rows and columns."""
    importance = moment.diagonal().float()
    weight = original.T.clone(memory_format=torch.contiguous_format)  # a column at a time is read and written
    wanted = weight.clone()
    codes = torch.empty_like(weight)
    errors = torch.empty(group_size, weight.shape[1])
    found = []
    for first in range(0, len(weight), group_size):
        last = first + group_size
        group = weight[first:last]
        with _one_thread():
            scale, zero = _parameters(group, importance[first:last])
            for row, at in enumerate(range(first, last)):
                code = _codes(group[row], scale, zero)
                codes[at] = code
                error = group[row].addcmul(code - zero, scale, value=-1).div_(factor[at, at])
                errors[row] = error
                group[row + 1 :].addr_(factor[at, at + 1 : last], error, alpha=-1)
        weight[last:].addmm_(factor[first:last, last:].T, errors, alpha=-1)
        found.append((scale, zero))
    scale = torch.stack([part[0] for part in found])
    return codes, scale, _refit(wanted, codes, scale, moment, group_size)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch from sharing out steps of a few microseconds: waiting for one another costs it more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _inverse_factor(moment: torch.Tensor) -> torch.Tensor:
    """Return the upper U with U^T U = moment^-1: the inverse of a Cholesky factor, taken from the last column on."""
    lower = torch.linalg.cholesky(moment.flip(0, 1))
    inverse = torch.linalg.solve_triangular(lower, torch.eye(len(lower), dtype=lower.dtype), upper=False)
    return inverse.flip(0, 1).float()


def _codes(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    return (values / scale).add_(zero).round_().clamp_(0, _TOP)


def _parameters(group: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Search scale and zero point [out] of a group [n, out], as float16 will hold them."""
    low, high = group.aminmax(dim=0)
    middle = (low + high) / 2
    # Far from zero, steps must not be so small that float16 cannot tell the zero points apart.
    least = (middle.abs() / _FARTHEST_ZERO).clamp_(min=_TINY)
    found: tuple[torch.Tensor, ...] = ()
    best = torch.full_like(low, torch.inf)
    for shrink in _SHRINKS:
        scale = torch.maximum((high - low) * (shrink / _TOP), least).half().float()
        # A group of equal weights is one code: the middle of an odd number of steps would miss it.
        zero = torch.where(high > low, _TOP / 2 - middle / scale, -torch.round(middle / scale)).half().float()
        error = group.addcmul(_codes(group, scale, zero) - zero, scale, value=-1)
        cost = importance @ error.square_()
        better = cost < best
        best = torch.where(better, cost, best)
        new = scale, zero
        found = tuple(torch.where(better, a, b) for a, b in zip(new, found, strict=True)) if found else new
    return found[0], found[1]


def _refit(
    wanted: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor, moment: torch.Tensor, group_size: int
) -> torch.Tensor:
    """Return the zero points [groups, out] that leave the least output error with these codes [b, out]."""
    lacking = (wanted - codes * scale.repeat_interleave(group_size, 0)).double()
    groups = len(codes) // group_size
    by_group = moment.reshape(groups, group_size, -1).sum(1)
    between = by_group.reshape(groups, groups, group_size).sum(-1)
    minimum = torch.linalg.solve(between, by_group @ lacking)
    return (-minimum / scale).half().float()
