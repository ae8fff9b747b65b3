"""The performance counters' calls, on a library that answers as the test wants."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.windows.counters import ENGINES, MAX_BYTES, TRIES, GpuEngines, PdhCounters, _Item

MORE_DATA, NO_DATA, INVALID_DATA, INVALID_HANDLE = 0x800007D2, 0x800007D5, 0xC0000BC6, 0xC0000BBC
NO_COUNTER, NO_INSTANCE = 0xC0000BB9, 0x800007D1
ENGINE = "pid_{}_luid_0x00000000_0x0000D1C5_phys_0_eng_0_engtype_3D"


class FakePdh:
    """`pdh.dll` with instances and their values; results of each call may be set, the first one first."""

    def __init__(self, *instances: tuple[str, float, int]) -> None:
        self.instances = list(instances)
        self.results: dict[str, list[int]] = {}
        self.grows = 0
        """How often an instance comes just after the size was asked for."""
        self.told_size: int | None = None
        self.open = 0
        self.PdhOpenQueryW = self._function("open", self._open)
        self.PdhAddEnglishCounterW = self._function("add", lambda query, path, user, counter: 0)
        self.PdhCollectQueryData = self._function("collect", lambda query: 0)
        self.PdhGetFormattedCounterArrayW = self._function("list", self._list)
        self.PdhCloseQuery = self._function("close", self._close)

    def _function(self, name: str, body: Callable[..., int]) -> Any:
        def call(*arguments: Any) -> int:
            results = self.results.get(name)
            return results.pop(0) if results else body(*arguments)

        return call

    def _open(self, source: None, user: Any, query: Any) -> int:
        query._obj.value = 1
        self.open += 1
        return 0

    def _close(self, query: Any) -> int:
        self.open -= 1
        return 0

    def _list(self, counter: Any, format_: int, size: Any, count: Any, buffer: Any) -> int:
        needed = ctypes.sizeof(_Item) * len(self.instances)
        if size._obj.value < needed:
            size._obj.value = needed if self.told_size is None else self.told_size
            if self.grows:
                self.grows -= 1
                self.instances.append((ENGINE.format(100 + self.grows), 1.0, 0))
            return MORE_DATA
        items = (_Item * len(self.instances))()
        for item, (name, value, status) in zip(items, self.instances, strict=True):
            item.name, item.value.value, item.value.status = name, value, status
        if buffer is not None:
            ctypes.memmove(buffer, items, needed)
        self._kept = items  # the names live as long
        count._obj.value = len(items)
        return 0


def test_every_instance_with_a_value_is_told() -> None:
    pdh = FakePdh((ENGINE.format(1), 40.0, 0), (ENGINE.format(2), 5.0, 1), (ENGINE.format(3), 9.0, INVALID_DATA))
    counters = PdhCounters(ENGINES, pdh)
    assert counters.read() == {ENGINE.format(1): 40.0, ENGINE.format(2): 5.0}
    counters.close()
    counters.close()
    assert pdh.open == 0


@pytest.mark.parametrize("results", [{"collect": [NO_DATA]}, {"list": [NO_DATA]}, {}])
def test_no_instance_is_no_load(results: dict[str, list[int]]) -> None:
    pdh = FakePdh()
    pdh.results = results
    assert PdhCounters(ENGINES, pdh).read() == {}


@pytest.mark.parametrize(
    "results",
    [
        {"collect": [INVALID_HANDLE]},
        {"collect": [NO_INSTANCE]},
        {"list": [INVALID_DATA]},
        {"list": [INVALID_HANDLE]},
    ],
)
def test_a_read_that_fails_is_unreadable_and_never_calm(results: dict[str, list[int]]) -> None:
    pdh = FakePdh((ENGINE.format(1), 40.0, 0))
    counters = PdhCounters(ENGINES, pdh)
    pdh.results = {name: list(codes) for name, codes in results.items()}
    with pytest.raises(Unreadable, match=f"{next(iter(results.values()))[0]:#x}"):
        counters.read()
    assert counters.read() == {ENGINE.format(1): 40.0}


def test_the_list_itself_may_fail_too() -> None:
    pdh = FakePdh((ENGINE.format(1), 40.0, 0))
    real, asked = pdh.PdhGetFormattedCounterArrayW, []

    def second_fails(*arguments: Any) -> int:
        asked.append(arguments[-1])
        return int(real(*arguments)) if arguments[-1] is None else INVALID_DATA

    pdh.PdhGetFormattedCounterArrayW = second_fails
    with pytest.raises(Unreadable, match="0xc0000bc6"):
        PdhCounters(ENGINES, pdh).read()
    assert len(asked) == 2


def test_an_instance_that_comes_between_the_two_calls_is_asked_for_again() -> None:
    pdh = FakePdh((ENGINE.format(1), 40.0, 0))
    pdh.grows = TRIES - 1
    assert len(PdhCounters(ENGINES, pdh).read()) == TRIES
    pdh.grows = 2 * TRIES
    with pytest.raises(Unreadable, match="grows"):
        PdhCounters(ENGINES, pdh).read()


@pytest.mark.parametrize("size_bytes", [0, MAX_BYTES + 1])
def test_a_list_of_a_size_that_cannot_be_is_unreadable(size_bytes: int) -> None:
    pdh = FakePdh((ENGINE.format(1), 40.0, 0))
    pdh.told_size = size_bytes
    with pytest.raises(Unreadable, match="bytes"):
        PdhCounters(ENGINES, pdh).read()


@pytest.mark.parametrize(("code", "error"), [(NO_COUNTER, Absent), (INVALID_HANDLE, Unreadable)])
def test_a_counter_that_cannot_be_opened_leaves_nothing_open(code: int, error: type[Exception]) -> None:
    pdh = FakePdh()
    pdh.results = {"add": [code]}
    with pytest.raises(error):
        PdhCounters(ENGINES, pdh)
    assert pdh.open == 0


def test_the_first_sample_of_a_rate_may_have_no_value() -> None:
    pdh = FakePdh((ENGINE.format(1), 40.0, 0))
    pdh.results = {"list": [INVALID_DATA]}
    source = GpuEngines(lambda: PdhCounters(ENGINES, pdh), frozenset)
    with pytest.raises(Unreadable, match="two reads"):
        source.read()
    assert source.read() == {"other_gpu_percent": 40.0}
    pdh.results = {"collect": [INVALID_HANDLE]}
    with pytest.raises(Unreadable, match="answered"):
        source.read()
    source.finish()
    assert pdh.open == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has them")
def test_another_system_has_no_performance_counters() -> None:
    with pytest.raises(Absent):
        PdhCounters(ENGINES)
