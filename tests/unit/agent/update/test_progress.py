"""agent.update.progress: every way an update can go."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.update.progress import (
    AGAIN_S,
    MOST_TRIES,
    SERVING_S,
    Now,
    Phase,
    Progress,
    at_start,
    begun,
    called_off,
    dropped,
    failed,
    moved,
    next_step,
    postponed,
    taken,
)
from agent.update.releases import Release
from tests.support.releases import describe

NOW_S = 1e9


def release(version: str = "1.1.0", sha256: str = "ab" * 32) -> Release:
    return Release(describe(version), "archive", 1000, sha256, 10, NOW_S + 1e6)


def at(phase: Phase, **changes: object) -> Progress:
    progress = moved(taken(Progress(), release(), "1.0.0", NOW_S), phase, NOW_S)
    return msgspec.structs.replace(progress, **changes)


def now(after_s: float = 0, **changes: bool) -> Now:
    return msgspec.structs.replace(Now(NOW_S + after_s, allowed=True, unfelt=True, serving=False), **changes)


def test_an_update_goes_its_way_while_nobody_is_there() -> None:
    assert [next_step(at(phase), now()) for phase in ("fetching", "preparing", "ready")] == [
        "fetch",
        "prepare",
        "restart",
    ]


def test_only_fetching_goes_on_while_somebody_is_there() -> None:
    felt = now(unfelt=False)
    assert [next_step(at(phase), felt) for phase in ("fetching", "preparing", "ready")] == ["fetch", "rest", "rest"]
    assert next_step(at("ready"), now(unfelt=False, hurry=True)) == "restart"


def test_nothing_is_done_that_is_not_allowed() -> None:
    for phase in ("fetching", "preparing", "ready"):
        assert next_step(at(phase), now(allowed=False)) == "rest"


def test_a_pc_that_serves_is_waited_for_and_then_hands_over() -> None:
    assert next_step(at("ready"), now(serving=True)) == "rest"
    assert next_step(at("ready"), now(SERVING_S, serving=True)) == "restart"
    assert next_step(at("ready"), now(serving=True, hurry=True)) == "restart"


def test_what_expired_while_it_waited_is_not_installed() -> None:
    assert next_step(at("ready"), now(2e6)) == "drop"


def test_the_same_release_goes_on_and_another_begins_again() -> None:
    assert taken(at("ready"), release(), "1.0.0", NOW_S).phase == "ready"
    other = taken(at("ready"), release("1.2.0", "cd" * 32), "1.0.0", NOW_S)
    assert (other.phase, other.version, other.tries) == ("fetching", "1.2.0", 0)


def test_a_fetch_that_was_cut_goes_on_later() -> None:
    cut = postponed(at("fetching"), "The link broke.", NOW_S)
    assert next_step(cut, now(1)) == "rest"
    assert next_step(cut, now(1, hurry=True)) == "fetch"
    assert next_step(cut, now(601)) == "fetch"


def test_a_trial_is_counted_before_it_begins_and_is_bad_after_the_last() -> None:
    progress = at("wanted")
    waits = []
    for _ in range(MOST_TRIES):
        progress = at_start(moved(progress, "wanted", NOW_S), "1.0.0", is_here=True, now_s=NOW_S)
        assert progress.phase == "trying"
        progress = failed(progress, "It ended.", NOW_S)
        waits.append(progress.again_s - NOW_S)
    assert waits[:2] == [AGAIN_S, 4 * AGAIN_S]
    assert progress.phase == "failed"
    assert progress.bad == {"1.1.0": "It ended."}


def test_a_trial_that_was_told_to_stop_does_not_count() -> None:
    progress = called_off(begun(at("wanted"), NOW_S), NOW_S)
    assert (progress.phase, progress.tries) == ("ready", 0)


@pytest.mark.parametrize("phase", ["wanted", "trying", "ready"])
def test_a_switch_that_happened_before_a_kill_counts(phase: Phase) -> None:
    assert at_start(at(phase), "1.1.0", is_here=True, now_s=NOW_S).phase == "done"


def test_a_trial_that_was_cut_off_is_not_begun_at_the_next_start() -> None:
    after = at_start(begun(at("wanted"), NOW_S), "1.0.0", is_here=True, now_s=NOW_S)
    assert (after.phase, after.tries) == ("ready", 1)
    assert "cut off" in after.problem


def test_a_version_that_is_gone_is_fetched_again() -> None:
    assert at_start(at("wanted"), "1.0.0", is_here=False, now_s=NOW_S).phase == "fetching"
    assert at_start(at("ready"), "1.0.0", is_here=False, now_s=NOW_S).phase == "fetching"


def test_giving_up_marks_only_what_is_bad() -> None:
    assert dropped(at("fetching"), "Withdrawn.", NOW_S, bad=False).bad == {}
    assert dropped(at("preparing"), "Unfit.", NOW_S, bad=True).bad == {"1.1.0": "Unfit."}


@given(
    st.builds(
        Progress,
        phase=st.sampled_from(["none", "fetching", "preparing", "ready", "wanted", "trying", "done", "failed"]),
        version=st.sampled_from(["", "1.0.0", "1.1.0"]),
        tries=st.integers(0, 3),
        again_s=st.floats(0, 100),
        expires_s=st.floats(0, 100),
    ),
    st.builds(
        Now,
        now_s=st.floats(0, 100),
        allowed=st.booleans(),
        unfelt=st.booleans(),
        serving=st.booleans(),
        hurry=st.booleans(),
    ),
    st.booleans(),
)
def test_no_state_restarts_what_is_felt_and_every_trial_ends(progress: Progress, seen: Now, is_here: bool) -> None:
    step = next_step(progress, seen)
    if step in ("prepare", "restart"):
        assert seen.allowed
        assert seen.unfelt or seen.hurry
    started = at_start(progress, "1.0.0", is_here=is_here, now_s=seen.now_s)
    assert started.phase != "wanted"
    assert started.phase != "trying" or started.tries == progress.tries + 1
    assert at_start(started, "1.0.0", is_here=is_here, now_s=seen.now_s).phase != "trying"
