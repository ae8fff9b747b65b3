"""`simulate`: a week of an office, 300 and 1,000 PCs, with requests at every hour; the real planner decides.

When each PC may be used follows from the real volunteer machine (`simulated_office`), what the console makes of it from
the real planner (`simulated_console`). A request is served if its answer begins within `WAIT_S` and comes to its end
with no pause longer than that. It counts as covered unless no plan at all was possible when it came or while it was
interrupted.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from console.bench.figures import percentile
from console.planner.types import AgentFacts, ModelFacts
from tests.bench.simulated_console import Pc, Pipeline, SimulatedConsole, Wanted
from tests.bench.simulated_office import Day, Weeks, learnt, make_weeks, played_days, share_offered
from tests.support.office import DAY_S, HOUR_S

Say = Callable[[str], None]
MB = 1_000_000
WAIT_S = 60.0
"""How long a client waits for a beginning, or for a pause to end: the policy time of a deployment."""
LOOK_EVERY_S = HOUR_S
SWITCH_S = 2.0
"""Until an answer goes on in another pipeline of its model."""
DAY_RATE, NIGHT_RATE = 240 / HOUR_S, 40 / HOUR_S
ANSWER_S = 25.0
SEED = 7
WEEK_S = 7 * DAY_S


class Size(NamedTuple):
    """How much is simulated: PCs, played traces, days of each, and days of the week that counts."""

    pcs: int
    traces: int
    days: int
    last_day: float = 7


FULL = (Size(300, 6, 4), Size(1000, 6, 4))
TRIAL = (Size(24, 1, 1, 1),)


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Simulate each size once; `rounds` 0 is a trial with few PCs. The first fleet's figures stand at the top, too."""
    del tokens
    fleets: dict[str, dict[str, Any]] = {}
    for size in FULL if rounds else TRIAL:
        began_s = time.monotonic()
        days = list(played_days(size.traces, size.days, SEED))
        say(f"{size.traces * size.days} days of office PCs are played after {time.monotonic() - began_s:.0f} s")
        fleets[str(size.pcs)] = simulate(size.pcs, days, say, last_day=size.last_day)
        say(f"{fleets[str(size.pcs)]}")
    return {**next(iter(fleets.values())), "fleets": fleets}


def simulate(pcs: int, days: Sequence[Sequence[Day]], say: Say, *, last_day: float = 7) -> dict[str, Any]:
    """Simulate one fleet for a week of such days, after one in which its habits were learnt."""
    chance = random.Random(SEED)
    began_s = time.monotonic()
    office = [_pc(number, make_weeks(days, 2, chance), chance) for number in range(pcs)]
    week = _Week(SimulatedConsole(office, wanted(pcs)), office, chance, last_day * DAY_S, say)
    week.run()
    counts, hours = week.console.counts, last_day * 24
    fleet = [pc.weeks for pc in office]
    return {
        "pcs": pcs,
        "hours": hours,
        "absent_by_day": round(share_offered(fleet, range(7, 12), 9 * HOUR_S, 17 * HOUR_S), 3),
        "absent_by_night": round(share_offered(fleet, range(7, 12), 22 * HOUR_S, 29 * HOUR_S), 3),
        "requests": week.covered + week.uncovered,
        "covered_share": round(week.covered / max(1, week.covered + week.uncovered), 4),
        "served_share": round(week.served / max(1, week.covered), 4),
        "interrupted": week.interrupted,
        "moves": counts.moves,
        "takeovers": counts.takeovers,
        "bytes": counts.bytes,
        "replans_per_hour": round(counts.replans / hours, 1),
        "planner_ms_p50": round(percentile(counts.planner_ms, 0.5), 1),
        "planner_ms_p95": round(percentile(counts.planner_ms, 0.95), 1),
        "fleet_ms_p95": round(percentile(counts.fleet_ms, 0.95), 1),
        "present_violations": counts.present_violations,
        "seconds": round(time.monotonic() - began_s),
    }


def wanted(pcs: int) -> list[Wanted]:
    """Say what is served: a model that no PC holds alone, and one that most do; more pipelines for more PCs."""
    large = ModelFacts("large", [200 * MB] * 48, [4096] * 48, 500 * MB, 8192, 500 * MB, 16384)
    small = ModelFacts("small", [80 * MB] * 28, [2048] * 28, 300 * MB, 4096, 300 * MB, 8192)
    more = max(1, pcs // 150)
    return [Wanted(large, more, 2048, 8, 6), Wanted(small, more, 2048, 8, 2)]


def _pc(number: int, weeks: Weeks, chance: random.Random) -> Pc:
    facts = AgentFacts(
        device_id=f"pc-{number:04}",
        name=f"pc-{number:04}",
        memory_budget_bytes=chance.choice([3, 4, 6, 6, 8]) * 1000 * MB,
        ms_per_mb=chance.uniform(0.03, 0.1),
        rests=learnt(weeks, WEEK_S),
        site=chance.choices(["north", "south"], [0.7, 0.3])[0],
        rtt_ms=chance.uniform(0.3, 3.0),
    )
    return Pc(facts, weeks)


@dataclass
class _Answer:
    """One request: what is left to say, and since when it says nothing."""

    wanted: Wanted
    left_s: float
    waits_since_s: float
    pipeline: Pipeline | None = None
    speaks_s: float = 0.0
    turn: int = 0
    """Grows with each interruption: what was foreseen before is void."""


class _Week:
    """Drives a console through the week that counts, event by event."""

    def __init__(
        self, console: SimulatedConsole, pcs: Sequence[Pc], chance: random.Random, last_s: float, say: Say
    ) -> None:
        self.console = console
        self.served = self.covered = self.uncovered = self.interrupted = 0
        self._chance = chance
        self._say = say
        self._begin_s, self._end_s = WEEK_S, WEEK_S + last_s
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._running: dict[int, _Answer] = {}
        self._wanted = list({one.wanted.model.model_id: one.wanted for one in console.pipelines}.values())
        for pc in pcs:
            self._plan_presence(pc)
        for at_s in _requests(chance, self._begin_s + 300, self._end_s):
            self._at(at_s, self._ask)
        for number in range(int(last_s / LOOK_EVERY_S)):
            self._at(self._begin_s + 1 + number * LOOK_EVERY_S, self._look)

    def run(self) -> None:
        """Let everything happen in its order."""
        while self._events:
            at_s, _, happen = heapq.heappop(self._events)
            if at_s >= self._end_s:
                break
            happen(at_s)

    def _at(self, at_s: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), happen))

    def _plan_presence(self, pc: Pc) -> None:
        device_id = pc.facts.device_id
        for begin, end in pc.weeks.offered:
            if end > self._begin_s:
                self._at(max(begin, self._begin_s), lambda at_s: self._came(device_id, at_s))
                self._at(end, lambda at_s: self._left(device_id, at_s))

    # What happens

    def _look(self, at_s: float) -> None:
        self._interrupt(self.console.look(at_s), at_s)
        if (at_s - self._begin_s) % DAY_S < LOOK_EVERY_S:
            self._say(f"day {int((at_s - self._begin_s) / DAY_S) + 1}, {self.console.counts.replans} plans")

    def _came(self, device_id: str, at_s: float) -> None:
        self.console.came(device_id, at_s)
        self._resume(at_s)

    def _left(self, device_id: str, at_s: float) -> None:
        self._interrupt(self.console.left(device_id, at_s), at_s)

    def _interrupt(self, hit: Sequence[Pipeline], at_s: float) -> None:
        for answer in self._running.values():
            if answer.pipeline in hit:
                answer.pipeline, answer.turn = None, answer.turn + 1
                if at_s > answer.speaks_s:
                    self.interrupted += 1
                    answer.left_s -= at_s - answer.speaks_s
                    answer.waits_since_s = at_s
        self._resume(at_s)

    def _ask(self, at_s: float) -> None:
        answer = _Answer(self._chance.choice(self._wanted), self._chance.expovariate(1 / ANSWER_S), at_s)
        self._running[id(answer)] = answer
        self._go_on(answer, at_s)
        self._at(at_s + WAIT_S, lambda now_s: self._lose_patience(answer, now_s))

    def _resume(self, at_s: float) -> None:
        for answer in list(self._running.values()):
            if answer.pipeline is None:
                self._go_on(answer, at_s)

    def _go_on(self, answer: _Answer, at_s: float) -> None:
        """Let an answer begin or go on in the pipeline that is up first."""
        planned = [one for one in self.console.pipelines if one.wanted is answer.wanted and one.plan is not None]
        if not planned:
            return
        pipeline = min(planned, key=lambda one: (max(one.up_s, at_s), self._load(one)))
        pause_s = SWITCH_S if answer.turn and pipeline.up_s <= at_s else 0.0
        answer.pipeline, answer.speaks_s = pipeline, max(pipeline.up_s, at_s) + pause_s
        turn = answer.turn
        self._at(answer.speaks_s + answer.left_s, lambda _: self._finish(answer, turn))
        self._at(answer.waits_since_s + WAIT_S, lambda now_s: self._lose_patience(answer, now_s))

    def _load(self, pipeline: Pipeline) -> int:
        return sum(1 for answer in self._running.values() if answer.pipeline is pipeline)

    def _finish(self, answer: _Answer, turn: int) -> None:
        if id(answer) in self._running and answer.turn == turn:
            del self._running[id(answer)]
            self.served += 1
            self.covered += 1

    def _lose_patience(self, answer: _Answer, at_s: float) -> None:
        """End an answer that has said nothing for too long."""
        silent = answer.pipeline is None or answer.speaks_s > at_s
        if id(answer) in self._running and silent and at_s - answer.waits_since_s >= WAIT_S - 1e-6:
            del self._running[id(answer)]
            if answer.pipeline is None and not self.console.could_run(answer.wanted, at_s):
                self.uncovered += 1
            else:
                self.covered += 1


def _requests(chance: random.Random, first_s: float, last_s: float) -> Iterator[float]:
    """Yield when somebody asks: often on workdays, seldom at night and on the weekend."""
    now_s = first_s
    while True:
        day, hour = int(now_s / DAY_S) % 7, now_s % DAY_S / HOUR_S
        rate = DAY_RATE if day < 5 and 8 <= hour < 18 else NIGHT_RATE
        now_s += chance.expovariate(rate)
        if now_s >= last_s:
            return
        yield now_s
