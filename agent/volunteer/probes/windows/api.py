"""The calls to Windows that the probes need, behind a protocol: tests fake it, and only `agent` on Windows runs it.

Structures and constants: winuser.h, winbase.h, wtsapi32.h, shellapi.h, memoryapi.h of the Windows SDK. Every method
raises Unreadable when Windows refuses; none is asked before it is needed, so the module can be imported anywhere.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final, NamedTuple, Protocol

from agent.volunteer.probes.base import Unreadable

SM_REMOTESESSION: Final = 0x1000
WTS_CURRENT_SERVER: Final = 0
WTS_CURRENT_SESSION: Final = 0xFFFFFFFF
WTS_SESSION_INFO_EX: Final = 25
WTS_CONNECT_STATE: Final = 8
LOW_MEMORY: Final = 0


class PowerStatus(NamedTuple):
    """SYSTEM_POWER_STATUS: `ac` 0, 1 or 255; `battery` flags; `percent` 0-100 or 255; `saver` 1 while it is on."""

    ac: int
    battery: int
    percent: int
    saver: int


class SessionStatus(NamedTuple):
    """WTSINFOEX: connect `state` (0 active, 1 connected, 4 disconnected); `flags` 0 locked, 1 unlocked, -1 unknown."""

    state: int
    flags: int


class WindowsApi(Protocol):
    """What the sources ask of Windows."""

    def last_input_tick(self) -> int:
        """Return the 32-bit tick count, in ms, of this session's last input."""
        ...

    def tick(self) -> int:
        """Return the 32-bit tick count in ms."""
        ...

    def notification_state(self) -> int:
        """Return QUERY_USER_NOTIFICATION_STATE, 1-7."""
        ...

    def is_remote(self) -> bool:
        """Whether this session is shown on another computer."""
        ...

    def session(self) -> SessionStatus: ...

    def power(self) -> PowerStatus: ...

    def memory_is_low(self) -> bool:
        """Whether Windows signals low memory."""
        ...

    def unbiased_s(self) -> float:
        """Return the seconds this PC was awake since it was switched on."""
        ...


class _LastInput(ctypes.Structure):
    _fields_ = (("cbSize", ctypes.c_uint32), ("dwTime", ctypes.c_uint32))


class _Power(ctypes.Structure):
    _fields_ = (
        ("ACLineStatus", ctypes.c_uint8),
        ("BatteryFlag", ctypes.c_uint8),
        ("BatteryLifePercent", ctypes.c_uint8),
        ("SystemStatusFlag", ctypes.c_uint8),
        ("BatteryLifeTime", ctypes.c_uint32),
        ("BatteryFullLifeTime", ctypes.c_uint32),
    )


class _MemoryStatus(ctypes.Structure):
    _fields_ = (
        ("dwLength", ctypes.c_uint32),
        ("dwMemoryLoad", ctypes.c_uint32),
        ("ullTotalPhys", ctypes.c_uint64),
        ("ullAvailPhys", ctypes.c_uint64),
        ("ullTotalPageFile", ctypes.c_uint64),
        ("ullAvailPageFile", ctypes.c_uint64),
        ("ullTotalVirtual", ctypes.c_uint64),
        ("ullAvailVirtual", ctypes.c_uint64),
        ("ullAvailExtendedVirtual", ctypes.c_uint64),
    )


class _InfoEx(ctypes.Structure):
    """The head of WTSINFOEXW at level 1: what follows is names and times, which nobody needs."""

    # The union behind Level holds LARGE_INTEGERs, so it begins at a multiple of 8.
    _fields_ = (
        ("Level", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("SessionId", ctypes.c_uint32),
        ("SessionState", ctypes.c_int32),
        ("SessionFlags", ctypes.c_int32),
    )


if sys.platform == "win32":

    class RealWindows:
        """Windows itself."""

        def __init__(self) -> None:
            self._user32 = ctypes.WinDLL("user32", use_last_error=True)
            self._kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
            self._shell32 = ctypes.WinDLL("shell32", use_last_error=True)
            self._wtsapi32 = ctypes.WinDLL("wtsapi32", use_last_error=True)
            self._kernel32.GetTickCount.restype = ctypes.c_uint32
            self._kernel32.CreateMemoryResourceNotification.restype = ctypes.c_void_p
            self._kernel32.QueryMemoryResourceNotification.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            self._wtsapi32.WTSQuerySessionInformationW.argtypes = [
                ctypes.c_void_p,
                ctypes.c_uint32,
                ctypes.c_int,
                ctypes.c_void_p,
                ctypes.c_void_p,
            ]
            self._wtsapi32.WTSFreeMemory.argtypes = [ctypes.c_void_p]
            self._low_memory: int | None = None

        def last_input_tick(self) -> int:
            seen = _LastInput(cbSize=ctypes.sizeof(_LastInput))
            if not self._user32.GetLastInputInfo(ctypes.byref(seen)):
                raise Unreadable("GetLastInputInfo failed")
            return int(seen.dwTime)

        def tick(self) -> int:
            return int(self._kernel32.GetTickCount())

        def notification_state(self) -> int:
            state = ctypes.c_int()
            if result := self._shell32.SHQueryUserNotificationState(ctypes.byref(state)):
                raise Unreadable(f"SHQueryUserNotificationState answered {result & 0xFFFFFFFF:#x}")
            return int(state.value)

        def is_remote(self) -> bool:
            return bool(self._user32.GetSystemMetrics(SM_REMOTESESSION))

        def session(self) -> SessionStatus:
            buffer, size = ctypes.c_void_p(), ctypes.c_uint32()
            asked = self._wtsapi32.WTSQuerySessionInformationW(
                WTS_CURRENT_SERVER,
                WTS_CURRENT_SESSION,
                WTS_SESSION_INFO_EX,
                ctypes.byref(buffer),
                ctypes.byref(size),
            )
            if not asked or not buffer.value:
                raise Unreadable("WTSQuerySessionInformation failed")
            try:
                if size.value < ctypes.sizeof(_InfoEx):
                    raise Unreadable("WTSQuerySessionInformation answered too little")
                info = _InfoEx.from_address(buffer.value)
                if info.Level != 1:
                    raise Unreadable(f"WTSQuerySessionInformation answered level {info.Level}")
                return SessionStatus(int(info.SessionState), int(info.SessionFlags))
            finally:
                self._wtsapi32.WTSFreeMemory(buffer)

        def power(self) -> PowerStatus:
            status = _Power()
            if not self._kernel32.GetSystemPowerStatus(ctypes.byref(status)):
                raise Unreadable("GetSystemPowerStatus failed")
            return PowerStatus(
                status.ACLineStatus, status.BatteryFlag, status.BatteryLifePercent, status.SystemStatusFlag
            )

        def memory_is_low(self) -> bool:
            if self._low_memory is None:
                self._low_memory = self._kernel32.CreateMemoryResourceNotification(LOW_MEMORY)
            low = ctypes.c_int()
            if not self._low_memory or not self._kernel32.QueryMemoryResourceNotification(
                self._low_memory, ctypes.byref(low)
            ):
                raise Unreadable("the low-memory notification failed")
            return bool(low.value)

        def commit_free_bytes(self) -> int:
            """Return what can still be promised to this process: the commit limit less what is committed."""
            status = _MemoryStatus(dwLength=ctypes.sizeof(_MemoryStatus))
            if not self._kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
                raise Unreadable("GlobalMemoryStatusEx failed")
            return int(status.ullAvailPageFile)

        def unbiased_s(self) -> float:
            time_100ns = ctypes.c_uint64()
            if not self._kernel32.QueryUnbiasedInterruptTime(ctypes.byref(time_100ns)):
                raise Unreadable("QueryUnbiasedInterruptTime failed")
            return time_100ns.value / 1e7
