"""agent.tray.texts and the translations: nothing is missing in any language."""

from __future__ import annotations

import ast
import functools
import string
import time
import typing
from pathlib import Path

import pytest

import agent.tray
from agent.control import status
from agent.tray import actions, notices
from agent.tray.icons import STATE_ICONS
from agent.tray.pages import help as help_page
from agent.tray.pages import history, membership, periods, settings
from agent.tray.texts import LANGUAGES, Entry, Texts, load_texts, read_entries
from agent.volunteer.explain import SENTENCES
from agent.volunteer.facts import Facts
from agent.volunteer.policy import ROWS
from agent.volunteer.reasons import ReasonCode
from tests.support.fake_service import make_told

SOURCE = Path(agent.tray.__file__).parent
CLOCKS = {"at_s", "unix_s", "utc_offset_s"}


def choices(literal: object) -> list[str]:
    return list(typing.get_args(literal))


# Keys that are put together while the program runs: the group, and every name that can be asked for.
GROUPS: dict[str, list[str]] = {
    "action": [*actions.PAUSES_S, "pause_tomorrow", "pause_open_end", "resume", "release", "contribute", "open", "code",
               "chat", "start", "enrol", "help", "quit"],
    "check": ["settings", "identity", "proxy", "port", "certificate", "firewall", "disk", "memory", "device", "files",
              "token", "agent"],
    "choice": ["always", "never"],
    "company": [f"{name}{end}" for name in ("never", "kept", "sees") for end in ("", "_heading")],
    "consent": [f"{name}_heading" for name in ("what", "when", "how_much", "sees", "never", "change")],
    "countdown": ["if_away", *choices(typing.get_type_hints(status.Countdown)["what"])],
    "doctor": ["verdict", "check", "said", "probe", "value", "source", "age"],
    "headline": choices(status.Phase),
    "help": [f"{name}{end}" for name in help_page.SECTIONS for end in ("", "_heading")],
    "history": ["when", "hours", "tokens", "energy", "period", "measure"],
    "link": choices(status.LinkPhase),
    "measure": list(history.MEASURES),
    "membership": [*membership.FACTS, *(f"{what}{end}" for what in ("leave", "stop") for end in ("", "_ask", "_yes"))],
    "now": ["today", "total"],
    "notice": [f"{kind}{end}" for kind in choices(notices.Kind) for end in ("", "_more")],
    "page": ["now", "history", "settings", "company", "membership", "doctor", "help"],
    "period": list(periods.PERIODS),
    "policy": list(ROWS),
    "probe": [name for name in Facts.__struct_fields__ if name not in CLOCKS],
    "reason": [code.value for code in ReasonCode],
    "said": ["paused", "resumed", "released", "contribute", "changed", "left", "quit", "stopped_waiting"],
    "seen": list(make_told().seen()),
    "set_by": choices(status.SetBy),
    "settings.section": [*settings.SECTIONS, "other"],
    "state": list(STATE_ICONS),
    "verdict": ["ok", "problem", "unknown"],
    "why_not": ["not_member", "resume", "release", "contribute", "contribute_does", "contribute_paused", "quit",
                "enrol", "stop", "chat", "start"],
}  # fmt: skip


@functools.cache
def literal_keys() -> set[str]:
    """Every key that the source names in full: the first argument of a call of `texts`."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("texts", "_texts") or (name == "self" and path.name == "texts.py"):
                found |= {
                    part.value
                    for argument in node.args[:1]
                    for part in ast.walk(argument)
                    if isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and "." in part.value
                    and not part.value.endswith(".")
                    and not part.value.startswith(".")
                }
    return found | set(keys_of_texts())


def keys_of_texts() -> list[str]:
    source = ast.parse((SOURCE / "texts.py").read_text("utf-8"))
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "self"]
    constants = [part for call in calls for part in ast.walk(call.args[0]) if isinstance(part, ast.Constant)]
    return [part.value for part in constants if isinstance(part.value, str)]


def forms(entry: Entry) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry.values())


def places(entry: Entry) -> set[str]:
    """The names between braces; the form for one may leave the number out."""
    return {name for form in forms(entry) for _, name, _, _ in string.Formatter().parse(form) if name} - {"n"}


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_everything_that_is_asked_for_has_a_text(language: str) -> None:
    wanted = literal_keys() | {f"{group}.{name}" for group, names in GROUPS.items() for name in names}
    assert wanted - read_entries(language).keys() == set()


def test_nothing_is_translated_in_vain() -> None:
    wanted = literal_keys() | {f"{group}.{name}" for group, names in GROUPS.items() for name in names}
    assert read_entries("en").keys() - wanted == set()


def test_every_language_has_the_same_texts_with_the_same_places(language: str) -> None:
    english, translated = read_entries("en"), read_entries(language)
    assert english.keys() == translated.keys()
    for key, entry in english.items():
        assert isinstance(translated[key], type(entry)), key
        assert places(translated[key]) == places(entry) | (places(translated[key]) & {"number"}), key
        assert all(form.strip() == form and form for form in forms(translated[key])), key


def test_a_text_that_depends_on_a_number_has_both_forms(language: str) -> None:
    numbered = [entry for entry in read_entries(language).values() if isinstance(entry, dict)]
    assert numbered
    assert all(entry.keys() == {"one", "other"} for entry in numbered)


@pytest.mark.parametrize(
    "menu",
    [
        [*actions.PAUSES_S, "pause_tomorrow", "pause_open_end"],
        [
            "resume",
            "release",
            "contribute",
            "open",
            "chat",
            "code",
            "help",
            "quit",
            "start",
            "menu.pause",
            "menu.devices",
        ],
    ],
)
def test_no_two_entries_of_a_menu_share_their_key(language: str, menu: list[str]) -> None:
    texts = load_texts(language)
    said = [texts(name if "." in name else f"action.{name}") for name in menu]
    keys = [text[text.index("&") + 1].lower() for text in said]
    assert len(set(keys)) == len(keys), sorted(zip(keys, said, strict=True))


def test_english_says_of_a_reason_what_the_service_says(texts: Texts) -> None:
    for code, sentence in SENTENCES.items():
        plain = sentence.replace(" ({detail} unknown)", "").replace(" ({detail})", "")
        assert texts(f"reason.{code.value}") == plain


@pytest.mark.parametrize(
    ("wanted", "language"), [("de_AT", "de"), ("es-MX", "es"), ("fr_FR", "en"), ("", "en"), ("C", "en")]
)
def test_a_locale_gets_its_language_or_english(wanted: str, language: str) -> None:
    assert load_texts(wanted).language == language


def test_what_a_language_lacks_is_said_in_english() -> None:
    texts = Texts("xx", {"a.b": "English"} | {})
    assert texts("a.b") == "English"
    assert texts.named("a", "c", "as the service says") == "as the service says"
    assert texts.named("a", "c") == "c"


def test_one_is_not_two(texts: Texts) -> None:
    assert texts("doctor.problems", n=1) == "One problem was found."
    assert texts("doctor.problems", n=2) == "2 problems were found."


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (0.2, "1 s"), (59, "59 s"), (59.5, "1 min"), (61, "2 min"), (3600, "1 h"), (5400, "1 h 30 min"),
        (-3, "0 s"), (float("inf"), "an unknown time"), (float("nan"), "an unknown time"),
    ],
)  # fmt: skip
def test_durations_are_rounded_up(texts: Texts, seconds: float, said: str) -> None:
    assert texts.duration(seconds) == said


def test_a_moment_is_as_short_as_it_can_be(texts: Texts) -> None:
    noon = time.mktime((2026, 11, 29, 12, 0, 0, 0, 0, -1))
    assert texts.moment(noon + 3600, noon) == "13:00"
    assert texts.moment(noon + 16 * 3600, noon) == "tomorrow at 04:00"
    assert texts.moment(noon + 5 * 86400, noon) == "2026-12-04 12:00"
