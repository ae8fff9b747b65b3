"""How long each stage computes on a step, learnt from the steps that came back. Pure; no clock.

A stage takes about `base + row * rows + token * extra` milliseconds, where `extra` counts the tokens of a step beyond
one for each row: drafts and parts of prompts. The three numbers are fitted to the medians of what was measured, by
least squares of the relative error, so that small steps count as much as large ones.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from console.pipeline.plans import Step

SAMPLES = 9
"""Of each step size; a median of nine forgets one hiccup and follows a PC that slowed down within seconds."""
SIZES = 32
"""Step sizes remembered, the least recently seen forgotten first: what a PC did long ago is no guide."""


class StageCost(NamedTuple):
    """The fitted milliseconds of one stage."""

    base_ms: float
    row_ms: float
    token_ms: float

    def ms(self, rows: float, extra: float = 0.0) -> float:
        """Predict a step of `rows` rows with `extra` tokens beyond one for each."""
        return self.base_ms + self.row_ms * rows + self.token_ms * extra


class Costs(NamedTuple):
    """The stages' costs; what was never varied is not known, and its coefficient only a guess."""

    stages: list[StageCost]
    knows_rows: bool
    knows_tokens: bool

    def slowest_ms(self, rows: float, extra: float = 0.0) -> float:
        """Predict the stage that takes longest."""
        return max(stage.ms(rows, extra) for stage in self.stages)

    def total_ms(self, rows: float, extra: float = 0.0) -> float:
        """Predict all stages one after the other."""
        return sum(stage.ms(rows, extra) for stage in self.stages)

    def strain(self, rows: int, extra: int, total_ms: float) -> float:
        """Say how many times the predicted time `extra` tokens took in a step that took all stages `total_ms`."""
        predicted_ms = extra * sum(stage.token_ms for stage in self.stages)
        return max(0.0, total_ms - self.total_ms(rows)) / predicted_ms if predicted_ms > 0 else 1.0


class StepCosts:
    """Collects measurements of one pipeline and fits them on demand."""

    def __init__(self, stages: int) -> None:
        self.measured = 0
        self._stages = stages
        self._samples: OrderedDict[tuple[int, int], deque[tuple[int, ...]]] = OrderedDict()

    def add(self, step: Step, compute_us: Sequence[int]) -> None:
        """Record what each stage spent on a step that has rows."""
        rows = len(step.rows)
        extra = len(step.tokens) - rows
        size = (rows, _rounded(extra))
        self._samples.setdefault(size, deque(maxlen=SAMPLES)).append((extra, *compute_us))
        self._samples.move_to_end(size)
        if len(self._samples) > SIZES:
            self._samples.popitem(last=False)
        self.measured += 1

    def fit(self) -> Costs:
        """Fit all stages; zeros before any measurement."""
        sizes = [
            (rows, *(median(column) for column in zip(*samples, strict=True)))
            for (rows, _), samples in self._samples.items()
        ]
        if not sizes:
            return Costs([StageCost(0.0, 0.0, 0.0)] * self._stages, knows_rows=False, knows_tokens=False)
        table = np.array(sizes, np.float64)
        rows, extra = table[:, 0], table[:, 1]
        design = np.stack([np.ones(len(table)), rows, extra], axis=1)
        return Costs(
            [_fit(design, table[:, 2 + stage] / 1000) for stage in range(self._stages)],
            knows_rows=len(np.unique(rows)) > 1,
            knows_tokens=len(np.unique(extra)) > 1,
        )


def _rounded(extra: int) -> int:
    """Keep three significant bits, so that prompts of about the same length count as one size."""
    shift = max(0, extra.bit_length() - 3)
    return extra >> shift << shift


def _fit(design: npt.NDArray[np.float64], times_ms: npt.NDArray[np.float64]) -> StageCost:
    """Fit `design` [N,3] (one, rows, extra tokens) to the times [N] of one stage.

    Answers set the pace, so plain steps decide alone what rows cost, if there were steps of several sizes: parts of
    prompts are no line through the same point, and there are more of them.
    """
    plain = design[:, 2] == 0
    if len(np.unique(design[plain, 1])) > 1:
        base_ms, row_ms = _solve(design[plain, :2], times_ms[plain])
        left_ms = np.maximum(0.0, times_ms - design[:, :2] @ np.array([base_ms, row_ms]))
        (token_ms,) = _solve(design[~plain, 2:], left_ms[~plain], times_ms[~plain]) if not plain.all() else [0.0]
        return StageCost(base_ms, row_ms, token_ms)
    return StageCost(*_solve(design, times_ms))


def _solve(
    design: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64], scale: npt.NDArray[np.float64] | None = None
) -> list[float]:
    """Least squares of the errors relative to `scale` (else `wanted`) without negative coefficients.

    A feature that would get a negative one is left out.
    """
    weights = 1 / np.maximum(wanted if scale is None else scale, 1e-3)
    features = list(range(design.shape[1]))
    while True:
        found = np.linalg.lstsq(design[:, features] * weights[:, None], wanted * weights, rcond=None)[0]
        if found.min() >= 0 or len(features) == 1:
            break
        del features[int(found.argmin())]
    coefficients = [0.0] * design.shape[1]
    for feature, value in zip(features, found.tolist(), strict=True):
        coefficients[feature] = max(0.0, value)
    return coefficients
