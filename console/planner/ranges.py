"""Makes the plan of one pipeline: which PCs, how many, which ranges. Pure; the search itself is in `search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from console.planner.candidates import allowed, by_place
from console.planner.costs import SCRATCH_BYTES, Costs
from console.planner.counts import drafts_of
from console.planner.drafts import Draft, better, ranges_of
from console.planner.keeping import WORTH_MOVING, Kept, gain, kept_instead
from console.planner.reasons import impossible, reasons_for
from console.planner.tables import Tables
from console.planner.types import AgentFacts, ModelFacts, Pin, Plan, PlanImpossible, PlannedStage, Rules
from shard_export.library.counts import counted

NO_RULES = Rules()


def plan(
    model: ModelFacts,
    agents: Sequence[AgentFacts],
    *,
    context_tokens: int,
    streams: int,
    stages: int | None = None,
    scratch_bytes: int = SCRATCH_BYTES,
    rules: Rules = NO_RULES,
    current: Plan | None = None,
) -> Plan:
    """Choose PCs and ranges that hold `streams` streams of `context_tokens` each.

    In this order: memory, the wanted rate over all answers, the time of a token for one answer, few PCs, the chance
    that all of them stay, bytes to fetch, layers moved against `current`. Few PCs first: more of them have to be
    1.5% faster. `stages` forces that many. A `current` plan that still can be is kept unless the best one is a quarter
    better; of one that lost PCs, those that are left keep their layers unless that costs a quarter. The result does not
    depend on the order of `agents`. Raises PlanImpossible, which says what is missing.
    """
    usable = allowed(agents, rules)
    _check_counts(model, usable, stages, rules)
    costs = Costs(
        model,
        usable,
        context_tokens=context_tokens,
        streams=streams,
        scratch_bytes=scratch_bytes,
        limits=rules.limits,
    )
    tried = _drafts(costs, usable, stages, rules, current)
    if not tried:
        raise impossible(costs, usable, stages, rules, context_tokens)
    chosen, kept = _best(tried, rules), None
    if current is not None:
        kept = kept_instead(costs, chosen, current, usable, stages=stages, rules=rules)
        kept = kept or _repaired(costs, chosen, current, usable, stages=stages, rules=rules)
    final = chosen if kept is None else kept.draft
    reasons = reasons_for(costs, usable, final, tried, rules, forced=stages is not None)
    return written_down(costs, final, [kept.reason, *reasons] if kept else reasons, context_tokens, ranges_of(current))


def _repaired(
    costs: Costs, best: Draft, current: Plan, usable: Sequence[AgentFacts], *, stages: int | None, rules: Rules
) -> Kept | None:
    """Fill only the gaps of a running plan that lost PCs: who is left keeps its layers and need not load again."""
    by_id = {agent.device_id: agent for agent in usable}
    pinned = {pin.device_id for pin in rules.pins}
    left = [stage for stage in current.stages if stage.device_id in by_id and stage.device_id not in pinned]
    if current.model_id != costs.model.model_id or not left or len(left) == len(current.stages):
        return None
    if current.stages[-1].last != costs.layers:  # it was made for another export of the model
        return None
    keeping = tuple(Pin(stage.device_id, stage.first, stage.last) for stage in left)
    repairing = msgspec.structs.replace(rules, pins=(*rules.pins, *keeping))
    found = _drafts(costs, usable, stages, repairing, current, closely=False)
    if not found:
        return None
    draft = _best(found, rules)
    target = rules.target_tokens_per_second
    missed = target is not None and best.meets(target) and not draft.meets(target)
    if missed or gain(best, draft) >= WORTH_MOVING:
        return None
    names = ", ".join(by_id[stage.device_id].name for stage in left)
    return Kept(draft, f"{names} {'keeps its' if len(left) == 1 else 'keep their'} layers; only the gap is filled.")


def _best(drafts: Sequence[Draft], rules: Rules) -> Draft:
    chosen = drafts[0]
    for draft in drafts[1:]:
        if better(draft, chosen, rules.target_tokens_per_second):
            chosen = draft
    return chosen


def _drafts(
    costs: Costs,
    usable: Sequence[AgentFacts],
    stages: int | None,
    rules: Rules,
    current: Plan | None,
    *,
    closely: bool = True,
) -> list[Draft]:
    """Return what fits, in every place and number of stages: the fewest PCs first.

    PCs that are not likely to stay are looked at only where the model does not fit without them.
    """
    tables = Tables(costs, rules.pins)
    pinned = {pin.device_id for pin in rules.pins}
    likely = [agent for agent in usable if agent.stay >= rules.least_stay or agent.device_id in pinned]
    for some in [likely, usable] if len(likely) < len(usable) else [usable]:
        found: list[Draft] = []
        for agents in by_place(some, rules).values():
            found += drafts_of(tables, agents, stages, rules, ranges_of(current), closely=closely)
        if found:
            return sorted(found, key=lambda draft: (len(draft.ranges), -draft.stay, draft.device_ids))
    return []


def written_down(
    costs: Costs, draft: Draft, reasons: list[str], context_tokens: int, now: Mapping[str, tuple[int, int]]
) -> Plan:
    """Return a draft as the plan that it is; `now`: who runs which layers (empty: nobody does)."""
    planned = [planned_stage(costs, *place) for place in draft.ranges]
    return Plan(
        model_id=costs.model.model_id,
        context_tokens=context_tokens,
        streams=costs.streams,
        stages=planned,
        tokens_per_second=1000 / draft.token_ms,
        full_tokens_per_second=draft.full_tokens_per_second,
        reasons=reasons,
        stay=draft.stay,
        fetch_bytes=sum(stage.fetch_bytes for stage in planned),
        moved_layers=sum(moved_layers(stage, now) for stage in planned) if now else 0,
    )


def planned_stage(costs: Costs, agent: AgentFacts, first: int, last: int) -> PlannedStage:
    """Return a range on a PC with all that it costs there."""
    return PlannedStage(
        device_id=agent.device_id,
        name=agent.name,
        device=agent.device,
        engine=agent.engine,
        first=first,
        last=last,
        ms=costs.ms(agent, first, last),
        memory_bytes=costs.stage_memory(first, last),
        fetch_bytes=costs.fetch_bytes(agent, first, last),
        hop_ms=costs.hop_ms(agent),
    )


def moved_layers(stage: PlannedStage, now: Mapping[str, tuple[int, int]]) -> int:
    """Return how many layers of a stage its PC does not run now."""
    first, last = now.get(stage.device_id, (0, 0))
    return stage.last - stage.first - max(0, min(last, stage.last) - max(first, stage.first))


def _check_counts(model: ModelFacts, agents: Sequence[AgentFacts], stages: int | None, rules: Rules) -> None:
    names = {agent.device_id: agent.name for agent in agents}
    for pin in rules.pins:
        if pin.last is not None and pin.last > model.layers:
            raise PlanImpossible(
                f"{model.model_id} has {counted(model.layers, 'layer')}, numbered 0 to {model.layers - 1}: the pin of"
                f" {names[pin.device_id]} names {pin.first} to {pin.last - 1}. Change it."
            )
    if stages is not None and not 1 <= stages <= model.layers:
        raise PlanImpossible(
            f"{model.model_id} has {counted(model.layers, 'layer')}, so it cannot be split into "
            f"{counted(stages, 'stage')}: choose 1 to"
            f" {model.layers}."
        )
    wanted = stages or 1
    if len(agents) < wanted:
        missing = wanted - len(agents)
        raise PlanImpossible(
            f"{counted(wanted, 'PC is', 'PCs are')} needed for {model.model_id} and {len(agents)} can be"
            f" used now: enrol or wake {missing} more.",
            missing_agents=missing,
        )
