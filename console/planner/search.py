"""Splits layers over PCs so that the slowest stage is as fast as memory allows. Pure.

For a number of stages and a bound on their time, how far PCs reach is easy to say: a PC that starts further on also
ends at least as far on. So the best bound is found by bisection. Up to `EXACT_AGENTS` PCs every order is covered (one
reach per set of PCs); beyond that a few good orders are tried, in which any PC may be skipped. Inside the best bound a
last pass places the borders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console.planner.costs import Bound, Costs
from console.planner.types import AgentFacts

EXACT_AGENTS = 8
HOP_MS = 0.6
"""Link, relay and frame of one hop: measured 0.4 to 0.8 ms on one network."""
PRECISION = 1e-3
"""The bound is found to 0.1%; estimates of speed are not better than that."""
CANDIDATES = 4
"""In a large fleet each order is cut to this many PCs per stage: the rest are slower or smaller."""

Order = tuple[AgentFacts, ...]
Ranges = list[tuple[AgentFacts, int, int]]
Solver = Callable[[Costs, Sequence[AgentFacts], int, Bound], list[Order]]


def latency_ms(costs: Costs, ranges: Ranges) -> float:
    """Return the time of one token for one stream."""
    return sum(costs.ms(agent, first, last) + HOP_MS for agent, first, last in ranges)


def slowest_ms(costs: Costs, ranges: Ranges) -> float:
    """Return the time of the slowest stage."""
    return max(costs.ms(agent, first, last) for agent, first, last in ranges)


def best_ranges(costs: Costs, agents: Sequence[AgentFacts], count: int) -> Ranges | None:
    """Split into exactly `count` stages with the fastest slowest stage; None if memory does not allow it."""
    solve = _solver(agents)
    if not solve(costs, agents, count, Bound()):
        return None
    bound = Bound(_best_bound(costs, agents, count, solve))
    candidates = [_balance(costs, order, bound) for order in solve(costs, agents, count, bound)]
    found = [ranges for ranges in candidates if ranges is not None]
    return min(found, key=lambda ranges: latency_ms(costs, ranges)) if found else None


def feasible(costs: Costs, agents: Sequence[AgentFacts], count: int, extra_bytes: int = 0) -> bool:
    """Tell whether memory alone allows `count` stages, if every PC had `extra_bytes` more."""
    return bool(_solver(agents)(costs, agents, count, Bound(extra_bytes=extra_bytes)))


def _solver(agents: Sequence[AgentFacts]) -> Solver:
    return _every_order if len(agents) <= EXACT_AGENTS else _some_orders


def _best_bound(costs: Costs, agents: Sequence[AgentFacts], count: int, solve: Solver) -> float:
    low = 0.0
    high = max(costs.ms(agent, 0, costs.layers) for agent in agents)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if solve(costs, agents, count, Bound(middle)):
            high = middle
        else:
            low = middle
    return high


def _every_order(costs: Costs, agents: Sequence[AgentFacts], count: int, bound: Bound) -> list[Order]:
    """For every set of `count` PCs return an order that covers all layers, if there is one.

    Reaching furthest is best, unless a PC can take some layers but not others: then it may be stuck further on, and
    every end has to be kept.
    """
    keep_all = any(costs.picky(agent, bound) for agent in agents)
    layer: dict[int, dict[int, tuple[int, ...]]] = {0: {0: ()}}
    for used in range(count):
        latest = costs.layers - (count - used - 1)
        following: dict[int, dict[int, tuple[int, ...]]] = {}
        for mask, reached in layer.items():
            for index, agent in enumerate(agents):
                if mask >> index & 1:
                    continue
                ends = following.setdefault(mask | 1 << index, {})
                for at, order in reached.items():
                    end = _step(costs, agent, at, latest, bound)
                    for stop in range(at + 1 if keep_all else max(at + 1, end), end + 1):
                        ends.setdefault(stop, (*order, index))
        layer = following if keep_all else {mask: _furthest(ends) for mask, ends in following.items() if ends}
    return [tuple(agents[i] for i in ends[costs.layers]) for ends in layer.values() if costs.layers in ends]


def _furthest(ends: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    end = max(ends)
    return {end: ends[end]}


def _some_orders(costs: Costs, agents: Sequence[AgentFacts], count: int, bound: Bound) -> list[Order]:
    """Try the PCs by speed, by memory and by what both allow; in each order any may be skipped."""
    found = []
    for key in (
        lambda agent: (costs.ms_per_mb(agent), -costs.room(agent), agent.device_id),
        lambda agent: (-costs.ms_per_mb(agent), -costs.room(agent), agent.device_id),
        lambda agent: (-costs.room(agent), costs.ms_per_mb(agent), agent.device_id),
        lambda agent: (-costs.reach(agent, 1, bound), costs.ms_per_mb(agent), agent.device_id),
    ):
        order = _in_order(costs, sorted(agents, key=key)[: CANDIDATES * (count + 1)], count, bound)
        if order is not None and order not in found:
            found.append(order)
    return found


def _in_order(costs: Costs, agents: Sequence[AgentFacts], count: int, bound: Bound) -> Order | None:
    unreached: tuple[int, Order] = (-1, ())
    best: list[tuple[int, Order]] = [(0, ()), *[unreached] * count]
    for agent in agents:
        for used in range(count, 0, -1):
            at, order = best[used - 1]
            if at < 0:
                continue
            end = _step(costs, agent, at, costs.layers - (count - used), bound)
            if end > max(at, best[used][0]):
                best[used] = (end, (*order, agent))
    end, order = best[count]
    return order if end == costs.layers else None


def _step(costs: Costs, agent: AgentFacts, at: int, latest: int, bound: Bound) -> int:
    """Return where the agent's range ends if it starts at `at` and must leave a layer for each stage behind it."""
    return max(at, min(latest, costs.reach(agent, at, bound)))


def _balance(costs: Costs, order: Order, bound: Bound) -> Ranges | None:
    """Place the borders of a given order inside the bound: least total time, then least uneven."""
    states: dict[int, tuple[float, float, tuple[int, ...]]] = {0: (0.0, 0.0, (0,))}
    for used, agent in enumerate(order):
        latest = costs.layers - (len(order) - used - 1)
        final = used == len(order) - 1
        following: dict[int, tuple[float, float, tuple[int, ...]]] = {}
        for at, (total, uneven, borders) in states.items():
            furthest = min(latest, costs.reach(agent, at, bound))
            for end in range(costs.layers if final else at + 1, furthest + 1):
                ms = costs.ms(agent, at, end)
                state = (round(total + ms, 9), uneven + ms * ms, (*borders, end))
                if end not in following or state < following[end]:
                    following[end] = state
        states = following
    if costs.layers not in states:
        return None
    borders = states[costs.layers][2]
    return [(agent, borders[i], borders[i + 1]) for i, agent in enumerate(order)]
