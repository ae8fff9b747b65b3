"""Whether the connection in use costs by the byte, as Windows' network list manager tells (COM, netlistmgr.h)."""

from __future__ import annotations

import ctypes
import sys
import uuid
from collections.abc import Callable
from typing import Final

from agent.volunteer.probes.base import Seen, Unreadable
from agent.volunteer.probes.reading import Simple
from agent.volunteer.probes.windows.com import ComObject

MANAGER: Final = uuid.UUID("dcb00c01-570f-4a9b-8d69-199fdba5723b")
COST_MANAGER: Final = uuid.UUID("dcb00008-570f-4a9b-8d69-199fdba5723b")
GET_COST: Final = 3
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


def cost_of(manager: ComObject) -> int:
    """Return the flags that an INetworkCostManager says. Raises Unreadable."""
    cost = ctypes.c_uint32()
    if manager.call(GET_COST, [ctypes.c_void_p, ctypes.c_void_p], ctypes.byref(cost), None):
        raise Unreadable("the network's price cannot be read")
    return int(cost.value)


if sys.platform == "win32":
    from agent.volunteer.probes.windows.com import guid

    ALL_CONTEXTS = 0x17

    def connection_cost() -> int:
        """Ask the network list manager. Raises Unreadable."""
        ole32 = ctypes.WinDLL("ole32")
        ole32.CoInitializeEx.restype = ole32.CoCreateInstance.restype = ctypes.c_int32
        began = ole32.CoInitializeEx(None, 0) >= 0
        try:
            pointer = ctypes.c_void_p()
            if ole32.CoCreateInstance(guid(MANAGER), None, ALL_CONTEXTS, guid(COST_MANAGER), ctypes.byref(pointer)):
                raise Unreadable("the network list manager cannot be asked")
            if not pointer.value:
                raise Unreadable("the network list manager is not there")
            with ComObject(pointer.value) as manager:
                return cost_of(manager)
        finally:
            if began:
                ole32.CoUninitialize()
