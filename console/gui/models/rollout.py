"""How far a deployment is, from the events it tells. Pure: no Qt, time comes in as seconds of any clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from console.api.admin import types as wire
from console.gui.times import ZERO, size_text
from shard_export.library.counts import counted

FETCHED = 0.8
"""How much of what a stage has to do is done when its layers are there; all of it when it is up."""
QUIET_S = 60.0
"""A PC that fetches or loads says so several times a minute; a longer silence is worth a word."""
FETCH, LOAD = "fetch", "load"
WAITS = "waits"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage on its way: `share` 0 to 1 of what it does now, None for nobody knows; `done` of all, never less."""

    number: int
    device_id: str
    device_name: str
    first: int
    last: int
    said: str = WAITS
    share: float | None = 0.0
    done: float = 0.0
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

    @property
    def pipelines(self) -> list[tuple[StageProgress, ...]]:
        """The stages of each pipeline that is on its way or up."""
        begins = [place for place, stage in enumerate(self.stages) if stage.number == 0]
        return [self.stages[first:last] for first, last in pairwise([*begins, len(self.stages)])]

    @property
    def share(self) -> float:
        """How much of all pipelines that were asked for is done, 0 to 1."""
        if isinstance(self.end, wire.Ready):
            return 1.0
        pipelines = self.pipelines
        done = sum(sum(stage.done for stage in stages) / len(stages) for stages in pipelines)
        return done / max(len(pipelines), self.request.replicas)


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
            up = [one for one in rollout.pipelines if all(stage.is_up for stage in one)]
            return replace(rollout, stages=sum([*up, stages], ()), reasons=tuple(event.reasons))
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
        return f"fetches {size_text(event.done, ZERO)} of {size_text(event.total)}", event.done / event.total
    return "loads its layers", None


def _with_stage(
    rollout: Rollout, event: wire.Loading | wire.StageUp, said: str, share: float | None, *, is_up: bool
) -> Rollout:
    done = 1.0 if is_up else FETCHED * (1.0 if share is None else min(1.0, share))
    stages = tuple(
        replace(stage, said=said, share=share, done=max(stage.done, done), is_up=is_up)
        if (stage.number, stage.device_name) == (event.stage, event.device_name)
        else stage
        for stage in rollout.stages
    )
    return replace(rollout, stages=stages)


def at_work(rollout: Rollout) -> str:
    """Say what a PC does now, and how many others are at it; empty where none does anything."""
    working = [stage for stage in rollout.stages if stage.said != WAITS and not stage.is_up]
    if not working or not rollout.goes_on:
        return ""
    more = len(working) - 1
    others = f"; {counted(more, 'more is', 'more are')} at it" if more else ""
    return f"{working[0].device_name} {working[0].said}{others}."


def headline(rollout: Rollout, now_s: float) -> tuple[str, bool]:
    """Say how a deployment is, and whether that is bad: what happened and what to do."""
    match rollout.end:
        case wire.Ready(probe_ms=probe_ms):
            return f"Ready: a token came through all stages in {probe_ms:.0f} ms.", False
        case wire.Broken(message=message):
            return f"It failed: {message} What was served before stays.", True
    if rollout.lost and not (rollout.stages or rollout.notes):
        return f"{rollout.lost} Whether it was begun, the list of models shows.", True
    if rollout.lost:
        return f"{rollout.lost} The deployment itself goes on; the list of models shows how it is.", True
    quiet_s = now_s - rollout.heard_s
    if rollout.heard_s and quiet_s > QUIET_S:
        return f"Nothing was heard for {quiet_s:.0f} s. A PC that is lost is given up by itself; or take it down.", True
    up = sum(stage.is_up for stage in rollout.stages)
    if rollout.stages and up == len(rollout.stages):
        return "All stages are loaded; the first token is on its way.", False
    if rollout.stages:
        return f"{up} of {counted(len(rollout.stages), 'stage is', 'stages are')} loaded.", False
    return "The planner chooses the PCs.", False
