"""Splits layers over PCs: the shortest cycle, in which each stage serves each step once, then the fastest token. Pure.

Up to `EXACT_AGENTS` PCs every order of every set is looked at. Beyond that a few good orders are, in which any PC may
be skipped, and then every order of the PCs that were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from console.planner.costs import MB, Costs
from console.planner.tables import Array, Tables, Wishes
from console.planner.types import AgentFacts
from console.planner.walks import NOTHING, Found, in_any_order, in_order
from shard_export.library.counts import counted

EXACT_AGENTS = 8
FEW_STAGES, EXACT_AGENTS_OF_FEW = 3, 12
"""For few stages there are few sets, so more PCs can be looked at."""
SLACK = 1.005
"""How much longer than the shortest cycle one may be, so that a token's time and lesser wishes have a say."""
NEAR = 1.004
TURNS = 10
"""How near to the shortest cycle the search comes, in at most so many turns."""
MOST_WORK = 10_000_000
"""How many ranges may be compared while a plan is polished: well below a tenth of a second."""
MOST_TURNED = 16
"""Up to so many chosen PCs each is tried at either end."""

Ranges = list[tuple[AgentFacts, int, int]]


def latency_ms(costs: Costs, ranges: Ranges, rows: float = 1.0) -> float:
    """Return the time of one token for one stream, or of a step with more rows."""
    return sum(costs.ms(agent, first, last, rows) + costs.hop_ms(agent) for agent, first, last in ranges)


def slowest_ms(costs: Costs, ranges: Ranges, rows: float = 1.0) -> float:
    """Return the time of the slowest stage."""
    return max(costs.ms(agent, first, last, rows) for agent, first, last in ranges)


class Search(msgspec.Struct, frozen=True):
    """The PCs to choose from; those with an id in `needed` have to take part. `current` says who has which layers."""

    tables: Tables
    agents: Sequence[AgentFacts]
    needed: frozenset[str] = frozenset()
    current: dict[str, tuple[int, int]] = {}
    turned: bool = False
    """Whether to try each PC at either end of the order."""

    def feasible(self, most: int, extra_bytes: int = 0) -> list[bool]:
        """Tell for each number of stages, 0 to `most`, whether memory allows it if every PC had so much more."""
        free = [np.where(self.tables.able(agent, extra_bytes), 0.0, math.inf) for agent in self.agents]
        return [bool(found.choices) for found, _ in self._walk(free, most, worst=True)]

    def slowest(self, most: int, rows: float, *, least: int = 1) -> list[float]:
        """Return for each number of stages, 0 to `most`, the time of the fastest slowest stage; infinity for none.

        Fewer than `least` are known to be impossible.
        """
        full = [self.tables.ms(agent, rows) for agent in self.agents]
        rough = self._walk(full, most, worst=True, orders=self._orders(by_room=True))
        if not self._exact(most):
            return [found.value for found, _ in rough]
        # What is slower than a split that was found already need not be looked at.
        most_ms = max((found.value for found, _ in rough[least:]), default=math.inf)
        fast = [_bounded(ms, most_ms, ms) for ms in full]
        return [found.value for found, _ in self._walk(fast, most, worst=True)]

    def fastest(self, most: int) -> list[float]:
        """Return for each number of stages, 0 to `most`, a time no token is faster than, however long a cycle takes."""
        if self._exact(most):
            return [0.0] * (most + 1)
        token = [self.tables.ms(agent, 1.0) + self.tables.costs.hop_ms(agent) for agent in self.agents]
        return [found.value for found, _ in self._walk(token, most, worst=False)]

    def best(
        self, count: int, slowest_ms: float, *, rows: float, enough_ms: float, wished: bool = True
    ) -> Ranges | None:
        """Return the fastest token over exactly `count` stages whose cycle is as short as can be or takes `enough_ms`.

        `slowest_ms` is the time of the fastest slowest stage; stages and cycle are those of steps with so many rows,
        the token has one. Without `wished` the lesser wishes have no say. None if there is no such split.
        """
        if len(self.agents) < count or slowest_ms == math.inf:
            return None
        hops = [self.tables.costs.hop_ms(agent) for agent in self.agents]
        full = [self.tables.ms(agent, rows) for agent in self.agents]
        cycle_ms, loaded, order = self._shortest_cycle(count, slowest_ms, full, hops)
        if not loaded.choices:
            return None
        bound_ms = max(cycle_ms * SLACK, enough_ms) / count
        single = full if rows == 1 else [self.tables.ms(agent, 1.0) for agent in self.agents]
        token = [_bounded(ms, bound_ms, one + hop) for ms, one, hop in zip(full, single, hops, strict=True)]
        found = loaded
        if rows > 1 or enough_ms > cycle_ms:
            found, order = self._walk(token, count, worst=False)[count]
        if wished:
            wishes = Wishes(found.value, bound_ms, count, self.current)
            token = [
                ms + self.tables.wished(agent, at_full[:, : ms.shape[1]], wishes)
                for agent, ms, at_full in zip(self.agents, token, full, strict=True)
            ]
            found, _ = self._walk(token, count, worst=False, orders=[order] if order else [])[count]
        ranges = self._ranges(found)
        if rows > 1 and latency_ms(self.tables.costs, ranges, rows) > bound_ms * count:
            return self._ranges(loaded)
        return ranges

    def _ranges(self, found: Found) -> Ranges:
        return [(self.agents[place], first, last) for place, first, last in found.choices]

    def _shortest_cycle(
        self, count: int, slowest_ms: float, full: Sequence[Array], hops: Sequence[float]
    ) -> tuple[float, Found, list[int]]:
        """Return the shortest cycle, the split that has it and the order it was found in.

        A step passes all stages in the time of a token, and each stage serves as many steps: the longer one of both is
        the cycle. Slower stages may allow a faster token, so the time a stage may take is looked for between both.
        """
        best: tuple[float, Found, list[int]] = (math.inf, NOTHING, [])
        least_ms, bound_ms = 0.0, slowest_ms * (1 + 1e-9)
        for turn in range(TURNS):
            loaded = [_bounded(ms, bound_ms, ms + hop) for ms, hop in zip(full, hops, strict=True)]
            # Where one order is the best, it most often stays so.
            found, order = self._walk(loaded, count, worst=False, orders=[best[2]] if best[2] else [])[count]
            if found.choices:
                slow = max(float(full[place][last, last - first - 1]) for place, first, last in found.choices)
                cycle_ms = max(found.value, count * slow)
                best = (cycle_ms, found, order) if cycle_ms < best[0] else best
            least_ms = max(least_ms, min(found.value, count * bound_ms))
            if best[0] <= least_ms * NEAR:
                break
            bound_ms = (best[0] if turn == 0 else (least_ms + best[0]) / 2) / count
        return best

    def polished(self, count: int, slowest_ms: float, *, rows: float, enough_ms: float) -> Ranges:
        """Return the best split as `best` does; then look at every order of the chosen PCs and a few others.

        That is done again with others for as long as it may take. Raises ValueError if there is no such split.
        """
        ranges = self.best(count, slowest_ms, rows=rows, enough_ms=enough_ms)
        if ranges is None:
            raise ValueError(f"There is no split into {counted(count, 'stage')}.")
        if self._exact(count):
            return ranges
        costs = self.tables.costs
        share_mb = costs.read[-1] / MB / count
        others = sorted(self.agents, key=lambda one: costs.rates(one).per_mb * share_mb + costs.hop_ms(one))
        if count >= EXACT_AGENTS:
            turned = msgspec.structs.replace(self, agents=[one[0] for one in ranges], turned=count <= MOST_TURNED)
            return _best_of(turned, count, enough_ms, rows) or ranges
        left, since, most = _rounds(count, costs.layers), 0, _exact_agents(count)
        while left > 0 and since < len(others):
            used = [agent for agent, _, _ in ranges]
            added = [agent for agent in others[:most] if agent not in used][: most - count]
            moved = others.index(added[-1]) + 1 if added else most
            others = others[moved:] + others[:moved]
            again = _best_of(msgspec.structs.replace(self, agents=used + added), count, enough_ms, rows) or ranges
            since = since + moved if again == ranges else 0
            ranges, left = again, left - 1
        return ranges

    def _exact(self, most: int) -> bool:
        return len(self.agents) <= _exact_agents(most)

    def _walk(
        self, costs: Sequence[Array], most: int, *, worst: bool, orders: Sequence[list[int]] = ()
    ) -> list[tuple[Found, list[int]]]:
        """Return the best walk by the number of stages, 0 to `most`, and the order it was found in."""
        needed = [agent.device_id in self.needed for agent in self.agents]
        if self._exact(most) and not orders:
            return [(found, []) for found in in_any_order(costs, most, worst=worst, needed=needed)]
        pinned = {place for place, agent in enumerate(self.agents) if agent.device_id in self.tables.pinned}
        best: list[tuple[Found, list[int]]] = [(NOTHING, [])] * (most + 1)
        # Whether anything fits at all is a matter of memory first.
        for order in orders or self._orders(by_room=worst):
            found = in_order(costs, order, most, worst=worst, needed=needed, pinned=pinned)
            best = [
                (one, order) if one.value < former[0].value else former for one, former in zip(found, best, strict=True)
            ]
        return best

    def _orders(self, *, by_room: bool = False) -> list[list[int]]:
        costs = self.tables.costs
        rate = [costs.rates(agent).per_mb for agent in self.agents]
        room = [costs.room(agent) for agent in self.agents]
        places = range(len(self.agents))
        orders = [
            sorted(places, key=lambda place: (rate[place], -room[place], place)),
            sorted(places, key=lambda place: (-rate[place], -room[place], place)),
        ]
        if by_room:
            orders.append(sorted(places, key=lambda place: (-room[place], rate[place], place)))
        if self.turned:
            first = orders[0]
            for place in places:
                others = [other for other in first if other != place]
                orders += [[place, *others], [*others, place]]
        return orders


def _best_of(search: Search, count: int, enough_ms: float, rows: float) -> Ranges | None:
    slowest_ms = search.slowest(count, rows, least=count)[count]
    return search.best(count, slowest_ms, rows=rows, enough_ms=enough_ms)


def _exact_agents(most: int) -> int:
    """Return of how many PCs every order of every set up to `most` may be looked at."""
    return EXACT_AGENTS if most > FEW_STAGES else EXACT_AGENTS_OF_FEW


def _rounds(count: int, layers: int) -> int:
    """Return how often every order of so many PCs may be looked at."""
    agents = _exact_agents(count)
    steps = sum(math.comb(agents, used) * (agents - used) for used in range(count))
    work = 5 * steps * layers * min(layers, 1 + 2 * layers // count)
    return max(1, MOST_WORK // work)


def _bounded(ms: Array, bound_ms: float, cost: Array) -> Array:
    """Return the costs of ranges that take so long at most, up to the longest of them; infinity for the others."""
    within = ms <= bound_ms
    possible = np.flatnonzero(within.any(axis=0))
    width = int(possible[-1]) + 1 if len(possible) else 0
    return np.where(within[:, :width], cost[:, :width], math.inf)
