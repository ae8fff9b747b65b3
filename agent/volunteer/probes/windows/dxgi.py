"""What Windows grants a program on a graphics adapter: DXGI's video memory budget (dxgi.h, dxgi1_4.h of the SDK)."""

from __future__ import annotations

import ctypes
import sys
import uuid
from typing import Final

from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.windows.com import ComObject

FACTORY1: Final = uuid.UUID("770aae78-f26f-4dba-a829-253c83d1b387")
ADAPTER3: Final = uuid.UUID("645967a4-1392-4310-a798-8053ce3e93fd")
ENUM_ADAPTERS1, GET_DESC1, QUERY_VIDEO_MEMORY_INFO = 12, 10, 14
LOCAL, NON_LOCAL = 0, 1
MOST_ADAPTERS: Final = 16


class AdapterDescription(ctypes.Structure):
    """DXGI_ADAPTER_DESC1."""

    _fields_ = (
        ("Description", ctypes.c_uint16 * 128),
        ("VendorId", ctypes.c_uint32),
        ("DeviceId", ctypes.c_uint32),
        ("SubSysId", ctypes.c_uint32),
        ("Revision", ctypes.c_uint32),
        ("DedicatedVideoMemory", ctypes.c_size_t),
        ("DedicatedSystemMemory", ctypes.c_size_t),
        ("SharedSystemMemory", ctypes.c_size_t),
        ("LuidLow", ctypes.c_uint32),
        ("LuidHigh", ctypes.c_int32),
        ("Flags", ctypes.c_uint32),
    )


class VideoMemoryInfo(ctypes.Structure):
    """DXGI_QUERY_VIDEO_MEMORY_INFO."""

    _fields_ = (
        ("Budget", ctypes.c_uint64),
        ("CurrentUsage", ctypes.c_uint64),
        ("AvailableForReservation", ctypes.c_uint64),
        ("CurrentReservation", ctypes.c_uint64),
    )


def granted_bytes(factory: ComObject, address: str) -> int:
    """Return what a program may take on the adapter with this locally unique id, all kinds of memory together.

    A part of the processor reports everything as local, a card its own as local and main memory as the other kind.
    Raises Absent where there is no such adapter, Unreadable where it does not say.
    """
    for number in range(MOST_ADAPTERS):
        adapter = factory.object_from(ENUM_ADAPTERS1, [ctypes.c_uint32], number)
        if adapter is None:
            break
        with adapter:
            description = AdapterDescription()
            if adapter.call(GET_DESC1, [ctypes.c_void_p], ctypes.byref(description)):
                continue
            if f"{description.LuidHigh & 0xFFFFFFFF:08x}{description.LuidLow:08x}" == address:
                return _budget(adapter)
    raise Absent("there is no such graphics adapter")


def _budget(adapter: ComObject) -> int:
    with adapter.query(ADAPTER3) as detailed:
        total = 0
        for group in (LOCAL, NON_LOCAL):
            info = VideoMemoryInfo()
            types = [ctypes.c_uint32, ctypes.c_int32, ctypes.c_void_p]
            if detailed.call(QUERY_VIDEO_MEMORY_INFO, types, 0, group, ctypes.byref(info)):
                raise Unreadable("the graphics adapter does not tell its budget")
            total += int(info.Budget)
        return total


if sys.platform == "win32":
    from agent.volunteer.probes.windows.com import guid

    def granted_by_windows(address: str) -> int:
        """Ask Windows. Raises Absent or Unreadable."""
        pointer = ctypes.c_void_p()
        create = ctypes.WinDLL("dxgi").CreateDXGIFactory1
        create.restype = ctypes.c_int32
        if create(guid(FACTORY1), ctypes.byref(pointer)) or not pointer.value:
            raise Unreadable("DXGI cannot be opened")
        with ComObject(pointer.value) as factory:
            return granted_bytes(factory, address)
