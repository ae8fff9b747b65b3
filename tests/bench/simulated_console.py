"""A console on a clock of its own: the real planner, standbys and hysteresis; PCs, loads and answers are simulated.

A pipeline is up once its PCs have fetched and loaded their ranges. When one of them leaves, a standby that has fetched
takes its range over; else a new plan is made from whoever is there, as near to the old one as possible. Every hour the
whole fleet is planned again, and what is a quarter better is loaded beside what runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from agent.volunteer.availability import likely
from console.planner.fleets import plan_fleet
from console.planner.ranges import plan
from console.planner.standbys import choose_standbys
from console.planner.types import EMBED, HEAD, AgentFacts, Demand, ModelFacts, Plan, PlanImpossible, Rules, Standby
from tests.bench.simulated_office import MONDAY_UNIX_S, Weeks

WARM_S, LOAD_S = 8.0, 12.0
"""Until a warm standby serves, and until a stage whose units are there does."""
BYTES_PER_S = 100e6
AHEAD_S = 3600.0
"""How long a PC had better stay."""
RULES = Rules(least_stay=0.5)

T = TypeVar("T")


class Pc(NamedTuple):
    """A PC: its hardware, its weeks, and what it tells of its habits."""

    facts: AgentFacts
    weeks: Weeks


class Wanted(NamedTuple):
    """A model and how many pipelines of it there are to be."""

    model: ModelFacts
    pipelines: int
    context_tokens: int
    streams: int
    standbys: int


@dataclass
class Pipeline:
    """One pipeline: its plan, from when on it answers, and who stands by. Without a plan it waits for PCs."""

    wanted: Wanted
    plan: Plan | None = None
    up_s: float = 0.0
    standbys: list[tuple[Standby, float]] = field(default_factory=list)
    """Each with the time from which on it has its units."""

    def is_up(self, at_s: float) -> bool:
        return self.plan is not None and self.up_s <= at_s

    def pcs(self) -> set[str]:
        return {stage.device_id for stage in self.plan.stages} if self.plan is not None else set()


@dataclass
class Counts:
    """What happened: stages that went to another PC, bytes fetched, plans made, and what must never be."""

    moves: int = 0
    bytes: int = 0
    replans: int = 0
    takeovers: int = 0
    planner_ms: list[float] = field(default_factory=list)
    """What a plan of one pipeline took."""
    fleet_ms: list[float] = field(default_factory=list)
    present_violations: int = 0


class SimulatedConsole:
    """Call `came`, `left` and `look` in the order of their times; all of them are seconds since Monday's midnight."""

    def __init__(self, pcs: Iterable[Pc], wanted: Iterable[Wanted]) -> None:
        self._pcs = {pc.facts.device_id: pc for pc in pcs}
        self._here: set[str] = set()
        self._held: dict[tuple[str, str], frozenset[int]] = {}
        self.pipelines = [Pipeline(one) for one in wanted for _ in range(one.pipelines)]
        self.counts = Counts()

    def came(self, device_id: str, at_s: float) -> None:
        """A PC may be used from now on; whatever waits for PCs or lacks standbys is tried again."""
        self._here.add(device_id)
        for pipeline in self.pipelines:
            if pipeline.plan is None:
                self._plan_anew(pipeline, None, at_s)
            elif len(pipeline.standbys) < pipeline.wanted.standbys:
                self._stand_by(pipeline, at_s)

    def left(self, device_id: str, at_s: float) -> list[Pipeline]:
        """A PC is gone or back with its owner; returns the pipelines that were interrupted."""
        self._here.discard(device_id)
        hit = []
        for pipeline in self.pipelines:
            pipeline.standbys = [one for one in pipeline.standbys if one[0].device_id != device_id]
            if device_id in pipeline.pcs():
                hit.append(pipeline)
                self._recover(pipeline, device_id, at_s)
        return hit

    def look(self, at_s: float) -> list[Pipeline]:
        """Plan the whole fleet again, and see to the standbys; returns pipelines that are up at another time now."""
        late: list[Pipeline] = []
        demands = [self._demand(one, at_s) for one in {id(p.wanted): p.wanted for p in self.pipelines}.values()]
        self.counts.replans += 1
        found = self._timed(self.counts.fleet_ms, lambda: plan_fleet(demands))
        for demand in demands:
            plans = iter(found.plans[demand.model.model_id])
            of_it = self._of(demand.model.model_id)
            late += [pipeline for pipeline in of_it if self._move_to(pipeline, next(plans, None), at_s)]
        for pipeline in self.pipelines:
            self._stand_by(pipeline, at_s)
        return late

    def could_run(self, wanted: Wanted, at_s: float) -> bool:
        """Tell whether a plan for a model is possible with the PCs that are here."""
        return self._try(wanted, self._facts(wanted, self._here, at_s), None) is not None

    def is_here(self, device_id: str) -> bool:
        return device_id in self._here

    # What a console does

    def _recover(self, pipeline: Pipeline, lost: str, at_s: float) -> None:
        running = pipeline.plan
        if running is None:
            return
        ready = {one.stage: (one, since_s) for one, since_s in reversed(pipeline.standbys) if since_s <= at_s}
        index = next(place for place, stage in enumerate(running.stages) if stage.device_id == lost)
        taken = self._taken(pipeline)
        if pipeline.up_s <= at_s and index in ready and ready[index][0].device_id not in taken:
            standby = ready[index][0]
            self._check(standby.device_id, at_s)
            stages = list(running.stages)
            stages[index] = msgspec.structs.replace(
                stages[index], device_id=standby.device_id, name=standby.name, fetch_bytes=0
            )
            pipeline.plan, pipeline.up_s = msgspec.structs.replace(running, stages=stages), at_s + WARM_S
            self.counts.takeovers += 1
            self.counts.moves += 1
            self._stand_by(pipeline, at_s)
            return
        self._plan_anew(pipeline, running, at_s)

    def _plan_anew(self, pipeline: Pipeline, running: Plan | None, at_s: float) -> None:
        wanted = pipeline.wanted
        pipeline.plan = None
        free = self._here - self._taken(pipeline)
        self.counts.replans += 1
        made = self._try(wanted, self._facts(wanted, free, at_s), running)
        if made is not None:
            self._put_up(pipeline, made, running, at_s)
            self._stand_by(pipeline, at_s)

    def _move_to(self, pipeline: Pipeline, made: Plan | None, at_s: float) -> bool:
        """Load a better plan beside the one that runs, which answers until then; tell whether nothing does."""
        running = pipeline.plan
        if made is None or (running is not None and _places(made) == _places(running)):
            return False
        was_up = pipeline.is_up(at_s)
        self._put_up(pipeline, made, running, at_s)
        if was_up:
            pipeline.up_s = at_s
        return not was_up

    def _put_up(self, pipeline: Pipeline, made: Plan, running: Plan | None, at_s: float) -> None:
        before = set(_places(running)) if running is not None else set()
        for stage in made.stages:
            self._check(stage.device_id, at_s)
            self.counts.moves += (stage.device_id, stage.first, stage.last) not in before
            self._fetch(stage.device_id, pipeline.wanted.model, stage.first, stage.last)
        self.counts.bytes += made.fetch_bytes
        pipeline.plan = made
        pipeline.up_s = at_s + LOAD_S + max(stage.fetch_bytes for stage in made.stages) / BYTES_PER_S
        pipeline.standbys = []

    def _stand_by(self, pipeline: Pipeline, at_s: float) -> None:
        if pipeline.plan is None or not pipeline.wanted.standbys:
            return
        wanted, running = pipeline.wanted, pipeline.plan
        known = {(one.device_id, one.stage): since_s for one, since_s in pipeline.standbys}
        facts = self._facts(wanted, self._here, at_s)
        busy = {device_id for other in self.pipelines for device_id in other.pcs()}
        chosen = choose_standbys(running, wanted.model, facts, count=wanted.standbys, rules=RULES, busy=busy)
        pipeline.standbys = []
        for one in chosen:
            self._check(one.device_id, at_s)
            since_s = known.get((one.device_id, one.stage), at_s + one.fetch_bytes / BYTES_PER_S)
            self.counts.bytes += one.fetch_bytes
            self._fetch(one.device_id, wanted.model, one.first, one.last)
            pipeline.standbys.append((one, since_s))

    # What it knows

    def _facts(self, wanted: Wanted, device_ids: Iterable[str], at_s: float) -> list[AgentFacts]:
        found = []
        for device_id in sorted(device_ids):
            facts = self._pcs[device_id].facts
            stay = likely(facts.rests, MONDAY_UNIX_S + at_s, 0.0, AHEAD_S)
            held = self._held.get((device_id, wanted.model.model_id), frozenset())
            found.append(msgspec.structs.replace(facts, stay=1.0 if stay is None else stay, held=held))
        return found

    def _demand(self, wanted: Wanted, at_s: float) -> Demand:
        current = tuple(one.plan for one in self._of(wanted.model.model_id) if one.plan is not None)
        return Demand(
            model=wanted.model,
            agents=self._facts(wanted, self._here, at_s),
            context_tokens=wanted.context_tokens,
            streams=wanted.streams,
            pipelines=wanted.pipelines,
            rules=RULES,
            current=current,
        )

    def _of(self, model_id: str) -> list[Pipeline]:
        """Return a model's pipelines, those with a plan first."""
        return sorted(
            (one for one in self.pipelines if one.wanted.model.model_id == model_id), key=lambda one: one.plan is None
        )

    def _taken(self, pipeline: Pipeline) -> set[str]:
        return {device_id for other in self.pipelines if other is not pipeline for device_id in other.pcs()}

    def _try(self, wanted: Wanted, facts: list[AgentFacts], running: Plan | None) -> Plan | None:
        try:
            return self._timed(
                self.counts.planner_ms,
                lambda: plan(
                    wanted.model,
                    facts,
                    context_tokens=wanted.context_tokens,
                    streams=wanted.streams,
                    rules=RULES,
                    current=running,
                ),
            )
        except PlanImpossible:
            return None

    @staticmethod
    def _timed(times_ms: list[float], work: Callable[[], T]) -> T:
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            times_ms.append((time.perf_counter() - began_s) * 1000)

    def _fetch(self, device_id: str, model: ModelFacts, first: int, last: int) -> None:
        ends = ({EMBED} if first == 0 else set()) | ({HEAD} if last == model.layers else set())
        held = self._held.get((device_id, model.model_id), frozenset())
        self._held[device_id, model.model_id] = held | ends | set(range(first, last))

    def _check(self, device_id: str, at_s: float) -> None:
        """Nobody whose owner is there, and nobody who is gone, is given work."""
        pc = self._pcs[device_id]
        if device_id not in self._here or pc.weeks.is_present(at_s):
            self.counts.present_violations += 1


def _places(made: Plan) -> list[tuple[str, int, int]]:
    return [(stage.device_id, stage.first, stage.last) for stage in made.stages]
