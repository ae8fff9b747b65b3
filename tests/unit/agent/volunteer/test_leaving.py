"""agent.volunteer.leaving: how long a PC that is taken out of service works on."""

from __future__ import annotations

from agent.volunteer.leaving import HAND_OVER_S, HandingOver
from agent.volunteer.policy import Policy

DRAIN = Policy(drain=True)


def test_what_is_served_is_handed_over_before_the_pc_is_held() -> None:
    leaving = HandingOver()
    seen = []
    for policy, serves, now_s in ((Policy(), True, 0.0), (DRAIN, True, 100.0), (DRAIN, False, 101.0)):
        held = leaving.spare(policy, serves=serves, now_s=now_s).drain
        seen.append((held, leaving.is_on))
    assert seen == [(False, False), (False, True), (True, False)], "others have taken over by then"


def test_nobody_is_waited_for_longer_than_that() -> None:
    leaving = HandingOver()
    leaving.spare(DRAIN, serves=True, now_s=100.0)
    assert not leaving.spare(DRAIN, serves=True, now_s=100.0 + HAND_OVER_S - 0.1).drain
    assert leaving.spare(DRAIN, serves=True, now_s=100.0 + HAND_OVER_S).drain
    assert leaving.spare(DRAIN, serves=True, now_s=200.0).drain, "and it does not begin again"


def test_a_pc_that_serves_nothing_is_held_at_once_and_one_that_is_let_in_again_is_as_before() -> None:
    leaving = HandingOver()
    assert leaving.spare(DRAIN, serves=False, now_s=0.0).drain
    assert leaving.spare(Policy(), serves=False, now_s=50.0) == Policy()
    assert not leaving.spare(DRAIN, serves=True, now_s=60.0).drain
