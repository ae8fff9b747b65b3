"""How many stages: from the fewest that hold the model, as long as more of them pay. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from console.planner.candidates import shortlist
from console.planner.costs import Costs, batching_measured
from console.planner.drafts import AS_GOOD, Draft, better
from console.planner.search import EXACT_AGENTS, Search
from console.planner.tables import Tables
from console.planner.types import AgentFacts, Rules

MORE_STAGES = 3
"""How many stages more than the best so far are looked at: each adds a hop, which only faster PCs can pay for."""


class _Tried(NamedTuple):
    """A draft, and what it takes to look at it more closely."""

    draft: Draft
    search: Search
    slowest_ms: float
    rows: float
    enough_ms: float

    def polished(self) -> Draft:
        ranges = self.search.polished(len(self.draft.ranges), self.slowest_ms, rows=self.rows, enough_ms=self.enough_ms)
        return Draft.of(self.search.tables.costs, ranges)


def drafts_of(
    tables: Tables,
    agents: Sequence[AgentFacts],
    stages: int | None,
    rules: Rules,
    now: Mapping[str, tuple[int, int]],
    *,
    closely: bool = True,
) -> list[Draft]:
    """Return one draft for each number of stages (or for `stages` alone) in one place; the best is looked at `closely`.

    `now` says who has which layers in the running plan. Empty if nothing fits.
    """
    costs, target = tables.costs, rules.target_tokens_per_second
    needed = frozenset(pin.device_id for pin in rules.pins)
    able = [agent for agent in agents if costs.room(agent) >= min(costs.layer_needs) or agent.device_id in needed]
    most = min(len(able), costs.layers, stages or costs.layers)
    count = at_least = max(_fewest(costs, able), len(needed), stages or 1)
    span = min(most, count + MORE_STAGES) if len(able) > EXACT_AGENTS else most
    tried: list[_Tried] = []
    best: _Tried | None = None
    if sum(tables.most_layers(agent) for agent in able) < costs.layers:
        return []
    while count <= most:
        search = Search(tables, shortlist(costs, able, span, needed | frozenset(now)), needed, dict(now))
        for one in _by_count(search, range(count, span + 1), at_least, target, best):
            tried.append(one)
            best = one if best is None or better(one.draft, best.draft, target) else best
        count = span + 1
        span = min(most, 2 * span if best is None else len(best.draft.ranges) + MORE_STAGES)
        if span < count:
            break
    return [one.polished() if one is best and closely else one.draft for one in tried]


def _by_count(
    search: Search, counts: range, at_least: int, target: float | None, best: _Tried | None
) -> Iterator[_Tried]:
    """Yield a draft for each number of stages, but those that cannot answer faster than `best` and the ones before."""
    costs = search.tables.costs
    batched = any(batching_measured([agent]) for agent in search.agents)
    single = search.slowest(counts[-1], 1.0, least=at_least)
    if min(single[counts[0] :]) == math.inf:
        return
    fastest_ms = search.fastest(counts[-1]) if len(counts) > 1 else [0.0] * (counts[-1] + 1)
    for count in counts:
        enough = best is not None and (target is None or best.draft.meets(target))
        if enough and best is not None and fastest_ms[count] * AS_GOOD >= best.draft.token_ms:
            continue
        rows = costs.rows(count) if batched else 1.0
        slowest_ms = search.slowest(count, rows, least=at_least)[count] if rows > 1 else single[count]
        enough_ms = 1000 * count * rows / target if target else 0.0
        ranges = search.best(count, slowest_ms, rows=rows, enough_ms=enough_ms, wished=False)
        if ranges is not None and slowest_ms < math.inf:
            one = _Tried(Draft.of(costs, ranges), search, slowest_ms, rows, enough_ms)
            best = one if best is None or better(one.draft, best.draft, target) else best
            yield one


def _fewest(costs: Costs, agents: Sequence[AgentFacts]) -> int:
    """Return a number of PCs below which the memory cannot be enough, wherever the borders are."""
    rooms = sorted((costs.room(agent) for agent in agents), reverse=True)
    return 1 + sum(1 for total in accumulate(rooms) if total < costs.total_bytes)
