"""Windows' performance counters: what each program asks of each GPU engine, and the memory it holds there.

Counter paths in English whatever the language of Windows; structures: pdh.h of the Windows SDK. Instance names are
`pid_N_luid_0xH_0xL_phys_N` and, for engines, `..._eng_N_engtype_NAME`.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from agent.volunteer.probes.base import Absent, Seen, Unreadable
from agent.volunteer.probes.load import own_pids

ENGINES: Final = r"\GPU Engine(*)\Utilization Percentage"
SHARED: Final = r"\GPU Process Memory(*)\Shared Usage"
DEDICATED: Final = r"\GPU Process Memory(*)\Dedicated Usage"
MAX_BYTES: Final = 16 << 20
_MORE_DATA, _NO_DATA = 0x800007D2, 0x800007D5
_MISSING = frozenset({0xC0000BB8, 0xC0000BB9, 0x800007D0, 0x800007D1})
"""No such object, no such counter, no such machine, no such instance: this Windows or its driver counts no GPU."""
TRIES: Final = 3
"""How often the list of instances may grow between the question for its size and the one for the list."""
_DOUBLE = 0x200 | 0x8000  # PDH_FMT_DOUBLE | PDH_FMT_NOCAP100


class Counters(Protocol):
    """One wildcard counter."""

    def read(self) -> dict[str, float]:
        """Return the value of every instance. Raises Absent or Unreadable."""
        ...

    def close(self) -> None: ...


def pid_of(instance: str) -> int | None:
    """Return the process an instance belongs to."""
    found = re.match(r"pid_(\d+)_", instance)
    return int(found.group(1)) if found else None


def adapter_of(instance: str) -> str:
    """Return the locally unique id of the adapter: 16 hexadecimal digits, high part first; empty if there is none."""
    found = re.search(r"luid_0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})_", instance)
    return f"{int(found.group(1), 16):08x}{int(found.group(2), 16):08x}" if found else ""


def busiest_percent(engines: Mapping[str, float], own: frozenset[int]) -> float:
    """Return the busiest engine's percentage that others use, 0-100."""
    shares = dict[str, float]()
    for instance, percent in engines.items():
        if pid_of(instance) not in own and percent > 0:
            engine = instance.partition("_luid_")[2]
            shares[engine] = shares.get(engine, 0.0) + percent
    return min(100.0, max(shares.values(), default=0.0))


def memory_by_process(instances: Mapping[str, float], adapter: str) -> dict[int, int]:
    """Return the bytes each process holds on one adapter."""
    found = dict[int, int]()
    for instance, size in instances.items():
        pid = pid_of(instance)
        if pid is not None and adapter_of(instance) == adapter and size > 0:
            found[pid] = found.get(pid, 0) + int(size)
    return found


class GpuEngines:
    """The busiest engine's share that others use; a rate, so the first read says nothing."""

    def __init__(self, make: Callable[[], Counters], own: Callable[[], frozenset[int]] = own_pids) -> None:
        self._make = make
        self._own = own
        self._counters: Counters | None = None

    def read(self) -> Seen:
        if self._counters is None:
            self._counters = self._make()
            with contextlib.suppress(Unreadable):
                self._counters.read()
            raise Unreadable("two reads are needed")
        return {"other_gpu_percent": busiest_percent(self._counters.read(), self._own())}

    def close(self) -> None:
        """A read never waits."""

    def finish(self) -> None:
        if self._counters is not None:
            self._counters.close()


class _Value(ctypes.Structure):
    _fields_ = (("status", ctypes.c_uint32), ("value", ctypes.c_double))


class _Item(ctypes.Structure):
    _fields_ = (("name", ctypes.c_wchar_p), ("value", _Value))


class PdhCounters:
    """A counter of the performance data helper. What cannot be read is not known, and never 0."""

    def __init__(self, path: str, pdh: Any = None) -> None:
        """Open it. `pdh` is the library; another one than Windows' own is for tests. Raises Absent or Unreadable."""
        self._pdh = _library() if pdh is None else pdh
        for name in (
            "PdhOpenQueryW",
            "PdhAddEnglishCounterW",
            "PdhCollectQueryData",
            "PdhGetFormattedCounterArrayW",
        ):
            getattr(self._pdh, name).restype = ctypes.c_uint32
        self._query, self._counter = ctypes.c_void_p(), ctypes.c_void_p()
        _check(self._pdh.PdhOpenQueryW(None, ctypes.c_void_p(0), ctypes.byref(self._query)))
        try:
            add = self._pdh.PdhAddEnglishCounterW
            _check(add(self._query, ctypes.c_wchar_p(path), ctypes.c_void_p(0), ctypes.byref(self._counter)))
        except BaseException:
            self.close()
            raise

    def read(self) -> dict[str, float]:
        """Return every instance that has a value now; instances come and go with programs. Raises Unreadable."""
        if not _has_data(self._pdh.PdhCollectQueryData(self._query)):
            return {}
        for _ in range(TRIES):
            size, count = ctypes.c_uint32(0), ctypes.c_uint32(0)
            result = self._list(size, count, None)
            if result != _MORE_DATA:
                _has_data(result)
                return {}
            if not 0 < size.value <= MAX_BYTES:
                raise Unreadable(f"the performance counters want to tell {size.value} bytes")
            buffer = ctypes.create_string_buffer(size.value)
            result = self._list(size, count, buffer)
            if result != _MORE_DATA:
                items = (_Item * (count.value if _has_data(result) else 0)).from_buffer(buffer)
                return {str(item.name): float(item.value.value) for item in items if item.value.status in (0, 1)}
        raise Unreadable("the list of the performance counters grows faster than it is read")

    def close(self) -> None:
        if self._query.value:
            self._pdh.PdhCloseQuery(self._query)
            self._query = ctypes.c_void_p()

    def _list(self, size: ctypes.c_uint32, count: ctypes.c_uint32, buffer: Any) -> int:
        get = self._pdh.PdhGetFormattedCounterArrayW
        return int(get(self._counter, _DOUBLE, ctypes.byref(size), ctypes.byref(count), buffer))


def _library() -> Any:
    if sys.platform == "win32":
        return ctypes.WinDLL("pdh")
    raise Absent("only Windows has these performance counters")


def _check(result: int) -> None:
    """Judge what opening a counter answered."""
    if result in _MISSING:
        raise Absent("Windows counts no GPU")
    if result:
        raise _failed(result)


def _has_data(result: int) -> bool:
    """Judge what a read answered: success, no instance at all, or a failure, which says nothing of the load."""
    if result not in (0, _NO_DATA):
        raise _failed(result)
    return result == 0


def _failed(result: int) -> Unreadable:
    return Unreadable(f"the performance counters answered {result:#x}")
