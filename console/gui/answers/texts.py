"""What is said of an answer and its parts. No Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.api.admin import types as wire
from console.pipeline.parts import WORDS, StageTime, TimeParts
from shard_export.library.counts import counted

ENDINGS = {"stop": "complete", "length": "at its limit", "cancelled": "cancelled", "error": "failed"}
LEAST_MS = 0.5
"""Smaller parts are not shown."""


class Bar(NamedTuple):
    """A part of the time: its name, milliseconds, and share of the whole (0 to 1)."""

    name: str
    took_ms: float
    share: float


def bars(parts: TimeParts) -> list[Bar]:
    """Return the parts that are worth showing, in the order of an answer's life."""
    total_ms = parts.total_ms
    return [
        Bar(words[:1].upper() + words[1:], took_ms, took_ms / total_ms)
        for name, words in WORDS.items()
        if (took_ms := float(getattr(parts, name))) >= LEAST_MS
    ]


def time_text(took_ms: float) -> str:
    """Say a time in ms, or in seconds from one on."""
    return f"{took_ms:.0f} ms" if took_ms < 999.5 else f"{took_ms / 1000:.1f} s"


def largest_text(parts: TimeParts) -> str:
    """Name the largest part, with its share."""
    most = max(bars(parts), key=lambda bar: bar.took_ms, default=None)
    return "-" if most is None else f"{most.name}, {most.share:.0%}"


def end_text(answer: wire.AnswerTime) -> str:
    """Say how an answer ended."""
    said = ENDINGS[answer.ending]
    return f"{said}: {answer.code.replace('_', ' ')}" if answer.code and answer.ending == "error" else said


def summary_text(answer: wire.AnswerTime) -> str:
    """Say in a few lines what is known of an answer beside its parts."""
    cached = f", {answer.cached_tokens} of them cached" if answer.cached_tokens else ""
    guessed = (
        f" {answer.accepted} of {counted(answer.drafted, 'token')} guessed ahead were right." if answer.drafted else ""
    )
    return (
        f"{counted(answer.prompt_tokens, 'token')} read{cached}, {answer.answer_tokens} written by "
        f"{_pcs(answer.pcs)}.{guessed}\n"
        f"Request {answer.request_id or '-'} of key {answer.key_id or '-'}."
    )


def stage_rows(stages: Sequence[StageTime]) -> list[tuple[str, str, str, str]]:
    """Return a row for each PC: what it computed, what waited there, and the way to it and back."""
    return [(one.pc, time_text(one.compute_ms), time_text(one.turn_ms), time_text(one.link_ms)) for one in stages]


def _pcs(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "nobody"
