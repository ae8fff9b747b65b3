from __future__ import annotations

from agent.volunteer.backoff import CALM_S, Backoff, after_event
from agent.volunteer.machine import FAULT_WAITS_S


def waits_s(events: int, *, pause_s: float = 1.0) -> list[float]:
    """Return what each of so many faults costs, if each comes `pause_s` after the wait of the one before."""
    backoff, now_s, found = Backoff(), 1000.0, list[float]()
    for _ in range(events):
        backoff = after_event(backoff, now_s, FAULT_WAITS_S)
        found.append(backoff.until_s - now_s)
        now_s = backoff.until_s + pause_s
    return found


def test_a_pc_that_fails_at_every_try_stays_at_the_longest_wait() -> None:
    longest_s = FAULT_WAITS_S[-1]
    assert longest_s >= CALM_S  # the hour would be over with the wait, if it counted from the event
    assert waits_s(len(FAULT_WAITS_S) + 3) == [*FAULT_WAITS_S, longest_s, longest_s, longest_s]


def test_a_calm_hour_after_the_wait_begins_anew() -> None:
    assert waits_s(4, pause_s=CALM_S) == [FAULT_WAITS_S[0]] * 4
    assert waits_s(3, pause_s=CALM_S - 1) == list(FAULT_WAITS_S[:3])


def test_events_that_cost_nothing_are_forgotten_after_an_hour_too() -> None:
    backoff = Backoff()
    for now_s in (0.0, 1.0, 1.0 + CALM_S, 2.0 + CALM_S):
        backoff = after_event(backoff, now_s, [60.0], allowed=2)
        assert (backoff.level, backoff.until_s) == (0, 0.0)
