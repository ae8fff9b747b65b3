"""Facts a plan is made from, and the plan. Bytes are bytes, MB are 10^6 bytes, times are milliseconds."""

from __future__ import annotations

import msgspec

from agent.stage.types import EngineChoice, Numerics
from shard_export.library.manifest import Manifest

KV_VALUE_BYTES: dict[Numerics, int] = {"exact": 4, "fast": 2}
"""Cached values are f32 in `exact`; in `fast` a plugin may choose fewer than 16 bits, but no cap may count on it."""


class AgentFacts(msgspec.Struct, frozen=True):
    """One PC as the planner sees it.

    `memory_budget_bytes` is what a stage may use in all. `ms_per_mb` is the measured time of one decode step per MB
    of weights, None before any measurement.
    """

    device_id: str
    name: str
    memory_budget_bytes: int
    ms_per_mb: float | None = None
    device: str = "CPU"
    engine: EngineChoice = "auto"


class ModelFacts(msgspec.Struct, frozen=True):
    """A model's sizes: per decoder layer its weights and the cache bytes of one token, and the two ends.

    The rope tables are small and are counted with the layers. `embed_read_bytes` is what one token reads of the
    embedding: one row, however large the table is.
    """

    model_id: str
    layer_bytes: list[int]
    kv_token_bytes: list[int]
    embed_bytes: int
    embed_read_bytes: int
    head_bytes: int

    @property
    def layers(self) -> int:
        return len(self.layer_bytes)

    @classmethod
    def from_manifest(cls, manifest: Manifest, numerics: Numerics) -> ModelFacts:
        """Read the sizes off a library. Raises KeyError for a manifest that lacks a unit."""
        layers = [manifest.layer(index) for index in range(manifest.layer_count)]
        ropes = sum(unit.size_bytes for unit in manifest.units if unit.kind == "rope")
        embed = manifest.unit("embed").size_bytes
        values = [
            layer.attention.kv_heads * (layer.attention.k_head_size + layer.attention.v_head_size)
            if layer.attention
            else 0
            for layer in layers
        ]
        return cls(
            model_id=manifest.model_id,
            layer_bytes=[layer.size_bytes + ropes // max(1, len(layers)) for layer in layers],
            kv_token_bytes=[count * KV_VALUE_BYTES[numerics] for count in values],
            embed_bytes=embed,
            embed_read_bytes=embed // max(1, manifest.vocab_size),
            head_bytes=manifest.unit("head").size_bytes,
        )


class PlannedStage(msgspec.Struct, frozen=True):
    """Layers `first <= i < last` on one PC; the first stage also embeds, the last one also has the head.

    `ms` is the estimated time of one decode step there, `memory_bytes` what weights, cache and scratch will take.
    """

    device_id: str
    name: str
    device: str
    engine: EngineChoice
    first: int
    last: int
    ms: float
    memory_bytes: int


class Plan(msgspec.Struct, frozen=True):
    """Which PC runs which layers, with the reasons in sentences.

    `tokens_per_second` is the estimate for one stream, `full_tokens_per_second` for one stream per stage or more
    (what batching adds on top depends on the PCs and is not guessed).
    """

    model_id: str
    context_tokens: int
    streams: int
    stages: list[PlannedStage]
    tokens_per_second: float
    full_tokens_per_second: float
    reasons: list[str]


class PlannerError(Exception):
    """Base of the package: `str(error)` is one sentence saying what happened and what to do.

    PlannerError
     └─ PlanImpossible   the fleet cannot hold the model
    """


class PlanImpossible(PlannerError):
    """The fleet cannot hold the model: `missing_bytes` of memory or `missing_agents` PCs too few."""

    def __init__(self, message: str, *, missing_bytes: int = 0, missing_agents: int = 0) -> None:
        super().__init__(message)
        self.missing_bytes = missing_bytes
        self.missing_agents = missing_agents
