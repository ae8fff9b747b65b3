"""A pipeline that is up: its plan, what its PCs hold, and the coordinator that answers. Bookkeeping only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from agent.link.messages import LayerRange
from agent.stage.types import Epoch, PipelineId, StageReport
from console.fleet.hub import Hub
from console.pipeline.coordinator import Coordinator
from console.pipeline.speculation.draft_model import DraftModel
from console.pipeline.types import StageInfo
from console.planner.types import Plan, PlannedStage


class Held(msgspec.Struct, frozen=True):
    """A loaded stage: on the route, or in reserve (a hot standby). `epoch` is the one it is in."""

    stage: PlannedStage
    epoch: Epoch
    report: StageReport

    def is_of(self, stage: PlannedStage) -> bool:
        """Whether this is what a plan wants on that PC."""
        mine = self.stage
        return (mine.device_id, mine.first, mine.last, mine.device, mine.engine) == (
            stage.device_id, stage.first, stage.last, stage.device, stage.engine,
        )  # fmt: skip


@dataclass(eq=False)
class LivePipeline:
    """A model that answered a probe. It changes when PCs leave and others take over; the coordinator stays."""

    pipeline: PipelineId
    epoch: Epoch
    plan: Plan
    held: dict[str, Held]
    """By device, everything that is loaded for this pipeline and was not lost."""
    coordinator: Coordinator
    probe_ms: float
    read_mb: list[float]
    """Megabytes of weights each stage reads in a decode step, as the planner counts them."""
    draft_model: DraftModel | None = None
    lost: set[str] = field(default_factory=set)
    """Devices that were lost since the last takeover began."""
    warm: dict[str, list[LayerRange]] = field(default_factory=dict)
    """By device, what was brought to it so that it can load it at once."""
    remark: str = ""
    """What an administrator should know of its PCs."""
    names: dict[str, str] = field(default_factory=dict)
    """How people call those."""

    @property
    def device_ids(self) -> list[str]:
        """The PCs on the route, in its order."""
        return [stage.device_id for stage in self.plan.stages]

    @property
    def standbys(self) -> list[Held]:
        """What is loaded in reserve."""
        route = set(self.device_ids)
        return [held for device_id, held in self.held.items() if device_id not in route]


def infos_of(plan: Plan, reports: Sequence[StageReport]) -> list[StageInfo]:
    """Describe the stages as the coordinator knows them."""
    return [
        StageInfo(
            device_id=stage.device_id,
            device_name=stage.name,
            first=stage.first,
            last=stage.last,
            engine=report.engine,
            fused=report.fused,
            note=report.engine_note,
            infer_ms=report.infer_ms,
            constrains=report.constrains,
        )
        for stage, report in zip(plan.stages, reports, strict=True)
    ]


async def take_down(hub: Hub, live: LivePipeline) -> None:
    """End the streams, drop the route and free the PCs that are still there."""
    await live.coordinator.close()
    if live.draft_model is not None:
        await live.draft_model.close()
    await withdraw(hub, live.pipeline, [*live.device_ids, *live.held])


async def withdraw(hub: Hub, pipeline: PipelineId, device_ids: Sequence[str]) -> None:
    """Drop a route and unload its stages; PCs that are gone hold nothing."""
    hub.clear_route(pipeline)
    for device_id in dict.fromkeys(device_ids):
        await hub.unload(device_id, pipeline)
