"""console.pipeline.spent and parts: an answer's time is divided without rest, whatever happens to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.pipeline.parts import WORDS, StageTime, TimeParts, slowest
from console.pipeline.spent import MOST_PHASES, Spent
from console.pipeline.trips import StagePart, Trip

PCS = ["ann", "bob"]


def trip(at_s: float, came_s: float, *, pcs: Sequence[str] = PCS) -> Trip:
    """Divide a trip evenly: a quarter of each stage's part is inference, sampling, its queue and its link."""
    quarter = (came_s - at_s) / len(pcs) / 4
    return Trip(at_s, came_s, [StagePart(quarter, quarter, quarter, quarter)] * len(pcs), pcs)


def told(spent: Spent, now_s: float) -> tuple[dict[str, Any], list[StageTime]]:
    """Return the parts that are not 0."""
    parts, stages = spent.ended(now_s)
    assert parts.total_ms == pytest.approx(sum(msgspec.structs.astuple(parts)))
    return {name: pytest.approx(took) for name, took in msgspec.structs.asdict(parts).items() if took > 1e-9}, stages


def test_an_answer_waits_is_read_and_then_goes_from_step_to_step() -> None:
    spent = Spent(10.0)
    spent.began(11.0)
    spent.came(trip(11.5, 13.0))
    spent.came(trip(13.1, 13.5))
    spent.came(trip(13.5, 13.9))
    parts, stages = told(spent, 13.95)
    assert parts == {
        "queue_ms": 1000, "prompt_ms": 2000, "waiting_ms": 100, "compute_ms": 200, "turn_ms": 200, "link_ms": 200,
        "sampling_ms": 200, "other_ms": 50,
    }  # fmt: skip
    assert {one.pc: one.compute_ms for one in stages} == pytest.approx({"ann": 100, "bob": 100})
    assert [phase.name for phase in spent.phases] == ["queue", "prefill", "decode"]


def test_wrong_guesses_are_taken_from_inference() -> None:
    spent = Spent(0.0)
    spent.began(0.0)
    spent.came(trip(0.0, 1.0))
    spent.came(trip(1.0, 1.8), wrong_s=0.05)
    spent.came(trip(1.8, 2.6), wrong_s=99.0)
    parts, _ = told(spent, 2.6)
    assert parts["guessing_ms"] == pytest.approx(50 + 200)
    assert parts["compute_ms"] == pytest.approx(150)


def test_from_the_loss_of_a_pc_to_the_next_token_is_recovery() -> None:
    spent = Spent(0.0)
    spent.began(1.0)
    spent.came(trip(1.0, 2.0))
    spent.lost(2.5)
    spent.began(4.0)
    spent.came(trip(4.0, 5.0, pcs=["ann", "cy"]))
    spent.came(trip(5.0, 5.4, pcs=["ann", "cy"]))
    parts, stages = told(spent, 5.4)
    assert parts["recovery_ms"] == 3000
    assert [one.pc for one in stages] == ["ann", "cy"]
    # The step that was on its way is of no use, but nobody knew.
    assert [phase.name for phase in spent.phases] == ["queue", "prefill", "decode", "recovery", "decode"]


def test_a_loss_before_the_first_token_does_not_swallow_the_prompt() -> None:
    spent = Spent(0.0)
    spent.lost(1.0)
    spent.began(3.0)
    spent.came(trip(3.0, 4.0))
    assert told(spent, 4.0)[0] == {"queue_ms": 1000, "recovery_ms": 2000, "prompt_ms": 1000}


def test_a_place_that_was_lost_to_older_answers_is_waited_for_again() -> None:
    spent = Spent(0.0)
    spent.began(0.0)
    spent.came(trip(0.0, 1.0))
    spent.began(3.0)
    spent.came(trip(3.0, 3.5))
    assert told(spent, 3.5)[0] == {"prompt_ms": 1500, "queue_ms": 2000}


def test_what_came_in_the_moment_of_a_loss_ends_no_recovery() -> None:
    spent = Spent(0.0)
    spent.began(0.0)
    spent.came(trip(0.0, 1.0))
    spent.lost(2.0)
    spent.came(trip(1.0, 1.9))
    assert told(spent, 3.0)[0] == {"prompt_ms": 1000, "recovery_ms": 2000}


def test_an_answer_that_nobody_got_a_token_of_was_waiting_or_reading() -> None:
    assert told(Spent(0.0), 2.0)[0] == {"queue_ms": 2000}
    reading = Spent(0.0)
    reading.began(1.0)
    assert told(reading, 3.0)[0] == {"queue_ms": 1000, "prompt_ms": 2000}


HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(["began", "came", "lost"]), st.floats(0, 2), st.floats(0, 1), st.floats(0, 1)),
    max_size=40,
)


@given(HAPPENINGS, st.floats(0, 1))
def test_the_parts_add_up_to_the_whole_time_and_none_is_negative(
    happenings: list[tuple[str, float, float, float]], rest_s: float
) -> None:
    now_s, spent = 100.0, Spent(100.0)
    for what, passed_s, took, wrong in happenings:
        left_s, now_s = now_s + passed_s * (1 - took), now_s + passed_s
        if what == "came":
            spent.came(trip(left_s, now_s), wrong_s=wrong)
        else:
            getattr(spent, what)(now_s)
    parts, stages = spent.ended(now_s + rest_s)
    assert parts.total_ms == pytest.approx(1000 * (now_s + rest_s - 100.0), abs=1e-6)
    assert min(msgspec.structs.astuple(parts)) >= 0
    for name in ("compute_ms", "turn_ms", "link_ms"):
        assert sum(getattr(stage, name) for stage in stages) == pytest.approx(getattr(parts, name), abs=1e-6)
    assert all(one.to_s == other.from_s for one, other in pairwise(spent.phases))
    assert not spent.phases or spent.phases[0].from_s == 100.0
    assert sum(phase.to_s - phase.from_s for phase in spent.phases) == pytest.approx(parts.total_ms / 1000, abs=1e-6)


@given(HAPPENINGS)
def test_trips_that_overlap_or_come_late_are_never_counted_twice(
    happenings: list[tuple[str, float, float, float]],
) -> None:
    spent, latest_s = Spent(0.0), 0.0
    for what, at_s, took_s, _ in happenings:
        latest_s = max(latest_s, at_s + took_s)
        if what == "came":
            spent.came(trip(at_s, at_s + took_s))
        else:
            getattr(spent, what)(at_s)
    assert spent.ended(latest_s)[0].total_ms == pytest.approx(1000 * latest_s, abs=1e-6)


def test_an_answer_that_is_interrupted_for_ever_keeps_few_phases() -> None:
    spent = Spent(0.0)
    for second in range(0, 1000, 2):
        spent.lost(second + 1.0)
        spent.came(trip(second + 1.0, second + 2.0))
        spent.came(trip(second + 2.0, second + 2.5))
    spent.ended(2000.0)
    assert len(spent.phases) == MOST_PHASES
    assert spent.phases[-1].to_s == 2000.0


# What is said of it


def parts_of(**took: float) -> TimeParts:
    return TimeParts(**took)


def test_every_part_has_its_words() -> None:
    assert set(WORDS) == set(TimeParts.__struct_fields__)


@pytest.mark.parametrize(
    ("took", "stages", "said"),
    [
        ({"queue_ms": 3000, "compute_ms": 1000}, [],
         "Most of 4.0 s was waiting for a place: 3.0 s (75%)."),
        ({"queue_ms": 40, "prompt_ms": 30, "link_ms": 30}, [],
         "The largest part of 100 ms was waiting for a place: 40 ms (40%)."),
        ({"compute_ms": 800, "link_ms": 200}, [StageTime("ann", 300, 0, 100), StageTime("bob", 500, 0, 100)],
         "Most of 1.0 s was inference: 800 ms (80%), 500 ms of it at bob."),
        ({"link_ms": 800}, [StageTime("ann", 0, 0, 800)],
         "Most of 800 ms was the way between PCs: 800 ms (100%), at ann."),
        ({"recovery_ms": 9000}, [StageTime("ann", 0, 0, 0)],
         "Most of 9.0 s was others taking over from a PC that was lost: 9.0 s (100%)."),
        ({}, [], ""),
    ],
)  # fmt: skip
def test_the_largest_part_is_said_in_words(took: dict[str, Any], stages: list[StageTime], said: str) -> None:
    assert slowest(parts_of(**took), stages) == said
