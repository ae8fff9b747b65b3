"""agent.volunteer.clauses: what an administrator reads where a program reads codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agent
import console
from agent.volunteer.clauses import CLAUSES, told
from agent.volunteer.reasons import ReasonCode


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_is_told_in_words_that_fit_into_a_sentence(code: ReasonCode) -> None:
    clause = told([code.value])
    assert clause != code.value.replace("_", " ")
    assert clause[0].islower()
    assert not clause.endswith(".")
    assert " you" not in clause, "it is told to others than the owner"


def test_several_reasons_are_told_in_their_order() -> None:
    assert told(["on_battery", "user_input"]) == "it runs on its battery, somebody is using it"
    assert told([]) == ""


def test_a_reason_of_a_later_version_is_shown_as_it_is() -> None:
    assert told(["solar_storm"]) == "solar storm"
    assert len(CLAUSES) == len(ReasonCode)


@pytest.mark.parametrize("package", [agent, console], ids=["agent", "console"])
def test_nobody_is_shown_the_codes_themselves(package: object) -> None:
    """Codes are for programs; joined with commas, they are on their way to a person."""
    joined = re.compile(r"join\([^()]*(held_because|event\.reasons|codes\(\))\)")
    root = Path(package.__file__).parent  # type: ignore[attr-defined]
    sources = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    assert len(sources) > 50
    assert [path.name for path, text in sources.items() if joined.search(text)] == []
