"""console.pipeline.totals: steps, drafts and stages, counted apart by what a step does."""

from __future__ import annotations

from agent.stage.types import Row, StageTiming, StreamId
from console.pipeline.flight import Sent
from console.pipeline.plans import Outcome, Step
from console.pipeline.totals import PipelineTotals
from console.pipeline.trips import Trip
from console.pipeline.types import StageInfo


def stage(device_id: str) -> StageInfo:
    return StageInfo(device_id, device_id, 0, 1, "paged", fused=True)


def carry(totals: PipelineTotals, *rows: Row) -> None:
    step = Step(1, list(rows), [0] * sum(row.count for row in rows), [])
    timings = [StageTiming(4000, 1000)] * len(totals.stages)
    totals.came(step, Trip.of(Sent(step, 0.0, alone=True, passes=[]), timings, 0.02, []))


def answer(number: int) -> Row:
    return Row(StreamId(number), 8, 1, wants=1)


def prompt(number: int) -> Row:
    return Row(StreamId(number), 0, 8, wants=1)


def test_steps_that_read_prompts_are_counted_apart_and_probes_not_at_all() -> None:
    totals = PipelineTotals()
    totals.begin([stage("a"), stage("b")])
    carry(totals, answer(1), answer(2))
    carry(totals, answer(1), prompt(3))
    carry(totals)
    assert {work: (rows.count, rows.sum) for work, rows in totals.rows.items()} == {
        "answers": (1, 2),
        "prompts": (1, 2),
    }
    for counted in totals.stages.values():
        assert [tally.count for part in counted for tally in part.values()] == [1] * 6
        assert abs(counted.link["answers"].sum - 0.005) < 1e-9


def test_whoever_stays_goes_on_counting_and_whoever_leaves_takes_the_figures_along() -> None:
    totals = PipelineTotals()
    totals.begin([stage("a"), stage("b")])
    carry(totals, answer(1))
    totals.begin([stage("c"), stage("b")])
    carry(totals, answer(1))
    assert {device: one.compute["answers"].count for device, one in totals.stages.items()} == {"c": 1, "b": 2}


def test_drafts_count_as_drafted_and_those_that_were_right_as_accepted() -> None:
    totals = PipelineTotals()
    totals.judged([Outcome(StreamId(1), [1, 2, 3], None, drafted=4), Outcome(StreamId(2), [1], None)])
    totals.judged([Outcome(StreamId(1), [7], "stop", drafted=2)])
    assert (totals.drafted, totals.accepted) == (6, 2)
