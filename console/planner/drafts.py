"""Ranges with what they are worth, and which of two is better. Pure."""

from __future__ import annotations

from math import prod
from typing import NamedTuple, Self

from console.planner.costs import Costs, batching_measured
from console.planner.search import Ranges, latency_ms, slowest_ms
from console.planner.types import Plan

AS_GOOD = 1.015
"""A plan with fewer PCs wins until it is this much slower."""


class Draft(NamedTuple):
    """A plan before it is written down: a token's time for one answer, and the rate over all answers."""

    ranges: Ranges
    token_ms: float
    full_tokens_per_second: float
    stay: float

    @classmethod
    def of(cls, costs: Costs, ranges: Ranges) -> Self:
        """Work out what ranges are worth.

        With all stages busy each step has its share of the promised streams' rows, if that speed was measured of all
        the PCs; else one row. A cycle in which every step passes every stage takes as long as a step does, or as the
        slowest stage does for each of them.
        """
        count = len(ranges)
        rows = costs.rows(count) if batching_measured([agent for agent, _, _ in ranges]) else 1.0
        cycle_ms = max(latency_ms(costs, ranges, rows), count * slowest_ms(costs, ranges, rows))
        return cls(
            ranges,
            latency_ms(costs, ranges),
            1000 * count * rows / cycle_ms,
            prod(agent.stay for agent, _, _ in ranges),
        )

    @property
    def device_ids(self) -> list[str]:
        return [agent.device_id for agent, _, _ in self.ranges]

    def meets(self, target: float) -> bool:
        """Tell whether the wanted rate over all answers is reached."""
        return self.full_tokens_per_second >= target * 0.999


def better(one: Draft, other: Draft, target: float | None) -> bool:
    """Tell whether `one`, which has as many PCs or more, is worth them."""
    if target is not None and one.meets(target) != other.meets(target):
        return one.meets(target)
    if target is not None and not one.meets(target):
        return one.full_tokens_per_second > other.full_tokens_per_second * AS_GOOD
    return one.token_ms * AS_GOOD < other.token_ms


def ranges_of(current: Plan | None) -> dict[str, tuple[int, int]]:
    """Return who has which layers in a plan."""
    return {stage.device_id: (stage.first, stage.last) for stage in current.stages} if current else {}
