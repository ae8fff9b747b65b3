"""Makes the plan: how many PCs, which ranges, and why. Pure; the search itself is in `search`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from console.planner.costs import MB, SCRATCH_BYTES, Costs
from console.planner.search import HOP_MS, Ranges, best_ranges, feasible, latency_ms, slowest_ms
from console.planner.types import AgentFacts, ModelFacts, Plan, PlanImpossible, PlannedStage

AS_GOOD = 1.10
"""A plan with fewer PCs wins until it is this much slower for one stream."""
MORE_STAGES = 3
"""How many stages beyond the fewest are looked at: each adds a hop, and only a much faster PC can pay for it."""


def plan(
    model: ModelFacts,
    agents: Sequence[AgentFacts],
    *,
    context_tokens: int,
    streams: int,
    stages: int | None = None,
    scratch_bytes: int = SCRATCH_BYTES,
) -> Plan:
    """Choose PCs and ranges that hold `streams` streams of `context_tokens` each.

    Few PCs first: a plan with more of them must be 10% faster for one stream. `stages` forces that many. The result
    does not depend on the order of `agents`. Raises PlanImpossible, which says how much memory is missing.
    """
    ordered = sorted(agents, key=lambda agent: agent.device_id)
    _check_counts(model, ordered, stages)
    costs = Costs(model, ordered, context_tokens=context_tokens, streams=streams, scratch_bytes=scratch_bytes)
    tried = _try_counts(costs, ordered, stages)
    if not tried:
        raise _impossible(model, costs, ordered, stages, promise=_promise(context_tokens, streams))
    chosen = tried[0]
    for ranges in tried[1:]:
        if latency_ms(costs, ranges) * AS_GOOD < latency_ms(costs, chosen):
            chosen = ranges
    return Plan(
        model_id=model.model_id,
        context_tokens=context_tokens,
        streams=streams,
        stages=[_stage(costs, *place) for place in chosen],
        tokens_per_second=1000 / latency_ms(costs, chosen),
        full_tokens_per_second=1000 / max(slowest_ms(costs, chosen), latency_ms(costs, chosen) / len(chosen)),
        reasons=_reasons(costs, ordered, chosen, tried, forced=stages is not None),
    )


def _try_counts(costs: Costs, agents: Sequence[AgentFacts], stages: int | None) -> list[Ranges]:
    """Return the best ranges per number of stages, fewest first; empty if nothing fits."""
    if stages is not None:
        found = best_ranges(costs, agents, stages)
        return [] if found is None else [found]
    tried: list[Ranges] = []
    for count in range(_fewest(costs, agents), min(len(agents), costs.layers) + 1):
        found = best_ranges(costs, agents, count)
        if found is not None:
            tried.append(found)
        if tried and count >= len(tried[0]) + MORE_STAGES:
            break
    return tried


def _fewest(costs: Costs, agents: Sequence[AgentFacts]) -> int:
    """Return a number of PCs below which the memory cannot be enough, wherever the borders are."""
    rooms = sorted((costs.room(agent) for agent in agents), reverse=True)
    return 1 + sum(1 for total in accumulate(rooms) if total < costs.total_bytes)


def _stage(costs: Costs, agent: AgentFacts, first: int, last: int) -> PlannedStage:
    return PlannedStage(
        device_id=agent.device_id,
        name=agent.name,
        device=agent.device,
        engine=agent.engine,
        first=first,
        last=last,
        ms=costs.ms(agent, first, last),
        memory_bytes=costs.stage_memory(first, last),
    )


def _reasons(
    costs: Costs, agents: Sequence[AgentFacts], chosen: Ranges, tried: list[Ranges], *, forced: bool
) -> list[str]:
    reasons = [_count_reason(costs, chosen, tried, forced=forced)]
    if len(chosen) > 1:
        slowest, first, last = max(chosen, key=lambda place: costs.ms(*place))
        reasons.append(
            f"The slowest stage is {slowest.name} with layers {first} to {last - 1}:"
            f" {costs.ms(slowest, first, last):.1f} ms a step; no other borders are faster within the PCs' memory."
        )
    assumed = [agent.name for agent, _, _ in chosen if agent.ms_per_mb is None]
    if assumed:
        reasons.append(f"Not measured yet, so taken as {costs.assumed_ms_per_mb:.3f} ms per MB: {', '.join(assumed)}.")
    used = {agent.device_id for agent, _, _ in chosen}
    tight = [agent.name for agent in agents if agent.device_id not in used and not costs.room(agent)]
    if tight:
        reasons.append(f"Too little memory for any stage: {', '.join(tight)}.")
    return reasons


def _count_reason(costs: Costs, chosen: Ranges, tried: list[Ranges], *, forced: bool) -> str:
    count, fewest = len(chosen), len(tried[0])
    if forced:
        return f"{count} {_stages(count)} because that many were asked for."
    if count == 1:
        return (
            f"{chosen[0][0].name} holds the model alone; a split would add {HOP_MS:.1f} ms a hop and make no answer"
            " more than 10% faster."
        )
    if count == fewest:
        return f"{count} PCs are the fewest that hold the model with its cache."
    gain = latency_ms(costs, tried[0]) / latency_ms(costs, chosen)
    return f"{fewest} {_stages(fewest)} would be enough, but {count} answer {gain:.2f} times as fast."


def _stages(count: int) -> str:
    return "stage" if count == 1 else "stages"


def _check_counts(model: ModelFacts, agents: Sequence[AgentFacts], stages: int | None) -> None:
    if stages is not None and not 1 <= stages <= model.layers:
        raise PlanImpossible(
            f"{model.model_id} has {model.layers} layers, so it cannot be split into {stages} stages: choose 1 to"
            f" {model.layers}."
        )
    wanted = stages or 1
    if len(agents) < wanted:
        missing = wanted - len(agents)
        raise PlanImpossible(
            f"{wanted} {'PC is' if wanted == 1 else 'PCs are'} needed for {model.model_id} and {len(agents)} can be"
            f" used now: enrol or wake {missing} more.",
            missing_agents=missing,
        )


def _promise(context_tokens: int, streams: int) -> str:
    return f"{streams} {'answer' if streams == 1 else 'answers'} of {context_tokens} tokens at once"


def _impossible(
    model: ModelFacts, costs: Costs, agents: Sequence[AgentFacts], stages: int | None, *, promise: str
) -> PlanImpossible:
    rooms = sorted((costs.room(agent) for agent in agents), reverse=True)[: stages or len(agents)]
    advice = "Enrol more PCs, allow them more memory, or promise fewer answers or a shorter context."
    missing = costs.total_bytes - sum(rooms)
    if missing > 0:
        return PlanImpossible(
            f"{model.model_id} with {promise} needs {_size(costs.total_bytes)}, and"
            f" {len(rooms)} {'PC offers' if len(rooms) == 1 else 'PCs offer'} {_size(sum(rooms))}:"
            f" {_size(missing)} are missing. {advice}",
            missing_bytes=missing,
        )
    counts = [stages] if stages else list(range(1, min(len(agents), costs.layers) + 1))
    low, high = 0, costs.total_bytes
    while high - low > MB:
        middle = (low + high) // 2
        low, high = (low, middle) if any(feasible(costs, agents, count, middle) for count in counts) else (middle, high)
    return PlanImpossible(
        f"{model.model_id} with {promise} needs {_size(costs.total_bytes)}: the PCs' memory is enough in all, but its"
        f" layers do not fit into the single PCs; {_size(high)} more on each would do. {advice}",
        missing_bytes=high,
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(1, -(-count // MB))} MB"
