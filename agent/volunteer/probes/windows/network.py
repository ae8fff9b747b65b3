"""Whether the connection in use costs by the byte, as Windows' network list manager tells (COM, netlistmgr.h)."""

from __future__ import annotations

import ctypes
import sys
import uuid
from collections.abc import Callable
from typing import Final

from agent.volunteer.probes.base import Seen, Unreadable
from agent.volunteer.probes.reading import Simple

MANAGER: Final = uuid.UUID("dcb00c01-570f-4a9b-8d69-199fdba5723b")
COST_MANAGER: Final = uuid.UUID("dcb00008-570f-4a9b-8d69-199fdba5723b")
UNRESTRICTED: Final = 0x1
COSTLY: Final = 0x2 | 0x4 | 0x10000 | 0x40000
"""Fixed or variable price, over the limit, roaming."""


class NetworkCost(Simple):
    """`cost` returns the NLM_CONNECTION_COST flags of the connection to the internet."""

    def __init__(self, cost: Callable[[], int]) -> None:
        self._cost = cost

    def read(self) -> Seen:
        flags = self._cost()
        if not flags & (UNRESTRICTED | COSTLY):
            raise Unreadable("Windows does not know the network's price")
        return {"metered": bool(flags & COSTLY)}


if sys.platform == "win32":

    def connection_cost() -> int:
        """Ask the network list manager. Raises Unreadable."""
        ole32 = ctypes.OleDLL("ole32")
        ole32.CoInitializeEx.restype = ctypes.c_long
        began = ole32.CoInitializeEx(None, 0) >= 0
        manager = ctypes.c_void_p()
        try:
            class_id = ctypes.create_string_buffer(MANAGER.bytes_le, 16)
            interface_id = ctypes.create_string_buffer(COST_MANAGER.bytes_le, 16)
            ole32.CoCreateInstance(class_id, None, 0x17, interface_id, ctypes.byref(manager))  # CLSCTX_ALL
            cost = ctypes.c_uint32()
            slots = ctypes.cast(manager, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
            get_cost = ctypes.WINFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(slots[3])
            release = ctypes.WINFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p)(slots[2])
            try:
                if get_cost(manager, ctypes.byref(cost), None) < 0:
                    raise Unreadable("the network's price cannot be read")
            finally:
                release(manager)
            return int(cost.value)
        except OSError as error:
            raise Unreadable(f"the network list manager cannot be asked ({error.strerror})") from None
        finally:
            if began:
                ole32.CoUninitialize()
