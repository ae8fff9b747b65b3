"""How far a deployment is, from the events it tells. Pure: no Qt, time comes in as seconds of any clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from console.api.admin import types as wire
from console.gui.models.texts import size_text

QUIET_S = 60.0
"""A PC that fetches or loads says so several times a minute; a longer silence is worth a word."""
FETCH, LOAD = "fetch", "load"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage on its way: `share` 0 to 1 of what it does now, None for nobody knows."""

    number: int
    device_id: str
    device_name: str
    first: int
    last: int
    said: str = "waits"
    share: float | None = 0.0
    is_up: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """A deployment as it was told. `end` is Ready or Broken; `lost` why nothing more is heard of it."""

    request: wire.DeployRequest
    stages: tuple[StageProgress, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    end: wire.Ready | wire.Broken | None = None
    lost: str = ""
    heard_s: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether more will be heard."""
        return self.end is None and not self.lost


def after(rollout: Rollout, event: wire.DeployEvent, now_s: float) -> Rollout:
    """Return how far it is after an event."""
    rollout = replace(rollout, heard_s=now_s)
    match event:
        case wire.Planned():
            stages = tuple(
                StageProgress(stage.stage, stage.device_id, stage.device_name, stage.first, stage.last)
                for stage in event.stages
            )
            # Pipelines come up one after the other; a plan that is not up yet was made anew.
            before = rollout.stages if all(stage.is_up for stage in rollout.stages) else ()
            return replace(rollout, stages=before + stages, reasons=tuple(event.reasons))
        case wire.Loading():
            return _with_stage(rollout, event, *_loading(event), is_up=False)
        case wire.StageUp():
            took = f"loaded in {event.load_ms / 1000:.1f} s, {event.engine}, {size_text(event.memory_bytes)}"
            return _with_stage(rollout, event, took, 1.0, is_up=True)
        case wire.Note():
            return replace(rollout, notes=(*rollout.notes, event.message))
        case wire.Ready() | wire.Broken():
            return replace(rollout, end=event)


def _loading(event: wire.Loading) -> tuple[str, float | None]:
    if event.phase == FETCH and event.total:
        return f"fetches {size_text(event.done)} of {size_text(event.total)}", event.done / event.total
    return "loads its layers", None


def _with_stage(
    rollout: Rollout, event: wire.Loading | wire.StageUp, said: str, share: float | None, *, is_up: bool
) -> Rollout:
    stages = tuple(
        replace(stage, said=said, share=share, is_up=is_up)
        if (stage.number, stage.device_name) == (event.stage, event.device_name)
        else stage
        for stage in rollout.stages
    )
    return replace(rollout, stages=stages)


def headline(rollout: Rollout, now_s: float) -> tuple[str, bool]:
    """Say how a deployment is, and whether that is bad: what happened and what to do."""
    match rollout.end:
        case wire.Ready(probe_ms=probe_ms):
            return f"Ready: a token came through all stages in {probe_ms:.0f} ms.", False
        case wire.Broken(message=message):
            return f"It failed: {message} What was served before is served on.", True
    if rollout.lost:
        return f"{rollout.lost} The deployment itself goes on; the list of models shows how it is.", True
    quiet_s = now_s - rollout.heard_s
    if rollout.heard_s and quiet_s > QUIET_S:
        return f"Nothing was heard for {quiet_s:.0f} s. A PC that is lost is given up by itself; or take it down.", True
    up = sum(stage.is_up for stage in rollout.stages)
    if rollout.stages and up == len(rollout.stages):
        return "All stages are loaded; the first token is on its way.", False
    if rollout.stages:
        return f"{up} of {len(rollout.stages)} stages are loaded.", False
    return "The planner chooses the PCs.", False
