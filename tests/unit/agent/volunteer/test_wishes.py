"""Rows as people type them and as programs send them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import ROWS, Wishes, merge
from agent.volunteer.wishes import _EXAMPLES, _number, check_wishes, from_plain, from_text, to_plain


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("enabled", "no", False),
        ("enabled", "Yes", True),
        ("enabled", "default", None),
        ("idle_start_s", "10min", 600.0),
        ("idle_start_s", " 90 ", 90.0),
        ("idle_start_s", "1.5 h", 5400.0),
        ("memory_max_bytes", "8GiB", 8 * 2**30),
        ("memory_max_bytes", "500 MB", 500_000_000),
        ("memory_max_bytes", "0 GiB", 0),
        ("cpu_busy_percent", "40%", 40.0),
        ("cpu_busy_percent", "40", 40.0),
        ("heat_limit_celsius", "85.5", 85.5),
        ("devices", "CPU, NPU", frozenset({"CPU", "NPU"})),
        ("schedule", "Sat 00:00-24:00", ((5 * 1440, 6 * 1440),)),
        ("exclusive_programs", "", frozenset()),
    ],
)
def test_what_people_type_is_read(name: str, text: str, value: Any) -> None:
    assert from_text(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enabled", "maybe"), ("idle_start_s", "soon"), ("idle_start_s", "10 parsecs"), ("idle_start_s", ""),
        ("idle_start_s", "nan"), ("idle_start_s", "1e308"), ("moon_phase", "full"), ("moon_phase", "default"),
        ("schedule", "Mon"), ("devices", "TPU"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_sentence(name: str, text: str) -> None:
    with pytest.raises(WishRefused, match=r"\.$"):
        from_text(name, text)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("memory_max_bytes", "8", "500MB or 8GiB"), ("memory_max_bytes", "0", "500MB or 8GiB"),
        ("memory_max_bytes", "8min", "500MB or 8GiB"), ("memory_max_bytes", "8%", "500MB or 8GiB"),
        ("idle_start_s", "8GiB", "600, 10min or 2h"), ("idle_start_s", "10%", "600, 10min or 2h"),
        ("cpu_busy_percent", "1min", "such as 60%"), ("cpu_busy_percent", "1 MB", "such as 60%"),
        ("heat_limit_celsius", "90%", "such as 600"), ("heat_limit_celsius", "2min", "such as 600"),
    ],
)  # fmt: skip
def test_a_unit_of_another_kind_of_row_is_refused_and_so_are_bytes_without_one(
    name: str, text: str, wanted: str
) -> None:
    with pytest.raises(WishRefused, match=wanted):
        from_text(name, text)


@pytest.mark.parametrize(("kind", "example"), _EXAMPLES.items())
def test_every_example_of_an_error_is_taken(kind: str, example: str) -> None:
    words = re.findall(r"\d\S*", example.replace(",", " "))
    assert words
    for word in words:
        assert _number("a row", word, kind) > 0


def test_every_kind_of_number_has_its_units() -> None:
    for name, row in ROWS.items():
        if row.high:
            unit = {"bytes": " gib"}.get(row.kind, "")
            assert from_text(name, f"{row.low:g}{unit}") == row.low


def test_every_row_goes_to_plain_and_back() -> None:
    policy = merge(Wishes(), Wishes(exclusive_programs=frozenset({"b", "a"}), schedule=((0, 60),))).policy
    for name in ROWS:
        value = getattr(policy, name)
        assert from_plain(name, to_plain(name, value)) == value, name
    assert to_plain("exclusive_programs", policy.exclusive_programs) == ["a", "b"]
    assert to_plain("schedule", policy.schedule) == "Mon 00:00-01:00"


def test_names_are_trimmed_and_hours_put_in_order() -> None:
    wishes = check_wishes(Wishes(exclusive_programs=frozenset({" obs "}), schedule=((60, 90), (0, 60))))
    assert wishes == Wishes(exclusive_programs=frozenset({"obs"}), schedule=((0, 90),))
