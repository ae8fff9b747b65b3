"""Whether a plan that runs is kept although a better one exists: moving layers costs answers a pause. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.planner.candidates import place_of
from console.planner.costs import Costs
from console.planner.drafts import Draft
from console.planner.types import AgentFacts, Plan, Rules

WORTH_MOVING = 1.25
"""How many times as good a plan has to be before a running one makes room for it."""


class Kept(NamedTuple):
    """The running plan as it is worth now, and why it stays."""

    draft: Draft
    reason: str


def kept_instead(
    costs: Costs,
    best: Draft,
    current: Plan | None,
    agents: Sequence[AgentFacts],
    *,
    stages: int | None,
    rules: Rules,
) -> Kept | None:
    """Return the running plan if it still can be and `best` is not worth the move; else None."""
    draft = None if current is None else _as_it_is(costs, current, agents, stages, rules)
    if draft is None:
        return None
    target = rules.target_tokens_per_second
    if target is not None and best.meets(target) and not draft.meets(target):
        return None
    times = gain(best, draft)
    if draft.ranges == best.ranges or times >= WORTH_MOVING:
        return None
    if times <= 1:
        return Kept(draft, "The running plan stays: no other one is better.")
    return Kept(
        draft,
        f"The running plan stays: the best would be {times:.2f} times as good, and moving takes {WORTH_MOVING:.2f}.",
    )


def gain(best: Draft, running: Draft) -> float:
    """Return how many times as good a plan is: as fast, or over all answers as fast, and as likely to stay."""
    one = running.token_ms / best.token_ms
    full = best.full_tokens_per_second / running.full_tokens_per_second
    speed = max(one, full) if one >= 0.98 else one
    return speed * max(best.stay, 1e-6) / max(running.stay, 1e-6)


def _as_it_is(
    costs: Costs, current: Plan, agents: Sequence[AgentFacts], stages: int | None, rules: Rules
) -> Draft | None:
    """Return the running plan by today's facts; None if it is not possible, or not allowed, any more."""
    by_id = {agent.device_id: agent for agent in agents}
    if current.model_id != costs.model.model_id or any(stage.device_id not in by_id for stage in current.stages):
        return None
    ranges = [(by_id[stage.device_id], stage.first, stage.last) for stage in current.stages]
    borders = [0, *(last for _, _, last in ranges)]
    if borders[-1] != costs.layers or [first for _, first, _ in ranges] != borders[:-1]:
        return None
    now = {agent.device_id: (first, last) for agent, first, last in ranges}
    obeyed = all(
        pin.device_id in now and (pin.first is None or now[pin.device_id] == (pin.first, pin.last))
        for pin in rules.pins
    )
    if (
        not obeyed
        or stages not in (None, len(ranges))
        or len({place_of(agent, rules.crossing) for agent, _, _ in ranges}) > 1
        or not all(costs.fits(*part) for part in ranges)
    ):
        return None
    return Draft.of(costs, ranges)
