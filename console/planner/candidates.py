"""Which PCs are looked at: what rules allow, place by place, and of many those that may be in a good plan. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from console.planner.costs import MANY_ROWS, MB, Costs
from console.planner.types import AgentFacts, Crossing, Limit, PlanImpossible, PlannedStage, Rules

SAME = math.log(1.005)
"""Speeds this close count as one when PCs are compared."""
SAME_SHARE = 0.001
"""The same for what does not depend on how many layers a PC takes, as a share of a token's time."""


def allowed(agents: Sequence[AgentFacts], rules: Rules) -> list[AgentFacts]:
    """Return the PCs that are not excluded, in an order that depends on their ids alone. Raises PlanImpossible."""
    found = sorted((agent for agent in agents if agent.device_id not in rules.excluded), key=lambda one: one.device_id)
    here = {agent.device_id for agent in found}
    for pin in rules.pins:
        if pin.device_id not in here:
            raise PlanImpossible(
                f"The PC {pin.device_id} has to be part of the plan and cannot be used now: wake it, or take it off the"
                " pins.",
                missing_agents=1,
            )
    return found


def place_of(agent: AgentFacts, crossing: Crossing) -> tuple[str, ...]:
    """Return what a pipeline with this PC must not leave."""
    return {"none": (agent.site, agent.network), "networks": (agent.site,), "sites": ()}[crossing]


def place_name(place: tuple[str, ...]) -> str:
    """Return how people call a place; empty for one without a name."""
    return ", network ".join(part for part in place if part) if place and place[0] else "".join(place)


def by_place(agents: Sequence[AgentFacts], rules: Rules) -> dict[tuple[str, ...], list[AgentFacts]]:
    """Group PCs by what a pipeline must not leave; only places that have every pinned PC."""
    places: dict[tuple[str, ...], list[AgentFacts]] = {}
    for agent in agents:
        places.setdefault(place_of(agent, rules.crossing), []).append(agent)
    pinned = {pin.device_id for pin in rules.pins}
    return {place: found for place, found in sorted(places.items()) if pinned <= {agent.device_id for agent in found}}


def beside(agents: Sequence[AgentFacts], stages: Sequence[PlannedStage], rules: Rules) -> list[AgentFacts]:
    """Return the PCs that may take over a stage of a running plan by the rules, those of the plan included.

    They are in the place of the plan's PCs that are left, or, if none is, in the place with the most PCs. Who may not
    take as many layers as the longest stage has is left out.
    """
    serving = {stage.device_id for stage in stages}
    longest = max((stage.last - stage.first for stage in stages), default=0)
    places: dict[tuple[str, ...], list[AgentFacts]] = {}
    for agent in agents:
        limit = rules.limits.get(agent.device_id, Limit()).layers
        if agent.device_id not in rules.excluded and (limit is None or limit >= longest):
            places.setdefault(place_of(agent, rules.crossing), []).append(agent)
    left = [place for place, found in sorted(places.items()) if any(agent.device_id in serving for agent in found)]
    if left:
        return places[left[0]]
    return max((found for _, found in sorted(places.items())), key=len, default=[])


def shortlist(costs: Costs, agents: Sequence[AgentFacts], most: int, keep: frozenset[str]) -> list[AgentFacts]:
    """Leave out every PC that `most` others are better than, in all that makes a plan: one of them could replace it.

    Those in `keep` stay. Of PCs that are alike the ones that stay longer and hold more of the model are better.
    """
    if len(agents) <= most:
        return list(agents)
    rank = {agent.device_id: place for place, agent in enumerate(sorted(agents, key=lambda one: _taste(costs, one)))}
    ranks = np.array([rank[agent.device_id] for agent in agents])
    same_ms = SAME_SHARE * costs.read[-1] / MB * costs.assumed_ms_per_mb
    facts = np.array([_facts(costs, agent, max(same_ms, 1e-3)) for agent in agents])
    as_good = np.ones((len(agents), len(agents)), bool)
    strictly = ranks[None, :] < ranks[:, None]
    for column in facts.T:
        as_good &= column[None, :] <= column[:, None]
        strictly |= column[None, :] < column[:, None]
    worse = (as_good & strictly).sum(axis=1)
    return [agent for agent, count in zip(agents, worse, strict=True) if count < most or agent.device_id in keep]


def _facts(costs: Costs, agent: AgentFacts, same_ms: float) -> list[float]:
    """Describe a PC by numbers of which less is better."""
    one, many = costs.rates(agent), costs.rates(agent, MANY_ROWS)
    speeds = [_step(value) for value in (one.per_mb, one.head, many.per_mb, many.head)]
    times = [round(value / same_ms) for value in (one.fixed, one.embed, costs.hop_ms(agent))]
    return [-costs.room(agent), -costs.most_layers(agent), *speeds, *times]


def _step(value: float) -> float:
    return round(math.log(max(value, 1e-9)) / SAME)


def _taste(costs: Costs, agent: AgentFacts) -> tuple[float, int, str]:
    lacking = costs.fetch_bytes(agent, 0, costs.layers) if agent.held else costs.total_bytes
    return -agent.stay, lacking, agent.device_id
