"""Says in sentences why a plan is as it is, and what is missing where there is none. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from console.planner.candidates import by_place, place_name, place_of
from console.planner.costs import MB, Costs
from console.planner.drafts import Draft
from console.planner.search import Search
from console.planner.tables import Tables
from console.planner.types import AgentFacts, PlanImpossible, Rules
from shard_export.library.counts import counted

NAMED = 8
"""How many PCs a sentence names; it counts the others."""


def reasons_for(
    costs: Costs, agents: Sequence[AgentFacts], chosen: Draft, tried: Sequence[Draft], rules: Rules, *, forced: bool
) -> list[str]:
    """Return the reasons of a plan; `tried` are the others, the fewest PCs first."""
    reasons = [_count_reason(chosen, tried, rules, forced=forced)]
    reasons += _speed_reasons(costs, chosen, rules)
    reasons += _rule_reasons(chosen, rules)
    reasons += stay_reasons(chosen)
    used = set(chosen.device_ids)
    tight = [agent.name for agent in agents if agent.device_id not in used and not costs.room(agent)]
    if tight:
        reasons.append(f"Too little memory for any stage: {names_text(tight)}.")
    return reasons


def _count_reason(chosen: Draft, tried: Sequence[Draft], rules: Rules, *, forced: bool) -> str:
    count, fewest = len(chosen.ranges), min(len(draft.ranges) for draft in tried)
    if forced:
        return f"{counted(count, 'stage')} because that many were asked for."
    if count == 1:
        agent = chosen.ranges[0][0]
        return f"{agent.name} holds the model alone, and no split over more PCs would answer more than 1.5% faster."
    if count == fewest and rules.pins:
        return f"{count} PCs are the fewest that hold the model with its cache as the pins want it."
    if count == fewest:
        return f"{count} PCs are the fewest that hold the model with its cache."
    least = min((draft for draft in tried if len(draft.ranges) == fewest), key=lambda draft: draft.token_ms)
    target = rules.target_tokens_per_second
    if target is not None and not least.meets(target):
        return f"{counted(fewest, 'stage')} would hold the model, but {count} are needed for the wanted rate."
    gain = least.token_ms / chosen.token_ms
    return f"{counted(fewest, 'stage')} would be enough, but {count} answer {gain:.2f} times as fast."


def slowest_reasons(costs: Costs, draft: Draft) -> list[str]:
    """Say which stage holds the others up."""
    if len(draft.ranges) < 2:
        return []
    slowest, first, last = max(draft.ranges, key=lambda part: costs.ms(*part))
    ms = costs.ms(slowest, first, last)
    return [f"The slowest stage is {slowest.name} with layers {first} to {last - 1}: {ms:.1f} ms a step."]


def assumed_reasons(costs: Costs, draft: Draft) -> list[str]:
    """Say whose speed is not known."""
    assumed = [agent.name for agent, _, _ in draft.ranges if agent.ms_per_mb is None and agent.speed is None]
    if not assumed:
        return []
    return [f"Not measured yet, so taken as {costs.assumed_ms_per_mb:.3f} ms per MB: {names_text(assumed)}."]


def stay_reasons(draft: Draft) -> list[str]:
    """Say how likely the plan lasts, where that is not sure."""
    return [f"The chance that all of these PCs stay is {100 * draft.stay:.0f}%."] if draft.stay < 1 else []


def _speed_reasons(costs: Costs, chosen: Draft, rules: Rules) -> list[str]:
    reasons = slowest_reasons(costs, chosen)
    target = rules.target_tokens_per_second
    if target is not None and not chosen.meets(target):
        reasons.append(
            f"The wanted {target:.1f} tokens a second are not reached: {chosen.full_tokens_per_second:.1f} are the most"
            " that was found."
        )
    return reasons + assumed_reasons(costs, chosen)


def _rule_reasons(chosen: Draft, rules: Rules) -> list[str]:
    names = {agent.device_id: agent.name for agent, _, _ in chosen.ranges}
    reasons = []
    pinned = [names[pin.device_id] for pin in rules.pins if pin.device_id in names]
    if pinned:
        reasons.append(f"Pinned by the administrator: {names_text(pinned)}.")
    if rules.excluded:
        reasons.append(f"Left out by the administrator: {counted(len(rules.excluded), 'PC')}.")
    limited = [names[device_id] for device_id in rules.limits if device_id in names]
    if limited:
        reasons.append(f"Held to a limit by the administrator: {names_text(sorted(limited))}.")
    unlikely = [agent.name for agent, _, _ in chosen.ranges if agent.stay < rules.least_stay]
    if unlikely:
        reasons.append(f"Needed although they are not likely to stay: {names_text(unlikely)}.")
    place = place_name(place_of(chosen.ranges[0][0], rules.crossing))
    if place:
        reasons.append(f"All of it is at {place}; that is not left unless it is allowed.")
    return reasons


def impossible(
    costs: Costs, agents: Sequence[AgentFacts], stages: int | None, rules: Rules, context_tokens: int
) -> PlanImpossible:
    """Say what is missing: PCs in one place, memory in all, or memory on each PC."""
    answers = counted(costs.streams, "answer")
    need = (
        f"{costs.model.model_id} with {answers} of {context_tokens} tokens at once needs {size_text(costs.total_bytes)}"
    )
    advice = "Enrol more PCs, allow them more memory, or promise fewer answers or a shorter context."
    places = by_place(agents, rules)
    if not places:
        return PlanImpossible(f"{need}: the pinned PCs are not in one place. Take some off the pins, or let it cross.")
    rooms = {place: _rooms(costs, found, stages) for place, found in places.items()}
    wanted = stages or 1
    best = max(rooms, key=lambda place: (len(places[place]) >= wanted, sum(rooms[place])))
    here, where = places[best], ""
    if len(places) > 1:
        where = f" at {place_name(best) or 'the largest place'}"
    if len(here) < wanted:
        there = max(len(found) for found in places.values())
        return PlanImpossible(
            f"{counted(wanted, 'PC is', 'PCs are')} needed in one place for {costs.model.model_id}, and "
            f"{counted(there, 'is', 'are')} there: enrol or wake {wanted - there} more, let it cross, or ask for"
            " fewer stages.",
            missing_agents=wanted - there,
        )
    missing = costs.total_bytes - sum(rooms[best])
    if missing > 0:
        return PlanImpossible(
            f"{need}, and {counted(len(rooms[best]), 'PC offers', 'PCs offer')}"
            f" {size_text(sum(rooms[best]))}{where}: {size_text(missing)} are missing. {advice}",
            missing_bytes=missing,
        )
    lacking = _lacking_on_each(costs, here, stages, rules)
    if lacking is None:
        return PlanImpossible(
            f"{need}: the PCs' memory is enough{where}, but not with the administrator's pins and limits. Change those."
        )
    return PlanImpossible(
        f"{need}: the PCs' memory is enough in all{where}, but its layers do not fit into the single PCs;"
        f" {size_text(lacking)} more on each would do. {advice}",
        missing_bytes=lacking,
    )


def _rooms(costs: Costs, agents: Sequence[AgentFacts], stages: int | None) -> list[int]:
    return sorted((costs.room(agent) for agent in agents), reverse=True)[: stages or len(agents)]


def _lacking_on_each(costs: Costs, agents: Sequence[AgentFacts], stages: int | None, rules: Rules) -> int | None:
    """Return how much more memory on each PC would do, to half a percent; None if none would."""
    needed = frozenset(pin.device_id for pin in rules.pins)
    most = min(stages or 2 * len(_enough(costs, agents)) + 8, len(agents), costs.layers)
    # With the same more for each the PCs with most memory are the best ones.
    large = sorted(agents, key=lambda agent: (agent.device_id not in needed, -costs.room(agent), agent.device_id))
    search = Search(Tables(costs, rules.pins), large[:most], needed)

    def possible(extra_bytes: int) -> bool:
        found = search.feasible(most, extra_bytes)
        return any(found) if stages is None else found[stages]

    low, high = 0, costs.total_bytes
    if most < max(1, len(needed)) or not possible(high):
        return None
    while high - low > max(MB, high // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high


def _enough(costs: Costs, agents: Sequence[AgentFacts]) -> list[int]:
    """Return the largest rooms that hold the model in all."""
    rooms = _rooms(costs, agents, None)
    enough: list[int] = []
    while rooms and sum(enough) < costs.total_bytes:
        enough.append(rooms.pop(0))
    return enough


def size_text(count: int) -> str:
    """Return bytes as people read them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(1, math.ceil(count / MB))} MB"


def names_text(names: Sequence[str]) -> str:
    """Return names as a sentence takes them."""
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"
