"""COM as it lies in memory: tables of functions that the tests build, called as Windows' own would be."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.windows.com import PROTOTYPE, ComObject, guid
from agent.volunteer.probes.windows.dxgi import ADAPTER3, AdapterDescription, VideoMemoryInfo, granted_bytes
from agent.volunteer.probes.windows.network import cost_of

GIB = 1 << 30
POINTER, UINT, INT = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32


class Made:
    """A COM object of this process: functions by slot, each with the types of its arguments."""

    def __init__(self, functions: dict[int, tuple[list[Any], Callable[..., int]]]) -> None:
        self.released = 0
        functions = {**functions, 2: ([], self._release)}
        self._kept = {slot: PROTOTYPE(INT, POINTER, *types)(body) for slot, (types, body) in functions.items()}
        table = (POINTER * 16)()
        for slot, function in self._kept.items():
            table[slot] = ctypes.cast(function, POINTER)
        self._table = table
        self._object = ctypes.c_void_p(ctypes.addressof(table))
        self.address = ctypes.addressof(self._object)

    def _release(self, _this: int) -> int:
        self.released += 1
        return 0


def put_address(at: int, address: int) -> None:
    ctypes.c_void_p.from_address(at).value = address


def make_adapter(luid: int, budgets: tuple[int, int], *, problem: int = 0) -> Made:
    def describe(_this: int, at: int) -> int:
        description = AdapterDescription.from_address(at)
        description.LuidLow, description.LuidHigh = luid & 0xFFFFFFFF, luid >> 32
        return 0

    def ask(_this: int, node: int, group: int, at: int) -> int:
        assert node == 0
        VideoMemoryInfo.from_address(at).Budget = budgets[group]
        return problem

    made: Made

    def query(_this: int, interface: int, at: int) -> int:
        if ctypes.string_at(interface, 16) != ADAPTER3.bytes_le:
            return -1
        put_address(at, made.address)
        return 0

    made = Made({0: ([POINTER, POINTER], query), 10: ([POINTER], describe), 14: ([UINT, INT, POINTER], ask)})
    return made


def make_factory(*adapters: Made) -> Made:
    def enumerate_adapters(_this: int, number: int, at: int) -> int:
        if number >= len(adapters):
            return 0x887A0002 - (1 << 32)  # DXGI_ERROR_NOT_FOUND
        put_address(at, adapters[number].address)
        return 0

    return Made({12: ([UINT, POINTER], enumerate_adapters)})


def test_structures_have_windows_sizes() -> None:
    assert ctypes.sizeof(AdapterDescription) == 312
    assert ctypes.sizeof(VideoMemoryInfo) == 32
    assert bytes(guid(ADAPTER3)) == ADAPTER3.bytes_le


def test_the_budget_of_the_right_adapter_is_all_its_memory_together() -> None:
    adapters = (make_adapter(1, (GIB, 0)), make_adapter(0x1_0000D1C5, (6 * GIB, 2 * GIB)))
    factory = make_factory(*adapters)
    assert granted_bytes(ComObject(factory.address), "000000010000d1c5") == 8 * GIB
    assert [adapter.released for adapter in adapters] == [1, 2]


def test_an_adapter_nobody_knows_is_absent_and_one_that_does_not_say_unreadable() -> None:
    factory = make_factory(make_adapter(1, (GIB, 0), problem=-1))
    with pytest.raises(Absent):
        granted_bytes(ComObject(factory.address), "00000000000000ff")
    with pytest.raises(Unreadable):
        granted_bytes(ComObject(factory.address), "0000000000000001")


def test_a_windows_without_the_interface_is_unreadable() -> None:
    plain = Made({0: ([POINTER, POINTER], lambda _this, _interface, _at: -1)})
    with pytest.raises(Unreadable, match="too old"):
        ComObject(plain.address).query(ADAPTER3)


@pytest.mark.parametrize("result", [0, -1])
def test_the_networks_price_comes_through_the_same_door(result: int) -> None:
    def get_cost(_this: int, at: int, _address: int) -> int:
        ctypes.c_uint32.from_address(at).value = 0x10002
        return result

    manager = Made({3: ([POINTER, POINTER], get_cost)})
    if result:
        with pytest.raises(Unreadable):
            cost_of(ComObject(manager.address))
    else:
        assert cost_of(ComObject(manager.address)) == 0x10002
