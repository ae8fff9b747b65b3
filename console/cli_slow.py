"""`fallow-console slow`: the slowest answers of the last hour, and where their time went."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from rich.table import Table

from console.api.admin import types as wire
from console.cli_tools import Commands, client_of, command, show
from console.pipeline.parts import WORDS
from console.tables import moment, table
from console.visible import visible

PARTS = {
    "queue": "queue_ms", "prompt": "prompt_ms", "waiting": "waiting_ms", "compute": "compute_ms", "turn": "turn_ms",
    "links": "link_ms", "sampling": "sampling_ms", "guesses": "guessing_ms", "recovery": "recovery_ms",
    "rest": "other_ms",
}  # fmt: skip
"""The columns, and the fields of `TimeParts` in them: all of these."""


def add_slow(commands: Commands) -> None:
    """Add the subcommand."""
    slow = command(commands, "slow", "show the slowest answers of the last hour, and what took so long", _slow)
    slow.add_argument("--newest", action="store_true", help="the newest answers instead")
    slow.add_argument("--limit", type=int, default=10, metavar="N", help="at most so many (default: 10)")
    slow.add_argument("--stages", action="store_true", help="each PC's share as well")


def _slow(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        answers = console.answer_times("newest" if options.newest else "slowest", max(0, options.limit))
    return show(options, wire.AnswerTimes(answers), *slow_tables(answers, stages=options.stages))


def slow_tables(answers: Sequence[wire.AnswerTime], *, stages: bool) -> Iterator[Table | str]:
    """Yield the answers, a line each in milliseconds, and what took longest of each."""
    if not answers:
        yield "Nobody was answered in the last hour."
        return
    yield table(
        ("ended", "request", "model", "end", "tokens", "total ms", *PARTS),
        [
            (
                moment(one.ended_s), one.request_id, one.model, one.code or one.ending,
                f"{one.prompt_tokens} + {one.answer_tokens}", f"{one.total_ms:.0f}",
                *(_ms(getattr(one.parts, part)) for part in PARTS.values()),
            )
            for one in answers
        ],
    )  # fmt: skip
    yield from (visible(f"{one.request_id or one.model}: {one.slowest}") for one in answers if one.slowest)
    if stages:
        rows = [
            (one.request_id, stage.pc, _ms(stage.compute_ms), _ms(stage.turn_ms), _ms(stage.link_ms))
            for one in answers
            for stage in one.stages
        ]
        yield table(("request", "PC", "compute", "turn", "links"), rows)
    used = [name for name, part in PARTS.items() if any(getattr(one.parts, part) >= 1 for one in answers)]
    yield "; ".join(f"{name}: {WORDS[PARTS[name]]}" for name in used) + "."


def _ms(took_ms: float) -> str:
    return f"{took_ms:.0f}" if took_ms >= 0.5 else ""
