"""One deployment's record: what was asked, what the registry keeps of it, what is up. Bookkeeping only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from agent.link.messages import LayerRange
from agent.stage.types import PipelineId
from agent.volunteer.clauses import told
from console.api.admin import types as wire
from console.deployments.live import LivePipeline
from console.errors import DeployError, DeployFailed
from console.fleet.direct import StageLink
from console.fleet.events import AgentJoined, AgentLost, AgentYielded, FleetEvent, StageDied
from console.libraries import LoadedLibrary

FRESH_S = 60.0
"""A probe older than this proves nothing any more."""
AVOID_S = 30.0
"""How long a PC that failed to take over, or to get ready for it, is the last choice."""


class SavedStage(msgspec.Struct, frozen=True):
    """What the registry remembers of a planned stage."""

    device_id: str
    first: int
    last: int


class SavedPlan(msgspec.Struct, frozen=True):
    """What the registry remembers of a deployment beside the request."""

    pipeline: PipelineId
    created_s: int
    stages: list[SavedStage] = []
    number: int = 0
    """Which of the model's pipelines this is."""


@dataclass(eq=False)
class Entry:
    """One deployment. `live` is set exactly while it can answer."""

    request: wire.DeployRequest
    library: LoadedLibrary | None
    digest: str
    plan: SavedPlan
    epoch: int
    state: wire.DeploymentState
    message: str = ""
    live: LivePipeline | None = None
    job: asyncio.Task[None] | None = None
    keeper: asyncio.Task[None] | None = None
    listeners: list[asyncio.Queue[wire.DeployEvent]] = field(default_factory=list)
    waiting_since_s: float = 0.0
    failures: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    tending: asyncio.Task[None] | None = None
    """What prepares standbys."""
    tend_again_s: float = 0.0
    leaving: set[str] = field(default_factory=set)
    """PCs that wait until others have taken their stages over."""
    try_again: asyncio.Event = field(default_factory=asyncio.Event)
    passed_by: dict[str, float] = field(default_factory=dict)
    """PCs that failed as standbys, and until when (monotonic seconds) they are the last choice."""

    def kept_by(self, device_id: str) -> list[LayerRange]:
        """Return the layers this deployment counts on being in a PC's store."""
        if self.state == "failed":
            return []
        wanted = [
            LayerRange(self.digest, stage.first, stage.last)
            for stage in self.plan.stages
            if stage.device_id == device_id
        ]
        if self.live is not None:
            held = self.live.held.get(device_id)
            wanted += [LayerRange(self.digest, held.stage.first, held.stage.last)] if held is not None else []
            wanted += self.live.warm.get(device_id, [])
        return list(dict.fromkeys(wanted))

    @property
    def is_proven(self) -> bool:
        """Whether a token came through the stages there are now."""
        return self.live is not None and self.live.coordinator.is_proven

    @property
    def model(self) -> str:
        return self.request.model

    @property
    def number(self) -> int:
        """Which of the model's pipelines this is, from 0; it stays the same when PCs change."""
        return self.plan.number

    @property
    def key(self) -> str:
        """The name of this pipeline among all; that of a model's first one is the model's."""
        return f"{self.model}#{self.number + 1}" if self.number else self.model

    def tell(self, event: wire.DeployEvent) -> None:
        """Pass an event on to whoever follows the rollout."""
        for listener in self.listeners:
            listener.put_nowait(event)

    def device_ids(self) -> list[str]:
        return [stage.device_id for stage in self.plan.stages]

    def leaving_route(self) -> list[str]:
        """List the PCs that serve and wait to leave."""
        return [] if self.live is None else [one for one in self.live.device_ids if one in self.leaving]

    def holders(self) -> list[str]:
        """List the PCs whose stores this deployment counts on."""
        more = [] if self.live is None else [*self.live.held, *self.live.warm]
        return [*self.device_ids(), *more]

    def loss_by(self, event: FleetEvent) -> str:
        """Say in a sentence why an event of the fleet takes a PC from what is up here; empty: it does not."""
        name = "" if isinstance(event, AgentJoined) else self.name_of(event.device_id)
        if not name or self.live is None:
            return ""
        if isinstance(event, AgentLost):
            # Some reasons are sentences already.
            return f"{name} left: {event.reason.rstrip('.')}."
        if isinstance(event, AgentYielded) and self.plan.pipeline in [pipeline for pipeline, _ in event.epochs]:
            return f"{name} went back to its owner ({told(event.reasons)})."
        if isinstance(event, StageDied):
            held = self.live.held.get(event.device_id)
            if held is not None and (self.plan.pipeline, held.epoch) == (event.pipeline, event.epoch):
                return f"The stage on {name} ended: {event.cause}"
        return ""

    def name_of(self, device_id: str) -> str:
        """Return how people call a PC that holds something of this model now; empty for any other."""
        if self.live is None:
            return ""
        stages = [*self.live.plan.stages, *(held.stage for held in self.live.held.values())]
        return next((stage.name for stage in stages if stage.device_id == device_id), "")

    def view(self, links: list[StageLink]) -> wire.PipelineView:
        """Describe it for windows and scripts; `links` is how steps reach its stages now."""
        view = wire.PipelineView(
            self.model, self.state, self.message, self.epoch, wire.Probe(message=self.message), self.request,
            number=self.number,
        )  # fmt: skip
        if self.live is None:
            return view
        live, status = self.live, self.live.coordinator.status()
        age_s = status.last_token_age_s if status.last_token_age_s >= 0 else None
        fresh = status.ready and age_s is not None and age_s <= FRESH_S
        return msgspec.structs.replace(
            view,
            message=" ".join(filter(None, (self.message, live.remark))),
            probe=wire.Probe(fresh, age_s, self.live.probe_ms, status.reason or ("" if fresh else "No fresh token.")),
            stages=status.stages,
            links=links,
            tokens_per_second=status.tokens_per_second,
            overhead_ms=status.overhead_ms_per_hop,
            running=status.streams_running,
            queued=status.streams_waiting,
            endings=status.endings,
            pace=status.pace,
            queue=status.queue,
            kept=status.kept_streams,
            speculation=status.speculation,
            standbys=self._standbys(live),
        )

    def _standbys(self, live: LivePipeline) -> list[wire.StandbyView]:
        hot = [held.stage for held in live.standbys]
        return [wire.StandbyView(one.device_id, one.name, "hot", one.first, one.last) for one in hot] + [
            wire.StandbyView(device_id, live.names.get(device_id, device_id), "warm", layers.first, layers.last)
            for device_id, ranges in live.warm.items()
            for layers in ranges
        ]


def broken(error: DeployError) -> wire.Broken:
    """Say a failed rollout as its last event."""
    if isinstance(error, DeployFailed):
        return wire.Broken(error.code, str(error), error.device_id, error.device_name)
    return wire.Broken("refused", str(error))
