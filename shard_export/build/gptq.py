"""Rounding that looks at what a matrix is fed: GPTQ (Frantar et al., 2022, arXiv:2210.17323) with exact minima.

Columns are rounded one after the other, and the error each makes in the layer's output is taken up by the columns not
rounded yet, as the second moments of the inputs (`inputs^T inputs`) say best. Ours differs in three things. A group
keeps its real minimum, for `correction.py` carries it at half a bit. The range of a group is searched for the least
weighted error (as in AWQ, arXiv:2306.00978, and OmniQuant's clipping). At the end the residuals of all groups of a row
are fitted once more, in closed form. Deterministic: the same text gives the same bytes on the same machine.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shard_export.build.quantize import Packed, Quantized

if TYPE_CHECKING:
    from collections.abc import Iterator

DAMPING = 0.01
"""Share of the mean second moment that is added to each: with little text some directions were never seen."""

BLOCK_COLUMNS = 2048
"""Wider matrices are treated in blocks of columns, so that second moments take 16 MB and not a gigabyte."""

_SHRINKS = (1.0, 0.94, 0.88, 0.82, 0.75)
_TOP = 15
_TINY = float(np.finfo(np.float16).tiny)

Array = np.ndarray[Any, Any]


def blocks_of(width: int) -> list[slice]:
    """Cut `width` columns into the blocks whose second moments `round_by_inputs` wants."""
    return [slice(first, min(first + BLOCK_COLUMNS, width)) for first in range(0, width, BLOCK_COLUMNS)]


def round_by_inputs(weight: torch.Tensor, moments: list[torch.Tensor], group_size: int) -> Packed:
    """Store W[out, in] in four bits; `moments` are mean(x^T x) [b, b] of the inputs, one per block of columns.

    `group_size` divides the width of each block.
    """
    parts = [
        _round_block(weight[:, columns], moment, group_size)
        for columns, moment in zip(blocks_of(weight.shape[1]), moments, strict=True)
    ]
    codes, scale, zero, residual = (torch.cat([part[index] for part in parts]).T for index in range(4))
    values = Quantized(
        codes.reshape(len(weight), -1, group_size).to(torch.uint8).numpy(),
        scale.contiguous()[..., None].numpy(),
        zero.to(torch.uint8).contiguous()[..., None].numpy(),
    )
    return Packed("int4_gptq", values, residual.contiguous().numpy())


def _round_block(
    original: torch.Tensor, moment: torch.Tensor, group_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return codes [b, out] and scale, zero, residual [groups, out] of one block of columns [out, b]."""
    moment = moment.double()
    mean = float(moment.diagonal().mean()) or 1.0
    moment = moment + DAMPING * mean * torch.eye(len(moment), dtype=torch.float64)
    factor, importance = _inverse_factor(moment), moment.diagonal().float()
    weight = original.T.contiguous()  # a column at a time is read and written
    wanted = weight.clone()
    codes = torch.empty_like(weight)
    errors = torch.empty(group_size, weight.shape[1])
    found = []
    for first in range(0, len(weight), group_size):
        last = first + group_size
        group = weight[first:last]
        with _one_thread():
            scale, zero, residual = _parameters(group, importance[first:last])
            for row, at in enumerate(range(first, last)):
                code = _codes(group[row], scale, zero, residual)
                codes[at] = code
                error = (group[row] - residual).addcmul_(code - zero, scale, value=-1).div_(factor[at, at])
                errors[row] = error
                group[row + 1 :].addr_(factor[at, at + 1 : last], error, alpha=-1)
        weight[last:].addmm_(factor[first:last, last:].T, errors, alpha=-1)
        found.append((scale, zero, residual))
    scale, zero = (torch.stack([part[index] for part in found]) for index in range(2))
    return codes, scale, zero, _refit(wanted, codes, (scale, zero), moment, group_size)


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


def _codes(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return (values - residual).div_(scale).add_(zero).round_().clamp_(0, _TOP)


def _parameters(group: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Search scale, integer zero point and residual [out] of a group [n, out], as float16 will hold them."""
    low, high = group.aminmax(dim=0)
    found: tuple[torch.Tensor, ...] = ()
    best = torch.full_like(low, torch.inf)
    for shrink in _SHRINKS:
        scale = ((high - low) * (shrink / _TOP)).clamp_(min=_TINY).half().float()
        # A group of equal weights is its minimum alone.
        minimum = torch.where(high > low, (low + high) / 2 - scale * (_TOP / 2), low)
        zero = (-minimum / scale).round_().clamp_(0, _TOP)
        residual = (minimum + zero * scale).half().float()
        error = (group - residual).addcmul_(_codes(group, scale, zero, residual) - zero, scale, value=-1)
        cost = importance @ error.square_()
        better = cost < best
        best = torch.where(better, cost, best)
        new = scale, zero, residual
        found = tuple(torch.where(better, a, b) for a, b in zip(new, found, strict=True)) if found else new
    scale, zero, residual = found
    return scale, zero, residual


def _refit(
    wanted: torch.Tensor,
    codes: torch.Tensor,
    parameters: tuple[torch.Tensor, torch.Tensor],
    moment: torch.Tensor,
    group_size: int,
) -> torch.Tensor:
    """Return the residuals [groups, out] that leave the least output error with these codes [b, out]."""
    scale, zero = (part.repeat_interleave(group_size, 0) for part in parameters)
    lacking = (wanted - (codes - zero) * scale).double()
    groups = len(codes) // group_size
    by_group = moment.reshape(groups, group_size, -1).sum(1)
    between = by_group.reshape(groups, groups, group_size).sum(-1)
    return torch.linalg.solve(between, by_group @ lacking).half().float()
