"""Libraries, and what is asked of their deployment and delivery. Times are Unix seconds, sizes bytes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from agent.stage.types import CacheChoice, EngineChoice, Numerics
from console.api.admin.types.common import Name
from console.planner.types import Crossing
from console.registry.records import LibraryRecord


class NewLibrary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Register a library folder on the console's own disk."""

    folder: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class Library(msgspec.Struct, frozen=True):
    """A registered library; `problem` says why it cannot be used now (empty: it can).

    `bits_per_weight` is the mean over its layers; `top1_agreement` and `mean_kl` (nats) say how far it was from its
    source on the text of the exporter's own check (None: it was not compared).
    """

    digest: str
    model_id: str
    folder: str
    added_s: float
    layer_count: int = 0
    size_bytes: int = 0
    context_tokens: int = 0
    problem: str = ""
    role: str = "target"
    family: str = ""
    layer_mode: str = ""
    bits_per_weight: float = 0.0
    top1_agreement: float | None = None
    mean_kl: float | None = None

    @staticmethod
    def unreadable(record: LibraryRecord, problem: str) -> Library:
        return Library(record.digest, record.model_id, record.folder, record.added_s, problem=problem)


class Libraries(msgspec.Struct, frozen=True):
    """All registered libraries."""

    libraries: list[Library]


StandbyKind = Literal["hot", "warm"]
"""A hot standby has a stage loaded, a warm one has the units on its disk."""


class PinnedPc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A PC that has to be part of a plan; with both of `first` and `last` it runs exactly these layers."""

    device: Name
    first: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    last: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None

    def __post_init__(self) -> None:
        if (self.first is None) != (self.last is None) or (self.first or 0) >= (self.last or 1):
            raise ValueError("A pin has both of first and last, the first one smaller, or none of them")


class LimitedPc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most one PC gives to this model, whatever it could."""

    device: Name
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    layers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None


class PlanRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan has to obey: see `console.planner.types.Rules`. PCs are ids, beginnings of ids, or device codes."""

    exclude: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    pins: Annotated[list[PinnedPc], msgspec.Meta(max_length=256)] = []
    limits: Annotated[list[LimitedPc], msgspec.Meta(max_length=10_000)] = []
    crossing: Crossing = "none"
    tokens_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    least_stay_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50


class GivenStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage of a plan that somebody made by hand: layers `first <= i < last` on a PC."""

    device: Name
    first: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    last: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


GivenPlan = Annotated[
    list[Annotated[list[GivenStage], msgspec.Meta(max_length=256)]],
    msgspec.Meta(max_length=64),
]
"""The stages of each pipeline, in their order."""


class DeployRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for a model to be served. `stages` None: the planner chooses; `devices` empty: any PC may be used.

    `cache` is how keys and values are kept, `cache_mb` the memory for them on each PC (0: `streams` of `context`).
    `draft` says where guesses of the next tokens come from: `lookup`, `none`, or the model id of a draft's library.
    `rules` are what the plan has to obey.
    """

    model: Name
    stages: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    numerics: Numerics = "fast"
    engine: EngineChoice = "auto"
    context: Annotated[int, msgspec.Meta(ge=16, le=1 << 20)] = 2048
    streams: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    devices: list[str] = []
    cache: CacheChoice = "auto"
    cache_mb: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    draft: Name = "lookup"
    standbys: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """How many more PCs are kept to take a lost stage over."""
    standby: StandbyKind = "warm"
    recover_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 60.0
    """How long answers wait for other PCs after a loss before they end with an error."""
    rules: PlanRules = PlanRules()
    replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """How many pipelines serve it side by side, each on PCs of its own; every answer goes to one of them."""
    plan: GivenPlan = []
    """Who is to run what, for each of the `replicas`; empty: the planner chooses. When PCs leave it does anyhow."""

    def __post_init__(self) -> None:
        if self.plan and (self.stages is not None or self.replicas != len(self.plan)):
            raise ValueError("A plan made by hand says itself how many stages and replicas there are")


class DeliveryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bring a model's layers to PCs before they are needed, 5 % of them first, then 50 %, then all.

    `last` None: to the end; `devices` empty: every PC that is connected.
    """

    model: Name
    first: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    last: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    devices: list[str] = []


class DeliveryView(msgspec.Struct, frozen=True):
    """A delivery under way: layers `first <= i < last`; of `total` PCs so many have them, and so many failed."""

    model: str
    first: int
    last: int
    total: int
    delivered: int
    failed: int
    begun_s: float


class Deliveries(msgspec.Struct, frozen=True):
    """All deliveries under way."""

    deliveries: list[DeliveryView]
