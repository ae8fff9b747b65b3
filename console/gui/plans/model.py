"""A plan while somebody edits it, and every edit as a function from one plan to the next. No Qt, no I/O.

Whatever is done, the stages of each pipeline hold every layer of the model once, in order, none of them is empty, and
no PC has two. An edit that is not possible returns the plan itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from console.api.admin import types as wire
from console.api.admin.plan_types import Plans


class Stage(NamedTuple):
    """Layers `first <= i < last` on a PC."""

    device_id: str
    first: int
    last: int


class Place(NamedTuple):
    """Which stage of which pipeline, both from 0."""

    pipeline: int
    stage: int


Lane = tuple[Stage, ...]


class Edited(msgspec.Struct, frozen=True):
    """A plan: the stages of each pipeline, and in `settings` all else that is asked for (without a plan of its own).

    `waiting` counts the pipelines that were asked for and have no PCs now: none of their layers is anywhere yet.
    """

    settings: wire.DeployRequest
    layers: int
    lanes: tuple[Lane, ...] = ()
    waiting: int = 0

    @property
    def model(self) -> str:
        return self.settings.model

    @property
    def pinned(self) -> frozenset[str]:
        """The PCs that have to take part."""
        return frozenset(pin.device for pin in self.settings.rules.pins)

    @property
    def excluded(self) -> frozenset[str]:
        """The PCs that are left out."""
        return frozenset(self.settings.rules.exclude)

    @property
    def used(self) -> dict[str, Place]:
        """Who has which stage."""
        return {
            stage.device_id: Place(number, index)
            for number, lane in enumerate(self.lanes)
            for index, stage in enumerate(lane)
        }

    def at(self, place: Place) -> Stage | None:
        """Return a stage; None if there is none."""
        if not 0 <= place.pipeline < len(self.lanes) or not 0 <= place.stage < len(self.lanes[place.pipeline]):
            return None
        return self.lanes[place.pipeline][place.stage]

    def request(self) -> wire.DeployRequest:
        """Return what to ask the service for. Where only some PCs may be used, those of the plan are among them."""
        plan = [[wire.GivenStage(*stage) for stage in lane] for lane in self.lanes]
        devices = list(dict.fromkeys([*self.settings.devices, *self.used])) if self.settings.devices else []
        return msgspec.structs.replace(
            self.settings, stages=None, replicas=max(1, len(plan)), plan=plan, devices=devices
        )

    def again(self) -> wire.DeployRequest:
        """Return what to ask the service for to have what runs back, pipelines that wait for PCs included."""
        if not self.waiting:
            return self.request()
        return msgspec.structs.replace(self.settings, replicas=len(self.lanes) + self.waiting)


def running(views: Sequence[wire.PipelineView], layers: int) -> Edited | None:
    """Return what runs of a model as a plan; None if it is not deployed.

    What is down has the stages that were asked for; where nobody asked for any, it waits.
    """
    ordered = sorted(views, key=lambda view: view.number)
    if not ordered:
        return None
    settings = _settings(ordered[0].request)
    lanes = []
    for view in ordered:
        lane = tuple(Stage(one.device_id, one.first, one.last) for one in view.stages)
        if not lane and view.number < len(view.request.plan):
            lane = tuple(Stage(one.device, one.first, one.last) for one in view.request.plan[view.number])
        if covers(lane, layers):
            lanes.append(lane)
    wanted = max(len(ordered), ordered[0].request.replicas)
    return Edited(settings, layers, tuple(lanes), wanted - len(lanes))


def with_plans(plan: Edited, made: Plans) -> Edited:
    """Return a plan with the stages that the planner chose."""
    lanes = tuple(
        tuple(Stage(stage.device_id, stage.first, stage.last) for stage in pipeline.plan.stages)
        for pipeline in made.pipelines
    )
    if not all(covers(lane, plan.layers) for lane in lanes):
        return plan
    return msgspec.structs.replace(plan, lanes=lanes, waiting=max(0, len(plan.lanes) + plan.waiting - len(lanes)))


def covers(lane: Sequence[Stage], layers: int) -> bool:
    """Whether stages hold every layer once, in order."""
    borders = [0, *(stage.last for stage in lane)]
    in_order = all(stage.first == border < stage.last for stage, border in zip(lane, borders[:-1], strict=True))
    return bool(lane) and in_order and borders[-1] == layers


def move_border(plan: Edited, place: Place, border: int) -> Edited:
    """Let a stage end before layer `border`, as near as can be: what it gains the next one loses. Not for the last."""
    stage, after = plan.at(place), plan.at(place._replace(stage=place.stage + 1))
    if stage is None or after is None:
        return plan
    border = max(stage.first + 1, min(border, after.last - 1))
    if border == stage.last:
        return plan
    changed = [stage._replace(last=border), after._replace(first=border)]
    return _spliced(plan, place, 2, changed)


def give(plan: Edited, place: Place, device_id: str) -> Edited:
    """Give a stage to another PC; one that has a stage itself gets this PC's place in return."""
    stage = plan.at(place)
    if stage is None or stage.device_id == device_id:
        return plan
    other = plan.used.get(device_id)
    if other is not None:
        taken = plan.lanes[other.pipeline][other.stage]
        plan = _spliced(plan, other, 1, [taken._replace(device_id=stage.device_id)])
    return _spliced(plan, place, 1, [stage._replace(device_id=device_id)])


def split(plan: Edited, place: Place, device_id: str) -> Edited:
    """Give the second half of a stage to a PC that has none."""
    stage = plan.at(place)
    if stage is None or stage.last - stage.first < 2 or device_id in plan.used:
        return plan
    middle = (stage.first + stage.last + 1) // 2
    return _spliced(plan, place, 1, [stage._replace(last=middle), Stage(device_id, middle, stage.last)])


def merge(plan: Edited, place: Place) -> Edited:
    """Let a stage take over the next one's layers; the last one those of the one before."""
    stage, after = plan.at(place), plan.at(place._replace(stage=place.stage + 1))
    if stage is None:
        return plan
    if after is not None:
        return _spliced(plan, place, 2, [stage._replace(last=after.last)])
    before = plan.at(place._replace(stage=place.stage - 1)) if place.stage else None
    if before is None:
        return plan
    return _spliced(plan, place._replace(stage=place.stage - 1), 2, [stage._replace(first=before.first)])


def add_pipeline(plan: Edited, device_id: str) -> Edited:
    """Add a pipeline, whole on a PC that has no stage: one that waits for PCs, if any does."""
    if device_id in plan.used or plan.layers < 1:
        return plan
    lanes = (*plan.lanes, (Stage(device_id, 0, plan.layers),))
    return msgspec.structs.replace(plan, lanes=lanes, waiting=max(0, plan.waiting - 1))


def remove_pipeline(plan: Edited, number: int) -> Edited:
    """Take a pipeline away, but not the only one."""
    if not 0 <= number < len(plan.lanes) or len(plan.lanes) < 2:
        return plan
    return msgspec.structs.replace(plan, lanes=plan.lanes[:number] + plan.lanes[number + 1 :])


def pin(plan: Edited, device_id: str, on: bool) -> Edited:
    """Have a PC take part, or not any more; one that was left out is not any more."""
    if on == (device_id in plan.pinned):
        return plan
    rules = plan.settings.rules
    pins = [one for one in rules.pins if one.device != device_id] + ([wire.PinnedPc(device_id)] if on else [])
    exclude = [one for one in rules.exclude if one != device_id] if on else rules.exclude
    return _ruled(plan, msgspec.structs.replace(rules, pins=pins, exclude=exclude))


def leave_out(plan: Edited, device_id: str, on: bool) -> Edited:
    """Leave a PC out, or not any more; one that was pinned is not any more. A stage of it stays until it is moved."""
    if on == (device_id in plan.excluded):
        return plan
    rules = plan.settings.rules
    exclude = [one for one in rules.exclude if one != device_id] + ([device_id] if on else [])
    pins = [one for one in rules.pins if one.device != device_id] if on else rules.pins
    return _ruled(plan, msgspec.structs.replace(rules, pins=pins, exclude=exclude))


def promise(plan: Edited, *, context: int, streams: int) -> Edited:
    """Promise answers of other lengths and numbers, which is what memory is needed for."""
    if (context, streams) == (plan.settings.context, plan.settings.streams):
        return plan
    return msgspec.structs.replace(
        plan, settings=msgspec.structs.replace(plan.settings, context=context, streams=streams)
    )


def _spliced(plan: Edited, place: Place, count: int, stages: Sequence[Stage]) -> Edited:
    lane = plan.lanes[place.pipeline]
    changed = (*lane[: place.stage], *stages, *lane[place.stage + count :])
    lanes = (*plan.lanes[: place.pipeline], changed, *plan.lanes[place.pipeline + 1 :])
    return msgspec.structs.replace(plan, lanes=lanes)


def _ruled(plan: Edited, rules: wire.PlanRules) -> Edited:
    return msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, rules=rules))


def _settings(request: wire.DeployRequest) -> wire.DeployRequest:
    return msgspec.structs.replace(request, stages=None, replicas=1, plan=[])
