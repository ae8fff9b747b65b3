"""What a range costs on a PC: milliseconds of a decode step, bytes of memory, bytes to fetch, hops. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from console.planner.types import EMBED, HEAD, AgentFacts, Limit, ModelFacts

DEFAULT_MS_PER_MB = 0.07
"""About 14 GB/s, one core of an office PC; used when no PC of the fleet was measured."""
LAYER_OVERHEAD_BYTES = 2_000_000
"""Attention, norms and kernel starts of a layer take as long as reading this much: with SmolLM2's layers of 2 MB the
head of 28 MB was measured to cost 6 to 8 layers, not the 14 that bytes alone would say."""
SCRATCH_BYTES = 128_000_000
"""The child process itself: interpreter, OpenVINO, activations of one step."""
HOP_MS = 0.6
"""Link, relay and frame of one hop: measured 0.4 to 0.8 ms on one network. A PC's round trip comes on top."""
MANY_ROWS = 8
"""With how many rows a step is measured beside one."""
MB = 1_000_000
NO_LIMIT = Limit()


class Rates(NamedTuple):
    """How long one PC takes: for each MB of layers (with their overhead), and for what is not layers. Milliseconds."""

    per_mb: float
    fixed: float
    embed: float
    head: float


class Costs:
    """Prefix sums over one model for one promise of context and streams. Ranges are `first <= i < last`."""

    def __init__(
        self,
        model: ModelFacts,
        agents: Sequence[AgentFacts],
        *,
        context_tokens: int,
        streams: int,
        scratch_bytes: int,
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        self.layers = model.layers
        self.model = model
        self.streams = streams
        self._scratch = scratch_bytes
        self._limits = limits or {}
        self._rates: dict[tuple[str, float], Rates] = {}
        cached = context_tokens * streams
        needs = [size + cached * kv for size, kv in zip(model.layer_bytes, model.kv_token_bytes, strict=True)]
        self.layer_needs = needs
        self.read = [0, *accumulate(size + LAYER_OVERHEAD_BYTES for size in model.layer_bytes)]
        self.needs = [0, *accumulate(needs)]
        self.total_bytes = self.needs[-1] + model.embed_bytes + model.head_bytes
        known = [_per_mb(agent) for agent in agents]
        self.assumed_ms_per_mb = median([rate for rate in known if rate is not None] or [DEFAULT_MS_PER_MB])
        growths = [_growth(agent) for agent in agents]
        self._assumed_growth = median([growth for growth in growths if growth is not None] or [1.0])

    def rates(self, agent: AgentFacts, rows: float = 1.0) -> Rates:
        """Return an agent's speed for steps of so many rows; what was not measured counts as the median of the rest."""
        known = self._rates.get((agent.device_id, rows))
        if known is None:
            known = self._rates[agent.device_id, rows] = self._work_out(agent, rows)
        return known

    def _work_out(self, agent: AgentFacts, rows: float) -> Rates:
        measured = _per_mb(agent)
        per_mb = self.assumed_ms_per_mb if measured is None else max(measured, 1e-9)
        growth = _growth(agent)
        more = max(0.0, min(rows, MANY_ROWS) - 1) / (MANY_ROWS - 1)
        factor = 1 + more * ((self._assumed_growth if growth is None else growth) - 1)
        # Beyond what was measured each row costs what one of the eight did.
        factor *= max(1.0, rows / MANY_ROWS)
        embed = self.model.embed_read_bytes / MB * per_mb
        head = self.model.head_bytes / MB * per_mb
        speed = agent.speed
        if speed is None:
            return Rates(per_mb * factor, 0.0, embed * factor, head * factor)
        embed = embed if speed.embed_ms is None else speed.embed_ms
        head = head if speed.head_ms is None else speed.head_ms
        head_factor = factor
        if speed.head_ms and speed.head_ms_8:
            head_factor = (1 + more * (speed.head_ms_8 / speed.head_ms - 1)) * max(1.0, rows / MANY_ROWS)
        return Rates(per_mb * factor, max(0.0, speed.fixed_ms), embed * factor, head * head_factor)

    def rows(self, count: int) -> float:
        """Return how many rows a step has when `count` stages are kept busy by all promised streams."""
        return max(1.0, self.streams / max(1, count))

    def ms(self, agent: AgentFacts, first: int, last: int, rows: float = 1.0) -> float:
        """Return the time of one decode step: every weight is read once, but only one row of the embedding."""
        rates = self.rates(agent, rows)
        ms = rates.fixed + (self.read[last] - self.read[first]) / MB * rates.per_mb
        ms += rates.embed if first == 0 else 0.0
        return ms + (rates.head if last == self.layers else 0.0)

    def hop_ms(self, agent: AgentFacts) -> float:
        """Return what the way to a stage and on from it adds to a token, relayed by the console."""
        carried = 2000 * self.model.hidden_bytes / agent.bytes_per_s if agent.bytes_per_s else 0.0
        return HOP_MS + max(0.0, agent.rtt_ms or 0.0) + carried

    def room(self, agent: AgentFacts, extra_bytes: int = 0) -> int:
        """Return the bytes an agent has for weights and cache of one stage."""
        return max(0, self.budget(agent) - self._scratch + extra_bytes)

    def budget(self, agent: AgentFacts) -> int:
        """Return the bytes an agent has for all stages, within the administrator's limit."""
        limit = self._limits.get(agent.device_id, NO_LIMIT).memory_bytes
        return agent.memory_budget_bytes if limit is None else min(limit, agent.memory_budget_bytes)

    def most_layers(self, agent: AgentFacts) -> int:
        """Return how many layers an agent may take at most by the administrator's word."""
        limit = self._limits.get(agent.device_id, NO_LIMIT).layers
        return self.layers if limit is None else max(0, min(limit, self.layers))

    def memory(self, first: int, last: int) -> int:
        """Return the bytes of weights and cache a range needs, its ends included."""
        size = self.needs[last] - self.needs[first]
        size += self.model.embed_bytes if first == 0 else 0
        return size + (self.model.head_bytes if last == self.layers else 0)

    def stage_memory(self, first: int, last: int) -> int:
        """Return what a stage takes in all."""
        return self.memory(first, last) + self._scratch

    def fits(self, agent: AgentFacts, first: int, last: int) -> bool:
        """Tell whether an agent can hold a range."""
        return last - first <= self.most_layers(agent) and self.memory(first, last) <= self.room(agent)

    def fetch_bytes(self, agent: AgentFacts, first: int, last: int) -> int:
        """Return the bytes of a range that are not on the agent's disk."""
        sizes = self.model.layer_bytes
        lacking = sum(sizes[index] for index in range(first, last) if index not in agent.held)
        lacking += self.model.embed_bytes if first == 0 and EMBED not in agent.held else 0
        return lacking + (self.model.head_bytes if last == self.layers and HEAD not in agent.held else 0)


def _per_mb(agent: AgentFacts) -> float | None:
    if agent.speed is None:
        return agent.ms_per_mb
    return agent.speed.layer_ms / ((agent.speed.layer_bytes + LAYER_OVERHEAD_BYTES) / MB)


def _growth(agent: AgentFacts) -> float | None:
    """Return how much longer eight rows take than one; None if that was not measured."""
    speed = agent.speed
    if speed is None or speed.layer_ms_8 is None or speed.layer_ms <= 0:
        return None
    return max(1.0, speed.layer_ms_8 / speed.layer_ms)


def batching_measured(agents: Sequence[AgentFacts]) -> bool:
    """Tell whether the speed with many rows is known of all these agents."""
    return all(_growth(agent) is not None for agent in agents)
