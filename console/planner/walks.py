"""Walks over the layers from PC to PC, each at most once: the cheapest, or the one with the mildest worst step. Pure.

Costs are arrays as in `tables`: `[end, n - 1]` is what a PC's `n` layers before `end` cost, infinity if it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int16]


class Choice(NamedTuple):
    """PC number `place` takes layers `first <= i < last`."""

    place: int
    first: int
    last: int


class Found(NamedTuple):
    """A walk over all layers and what it costs; infinity and no choices if there is none."""

    value: float
    choices: list[Choice]


NOTHING = Found(math.inf, [])


def in_order(
    costs: Sequence[Array], order: Sequence[int], most: int, *, worst: bool, needed: Sequence[bool], pinned: set[int]
) -> list[Found]:
    """Walk through the PCs in one order, each taken or skipped; return the best by the number of PCs, 0 to `most`.

    `needed` ones are not skipped. `pinned` ones have one range, which nobody else may enter: they take it whenever
    the walk comes there. `worst`: a walk costs what its worst step does, else the sum.
    """
    layers = len(costs[order[0]]) - 1 if order else 0
    values = np.full((most + 1, layers + 1), math.inf)
    values[0, 0] = 0.0
    steps: list[_Step] = []
    jumps = sorted(_jump(place, costs[place]) for place in pinned if np.isfinite(costs[place]).any())
    _take(jumps, values, steps, worst=worst)
    for place in order:
        if place in pinned:
            continue
        best, counts = _extend(values[:-1], costs[place], worst=worst)
        if needed[place]:
            values[0] = values[1:] = math.inf
        better = best < values[1:]
        values[1:] = np.where(better, best, values[1:])
        steps.append(_Step(place, None, np.where(better, counts, 0).astype(np.int16)))
        _take(jumps, values, steps, worst=worst)
    return [_walked(steps, values, count) for count in range(most + 1)]


class _Step(NamedTuple):
    """How many layers a PC took, by the number of PCs and the end; or by the number of PCs alone, where it ends at
    `end`."""

    place: int
    end: int | None
    counts: Counts


class _Jump(NamedTuple):
    """The one range of a pinned PC."""

    first: int
    last: int
    place: int
    cost: float


def _jump(place: int, cost: Array) -> _Jump:
    last, column = (int(at[0]) for at in np.nonzero(np.isfinite(cost)))
    return _Jump(last - column - 1, last, place, float(cost[last, column]))


def _take(jumps: Sequence[_Jump], values: Array, steps: list[_Step], *, worst: bool) -> None:
    """Let pinned PCs go on from where the walk has come to; the first ones first, so that several follow at once."""
    for first, last, place, cost in jumps:
        before = values[:-1, first]
        reached = np.maximum(before, cost) if worst else before + cost
        better = reached < values[1:, last]
        if better.any():
            values[1:, last] = np.where(better, reached, values[1:, last])
            steps.append(_Step(place, last, np.where(better, last - first, 0).astype(np.int16)))


def _walked(steps: Sequence[_Step], values: Array, count: int) -> Found:
    at = values.shape[1] - 1
    value = float(values[count, at])
    if not value < math.inf or count == 0:
        return NOTHING
    choices: list[Choice] = []
    for place, end, counts in reversed(steps):
        if not count:
            break
        taken = int(counts[count - 1, at]) if end is None else int(counts[count - 1]) if end == at else 0
        if taken:
            choices.append(Choice(place, at - taken, at))
            at, count = at - taken, count - 1
    return Found(value, choices[::-1])


def in_any_order(costs: Sequence[Array], most: int, *, worst: bool, needed: Sequence[bool]) -> list[Found]:
    """Walk through every set of the PCs in every order; return the best by the number of PCs, 0 to `most`.

    Takes memory and time that double with each PC.
    """
    layers = len(costs[0]) - 1 if costs else 0
    total = 1 << len(costs)
    values = np.full((total, layers + 1), math.inf)
    values[0, 0] = 0.0
    who = np.full((total, layers + 1), -1, np.int8)
    taken = np.zeros((total, layers + 1), np.int16)
    masks = np.arange(total)
    sizes = np.array([mask.bit_count() for mask in range(total)])
    for size in range(min(most, len(costs))):
        # Of walks that cost the same the one that begins with the first PCs wins.
        for place, cost in reversed(list(enumerate(costs))):
            before = masks[(sizes == size) & (masks >> place & 1 == 0)]
            best, counts = _extend(values[before], cost, worst=worst)
            after = before | 1 << place
            better = best < values[after]
            values[after] = np.where(better, best, values[after])
            who[after] = np.where(better, np.int8(place), who[after])
            taken[after] = np.where(better, counts, taken[after])
    must = sum(1 << place for place, need in enumerate(needed) if need)
    found = [NOTHING]
    for size in range(1, most + 1):
        able = masks[(sizes == size) & (masks & must == must)]
        best = values[able, layers]
        mask = int(able[best.argmin()]) if len(able) and best.min() < math.inf else 0
        found.append(_set_walked(mask, float(values[mask, layers]), who, taken) if mask else NOTHING)
    return found


def _set_walked(mask: int, value: float, who: npt.NDArray[np.int8], taken: Counts) -> Found:
    choices: list[Choice] = []
    at = who.shape[1] - 1
    while mask:
        place, count = int(who[mask, at]), int(taken[mask, at])
        choices.append(Choice(place, at - count, at))
        mask, at = mask & ~(1 << place), at - count
    return Found(value, choices[::-1])


def _extend(before: Array, cost: Array, *, worst: bool) -> tuple[Array, Counts]:
    """Let one more PC go on from every place reached: what each place costs then, and over how many layers."""
    width = cost.shape[1]
    rows, places = before.shape
    if not width or not rows:
        return np.full((rows, places), math.inf), np.zeros((rows, places), np.int16)
    padded = np.full((rows, places + width), math.inf)
    padded[:, width:] = before
    # windows[:, end, n - 1] is the value at end - n; `sliding_window_view` takes longer than the sums.
    row, item = padded.strides
    windows = np.ndarray((rows, places, width), float, padded, (width - 1) * item, (row, item, -item))
    reached = (np.maximum(windows, cost) if worst else windows + cost).reshape(rows * places, width)
    best = reached.argmin(axis=1)
    value = reached.ravel().take(best + np.arange(0, reached.size, width))
    return value.reshape(rows, places), (best + 1).astype(np.int16).reshape(rows, places)
