"""Who stands by for which stage: the stage most likely to be lost first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from console.planner.candidates import allowed, place_of
from console.planner.costs import SCRATCH_BYTES, Costs
from console.planner.types import AgentFacts, ModelFacts, Plan, PlannedStage, Rules, Standby

NO_RULES = Rules()
MOST_STAY = 0.98
"""Nobody is surer than this to stay: even a PC that never rests otherwise may be switched off."""


class _Spare(NamedTuple):
    """A PC that is not in the plan, and what it may stand by for beside what it does already."""

    agent: AgentFacts
    taken_bytes: int
    stages: tuple[int, ...]


def choose_standbys(
    plan: Plan,
    model: ModelFacts,
    agents: Sequence[AgentFacts],
    *,
    count: int,
    kind: Literal["warm", "hot"] = "warm",
    scratch_bytes: int = SCRATCH_BYTES,
    rules: Rules = NO_RULES,
    busy: Collection[str] = (),
) -> list[Standby]:
    """Choose up to `count` standbys for the stages of a plan.

    Each goes to the stage whose PC and standbys are most likely to leave together; of the PCs that could take it over,
    the one that stays longest is taken, then the one with the least to fetch, then the fastest. A hot standby takes
    memory for every stage it stands by for; a warm one has the units on its disk and needs room for one stage at a
    time. Nobody stands by for a stage of its own, for the same stage twice, or across a border that plans keep to;
    PCs in `busy` are left out. Fewer are returned where nobody is left who could. Does not depend on the order of
    `agents`.
    """
    everyone = allowed(agents, Rules(excluded=rules.excluded))
    costs = Costs(
        model,
        everyone,
        context_tokens=plan.context_tokens,
        streams=plan.streams,
        scratch_bytes=scratch_bytes,
        limits=rules.limits,
    )
    by_id = {agent.device_id: agent for agent in everyone}
    serving = {stage.device_id for stage in plan.stages}
    here = {place_of(by_id[one], rules.crossing) for one in serving if one in by_id}
    spares = {
        agent.device_id: _Spare(agent, 0, ())
        for agent in everyone
        if agent.device_id not in serving
        and agent.device_id not in busy
        and place_of(agent, rules.crossing) in here
        and not _pinned_elsewhere(agent, rules)
    }
    leaving = [1 - _stay(by_id.get(stage.device_id)) for stage in plan.stages]
    chosen: list[Standby] = []
    while len(chosen) < count:
        found = _next(costs, plan, spares, leaving, kind)
        if found is None:
            break
        index, spare = found
        stage, agent = plan.stages[index], spare.agent
        fetch_bytes = costs.fetch_bytes(agent, stage.first, stage.last)
        chosen.append(
            Standby(
                stage=index,
                device_id=agent.device_id,
                name=agent.name,
                device=agent.device,
                engine=agent.engine,
                first=stage.first,
                last=stage.last,
                kind=kind,
                memory_bytes=costs.stage_memory(stage.first, stage.last),
                fetch_bytes=fetch_bytes,
                reason=_reason(index, stage, agent, leaving[index], fetch_bytes),
            )
        )
        leaving[index] *= 1 - _stay(agent)
        taken = spare.taken_bytes + (costs.stage_memory(stage.first, stage.last) if kind == "hot" else 0)
        spares[agent.device_id] = _Spare(agent, taken, (*spare.stages, index))
    return chosen


def _next(
    costs: Costs, plan: Plan, spares: Mapping[str, _Spare], leaving: Sequence[float], kind: str
) -> tuple[int, _Spare] | None:
    """Return the stage that needs a standby most and has somebody for it, and who that is."""
    for index in sorted(range(len(leaving)), key=lambda index: (-leaving[index], index)):
        stage = plan.stages[index]
        able = [spare for spare in spares.values() if index not in spare.stages and _can(costs, spare, stage, kind)]
        if able:
            return index, min(able, key=lambda spare: _order(costs, spare, stage))
    return None


def _can(costs: Costs, spare: _Spare, stage: PlannedStage, kind: str) -> bool:
    if not costs.fits(spare.agent, stage.first, stage.last):
        return False
    needed = spare.taken_bytes + costs.stage_memory(stage.first, stage.last)
    return kind == "warm" or needed <= costs.budget(spare.agent)


def _order(costs: Costs, spare: _Spare, stage: PlannedStage) -> tuple[int, float, int, float, str]:
    agent = spare.agent
    return (
        len(spare.stages),
        -round(agent.stay, 1),
        costs.fetch_bytes(agent, stage.first, stage.last),
        costs.ms(agent, stage.first, stage.last) + costs.hop_ms(agent),
        agent.device_id,
    )


def _reason(index: int, stage: PlannedStage, agent: AgentFacts, leaving: float, fetch_bytes: int) -> str:
    holds = "is the likeliest to stay of those with room" if fetch_bytes else "holds all of its units already"
    return f"Stage {index} on {stage.name} is lost with a chance of {100 * leaving:.0f}%; {agent.name} {holds}."


def _pinned_elsewhere(agent: AgentFacts, rules: Rules) -> bool:
    return any(pin.device_id == agent.device_id for pin in rules.pins)


def _stay(agent: AgentFacts | None) -> float:
    """A PC that is gone already covers nothing."""
    return 0.0 if agent is None else min(max(agent.stay, 0.0), MOST_STAY)
