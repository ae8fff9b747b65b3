"""Calls of COM objects through their table of functions: as much as the probes need, and no library for it.

A table is the same everywhere, so tests build one; on Windows the functions behind it are Windows' own.
"""

from __future__ import annotations

import ctypes
import sys
import uuid
from collections.abc import Sequence
from typing import Any, Self

from agent.volunteer.probes.base import Unreadable

if sys.platform == "win32":
    PROTOTYPE: Any = ctypes.WINFUNCTYPE
else:
    PROTOTYPE: Any = ctypes.CFUNCTYPE
_QUERY_INTERFACE, _RELEASE = 0, 2


def guid(value: uuid.UUID) -> Any:
    """Return a GUID as it lies in memory."""
    return (ctypes.c_uint8 * 16).from_buffer_copy(value.bytes_le)


class ComObject:
    """An object we hold one reference of, given back at the end of a `with`. One thread."""

    def __init__(self, address: int) -> None:
        self._address = address

    def call(self, slot: int, types: Sequence[Any], *arguments: Any) -> int:
        """Call the function at a slot of the table and return its HRESULT as an unsigned number."""
        table = ctypes.cast(self._address, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
        function = PROTOTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(table[slot])
        return int(function(self._address, *arguments)) & 0xFFFFFFFF

    def object_from(self, slot: int, types: Sequence[Any], *arguments: Any) -> ComObject | None:
        """Call a function whose last argument receives another object; None if it gives none."""
        pointer = ctypes.c_void_p()
        result = self.call(slot, [*types, ctypes.POINTER(ctypes.c_void_p)], *arguments, ctypes.byref(pointer))
        return ComObject(pointer.value) if result == 0 and pointer.value else None

    def query(self, interface: uuid.UUID) -> ComObject:
        """Return the same thing as another interface. Raises Unreadable where it is none."""
        found = self.object_from(_QUERY_INTERFACE, [ctypes.c_void_p], guid(interface))
        if found is None:
            raise Unreadable("Windows is too old to be asked this")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call(_RELEASE, [])
