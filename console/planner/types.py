"""Facts a plan is made from, and the plan. Bytes are bytes, MB are 10^6 bytes, times are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agent.stage.types import EngineChoice, Numerics
from shard_export.library.manifest import Manifest

KV_VALUE_BYTES: dict[Numerics, int] = {"exact": 4, "fast": 2}
"""Cached values are f32 in `exact`; in `fast` a plugin may choose fewer than 16 bits, but no cap may count on it."""


EMBED, HEAD = -1, -2
"""How the two ends are named among the units a PC holds; layers go by their index."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """What decode steps of real units were measured to take on one device by one engine, in milliseconds.

    `layer_ms` is for one row and a layer of `layer_bytes`; layers of other sizes are scaled by theirs. `fixed_ms` is
    what a step costs whatever it computes. `embed_ms` and `head_ms` are of this model's own ends (None: by their
    bytes); `layer_ms_8` and `head_ms_8` are with eight rows (None: not measured).
    """

    layer_bytes: int
    layer_ms: float
    layer_ms_8: float | None = None
    fixed_ms: float = 0.0
    embed_ms: float | None = None
    head_ms: float | None = None
    head_ms_8: float | None = None


class AgentFacts(msgspec.Struct, frozen=True):
    """One PC as the planner sees it, for one model.

    `memory_budget_bytes` is what a stage may use in all. `ms_per_mb` is the measured time of one decode step per MB
    of weights, None before any measurement; `speed`, measured with real units, counts before it. `stay` is how likely
    the PC stays for as long as the plan is meant to, 0 to 1; `rests` how likely it rests in each three hours of its
    week, in percent, as agents tell it (empty: it does not tell). `held` are the units of the model it has on its disk.
    `site` and `network` are where it stands ("" is a place, too). `rtt_ms` is the round trip between it and the
    console, `bytes_per_s` what that link carries, None before any measurement.
    """

    device_id: str
    name: str
    memory_budget_bytes: int
    ms_per_mb: float | None = None
    device: str = "CPU"
    engine: EngineChoice = "auto"
    speed: Speed | None = None
    stay: float = 1.0
    rests: tuple[int, ...] = ()
    utc_offset_s: float = 0.0
    held: frozenset[int] = frozenset()
    site: str = ""
    network: str = ""
    rtt_ms: float | None = None
    bytes_per_s: float | None = None


class ModelFacts(msgspec.Struct, frozen=True):
    """A model's sizes: per decoder layer its weights and the cache bytes of one token, and the two ends.

    The rope tables are small and are counted with the layers. `embed_read_bytes` is what one token reads of the
    embedding: one row, however large the table is; `hidden_bytes` what one token takes on the way between two stages.
    """

    model_id: str
    layer_bytes: list[int]
    kv_token_bytes: list[int]
    embed_bytes: int
    embed_read_bytes: int
    head_bytes: int
    hidden_bytes: int = 0

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
            hidden_bytes=manifest.hidden_size * KV_VALUE_BYTES[numerics],
        )


class PlannedStage(msgspec.Struct, frozen=True):
    """Layers `first <= i < last` on one PC; the first stage also embeds, the last one also has the head.

    `ms` is the estimated time of one decode step there, `memory_bytes` what weights, cache and scratch will take,
    `fetch_bytes` what of it is not on the PC's disk yet, `hop_ms` the way there and on.
    """

    device_id: str
    name: str
    device: str
    engine: EngineChoice
    first: int
    last: int
    ms: float
    memory_bytes: int
    fetch_bytes: int = 0
    hop_ms: float = 0.0


class Pin(msgspec.Struct, frozen=True):
    """The administrator's word that a PC is part of the plan; with `first` and `last` that it runs exactly these."""

    device_id: str
    first: int | None = None
    last: int | None = None


class Limit(msgspec.Struct, frozen=True):
    """The most the administrator lets a model take on one PC; None: no limit but its memory."""

    memory_bytes: int | None = None
    layers: int | None = None


Crossing = Literal["none", "networks", "sites"]
"""What one pipeline may span: one network of one site, all networks of one site, or everything."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What plans have to obey besides memory. `excluded` and `limits` go by device id.

    `target_tokens_per_second` is the rate over all answers that is enough (None: as high as the number of PCs allows).
    `least_stay` leaves out PCs that are less likely to stay.
    """

    pins: tuple[Pin, ...] = ()
    excluded: frozenset[str] = frozenset()
    limits: dict[str, Limit] = {}
    crossing: Crossing = "none"
    target_tokens_per_second: float | None = None
    least_stay: float = 0.0


class Standby(msgspec.Struct, frozen=True):
    """A PC that is to take over a stage: it has the units on its disk (`warm`) or the stage loaded (`hot`)."""

    stage: int
    device_id: str
    name: str
    device: str
    engine: EngineChoice
    first: int
    last: int
    kind: Literal["warm", "hot"]
    memory_bytes: int
    fetch_bytes: int
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """Which PC runs which layers, with the reasons in sentences.

    `tokens_per_second` is the estimate for one stream, `full_tokens_per_second` for one stream per stage or more
    (what batching adds on top counts where every PC of the plan was measured with it). `stay` is how likely all its PCs
    stay, `fetch_bytes` what they lack, `moved_layers` how many layers are elsewhere than in the current plan.
    """

    model_id: str
    context_tokens: int
    streams: int
    stages: list[PlannedStage]
    tokens_per_second: float
    full_tokens_per_second: float
    reasons: list[str]
    stay: float = 1.0
    fetch_bytes: int = 0
    moved_layers: int = 0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """So many pipelines of a model, with the PCs as facts for this model; `current` are those that run.

    Higher `priority` is served first; of equal ones the model that needs most memory.
    """

    model: ModelFacts
    agents: Sequence[AgentFacts]
    context_tokens: int
    streams: int
    pipelines: int = 1
    stages: int | None = None
    priority: int = 0
    rules: Rules = Rules()
    current: tuple[Plan, ...] = ()


class FleetPlan(msgspec.Struct, frozen=True):
    """The pipelines of every demand, by model id; `missing` says per model why it has fewer than were wanted."""

    plans: dict[str, list[Plan]]
    missing: dict[str, str]
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
