"""Three parties, one policy: the tightest wins, and everybody can see who said what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.volunteer.policy import (
    BUILT_IN,
    GIB,
    ROWS,
    Merged,
    Policy,
    Row,
    Tightest,
    Wishes,
    allows_device,
    combine_wishes,
    memory_cap_bytes,
    memory_floor_bytes,
    merge,
)
from agent.volunteer.schedule import ALWAYS, NEVER, intersect

HOURS = st.sampled_from([ALWAYS, NEVER, ((0, 600),), ((300, 900), (2000, 3000))])


def values(name: str, row: Row) -> st.SearchStrategy[Any]:
    if row.kind == "switch":
        return st.booleans()
    if row.kind == "schedule":
        return HOURS
    if row.kind == "names":
        return st.frozensets(st.sampled_from(["CPU", "GPU", "NPU"]))
    numbers = st.integers(int(row.low), int(row.high))
    return numbers if row.kind == "bytes" else numbers.map(float)


WISHES = st.fixed_dictionaries({name: st.none() | values(name, row) for name, row in ROWS.items()}).map(
    lambda said: Wishes(**said)
)


def is_as_tight(row: Row, value: Any, than: Any) -> bool:
    """Whether `value` allows nothing that `than` does not."""
    if row.kind == "schedule":
        return bool(intersect(value, than) == value)
    grows = row.tightest in (Tightest.EITHER, Tightest.LARGEST, Tightest.JOINED)
    return bool(value >= than if grows else value <= than)


def test_every_row_has_a_value_a_wish_and_a_rule() -> None:
    assert list(ROWS) == list(Policy.__struct_fields__) == list(Wishes.__struct_fields__)
    assert merge(Wishes(), Wishes()).policy == BUILT_IN
    assert set(merge(Wishes(), Wishes()).set_by.values()) == {"built-in"}


@settings(max_examples=12)
@given(admin=WISHES, employee=WISHES)
def test_what_holds_is_as_tight_as_what_anybody_asked_for(admin: Wishes, employee: Wishes) -> None:
    merged = merge(admin, employee)
    for name, row in ROWS.items():
        value = getattr(merged.policy, name)
        for asked in (getattr(admin, name), getattr(employee, name)):
            assert asked is None or name == "unattended" or is_as_tight(row, value, asked), name
        if row.bound is not None:
            assert is_as_tight(row, value, row.bound), name


@settings(max_examples=12)
@given(admin=WISHES, employee=WISHES)
def test_an_expired_policy_loosens_nothing(admin: Wishes, employee: Wishes) -> None:
    now, later = merge(admin, employee).policy, merge(admin, employee, admin_expired=True).policy
    for name, row in ROWS.items():
        assert is_as_tight(row, getattr(later, name), getattr(now, name)), name


@settings(max_examples=12)
@given(one=WISHES, other=WISHES, third=WISHES)
def test_the_order_of_arrival_changes_nothing(one: Wishes, other: Wishes, third: Wishes) -> None:
    assert combine_wishes(one, other) == combine_wishes(other, one)
    assert combine_wishes(combine_wishes(one, other), third) == combine_wishes(one, combine_wishes(other, third))


def held(admin: Wishes, employee: Wishes, name: str) -> tuple[Any, str]:
    merged: Merged = merge(admin, employee)
    return getattr(merged.policy, name), merged.set_by[name]


@pytest.mark.parametrize(
    ("admin", "employee", "expected"),
    [
        (None, None, (300.0, "built-in")),
        (120.0, None, (120.0, "admin")),
        (None, 90.0, (90.0, "employee")),
        (120.0, 600.0, (600.0, "employee")),
        (600.0, 120.0, (600.0, "admin")),
        (120.0, 120.0, (120.0, "admin")),
        (5.0, 5.0, (60.0, "built-in")),
    ],
)
def test_who_set_a_row_is_who_asked_for_the_tightest(
    admin: float | None, employee: float | None, expected: tuple[float, str]
) -> None:
    assert held(Wishes(idle_start_s=admin), Wishes(idle_start_s=employee), "idle_start_s") == expected


def test_only_the_owner_can_say_that_nobody_works_at_a_pc() -> None:
    assert held(Wishes(unattended=True), Wishes(), "unattended") == (False, "built-in")
    assert held(Wishes(), Wishes(unattended=True), "unattended") == (True, "employee")
    assert held(Wishes(unattended=False), Wishes(unattended=True), "unattended") == (False, "admin")


def test_an_administrator_can_neither_undo_the_owners_refusal_nor_lower_the_memory_floor() -> None:
    loose = Wishes(enabled=True, memory_floor_bytes=0, memory_floor_percent=0.0, fullscreen=True)
    policy = merge(loose, Wishes(enabled=False, fullscreen=False)).policy
    assert (policy.enabled, policy.fullscreen) == (False, False)
    assert memory_floor_bytes(policy, 8 * GIB) == 4 * GIB
    assert memory_floor_bytes(policy, 64 * GIB) == 16 * GIB


def test_what_was_asked_is_kept_beside_what_holds() -> None:
    merged = merge(Wishes(exclusive_programs=frozenset({"obs"})), Wishes(exclusive_programs=frozenset({"game"})))
    assert merged.policy.exclusive_programs == {"obs", "game"}
    assert (merged.asked["exclusive_programs"].admin, merged.asked["exclusive_programs"].employee) == (
        {"obs"},
        {"game"},
    )


def test_devices_are_allowed_by_kind_and_switched_off_one_by_one() -> None:
    policy = merge(Wishes(devices=frozenset({"CPU", "GPU"})), Wishes(devices_off=frozenset({"GPU.1"}))).policy
    assert [allows_device(policy, name) for name in ("CPU", "GPU", "GPU.0", "GPU.1", "NPU")] == [1, 1, 1, 0, 0]
    assert not allows_device(Policy(devices_off=frozenset({"GPU"})), "GPU.0")


def test_the_memory_cap_is_the_smaller_of_share_and_amount() -> None:
    assert memory_cap_bytes(Policy(memory_max_bytes=2 * GIB), 16 * GIB) == 2 * GIB
    assert memory_cap_bytes(Policy(memory_max_percent=50.0), 16 * GIB) == 8 * GIB
