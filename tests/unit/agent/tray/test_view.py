"""agent.tray.view: what a Status looks like to the owner."""

from __future__ import annotations

import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.control.status import Countdown, LinkPhase, Phase, PolicyRow, StageShown, Status
from agent.tray.texts import LANGUAGES, Texts, load_texts
from agent.tray.view import ABILITIES, MAX_TOOLTIP_CHARS, Shown, can_change, must_ask_consent, show, ticks
from agent.volunteer.reasons import ReasonCode
from tests.support.fake_service import NOW_S, make_reason, make_row, make_status

TEXTS = {language: load_texts(language) for language in LANGUAGES}
PHASES = typing.get_args(Phase)
STAGE = StageShown(1, 0, 0, 14, "paged", "CPU")


def shown(texts: Texts = TEXTS["en"], **changes: object) -> Shown:
    return show(make_status(**changes), NOW_S, texts)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("texts", TEXTS.values(), ids=LANGUAGES)
def test_every_phase_has_a_line_of_its_own(texts: Texts, phase: str) -> None:
    assert shown(texts, phase=phase).headline == texts(f"headline.{phase}")


@pytest.mark.parametrize(
    ("icon", "name"),
    [("away", "idle"), ("contributing", "contributing"), ("paused", "paused"), ("waiting", "waiting"),
     ("attention", "attention"), ("offline", "offline")],
)  # fmt: skip
def test_the_service_chooses_the_icon(icon: str, name: str) -> None:
    assert shown(icon=icon).icon == name


def test_a_service_that_is_silent_is_offline_and_can_be_started() -> None:
    seen = show(None, NOW_S, TEXTS["en"], trouble="The agent does not answer; end it and start it again.")
    assert seen.icon == "offline"
    assert seen.headline == "The agent is not running."
    assert "does not answer" in seen.detail
    assert [ability for ability in ABILITIES if seen.can(ability)] == ["start"]


def test_the_first_reason_is_the_headline_and_all_are_listed() -> None:
    reasons = [make_reason("on_battery", for_s=700), make_reason("schedule", for_s=5)]
    seen = shown(TEXTS["de"], phase="held", reasons=reasons)
    assert seen.headline == "Dieser PC läuft auf Akku."
    assert seen.reasons == ("Dieser PC läuft auf Akku (seit 11 min)", TEXTS["de"]("reason.schedule"))


def test_english_keeps_the_details_of_the_services_own_sentence() -> None:
    assert shown(reasons=[make_reason("thermal", text="This PC is hot (93 °C).")]).headline == "This PC is hot (93 °C)."


def test_a_reason_nobody_has_translated_is_said_as_the_service_says_it() -> None:
    assert (
        shown(TEXTS["es"], reasons=[make_reason("full_moon", text="The moon is full.")]).headline == "The moon is full."
    )


def test_the_owner_reads_when_it_starts_after_they_leave() -> None:
    policy = [make_row("idle_start_s", "seconds", 300.0)]
    seen = shown(phase="held", reasons=[make_reason("user_input", text="You are using this PC.")], policy=policy)
    assert seen.tooltip == "Fallow: You are using this PC. Starts about 5 min after you leave."


@pytest.mark.parametrize(
    ("what", "said"),
    [("starts", "Starts in about 2 min."), ("resumes", "Goes on in 2 min."),
     ("releases", "The memory is given back in 2 min.")],
)  # fmt: skip
def test_a_countdown_counts_from_now(what: str, said: str) -> None:
    coming = Countdown(what, NOW_S + 120)  # type: ignore[arg-type]  # parametrized
    status = make_status(countdown=coming)
    assert show(status, NOW_S, TEXTS["en"]).detail == said
    assert show(status, NOW_S + 121, TEXTS["en"]).detail == ""
    assert ticks(status)


def test_while_somebody_is_here_the_countdown_is_a_condition() -> None:
    reasons = [make_reason("user_input")]
    said = shown(phase="held", reasons=reasons, countdown=Countdown("starts", NOW_S + 120)).detail
    assert said == "Starts in about 2 min if you stay away."


def test_a_pause_says_when_it_ends() -> None:
    assert "until you resume" in shown(phase="held", pause_until_s=float("inf")).headline
    assert shown(phase="held", pause_until_s=NOW_S + 60).headline.startswith("Paused by you until ")


def test_loading_says_how_far_it_is() -> None:
    stages = [STAGE, StageShown(2, 1, 14, 28, "paged", "CPU", 0.5)]
    assert shown(phase="loading", stages=stages).headline == "Loading a part of the model: 75 %."


def test_a_pc_that_waits_for_approval_shows_its_code() -> None:
    assert "ABCD-EFGH-K" in shown(phase="pending", device_code="ABCD-EFGH-K").headline


def test_a_refused_link_says_what_the_console_said() -> None:
    assert shown(link="refused", link_message="The console does not know this PC.").detail.startswith("The console")


@pytest.mark.parametrize(
    ("ability", "changes"),
    [
        ("pause", {"phase": "available"}),
        ("resume", {"pause_until_s": float("inf")}),
        ("release", {"phase": "serving", "stages": [STAGE]}),
        ("contribute", {"may_contribute_now": True}),
        ("quit", {"may_quit": True}),
        ("enrol", {"phase": "unenrolled"}),
        ("enrol", {"phase": "pending"}),
        ("stop", {"phase": "pending"}),
        ("leave", {"phase": "held"}),
        ("chat", {"chat_url": "https://chat.example"}),
    ],
)
def test_what_is_possible_can_be_done(ability: typing.Any, changes: dict[str, typing.Any]) -> None:
    assert shown(**changes).can(ability)


@pytest.mark.parametrize(
    ("ability", "changes", "why"),
    [
        ("pause", {"phase": "unenrolled"}, "has not joined"),
        ("resume", {}, "have not paused"),
        ("release", {}, "No memory"),
        ("contribute", {"phase": "serving"}, "already"),
        ("contribute", {"pause_until_s": float("inf")}, "resume first"),
        ("contribute", {"phase": "held"}, "Not possible"),
        ("contribute", {"phase": "unenrolled"}, "has not joined"),
        ("quit", {"may_quit": False}, "your company"),
        ("enrol", {}, "has joined"),
        ("leave", {"phase": "pending"}, "has not joined"),
        ("stop", {"phase": "unenrolled"}, "does not wait"),
        ("stop", {}, "does not wait"),
        ("chat", {}, "No chat is installed"),
        ("start", {}, "is running"),
    ],
)
def test_what_is_not_possible_says_why(ability: typing.Any, changes: dict[str, typing.Any], why: str) -> None:
    assert why in shown(**changes).why_not[ability]


def test_an_installed_chat_needs_no_address() -> None:
    assert show(make_status(), NOW_S, TEXTS["en"], chat_here=True).can("chat")


@pytest.mark.parametrize(
    ("row", "asks"),
    [
        (make_row("enabled", "switch", True), True),
        (make_row("enabled", "switch", True, asked={"employee": False}), False),
        (
            make_row("enabled", "switch", True, set_by="admin", asked={"admin": True, "employee": None}, locked=True),
            True,
        ),
        (make_row("enabled", "switch", False, asked={"admin": False}, locked=True), False),
        (make_row("schedule", "schedule", "always"), False),
    ],
)
def test_consent_is_asked_for_until_the_owner_has_answered(row: PolicyRow, asks: bool) -> None:
    assert must_ask_consent(make_status(policy=[row])) is asks


@pytest.mark.parametrize(("value", "locked", "can"), [(True, True, True), (False, True, False), (False, False, True)])
def test_what_the_company_allows_its_people_may_still_forbid(value: bool, locked: bool, can: bool) -> None:
    assert can_change(make_row("fullscreen", "switch", value, locked=locked)) is can


REASONS = st.lists(
    st.builds(
        make_reason,
        st.sampled_from([*ReasonCode, "new_one"]),
        for_s=st.floats(-1e9, 1e9),
        text=st.sampled_from(["", "A sentence.", "x" * 500]),
    ),
    max_size=3,
)
STATUSES = st.builds(
    make_status,
    phase=st.sampled_from(PHASES),
    reasons=REASONS,
    countdown=st.none() | st.builds(Countdown, st.sampled_from(["starts", "resumes", "releases"]), st.floats()),
    pause_until_s=st.none() | st.just(float("inf")) | st.floats(0, 4e9),
    link=st.sampled_from(typing.get_args(LinkPhase)),
    link_message=st.sampled_from(["", "Why. " * 60]),
    stages=st.lists(st.builds(msgspec.structs.replace, st.just(STAGE), done=st.floats(-1, 2)), max_size=2),
)


@settings(max_examples=50)
@given(status=STATUSES, language=st.sampled_from(LANGUAGES))
def test_any_status_can_be_shown_and_its_tooltip_fits(status: Status, language: str) -> None:
    seen = show(status, NOW_S, TEXTS[language])
    assert seen.headline
    assert len(seen.tooltip) <= MAX_TOOLTIP_CHARS
    assert all(seen.why_not.values())
