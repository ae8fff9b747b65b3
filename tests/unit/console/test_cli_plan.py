from __future__ import annotations

import argparse
from datetime import UTC, datetime

import pytest

from console.api.admin import types as wire
from console.cli import build_parser
from console.cli_plan import moment_of, rules_from
from console.errors import ClientError

MONDAY_NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["plan", "model", *arguments])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13:30", datetime(2026, 1, 5, 13, 30, tzinfo=UTC)),
        ("9:00", datetime(2026, 1, 6, 9, 0, tzinfo=UTC)),
        ("Tue 09:00", datetime(2026, 1, 6, 9, 0, tzinfo=UTC)),
        ("monday 14:00", datetime(2026, 1, 5, 14, 0, tzinfo=UTC)),
        ("Mon 09:00", datetime(2026, 1, 12, 9, 0, tzinfo=UTC)),
        ("Sun 23:59", datetime(2026, 1, 11, 23, 59, tzinfo=UTC)),
    ],
)
def test_a_time_is_the_next_one_the_clock_shows(text: str, expected: datetime) -> None:
    assert moment_of(text, MONDAY_NOON) == expected


@pytest.mark.parametrize("text", ["", "noon", "24:00", "9:60", "Foo 9:00", "Tue", "9", "Tue 9:00 pm"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ClientError, match="Tue 09:00"):
        moment_of(text, MONDAY_NOON)


def test_rules_are_read_from_the_options() -> None:
    options = parsed(
        *("--exclude", "ab", "--pin", "cd:0-4", "--pin", "ef", "--limit", "gh=4GB", "--limit", "ij=12layers"),
        *("--limit", "kl=600MB", "--cross", "networks", "--rate", "30"),
    )
    assert rules_from(options) == wire.PlanRules(
        exclude=["ab"],
        pins=[wire.PinnedPc("cd", 0, 4), wire.PinnedPc("ef")],
        limits=[
            wire.LimitedPc("gh", memory_mb=4000),
            wire.LimitedPc("ij", layers=12),
            wire.LimitedPc("kl", memory_mb=600),
        ],
        crossing="networks",
        tokens_per_second=30.0,
    )


def test_deploying_takes_the_same_rules_and_none_by_default() -> None:
    options = build_parser().parse_args(["deploy", "model", "--exclude", "ab"])
    assert rules_from(options) == wire.PlanRules(exclude=["ab"])
    assert rules_from(build_parser().parse_args(["deploy", "model"])) == wire.PlanRules()


@pytest.mark.parametrize(
    "arguments", [("--pin", "ab:4-4"), ("--pin", "ab:4"), ("--limit", "ab"), ("--limit", "ab=4"), ("--limit", "=4GB")]
)
def test_a_rule_that_cannot_be_read_says_how_to_write_it(arguments: tuple[str, str]) -> None:
    with pytest.raises(ClientError, match="Write '"):
        rules_from(parsed(*arguments))
