"""Counting how long or how large something was: cheap enough for the event loop's busiest places. Pure.

What counts knows nothing of who reads it: `console.metrics` turns tallies into Prometheus' histograms when it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

STEP_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bounds for parts of a step: a stage of a small model takes some milliseconds, a long prompt seconds."""
WAIT_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Bounds for what people wait for: a place, a first token, others that take over."""
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Bounds for answers in one step."""


class Tally:
    """How many values were at most each bound, and the sum of all. Never forgets, holds no values."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` ascend; what is above the last one is counted, too."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, with the number of values that are at most that large."""
        so_far = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            so_far += count
            yield bound, so_far
