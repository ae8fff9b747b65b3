"""Looks at plans that somebody made by hand: what they cost by the planner's own measure, which rules they break. Pure.

What checks clean may be deployed as it is. What the planner makes checks clean, and is worth what the planner said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from console.planner.candidates import place_name, place_of
from console.planner.costs import MB, SCRATCH_BYTES, Costs
from console.planner.drafts import Draft
from console.planner.ranges import moved_layers, planned_stage, written_down
from console.planner.reasons import assumed_reasons, names_text, size_text, slowest_reasons, stay_reasons
from console.planner.types import AgentFacts, ModelFacts, Plan, PlannedStage, Rules
from shard_export.library.counts import counted

NO_RULES = Rules()
NOBODY: Mapping[str, str] = MappingProxyType({})

FaultKind = Literal["empty", "cover", "away", "excluded", "twice", "memory", "layers", "place", "pin"]


class GivenStage(msgspec.Struct, frozen=True):
    """Somebody's word that a PC runs the layers `first <= i < last`. Nothing of it is sure: PC, order, numbers."""

    device_id: str
    first: int
    last: int


Given = Sequence[Sequence[GivenStage]]
"""The stages of each pipeline, in their order."""


class Fault(msgspec.Struct, frozen=True):
    """Why a plan cannot be deployed, in a sentence; `pipeline` and `stage` say where (-1: nowhere in particular)."""

    kind: FaultKind
    text: str
    pipeline: int = -1
    stage: int = -1


class CheckedStage(msgspec.Struct, frozen=True):
    """A stage with its costs; `budget_bytes` is what its PC may give to it, `moved_layers` how many are new to the PC.

    The costs are zero where the PC cannot be used or the layers are not the model's.
    """

    stage: PlannedStage
    budget_bytes: int = 0
    moved_layers: int = 0


class CheckedPipeline(msgspec.Struct, frozen=True):
    """One pipeline. `plan` is how the planner writes it down: None while a layer or a PC is missing."""

    stages: list[CheckedStage]
    plan: Plan | None


class UsablePc(msgspec.Struct, frozen=True):
    """A PC that may be part of the plan: what it has for a stage, and how long it takes for a layer."""

    device_id: str
    name: str
    budget_bytes: int
    layer_ms: float
    measured: bool
    site: str = ""
    network: str = ""


class CheckedPlan(msgspec.Struct, frozen=True):
    """What a plan made by hand would be for a model of so many `layers`.

    It may be deployed when there are no `faults`; `notes` are good to know. `runs`: something of the model runs now;
    then `joins` and `leaves` name the PCs that are only in this plan, and only in what runs, over all pipelines.
    """

    model_id: str
    layers: int
    pipelines: list[CheckedPipeline]
    faults: list[Fault]
    notes: list[str]
    usable: list[UsablePc]
    runs: bool = False
    joins: list[str] = []
    leaves: list[str] = []


def check_given(
    model: ModelFacts,
    agents: Sequence[AgentFacts],
    given: Given,
    *,
    context_tokens: int,
    streams: int,
    scratch_bytes: int = SCRATCH_BYTES,
    rules: Rules = NO_RULES,
    current: Sequence[Plan] = (),
    names: Mapping[str, str] = NOBODY,
) -> CheckedPlan:
    """Check a plan: `agents` are the PCs that may be used now, `current` the running pipelines of the model.

    `names` says how people call PCs that are not among `agents`. Never raises.
    """
    allowed = sorted((one for one in agents if one.device_id not in rules.excluded), key=lambda one: one.device_id)
    costs = Costs(
        model,
        allowed,
        context_tokens=context_tokens,
        streams=streams,
        scratch_bytes=scratch_bytes,
        limits=rules.limits,
    )
    look = _Look(costs, agents, rules, names, current)
    pipelines = [look.at(stages, context_tokens) for stages in given]
    notes = dict.fromkeys(note for one in pipelines if one.plan is not None for note in one.plan.reasons)
    usable = [_usable(costs, agent) for agent in sorted(allowed, key=lambda one: (one.name, one.device_id))]
    faults = list(look.faults(given))
    joins, leaves = look.changes(given)
    return CheckedPlan(
        model.model_id, model.layers, pipelines, faults, list(notes), usable, bool(current), joins, leaves
    )


class _Look:
    """Looks at the pipelines of one plan."""

    def __init__(
        self,
        costs: Costs,
        agents: Sequence[AgentFacts],
        rules: Rules,
        names: Mapping[str, str],
        current: Sequence[Plan],
    ) -> None:
        self._costs = costs
        # Each PC is in one of them: what it runs says enough, whatever their numbers are.
        self._now = {stage.device_id: stage for plan in current for stage in plan.stages}
        self._agents = {agent.device_id: agent for agent in agents}
        self._rules = rules
        self._names = names

    def at(self, stages: Sequence[GivenStage], context_tokens: int) -> CheckedPipeline:
        """Work out what one pipeline costs, as far as that can be said."""
        ranges = [(self._agents[one.device_id], one.first, one.last) for one in stages if self._is_known(one)]
        plan = None
        if stages and len(ranges) == len(stages) and not any(self._uncovered(stages)):
            draft = Draft.of(self._costs, ranges)
            plan = written_down(self._costs, draft, self._notes(draft), context_tokens, self._ranges())
        return CheckedPipeline([self._stage(one) for one in stages], plan)

    def changes(self, given: Given) -> tuple[list[str], list[str]]:
        """Name the PCs that would come to what runs, and those that would leave it."""
        if not self._now:
            return [], []
        used = dict.fromkeys(one.device_id for stages in given for one in stages)
        joins = [self._name(device_id) for device_id in used if device_id not in self._now]
        return joins, [stage.name for device_id, stage in self._now.items() if device_id not in used]

    def _ranges(self) -> dict[str, tuple[int, int]]:
        return {device_id: (stage.first, stage.last) for device_id, stage in self._now.items()}

    def faults(self, given: Given) -> Iterator[Fault]:
        """Yield all that keeps the plan from being deployed."""
        if not given:
            yield Fault("empty", "The plan has no pipeline: add one.")
        times = Counter(one.device_id for stages in given for one in stages)
        for number, stages in enumerate(given):
            if not stages:
                yield Fault("empty", f"Pipeline {number + 1} has no stages: give it some, or take it away.", number)
            for index, text in self._uncovered(stages):
                yield Fault("cover", text, number, index)
            for index, one in enumerate(stages):
                for kind, text in self._of_stage(one, times[one.device_id]):
                    yield Fault(kind, text, number, index)
            yield from self._of_place(stages, number)
        yield from self._of_pins(given)

    def _stage(self, one: GivenStage) -> CheckedStage:
        agent = self._agents.get(one.device_id)
        budget = 0 if agent is None else self._costs.budget(agent)
        if agent is None or not self._is_known(one):
            name = self._name(one.device_id)
            return CheckedStage(PlannedStage(one.device_id, name, "", "auto", one.first, one.last, 0.0, 0), budget)
        stage = planned_stage(self._costs, agent, one.first, one.last)
        return CheckedStage(stage, budget, moved_layers(stage, self._ranges()) if self._now else 0)

    def _is_known(self, one: GivenStage) -> bool:
        return one.device_id in self._agents and 0 <= one.first < one.last <= self._costs.layers

    def _name(self, device_id: str) -> str:
        agent = self._agents.get(device_id)
        return self._names.get(device_id, device_id[:8]) if agent is None else agent.name

    def _uncovered(self, stages: Sequence[GivenStage]) -> Iterator[tuple[int, str]]:
        """Yield where layers are missing, twice or not the model's: the stage's index and a sentence."""
        layers, reached = self._costs.layers, 0
        for index, one in enumerate(stages):
            if not 0 <= one.first < one.last <= layers:
                named = f"{one.first} to {one.last - 1}"
                yield index, f"{self._name(one.device_id)} has layers {named}; the model's are 0 to {layers - 1}."
                continue
            if one.first > reached:
                yield index, _on_no_pc(reached, one.first)
            if one.first < reached:
                yield index, f"{_layers(one.first, min(reached, one.last))} on two PCs: move the border."
            reached = max(reached, one.last)
        if stages and reached < layers:
            yield len(stages) - 1, _on_no_pc(reached, layers)

    def _of_stage(self, one: GivenStage, times: int) -> Iterator[tuple[FaultKind, str]]:
        name, agent = self._name(one.device_id), self._agents.get(one.device_id)
        if times > 1:
            yield "twice", f"{name} has {counted(times, 'stage')} of the plan: a PC can have one."
        if one.device_id in self._rules.excluded:
            yield "excluded", f"{name} is left out by the administrator: allow it, or give its layers to another PC."
        elif agent is None:
            yield "away", f"{name} cannot be used now: wake it, or give its layers to another PC."
        if agent is None or not self._is_known(one):
            return
        count, most = one.last - one.first, self._costs.most_layers(agent)
        if count > most:
            yield (
                "layers",
                f"{name} has {counted(count, 'layer')} and is held to {most} by the administrator: give it fewer.",
            )
        if self._costs.memory(one.first, one.last) > self._costs.room(agent):
            needed = size_text(self._costs.stage_memory(one.first, one.last))
            has = size_text(self._costs.budget(agent))
            yield "memory", f"{name} needs {needed} for its layers and has {has}: give it fewer, or promise less."

    def _of_place(self, stages: Sequence[GivenStage], number: int) -> Iterator[Fault]:
        agents = [self._agents[one.device_id] for one in stages if one.device_id in self._agents]
        places = sorted({place_of(agent, self._rules.crossing) for agent in agents})
        if len(places) > 1:
            named = names_text([place_name(place) or "a place without a name" for place in places])
            text = f"Pipeline {number + 1} spans {named}: keep it in one of them, or let it cross."
            yield Fault("place", text, number)

    def _of_pins(self, given: Given) -> Iterator[Fault]:
        ranges = {one.device_id: (one.first, one.last) for stages in given for one in stages}
        for pin in self._rules.pins:
            has = ranges.get(pin.device_id)
            if has is None:
                yield Fault("pin", f"{self._name(pin.device_id)} is pinned and has no layers: give it some.")
            elif pin.first is not None and pin.last is not None and has != (pin.first, pin.last):
                wanted = f"layers {pin.first} to {pin.last - 1}"
                yield Fault("pin", f"{self._name(pin.device_id)} is pinned to {wanted}: give it these, or unpin it.")

    def _notes(self, draft: Draft) -> list[str]:
        notes = slowest_reasons(self._costs, draft) + assumed_reasons(self._costs, draft) + stay_reasons(draft)
        target = self._rules.target_tokens_per_second
        if target is not None and not draft.meets(target):
            rate = draft.full_tokens_per_second
            notes.append(f"The wanted {target:.1f} tokens a second are not reached: it has {rate:.1f}.")
        unlikely = [agent.name for agent, _, _ in draft.ranges if agent.stay < self._rules.least_stay]
        if unlikely:
            notes.append(f"Not likely to stay: {names_text(unlikely)}.")
        return notes


def _usable(costs: Costs, agent: AgentFacts) -> UsablePc:
    rates = costs.rates(agent)
    layer_ms = costs.read[-1] / costs.layers / MB * rates.per_mb
    measured = agent.speed is not None or agent.ms_per_mb is not None
    return UsablePc(agent.device_id, agent.name, costs.budget(agent), layer_ms, measured, agent.site, agent.network)


def _layers(first: int, last: int) -> str:
    return f"Layer {first} is" if last - first == 1 else f"Layers {first} to {last - 1} are"


def _on_no_pc(first: int, last: int) -> str:
    return f"{_layers(first, last)} on no PC: give {'it' if last - first == 1 else 'them'} to one."
