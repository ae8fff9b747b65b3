"""When a PC tends to rest: learnt by the hour of the week, faded, and told coarsely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.volunteer.availability import (
    BLOCKS,
    CELLS,
    HOUR_S,
    Rest,
    coarse,
    is_coarse,
    likelihoods,
    likely,
    watch,
)
from agent.volunteer.policy import Policy
from agent.volunteer.recording import NAME, AvailabilityRecorder
from tests.support.volunteer import PlayedPc

MONDAY_UNIX_S = 1_767_571_200.0  # 5 January 2026, 00:00 UTC
DAY_S = 86_400.0


def rests_at(hour_of_week: int) -> bool:
    """An office PC: in use on weekdays from 9 to 17."""
    day, hour = divmod(hour_of_week, 24)
    return day > 4 or not 9 <= hour < 17


def weeks(count: int, rest: Rest | None = None, start_unix_s: float = MONDAY_UNIX_S) -> Rest:
    rest = rest or Rest()
    for hour in range(count * CELLS + 1):
        resting = rests_at((hour - 1) % CELLS)
        rest = watch(rest, start_unix_s + hour * HOUR_S, 0.0, resting=resting, longest_s=HOUR_S)
    return rest


def test_after_two_weeks_every_hour_is_told_apart() -> None:
    fine = likelihoods(weeks(2))
    assert all((fine[cell] > 0.6) == rests_at(cell) for cell in range(CELLS))
    blocks = coarse(weeks(2))
    assert len(blocks) == BLOCKS
    assert likely(blocks, MONDAY_UNIX_S + 12 * HOUR_S, 0.0, HOUR_S) == pytest.approx(0.1, abs=0.11)
    assert likely(blocks, MONDAY_UNIX_S + 5 * DAY_S, 0.0, 8 * HOUR_S) == pytest.approx(0.9, abs=0.11)


def test_an_hour_never_watched_leans_on_the_same_hour_of_other_days() -> None:
    rest = Rest()
    for day in range(3):
        start_s = MONDAY_UNIX_S + day * DAY_S
        rest = watch(rest, start_s, 0.0, resting=True, longest_s=0.0)
        rest = Rest(rest.watched_h, rest.resting_h, start_s)
        for hour in range(1, 25):
            rest = watch(rest, start_s + hour * HOUR_S, 0.0, resting=hour <= 12, longest_s=HOUR_S)
    fine = likelihoods(rest)
    assert fine[3 * 24 + 6] > 0.7 > 0.3 > fine[3 * 24 + 18]


def test_old_habits_fade() -> None:
    used_at_night = weeks(8)
    moved = used_at_night
    start_s = used_at_night.until_unix_s
    for hour in range(1, 8 * CELLS + 1):
        moved = watch(moved, start_s + hour * HOUR_S, 0.0, resting=not rests_at((hour - 1) % CELLS), longest_s=HOUR_S)
    assert likelihoods(moved)[10] > 0.7


def test_a_pc_that_was_off_did_not_rest() -> None:
    rest = watch(Rest(), MONDAY_UNIX_S, 0.0, resting=True, longest_s=60.0)
    rest = watch(rest, MONDAY_UNIX_S + 3 * DAY_S, 0.0, resting=True, longest_s=60.0)
    assert sum(rest.watched_h) == pytest.approx(72 * 0.5 ** (3 / 28), rel=0.1)
    assert sum(rest.resting_h) == 0


@pytest.mark.parametrize("jump_s", [-DAY_S, 30 * DAY_S])
def test_a_clock_that_jumps_counts_for_nothing(jump_s: float) -> None:
    rest = weeks(1)
    later = watch(rest, rest.until_unix_s + jump_s, 0.0, resting=True, longest_s=60.0)
    assert (later.watched_h, later.resting_h) == (rest.watched_h, rest.resting_h)


def test_the_first_day_is_told_nobody() -> None:
    assert coarse(Rest()) == []
    assert likely([], MONDAY_UNIX_S, 0.0, HOUR_S) is None


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 3 * DAY_S), st.booleans(), st.sampled_from([0.0, -18000.0, 20700.0])), max_size=30)
)
def test_likelihoods_are_always_likelihoods(looks: list[tuple[float, bool, float]]) -> None:
    rest, unix_s = Rest(), MONDAY_UNIX_S
    for after_s, resting, offset_s in looks:
        unix_s += after_s
        rest = watch(rest, unix_s, offset_s, resting=resting, longest_s=DAY_S)
    assert all(0 <= chance <= 1 for chance in likelihoods(rest))
    assert is_coarse(coarse(rest))
    assert all(percent % 10 == 0 for percent in coarse(rest))


class TestRecording:
    def record(self, recorder: AvailabilityRecorder, pc: PlayedPc, hours: int) -> None:
        for minute in range(hours * 60):
            recorder.note(pc.state, pc.policy, MONDAY_UNIX_S + minute * 60, 0.0)

    def test_what_was_learnt_survives_a_restart_and_is_shared_only_if_allowed(self, tmp_path: Path) -> None:
        pc = PlayedPc()
        pc.serve()
        recorder = AvailabilityRecorder(tmp_path)
        self.record(recorder, pc, 25)
        recorder.save()
        again = AvailabilityRecorder(tmp_path)
        assert len(again.shared(Policy(share_availability=True))) == BLOCKS
        assert again.shared(Policy()) == []
        assert again.shared(Policy(share_availability=True, learn_availability=False)) == []

    def test_learning_can_be_forbidden_and_what_was_learnt_is_deleted(self, tmp_path: Path) -> None:
        pc = PlayedPc()
        recorder = AvailabilityRecorder(tmp_path)
        self.record(recorder, pc, 1)
        assert (tmp_path / NAME).exists()
        recorder.note(pc.state, Policy(learn_availability=False), MONDAY_UNIX_S + DAY_S, 0.0)
        assert not (tmp_path / NAME).exists()

    @pytest.mark.parametrize("content", [b"", b"{", b'{"watched_h":[1],"resting_h":[1]}', b"\xff" * 100])
    def test_a_damaged_file_is_begun_anew(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / NAME).write_bytes(content)
        assert AvailabilityRecorder(tmp_path).shared(Policy(share_availability=True)) == []
