"""Which cases a drill has, and what its figures are made of."""

from __future__ import annotations

import math

import pytest

from tests.bench.drill_cases import MOMENTS, STANDBYS, Case, Seen, overall, select
from tests.support.faults import FAULTS
from tests.support.streamed import Heard, difference


def make_seen(name: str, **fields: object) -> Seen:
    (case,) = select(name)
    values: dict[str, object] = {
        "stage": 0, "heard": 4, "detect_s": 0.5, "gap_s": 1.0, "replay_s": 0.25, "lost": 0, "added": 0,
        "text_equal": True, "note": "", "problems": [], "back_s": 2.0,
    }  # fmt: skip
    return Seen(case, **{**values, **fields})  # type: ignore[arg-type]


def make_heard(tokens: str, came_s: list[float], **fields: object) -> Heard:
    heard = Heard(tokens=[token.encode() for token in tokens], came_s=came_s)
    for name, value in fields.items():
        setattr(heard, name, value)
    return heard


def test_every_fault_happens_at_every_moment_with_every_standby_and_all_of_one_standby_follow_one_another() -> None:
    cases = select("")
    assert len(set(cases)) == len(cases) == len(FAULTS) * len(STANDBYS) * len(MOMENTS)
    assert [case.standby for case in cases] == sorted(case.standby for case in cases)


def test_cases_are_chosen_by_name() -> None:
    assert [case.name for case in select("kill-agent/hot/token-1, yield/*/limit")] == [
        "kill-agent/hot/token-1", "yield/hot/limit", "yield/warm/limit",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="No case fits 'kill'; names are FAULT/STANDBY/MOMENT"):
        select("kill")


@pytest.mark.parametrize(("moment", "expected"), [("prefill", 0), ("token-1", 1), ("token-50", 50), ("limit", 97)])
def test_a_fault_happens_while_tokens_are_still_to_come(moment: str, expected: int) -> None:
    case = Case("kill-stage", "hot", moment)  # type: ignore[arg-type]
    assert case.fires_at(100) == expected
    assert case.answer_tokens(512) > expected


def test_the_figures_take_the_worst_detection_and_leave_out_what_takes_nobody_away() -> None:
    found = overall(
        [
            make_seen("kill-agent/hot/token-1", detect_s=0.2),
            make_seen("kill-stage/hot/token-2", detect_s=0.7, gap_s=3.0, replay_s=2.5),
            make_seen("black-hole/warm/token-1", detect_s=2.5, gap_s=6.0),
            make_seen("slow-link/hot/token-1", detect_s=None, gap_s=50.0, lost=1),
        ]
    )
    assert (found["detect_dead_s"], found["detect_frozen_s"]) == (0.7, 2.5)
    assert (found["gap_hot_p95_s"], found["gap_hot_less_replay_p95_s"], found["gap_warm_p95_s"]) == (3.0, 0.75, 6.0)
    assert (found["tokens_lost"], found["tokens_added"], found["text_equal"]) == (1, 0, True)


def test_an_answer_that_was_cut_short_leaves_no_figure_that_looks_good() -> None:
    cut = make_seen(
        "yield/hot/limit", gap_s=None, detect_s=None, problems=["stage_lost"], text_equal=False, back_s=None
    )
    found = overall([make_seen("yield/hot/token-1"), cut])
    assert (found["gap_hot_p95_s"], found["text_equal"]) == (None, False)
    assert (found["answers_cut"], found["not_back"]) == (1, 1)
    assert overall([make_seen("freeze-agent/hot/limit", detect_s=None)])["detect_frozen_s"] is None


def test_a_silence_is_counted_from_the_last_token_before() -> None:
    heard = make_heard("abcd", [1.0, 2.0, 5.0, 5.5])
    assert heard.silence_s(2.5) == 3.0
    assert heard.silence_s(0.5) == 3.0
    assert heard.silence_s(5.1) == 0.5
    assert heard.silence_s(9.0) == 0.0
    assert (heard.heard_by(2.5), heard.heard_by(0.5)) == (2, 0)
    assert make_heard("a", [4.0]).silence_s(1.0) == 3.0
    assert make_heard("a", [1.0], problem="lost").silence_s(1.0) == math.inf


@pytest.mark.parametrize(
    ("tokens", "lost", "added"),
    [("abcdef", 0, 0), ("abc", 3, 0), ("abccdef", 0, 1), ("abdef", 1, 0), ("abxdef", 1, 1), ("", 6, 0)],
)
def test_lost_doubled_and_foreign_tokens_are_told_apart(tokens: str, lost: int, added: int) -> None:
    assert difference(make_heard(tokens, []), make_heard("abcdef", [])) == (lost, added)
