"""What people are told: a sentence for every reason, a countdown where there is one, and no secrets in the codes."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from agent.control import status
from agent.volunteer.explain import PHASES, SENTENCES, duration, explain, sentence
from agent.volunteer.policy import Policy
from agent.volunteer.reasons import SEVERITY, Reason, ReasonCode, Severity
from agent.volunteer.states import Pause, Phase, Situation, StageFault
from tests.support.volunteer import PlayedPc


def test_every_code_has_a_severity_and_a_sentence_with_and_without_a_detail() -> None:
    assert set(SENTENCES) == set(SEVERITY) == set(ReasonCode)
    assert set(PHASES) == set(Phase)
    for code in ReasonCode:
        for detail in ("", "the detail"):
            text = sentence(Reason(code, SEVERITY[code], 0.0, detail=detail))
            assert text[0].isupper()
            assert text.endswith(".")
            assert "{" not in text
            assert "()" not in text


def test_phases_are_those_of_the_control_socket() -> None:
    assert {phase.value for phase in Phase} == set(get_args(status.Phase))
    assert {severity.name.lower() for severity in Severity} == set(get_args(status.Severity))


def test_the_headline_says_when_it_starts_after_the_owner_leaves_and_counts_down_then() -> None:
    pc = PlayedPc(idle_s=0)
    pc.live(130)
    pc.touch()
    assert explain(pc.state).headline == "Waiting: you are using this PC. Starts about 5 min after you leave."
    pc.live(70)
    assert explain(pc.state).headline == "Waiting: you are using this PC. Starts in about 4 min if you stay away."


def test_a_timed_pause_counts_down_and_an_open_one_says_what_ends_it() -> None:
    pc = PlayedPc()
    pc.step(Pause(pc.now_s + 3600))
    pc.live(1200)
    told = explain(pc.state)
    assert told.headline == "Paused by you for another 40 min."
    assert told.lines[0].clears_in_s == 2400
    pc.step(Pause(None))
    assert explain(pc.state).headline == "Paused by you until you resume."


def test_a_program_that_has_to_end_first_has_no_countdown() -> None:
    pc = PlayedPc()
    pc.live(200)
    pc.see(exclusive=("recorder",))
    assert explain(pc.state).headline.endswith("is running (recorder). Starts when that is over.")
    pc.touch()
    pc.see(exclusive=(), fullscreen=True)
    assert (
        "once nothing else holds this PC" in explain(pc.state).headline
        or "when that is over" in explain(pc.state).headline
    )


@pytest.mark.parametrize(
    ("situation", "policy", "said"),
    [
        (Situation(link="unenrolled"), Policy(), "Not a member of a fleet: this PC is not a member of a fleet yet."),
        (Situation(link="down"), Policy(), "Waiting: the console cannot be reached."),
        (Situation(), Policy(paused=True), "Waiting: paused by the administrator."),
        (Situation(), Policy(enabled=False), "Switched off: volunteering is switched off."),
    ],
)
def test_what_nobody_can_count_down_is_said_without_a_countdown(
    situation: Situation, policy: Policy, said: str
) -> None:
    pc = PlayedPc(policy)
    pc.situation = situation
    pc.live(200)
    assert explain(pc.state).headline == said


def test_working_needs_no_reason_and_no_countdown() -> None:
    pc = PlayedPc()
    pc.serve()
    assert explain(pc.state).headline == "Contributing."
    assert explain(pc.state).lines == ()


def test_codes_carry_no_detail() -> None:
    pc = PlayedPc()
    pc.live(200)
    pc.see(exclusive=("secret-project.exe",), inhibitors=("film.mkv",))
    pc.step(StageFault("private words"))
    assert set(pc.state.codes()) == {"exclusive_app", "inhibited", "fault_backoff"}
    assert b"secret" not in msgspec.json.encode(pc.state.codes())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (59, "59 s"), (61, "1 min"), (3600, "60 min"), (7200, "2 h"), (86_400, "24 h"), (200_000, "2 days")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
