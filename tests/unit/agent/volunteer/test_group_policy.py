"""Group policy: every row can be set in its form, what cannot be taken pauses the PC, and the tightest still wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.volunteer.group_policy import FORMS, HELD, KEY, GroupPolicy, Registry, Value, wishes_of, wishes_of_machine
from agent.volunteer.keeping import PolicyKeeper
from agent.volunteer.policy import GIB, ROWS, Row, Wishes
from tests.conftest import ExpectLogs

EXAMPLES: dict[str, Value] = {"bytes": "8GiB", "schedule": "Mon-Fri 20:00-06:00", "names": ["CPU", " GPU "]}


def example(row: Row) -> Value:
    """A value that a row of this kind takes."""
    return EXAMPLES.get(row.kind) or (1 if row.kind == "switch" else int(row.high))


class Played:
    """A source whose values a test changes, and which counts its readers."""

    def __init__(self, values: Mapping[str, Value] | OSError) -> None:
        self.values, self.reads = values, 0

    def read(self) -> Mapping[str, Value]:
        self.reads += 1
        if isinstance(self.values, OSError):
            raise self.values
        return self.values


@pytest.mark.parametrize("name", ROWS)
def test_every_row_can_be_set(name: str) -> None:
    wishes, problem = wishes_of({name.upper(): example(ROWS[name])})
    assert problem == ""
    assert getattr(wishes, name) is not None
    assert sum(getattr(wishes, row) is not None for row in ROWS) == 1


def test_values_mean_what_people_would_expect() -> None:
    values: dict[str, Value] = {"enabled": 0, "idle_start_s": 900, "memory_floor_bytes": "8GiB", "devices": ["CPU", ""]}
    wishes, problem = wishes_of({**values, "of_a_newer_agent": "x"})
    assert problem == ""
    asked = Wishes(enabled=False, idle_start_s=900, memory_floor_bytes=8 * GIB, devices=frozenset({"CPU"}))
    assert wishes == asked


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("enabled", 2, "1 or 0"),
        ("enabled", "yes", "number"),
        ("idle_start_s", 10**6, "between 0 and 86400"),
        ("memory_floor_bytes", 8, "text"),
        ("memory_floor_bytes", "8", "with its unit"),
        ("schedule", "sometimes", "schedule"),
        ("devices", ["TPU"], "CPU, GPU, NPU only"),
        ("exclusive_programs", "game.exe", "list"),
    ],
)
def test_what_cannot_be_taken_pauses_the_pc_and_says_why(name: str, value: Value, why: str) -> None:
    wishes, problem = wishes_of({"idle_start_s": 60, name: value})
    assert wishes == HELD
    assert why in problem


_VALUES = st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=30), st.lists(st.text(max_size=10), max_size=4))


@given(st.dictionaries(st.sampled_from([*ROWS, "other"]), _VALUES, max_size=5))
def test_no_values_break_it_or_loosen_anything_by_being_wrong(values: dict[str, Value]) -> None:
    wishes, problem = wishes_of(values)
    assert (wishes == HELD) >= bool(problem)


def test_a_source_is_asked_once_a_minute_and_when_the_clock_was_set_back() -> None:
    source = Played({"idle_start_s": 900})
    policy = GroupPolicy(source)
    assert policy.wishes(1000.0).idle_start_s == 900
    source.values = {}
    assert policy.wishes(1059.0).idle_start_s == 900
    assert policy.wishes(1060.0) == Wishes()
    assert source.reads == 2
    policy.wishes(500.0)
    assert source.reads == 3


def test_a_source_that_cannot_be_read_pauses_the_pc_and_is_told_once(expected_logs: ExpectLogs) -> None:
    expected_logs("agent.volunteer.group_policy", "cannot be read")
    source = Played(OSError(5, "Access is denied"))
    policy = GroupPolicy(source)
    assert policy.wishes(0.0) == HELD
    assert policy.wishes(100.0) == HELD
    source.values = {}
    assert policy.wishes(200.0) == Wishes()


def test_it_joins_what_the_owner_wants_and_the_tightest_wins(tmp_path: Path) -> None:
    keeper = PolicyKeeper(tmp_path, machine=GroupPolicy(Played({"idle_start_s": 900})).wishes, now_s=0.0)
    merged = keeper.merged(0.0)
    assert merged.policy.idle_start_s == 900
    assert merged.set_by["idle_start_s"] == "admin"
    keeper.change("idle_start_s", 1200.0)
    assert keeper.merged(0.0).policy.idle_start_s == 1200


def test_nobody_can_say_from_afar_that_no_one_works_at_a_pc(tmp_path: Path) -> None:
    keeper = PolicyKeeper(tmp_path, machine=GroupPolicy(Played({"unattended": 1})).wishes, now_s=0.0)
    assert not keeper.merged(0.0).policy.unattended


class PlayedWinreg(SimpleNamespace):
    """The module `winreg` with one key, or with none."""

    HKEY_LOCAL_MACHINE, KEY_READ, KEY_WOW64_64KEY = 0x80000002, 0x20019, 0x100

    def __init__(self, values: list[tuple[str, Any, int]] | None) -> None:
        super().__init__(values=values, closed=0)

    def OpenKey(self, root: int, path: str, reserved: int, access: int) -> PlayedWinreg:
        assert (root, path, reserved, access) == (self.HKEY_LOCAL_MACHINE, KEY, 0, 0x20119)
        if self.values is None:
            raise FileNotFoundError(2, "no such key")
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def QueryInfoKey(self, key: PlayedWinreg) -> tuple[int, int, int]:
        return 0, len(key.values), 0

    def EnumValue(self, key: PlayedWinreg, place: int) -> tuple[str, Any, int]:
        value: tuple[str, Any, int] = key.values[place]
        return value


def test_the_registry_is_read_whole_and_closed() -> None:
    winreg = PlayedWinreg([("enabled", 1, 4), ("schedule", "Mon 08:00-09:00", 1), ("devices", ["CPU"], 7)])
    assert Registry(winreg).read() == {"enabled": 1, "schedule": "Mon 08:00-09:00", "devices": ["CPU"]}
    assert winreg.closed == 1


def test_without_the_key_nothing_is_wanted() -> None:
    assert Registry(PlayedWinreg(None)).read() == {}


def test_every_kind_of_row_has_a_form() -> None:
    assert {row.kind for row in ROWS.values()} <= set(FORMS)


def test_elsewhere_than_on_windows_no_machine_wants_anything() -> None:
    assert wishes_of_machine()(0.0) == Wishes()
