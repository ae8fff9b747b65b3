"""The best plans there are, found the slow way: every order and border one by one, or an integer program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from console.planner.costs import Costs
from console.planner.search import Ranges, latency_ms, slowest_ms
from console.planner.types import AgentFacts


class Best(NamedTuple):
    """The shortest cycle for a number of stages, and the fastest token with no longer cycle."""

    cycle_ms: float
    token_ms: float


def cycle_ms(costs: Costs, ranges: Ranges) -> float:
    """Return how long it takes until every step has passed every stage: as many steps as stages."""
    return max(latency_ms(costs, ranges), len(ranges) * slowest_ms(costs, ranges))


def by_brute_force(costs: Costs, fleet: Sequence[AgentFacts], count: int) -> Best | None:
    """Try every order of every `count` PCs with every choice of borders; None if none fits."""
    found = [(cycle_ms(costs, ranges), latency_ms(costs, ranges)) for ranges in every_split(costs, fleet, count)]
    if not found:
        return None
    shortest = min(cycle for cycle, _ in found)
    return Best(shortest, min(token for cycle, token in found if cycle <= shortest * (1 + 1e-9)))


def every_split(costs: Costs, fleet: Sequence[AgentFacts], count: int) -> Iterator[Ranges]:
    """Yield every split over exactly `count` PCs that memory and limits allow."""
    for order in permutations(fleet, count):
        for inner in combinations(range(1, costs.layers), count - 1):
            ranges = list(zip(order, (0, *inner), (*inner, costs.layers), strict=True))
            if all(costs.fits(*part) for part in ranges):
                yield ranges


def by_integer_program(costs: Costs, fleet: Sequence[AgentFacts], count: int) -> Best | None:
    """Solve it as a path over the layers that uses `count` PCs once each; None if there is none."""
    parts = [
        (place, first, last)
        for place, agent in enumerate(fleet)
        for first in range(costs.layers)
        for last in range(first + 1, costs.layers + 1)
        if costs.fits(agent, first, last)
    ]
    if not parts:
        return None
    stage_ms = np.array([costs.ms(fleet[place], first, last) for place, first, last in parts])
    token_ms = stage_ms + np.array([costs.hop_ms(fleet[place]) for place, _, _ in parts])
    path = _Path(costs.layers, len(fleet), parts, count, stage_ms, token_ms)
    cycle = path.solve(np.array([*np.zeros(len(parts)), 1.0]), math.inf)
    if cycle is None:
        return None
    token = path.solve(np.array([*token_ms, 0.0]), cycle * (1 + 1e-6))
    assert token is not None
    return Best(cycle, token)


@dataclass(frozen=True)
class _Path:
    """One variable for each PC and range it can take, and the cycle's time as the last one."""

    layers: int
    pcs: int
    parts: Sequence[tuple[int, int, int]]
    count: int
    stage_ms: npt.NDArray[np.float64]
    token_ms: npt.NDArray[np.float64]

    def solve(self, goal: npt.NDArray[np.float64], longest_cycle: float) -> float | None:
        """Return the least `goal` of a path over all layers; None if there is none."""
        layers, pcs, size = self.layers, self.pcs, len(self.parts)
        entries: list[tuple[int, int, float]] = []
        # What comes to a border leaves it; so many PCs, each once; a cycle lasts for a token, and for each stage.
        once, cycle, slow = layers + 1, layers + 2 + pcs, layers + 3 + pcs
        for column, (place, first, last) in enumerate(self.parts):
            entries += [
                (first, column, 1.0),
                (last, column, -1.0),
                (once, column, 1.0),
                (once + 1 + place, column, 1.0),
            ]
            entries += [(cycle, column, float(self.token_ms[column]))]
            entries += [(slow + place, column, self.count * float(self.stage_ms[column]))]
        entries += [(row, size, -1.0) for row in range(cycle, slow + pcs)]
        rows, columns, values = zip(*entries, strict=True)
        matrix: Any = coo_array((values, (rows, columns)), shape=(slow + pcs, size + 1)).tocsr()
        flow = [1.0, *[0.0] * (layers - 1), -1.0]
        low = [*flow, self.count, *[0.0] * pcs, *[-np.inf] * (pcs + 1)]
        high = [*flow, self.count, *[1.0] * pcs, *[0.0] * (pcs + 1)]
        found = milp(
            goal,
            integrality=np.array([*np.ones(size), 0.0]),
            bounds=Bounds(0.0, np.array([*np.ones(size), longest_cycle])),
            constraints=LinearConstraint(matrix, low, high),
            options={"mip_rel_gap": 1e-4},
        )
        return float(found.fun) if found.x is not None else None
