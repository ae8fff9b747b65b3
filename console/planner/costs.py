"""What a range costs on a PC: milliseconds per decode step, bytes of memory, and how far a PC can reach. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from console.planner.types import AgentFacts, ModelFacts

DEFAULT_MS_PER_MB = 0.07
"""About 14 GB/s, one core of an office PC; used when no PC of the fleet was measured."""
LAYER_OVERHEAD_BYTES = 2_000_000
"""Attention, norms and kernel starts of a layer take as long as reading this much: with SmolLM2's layers of 2 MB the
head of 28 MB was measured to cost 6 to 8 layers, not the 14 that bytes alone would say."""
SCRATCH_BYTES = 128_000_000
"""The child process itself: interpreter, OpenVINO, activations of one step."""
MB = 1_000_000


class Bound(NamedTuple):
    """What a stage may take: `ms` for a step, and `extra_bytes` on top of each PC's memory (to ask "what if")."""

    ms: float = float("inf")
    extra_bytes: int = 0


class Costs:
    """Prefix sums over one model for one promise of context and streams. Ranges are `first <= i < last`."""

    def __init__(
        self, model: ModelFacts, agents: Sequence[AgentFacts], *, context_tokens: int, streams: int, scratch_bytes: int
    ) -> None:
        self.layers = model.layers
        self._model = model
        self._scratch = scratch_bytes
        self._layer_read = (min(model.layer_bytes, default=0), max(model.layer_bytes, default=0))
        cached = context_tokens * streams
        needs = [size + cached * kv for size, kv in zip(model.layer_bytes, model.kv_token_bytes, strict=True)]
        self._layer_memory = (min(needs, default=0), max(needs, default=0))
        self._read = [0, *accumulate(size + LAYER_OVERHEAD_BYTES for size in model.layer_bytes)]
        self._memory = [0, *accumulate(needs)]
        known = [agent.ms_per_mb for agent in agents if agent.ms_per_mb is not None]
        self.assumed_ms_per_mb = median(known) if known else DEFAULT_MS_PER_MB
        self.total_bytes = self._memory[-1] + model.embed_bytes + model.head_bytes

    def ms_per_mb(self, agent: AgentFacts) -> float:
        """Return the agent's speed; one not measured yet counts as the median of those that were."""
        return self.assumed_ms_per_mb if agent.ms_per_mb is None else max(agent.ms_per_mb, 1e-9)

    def room(self, agent: AgentFacts, extra_bytes: int = 0) -> int:
        """Return the bytes an agent has for weights and cache."""
        return max(0, agent.memory_budget_bytes - self._scratch + extra_bytes)

    def memory(self, first: int, last: int) -> int:
        """Return the bytes of weights and cache a range needs, its ends included."""
        size = self._memory[last] - self._memory[first]
        size += self._model.embed_bytes if first == 0 else 0
        return size + (self._model.head_bytes if last == self.layers else 0)

    def stage_memory(self, first: int, last: int) -> int:
        """Return what a stage takes in all."""
        return self.memory(first, last) + self._scratch

    def ms(self, agent: AgentFacts, first: int, last: int) -> float:
        """Return the time of one decode step: every weight is read once, but only one row of the embedding."""
        read = self._read[last] - self._read[first]
        read += self._model.embed_read_bytes if first == 0 else 0
        read += self._model.head_bytes if last == self.layers else 0
        return read / MB * self.ms_per_mb(agent)

    def fits(self, agent: AgentFacts, first: int, last: int, bound: Bound) -> bool:
        """Tell whether an agent can run a range within its memory and the time."""
        return (
            self.memory(first, last) <= self.room(agent, bound.extra_bytes)
            and self.ms(agent, first, last) <= bound.ms + 1e-9
        )

    def picky(self, agent: AgentFacts, bound: Bound) -> bool:
        """Tell whether an agent may be able to take one layer but not another."""
        room, read = self.room(agent, bound.extra_bytes), bound.ms / self.ms_per_mb(agent) * MB - LAYER_OVERHEAD_BYTES
        takes_none = room < self._layer_memory[0] or read < self._layer_read[0]
        takes_any = room >= self._layer_memory[1] and read >= self._layer_read[1]
        return not (takes_none or takes_any)

    def reach(self, agent: AgentFacts, first: int, bound: Bound) -> int:
        """Return the furthest `last` this agent can run to from `first`; `first` itself if not even one layer."""
        if first == self.layers or self.fits(agent, first, self.layers, bound):
            return self.layers
        room, read = self.room(agent, bound.extra_bytes), bound.ms / self.ms_per_mb(agent) * MB
        if first == 0:
            room -= self._model.embed_bytes
            read -= self._model.embed_read_bytes
        by_memory = bisect_right(self._memory, self._memory[first] + room) - 1
        by_time = bisect_right(self._read, self._read[first] + read) - 1
        return max(first, min(by_memory, by_time, self.layers - 1))
