"""`fallow-console slow`: every part has its column, and what took longest is a sentence."""

from __future__ import annotations

import io

from rich.console import Console

from console.api.admin import types as wire
from console.cli_slow import PARTS, slow_tables
from console.pipeline.parts import StageTime, TimeParts


def answer(**changes: object) -> wire.AnswerTime:
    values: dict[str, object] = {
        "ended_s": 1_700_000_000.0, "request_id": "req-7", "key_id": "k", "model": "small", "pipeline": 0,
        "ending": "stop", "code": "", "prompt_tokens": 12, "cached_tokens": 0, "answer_tokens": 34,
        "first_token_ms": 900.0, "total_ms": 5000.0, "parts": TimeParts(queue_ms=800.0, link_ms=4200.0),
        "stages": [StageTime("ann", 0.0, 0.0, 4200.0)], "pcs": ["ann"], "drafted": 0, "accepted": 0,
        "slowest": "Most of it was the way to ann\x1b[2J.",
    }  # fmt: skip
    return wire.AnswerTime(**{**values, **changes})  # type: ignore[arg-type]  # values of all kinds


def shown(answers: list[wire.AnswerTime], *, stages: bool = False) -> str:
    console = Console(width=250, record=True, file=io.StringIO())
    for part in slow_tables(answers, stages=stages):
        console.print(part)
    return console.export_text()


def test_every_part_has_its_column() -> None:
    assert sorted(PARTS.values()) == sorted(TimeParts.__struct_fields__)


def test_an_answer_is_a_line_with_its_parts_and_the_largest_in_words() -> None:
    text = shown([answer()])
    for part in ("req-7", "small", "stop", "12 + 34", "5000", "800", "4200", "Most of it was the way to ann"):
        assert part in text
    assert "queue: waiting for a place; links: the way between PCs." in text
    assert "\x1b[2J" not in text
    assert "ann  " not in text


def test_a_failed_answer_shows_its_code_and_the_stages_come_when_they_are_wanted() -> None:
    text = shown([answer(ending="error", code="stage_lost")], stages=True)
    assert "stage_lost" in text
    assert "compute" in text.splitlines()[-3]


def test_without_answers_that_is_said() -> None:
    assert shown([]) == "Nobody was answered in the last hour.\n"
