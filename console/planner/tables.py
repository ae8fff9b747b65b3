"""What every range costs on every PC, as arrays: `[end, n - 1]` is `n` layers that end before `end`. Pure.

A range that a PC cannot or must not take costs infinity, so the searches add and compare and know of no rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from console.planner.costs import MB, Costs
from console.planner.types import EMBED, HEAD, AgentFacts, Pin

Array = npt.NDArray[np.float64]

LEAST_STAY = 0.05
"""Below this one chance to stay counts as bad as another."""
STAY_SHARE, FETCH_SHARE, MOVED_SHARE, UNEVEN_SHARE = 0.006, 0.002, 0.0008, 0.0002
"""What the lesser wishes weigh, as shares of a token's time: together less than `SOFT_SHARE`, the first ones most."""
SOFT_SHARE = 0.009


class Wishes(NamedTuple):
    """What decides between plans that are as fast: `scale_ms` is a token's time, `stages` how many share it, `slow_ms`
    the slowest stage's. `current` says who has which layers now."""

    scale_ms: float
    slow_ms: float
    stages: int
    current: dict[str, tuple[int, int]]


class Tables:
    """Makes the arrays for one model and promise. `pins` with a range keep everybody else off it."""

    def __init__(self, costs: Costs, pins: Sequence[Pin] = ()) -> None:
        self.costs = costs
        self._ms: dict[tuple[str, float], Array] = {}
        layers = costs.layers
        ends = np.arange(layers + 1)[:, None]
        counts = np.arange(1, layers + 1)[None, :]
        self._starts = ends - counts
        self._possible = self._starts >= 0
        self._starts = np.maximum(self._starts, 0)
        self._read = self._span(np.array(costs.read, float)) / MB
        needs = self._span(np.array(costs.needs, float))
        needs[self._first] += costs.model.embed_bytes
        needs[layers] += costs.model.head_bytes
        self._needs = np.where(self._possible, needs, math.inf)
        self._least = self._needs.min(axis=0)
        self._pins: dict[str, tuple[int | None, int | None]] = {
            pin.device_id: (pin.first, pin.last) for pin in pins if pin.first is not None
        }
        self.pinned = frozenset(self._pins)
        self._free = np.ones_like(self._possible)
        for first, last in self._pins.values():
            if first is not None and last is not None:
                self._free &= (ends <= first) | (self._starts >= last)

    @property
    def _first(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The ranges that begin with the first layer."""
        ends = np.arange(1, self.costs.layers + 1)
        return ends, ends - 1

    def _span(self, sums: Array) -> Array:
        return np.asarray(sums[:, None] - sums[self._starts])

    def most_layers(self, agent: AgentFacts, extra_bytes: int = 0) -> int:
        """Return how many layers an agent can take at most, wherever they begin."""
        fitting = int(np.searchsorted(self._least, self.costs.room(agent, extra_bytes), side="right"))
        return min(fitting, self.costs.most_layers(agent))

    def able(self, agent: AgentFacts, extra_bytes: int = 0) -> npt.NDArray[np.bool_]:
        """Say which ranges an agent can take, up to the longest one."""
        room, width = self.costs.room(agent, extra_bytes), self.most_layers(agent, extra_bytes)
        able = (self._needs[:, :width] <= room) & self._free[:, :width]
        first, last = self._pins.get(agent.device_id, (None, None))
        if first is None or last is None:
            return able
        able = np.zeros_like(able)
        count = last - first
        if 0 < count <= width and self._needs[last, count - 1] <= room:
            able[last, count - 1] = True
        return able

    def ms(self, agent: AgentFacts, rows: float) -> Array:
        """Return the time of a step of so many rows; infinity where the agent is not able. Not to be changed."""
        known = self._ms.get((agent.device_id, rows))
        if known is None:
            known = self._ms[agent.device_id, rows] = self._work_out(agent, rows)
        return known

    def _work_out(self, agent: AgentFacts, rows: float) -> Array:
        able = self.able(agent)
        width = able.shape[1]
        rates = self.costs.rates(agent, rows)
        ms = rates.fixed + self._read[:, :width] * rates.per_mb
        ends, counts = self._first
        ms[ends[:width], counts[:width]] += rates.embed
        ms[self.costs.layers] += rates.head
        return np.where(able, ms, math.inf)

    def wished(self, agent: AgentFacts, ms: Array, wishes: Wishes) -> Array:
        """Return what is added to a token's time for what a plan had rather be."""
        width, model, scale_ms = ms.shape[1], self.costs.model, wishes.scale_ms
        starts = self._starts[:, :width]
        lacking = np.cumsum([0, *(0 if i in agent.held else size for i, size in enumerate(model.layer_bytes))])
        fetch = (lacking[:, None] - lacking[starts]).astype(float)
        ends, counts = self._first
        fetch[ends[:width], counts[:width]] += 0 if EMBED in agent.held else model.embed_bytes
        fetch[self.costs.layers] += 0 if HEAD in agent.held else model.head_bytes
        first, last = wishes.current.get(agent.device_id, (0, 0))
        here = np.zeros(self.costs.layers + 1)
        here[1:][first:last] = 1.0
        here = np.cumsum(here)
        moved = np.arange(1, width + 1)[None, :] - (here[:, None] - here[starts])
        total = max(1, sum(model.layer_bytes) + model.embed_bytes + model.head_bytes)
        leaving = math.log(max(agent.stay, LEAST_STAY)) / math.log(LEAST_STAY) / wishes.stages
        uneven = np.square(np.minimum(ms / max(wishes.slow_ms, 1e-12), 1.0)) / wishes.stages
        share = STAY_SHARE * leaving + FETCH_SHARE * fetch / total + UNEVEN_SHARE * uneven
        return np.asarray(scale_ms * (share + MOVED_SHARE * (moved / self.costs.layers if wishes.current else 0.0)))
