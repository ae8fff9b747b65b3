from __future__ import annotations

from dataclasses import dataclass

import pytest

from agent.watchdog import INFERENCE_S, SILENCE_S, stall_of

SECOND = 10**9


@dataclass
class Counted:
    is_inside: bool = False
    moved_ns: int = 0
    beat_ns: int = 0


@pytest.mark.parametrize(
    "gate",
    [
        Counted(),
        Counted(moved_ns=0, beat_ns=1000 * SECOND),
        Counted(is_inside=True, moved_ns=999 * SECOND, beat_ns=999 * SECOND),
    ],
    ids=["still loading", "nothing to do for long", "computing"],
)
def test_a_child_that_gets_on_is_left_alone(gate: Counted) -> None:
    assert stall_of(gate, 1000 * SECOND) == ""


def test_a_child_that_lives_and_does_not_finish_is_given_up() -> None:
    gate = Counted(is_inside=True, moved_ns=0, beat_ns=int((INFERENCE_S + 1) * SECOND))
    assert "did not end" in stall_of(gate, int((INFERENCE_S + 1) * SECOND))


def test_a_child_that_is_frozen_is_given_up() -> None:
    assert "frozen" in stall_of(Counted(beat_ns=SECOND), int((SILENCE_S + 2) * SECOND))
