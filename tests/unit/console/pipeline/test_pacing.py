"""How many steps and how much of a prompt at once, from what stages were measured to take."""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.stage.types import Row, Sampling, StreamId
from console.pipeline.costs import Costs, StageCost, StepCosts
from console.pipeline.pacing import LEAST_CHUNK, UNKNOWN_CHUNK, Load, Pacer, decide
from console.pipeline.plans import Limits, Step
from console.pipeline.scheduler import Scheduler


def make_step(rows: int, extra: int = 0, number: int = 1) -> Step:
    """Decode rows, the first of them with `extra` drafts."""
    counts = [1 + extra, *[1] * (rows - 1)]
    made = [Row(StreamId(place), 9, count, wants=count) for place, count in enumerate(counts)]
    return Step(number, made, [5] * sum(counts), [])


def make_costs(*stages: tuple[float, float, float], rows: bool = True, tokens: bool = True) -> Costs:
    return Costs([StageCost(*stage) for stage in stages], knows_rows=rows, knows_tokens=tokens)


def measure(costs: StepCosts, truth: Sequence[StageCost], sizes: Sequence[tuple[int, int]]) -> Costs:
    for rows, extra in sizes:
        costs.add(make_step(rows, extra), [round(1000 * stage.ms(rows, extra)) for stage in truth])
    return costs.fit()


COEFFICIENT = st.floats(0.5, 30)


@settings(deadline=None)
@given(truth=st.lists(st.builds(StageCost, COEFFICIENT, COEFFICIENT, COEFFICIENT), min_size=1, max_size=3))
def test_the_fit_finds_each_stages_own_cost_again(truth: list[StageCost]) -> None:
    found = measure(StepCosts(len(truth)), truth, [(1, 0), (4, 0), (8, 0), (1, 255), (3, 7)])
    assert (found.knows_rows, found.knows_tokens) == (True, True)
    for stage, expected in zip(found.stages, truth, strict=True):
        assert stage == pytest.approx(expected, rel=0.01, abs=0.01)


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 16), st.integers(0, 300), st.integers(0, 500_000)), min_size=1, max_size=60)
)
def test_whatever_was_measured_no_coefficient_is_negative(sizes: list[tuple[int, int, int]]) -> None:
    costs = StepCosts(1)
    for rows, extra, compute_us in sizes:
        costs.add(make_step(rows, extra), [compute_us])
    assert min(costs.fit().stages[0]) >= 0


def test_one_hiccup_does_not_move_the_fit() -> None:
    costs, truth = StepCosts(1), [StageCost(10, 2, 1)]
    measure(costs, truth, [(1, 0), (4, 0), (4, 40)] * 5)
    costs.add(make_step(4), [900_000])
    assert costs.fit().stages[0] == pytest.approx(truth[0])


def test_strain_is_how_much_longer_a_part_of_a_prompt_took_than_fitted() -> None:
    costs = make_costs((10, 2, 1), (5, 1, 1))
    assert costs.strain(2, 10, costs.total_ms(2, 10)) == pytest.approx(1)
    assert costs.strain(2, 10, costs.total_ms(2, 25)) == pytest.approx(2.5)
    assert costs.strain(2, 10, 1.0) == 0
    assert make_costs((10, 2, 0)).strain(2, 10, 50) == 1


def test_what_never_varied_is_not_known() -> None:
    assert not measure(StepCosts(1), [StageCost(10, 2, 1)], [(2, 0), (2, 60)]).knows_rows
    assert not measure(StepCosts(1), [StageCost(10, 2, 1)], [(2, 0), (4, 0)]).knows_tokens
    assert StepCosts(2).fit() == make_costs((0, 0, 0), (0, 0, 0), rows=False, tokens=False)


@pytest.mark.parametrize(
    ("stages", "decoding", "steps"),
    [
        ([(7.0, 1.0, 0.5)] * 2, 8, 2),  # equal stages: both must work
        ([(20.0, 0.1, 0.5), (3.0, 0.1, 0.1)], 8, 1),  # rows are nearly free and one stage sets the pace
        ([(1.0, 10.0, 0.5), (1.0, 1.0, 0.1)], 8, 2),  # each row costs: halving a step loses little
        ([(7.0, 1.0, 0.5)] * 2, 1, 1),
        ([(7.0, 1.0, 0.5)], 8, 1),
        ([(7.0, 1.0, 0.5)] * 4, 3, 3),
    ],
)
def test_the_number_of_steps_follows_the_stage_times(
    stages: list[tuple[float, float, float]], decoding: int, steps: int
) -> None:
    pace = decide(make_costs(*stages), Load(decoding, len(stages), 256, current=len(stages)))
    assert pace.steps == steps


def test_the_reason_names_both_ways_and_their_times() -> None:
    pace = decide(make_costs((7, 1, 0.5), (7, 1, 0.5)), Load(8, 2, 256, wait_ms=1, current=2))
    assert pace.reason == "2 steps of 4 rows take about 23 ms a round; 1 step of 8 rows would take 31 ms."


def test_without_measurements_all_stages_work() -> None:
    pace = decide(make_costs((7, 1, 0.5), (7, 1, 0.5), rows=False, tokens=False), Load(8, 2, 256))
    assert (pace.steps, pace.chunk) == (2, UNKNOWN_CHUNK)
    assert "not been measured" in pace.reason


def test_a_decision_stays_while_the_other_way_promises_next_to_nothing() -> None:
    costs = make_costs((10.0, 0.0, 0.5), (9.8, 0.0, 0.5))
    assert [decide(costs, Load(8, 2, 256, current=current)).steps for current in (1, 2)] == [1, 2]


def test_no_part_of_a_prompt_computes_longer_than_a_pc_with_an_owner_allows() -> None:
    costs = make_costs((7, 1, 0.5), (7, 1, 2))
    assert decide(costs, Load(0, 2, 256)).chunk == 256
    assert decide(costs, Load(0, 2, 256, infer_ms=(80, 0))).chunk == 146
    assert decide(costs, Load(0, 2, 256, infer_ms=(80, 80))).chunk == 36
    assert decide(costs, Load(0, 2, 256, infer_ms=(80, 80), strain=2.0)).chunk == 18
    assert decide(costs, Load(0, 2, 256, infer_ms=(80, 3))).chunk == LEAST_CHUNK
    assert decide(costs, Load(2, 2, 256, wait_ms=500, current=2)).chunk == 256
    assert decide(costs, Load(2, 2, 256, wait_ms=500, current=2, infer_ms=(80, 80))).chunk == 36


@pytest.mark.parametrize("decoding", [0, 2])
def test_before_a_prompt_was_measured_such_a_pc_gets_the_least(decoding: int) -> None:
    costs = make_costs((7, 1, 0), tokens=False)
    assert decide(costs, Load(decoding, 1, 256, infer_ms=(80,))).chunk == LEAST_CHUNK
    assert decide(costs, Load(decoding, 1, 8, infer_ms=(80,))).chunk == 8


@settings(deadline=None)
@given(
    token_ms=st.floats(0.01, 20), base_ms=st.floats(0, 60), decoding=st.integers(0, 8), drafts=st.floats(0, 8),
    strain=st.floats(0.5, 5.0), most_ms=st.integers(-5, 500),
)  # fmt: skip
def test_a_bounded_part_stays_within_its_bound_or_is_the_least(
    token_ms: float, base_ms: float, decoding: int, drafts: float, strain: float, most_ms: int
) -> None:
    costs = make_costs((base_ms, 1, token_ms))
    load = Load(decoding, 1, 256, drafts=drafts, strain=strain, infer_ms=(most_ms,))
    piece = load.piece(costs, 1)
    assert LEAST_CHUNK <= piece <= 256
    taken_ms = costs.stages[0].ms(decoding, decoding * drafts) + piece * token_ms * strain
    assert most_ms <= 0 or piece == LEAST_CHUNK or taken_ms <= most_ms * 1.001
    assert most_ms > 0 or piece == 256


def test_a_prompt_gets_more_room_where_links_are_slow_and_all_of_it_when_nobody_answers() -> None:
    costs = make_costs((7, 1, 0.5), (7, 1, 0.5))
    near, far = (decide(costs, Load(2, 2, 256, wait_ms=wait_ms, current=2)).chunk for wait_ms in (1, 200))
    assert LEAST_CHUNK < near < far == 256
    assert decide(costs, Load(0, 2, 256)).chunk == 256


def test_the_pacer_learns_from_the_steps_that_come_back() -> None:
    pacer = Pacer(2, 256)
    assert pacer.pace(8).steps == 2
    for rows in (1, 8) * 8:
        pacer.measured(make_step(rows), [20_000 + 100 * rows, 3_000], 1.0)
    assert pacer.pace(8).steps == 1
    assert pacer.pace(0).reason == "No answer is running."


class Clockwork:
    """Stages that take what a cost says on a clock of their own, first in, first out, with links between them."""

    def __init__(self, scheduler: Scheduler, stages: Sequence[StageCost], link_ms: float, slope: int) -> None:
        self.scheduler, self.stages, self.link_ms, self.slope = scheduler, stages, link_ms, slope
        self.now_ms = 0.0
        self.free_ms = [0.0] * len(stages)
        self.coming: list[tuple[float, int, Step, list[int]]] = []
        self.arrivals: dict[StreamId, list[float]] = {}
        self.busiest_ms = [0.0] * len(stages)

    def work(self, step: Step) -> float:
        """The tokens beyond one a row; behind `slope` others one of a prompt costs as much again as the first one."""
        return sum((row.count - 1) * (1 + (row.first / self.slope if self.slope else 0)) for row in step.rows)

    def send(self) -> None:
        while (step := self.scheduler.schedule()) is not None:
            at_ms, spent = self.now_ms, []
            for place, stage in enumerate(self.stages):
                took_ms = stage.ms(len(step.rows), self.work(step)) if step.rows else 0.0
                self.busiest_ms[place] = max(self.busiest_ms[place], took_ms)
                at_ms = max(at_ms + self.link_ms, self.free_ms[place]) + took_ms
                self.free_ms[place] = at_ms
                spent.append(round(1000 * took_ms))
            heapq.heappush(self.coming, (at_ms + self.link_ms, step.id, step, spent))

    def turn(self) -> None:
        self.send()
        self.now_ms, _, step, spent = heapq.heappop(self.coming)
        if step.rows:
            self.scheduler.measured(step, spent, self.link_ms * (len(self.stages) + 1))
        for outcome in self.scheduler.update(step.id, [5] * step.wants):
            self.arrivals.setdefault(outcome.stream, []).append(self.now_ms)

    def until(self, stream: StreamId, tokens: int) -> float:
        """Go on until a stream has that many tokens; returns the time it took."""
        started_ms = self.now_ms
        while len(self.arrivals.get(stream, [])) < tokens:
            self.turn()
        return self.now_ms - started_ms

    def p95_gap_ms(self, streams: Sequence[StreamId], since_ms: float) -> float:
        gaps: list[float] = []
        for stream in streams:
            times = [at_ms for at_ms in self.arrivals[stream] if at_ms >= since_ms]
            gaps += [later - earlier for earlier, later in itertools.pairwise(times)]
        return statistics.quantiles(gaps, n=20)[-1]


@pytest.mark.parametrize("slope", [0, 3000])
@pytest.mark.parametrize("answers", [1, 2, 8])
@pytest.mark.parametrize(
    ("stages", "link_ms"),
    [
        ([StageCost(14, 1.9, 1.2)], 0.2),
        ([StageCost(7, 1, 0.6)] * 2, 0.2),
        ([StageCost(20, 0.2, 2.0), StageCost(3, 0.1, 0.3)], 0.2),
        ([StageCost(0.5, 7, 0.6)] * 2, 0.2),
        ([StageCost(7, 1, 0.6)] * 2, 100),
        ([StageCost(3, 0.5, 0.3)] * 4, 5),
    ],
)
def test_a_long_prompt_neither_stalls_the_answers_nor_is_stalled_by_them(
    stages: list[StageCost], link_ms: float, answers: int, slope: int
) -> None:
    scheduler = Scheduler(Limits(len(stages), 80_000, 8_000, 16))

    numbers = itertools.count()

    def add(prompt: int) -> StreamId:
        # A key each: what one prompt left in the caches must not help the next.
        return scheduler.add([7] * prompt, 6_000, sampling=Sampling(), key=str(next(numbers)))

    clockwork = Clockwork(scheduler, stages, link_ms, slope)
    clockwork.until(add(40), 5)
    alone = add(2_000)
    scheduler.cancel(StreamId(1))
    alone_ms = clockwork.until(alone, 1)
    scheduler.cancel(alone)
    streams = [add(30 + 10 * place) for place in range(answers)]
    clockwork.until(streams[-1], 50)
    quiet_since_ms = clockwork.now_ms
    clockwork.until(streams[-1], 250)
    quiet_ms = clockwork.p95_gap_ms(streams, quiet_since_ms)
    busy_since_ms = clockwork.now_ms
    prompt_ms = clockwork.until(add(2_000), 1)
    assert clockwork.p95_gap_ms(streams, busy_since_ms) <= 4 * quiet_ms
    assert prompt_ms <= 2 * alone_ms


@pytest.mark.parametrize("answers", [0, 3])
def test_a_pc_whose_owner_may_come_back_is_never_busy_for_longer_than_it_says(answers: int) -> None:
    stages = [StageCost(10, 2, 3), StageCost(5, 1, 0.5)]
    scheduler = Scheduler(Limits(2, 80_000, 8_000, 16, infer_ms=(80, 0)))
    clockwork = Clockwork(scheduler, stages, 5, 0)
    prompts = [scheduler.add([7] * 300, 200, sampling=Sampling(), key=key) for key in "abc"[: max(1, answers)]]
    clockwork.until(prompts[-1], 20)
    if not answers:
        scheduler.cancel(prompts[0])
    assert 20 < clockwork.busiest_ms[0] <= 80 * 1.05
    clockwork.busiest_ms = [0.0, 0.0]
    clockwork.until(scheduler.add([7] * 2_000, 10, sampling=Sampling(), key="long"), 1)
    assert 60 < clockwork.busiest_ms[0] <= 80 * 1.05
