"""Who takes a lost range over. Pure: what is known of the PCs in, the plan's stages out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from console.deployments.live import Held
from console.planner.types import AgentFacts, PlannedStage

HasUnits = Callable[[str, int, int], bool]
"""Whether a PC has the units of layers `first <= i < last` on its disk."""


def succeed(
    stages: Sequence[PlannedStage],
    held: Mapping[str, Held],
    agents: Sequence[AgentFacts],
    has: HasUnits,
    *,
    avoid: Collection[str] = (),
    lost: Collection[str] = (),
) -> list[PlannedStage] | None:
    """Return the stages with every lost one on a PC that takes exactly its range over; None if there is none for one.

    A stage whose PC still holds it stays there. For the others, in this order: a hot standby, which holds the range
    already; a PC that has the units; any that has the memory, the fastest first. PCs that just `lost` a stage come
    behind others like them, and those to `avoid` last.
    """
    chosen: list[PlannedStage | None] = [
        stage if stage.device_id in held and held[stage.device_id].is_of(stage) else None for stage in stages
    ]
    kept = {stage.device_id for stage in chosen if stage is not None}
    free = [agent for agent in agents if agent.device_id not in kept]

    def order(agent: AgentFacts, stage: PlannedStage) -> tuple[bool, bool, bool, bool, float, str]:
        mine = moved(stage, agent)
        return (
            agent.device_id in avoid,
            not (agent.device_id in held and held[agent.device_id].is_of(mine)),
            not has(agent.device_id, stage.first, stage.last),
            agent.device_id in lost,
            agent.ms_per_mb if agent.ms_per_mb is not None else float("inf"),
            agent.device_id,
        )

    # Ranges that a standby holds choose first: nobody else may take it from them.
    def hot(index: int) -> bool:
        return any(held[a.device_id].is_of(moved(stages[index], a)) for a in free if a.device_id in held)

    for index in sorted((i for i, stage in enumerate(chosen) if stage is None), key=lambda i: (not hot(i), i)):
        stage = stages[index]
        able = [agent for agent in free if _fits(agent, stage, held)]
        if not able:
            return None
        best = min(able, key=lambda agent: order(agent, stage))
        free.remove(best)
        chosen[index] = moved(stage, best)
    return [stage for stage in chosen if stage is not None]


def _fits(agent: AgentFacts, stage: PlannedStage, held: Mapping[str, Held]) -> bool:
    mine = held.get(agent.device_id)
    return (mine is not None and mine.is_of(moved(stage, agent))) or agent.memory_budget_bytes >= stage.memory_bytes


def moved(stage: PlannedStage, agent: AgentFacts) -> PlannedStage:
    """Return a stage of a plan as another PC would have it."""
    return msgspec.structs.replace(
        stage, device_id=agent.device_id, name=agent.name, device=agent.device, engine=agent.engine
    )
