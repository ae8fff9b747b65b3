"""A hidden window that Windows tells of the session, sleep, shutdown and the displays. A thread of its own.

Top level, because message-only windows miss broadcasts. Messages and GUIDs: winuser.h, wtsapi32.h, winnt.h of the
Windows SDK. `event_of` and `DisplayState` hold the meanings and run anywhere; `MessageWindow` runs on Windows.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Final

from agent.volunteer.probes.base import Seen, SystemEvent, Unreadable
from agent.volunteer.probes.reading import Simple

WM_CLOSE: Final = 0x0010
WM_QUERYENDSESSION: Final = 0x0011
WM_ENDSESSION: Final = 0x0016
WM_POWERBROADCAST: Final = 0x0218
WM_WTSSESSION_CHANGE: Final = 0x02B1
PBT_SUSPEND, PBT_RESUME_SUSPEND, PBT_RESUME_AUTOMATIC, PBT_SETTING_CHANGE = 0x4, 0x7, 0x12, 0x8013
SESSION_LOCK, SESSION_UNLOCK = 7, 8
DISPLAY_STATE: Final = uuid.UUID("6fe69556-704a-47a0-8f24-c28d936fda47")
"""GUID_CONSOLE_DISPLAY_STATE: 0 off, 1 on, 2 dimmed."""


def event_of(message: int, wparam: int) -> SystemEvent | None:
    """Tell what a window message means for us. Pure."""
    if message == WM_WTSSESSION_CHANGE:
        return "locked" if wparam == SESSION_LOCK else "unlocked" if wparam == SESSION_UNLOCK else "session"
    if message == WM_POWERBROADCAST:
        if wparam == PBT_SUSPEND:
            return "suspending"
        if wparam in (PBT_RESUME_SUSPEND, PBT_RESUME_AUTOMATIC):
            return "resumed"
    if message == WM_ENDSESSION and wparam:
        return "shutting_down"
    return None


class DisplayState(Simple):
    """Whether the displays are off, as Windows last said."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: int | None = None

    def take(self, setting: bytes) -> None:
        """Take a POWERBROADCAST_SETTING: a GUID, the length of the data, the data. Others are ignored."""
        if len(setting) < 24 or uuid.UUID(bytes_le=setting[:16]) != DISPLAY_STATE:
            return
        size, state = struct.unpack_from("<II", setting, 16)
        if size == 4:
            with self._lock:
                self._state = state

    def read(self) -> Seen:
        with self._lock:
            state = self._state
        if state not in (0, 1, 2):
            raise Unreadable("Windows has not told yet")
        return {"displays_off": state == 0}


if sys.platform == "win32":
    from ctypes import wintypes

    _LRESULT = ctypes.c_ssize_t
    _WNDPROC = ctypes.WINFUNCTYPE(_LRESULT, wintypes.HWND, wintypes.UINT, wintypes.WPARAM, wintypes.LPARAM)

    class _WindowClass(ctypes.Structure):
        _fields_ = (
            ("style", wintypes.UINT),
            ("lpfnWndProc", _WNDPROC),
            ("cbClsExtra", ctypes.c_int),
            ("cbWndExtra", ctypes.c_int),
            ("hInstance", wintypes.HINSTANCE),
            ("hIcon", wintypes.HANDLE),
            ("hCursor", wintypes.HANDLE),
            ("hbrBackground", wintypes.HANDLE),
            ("lpszMenuName", wintypes.LPCWSTR),
            ("lpszClassName", wintypes.LPCWSTR),
        )

    class MessageWindow:
        """The watch: makes the window, pumps its messages until `stop`."""

        name = "windows"

        def __init__(self, displays: DisplayState) -> None:
            self._displays = displays
            self._user32 = ctypes.WinDLL("user32", use_last_error=True)
            self._wtsapi32 = ctypes.WinDLL("wtsapi32", use_last_error=True)
            self._user32.DefWindowProcW.restype = _LRESULT
            self._user32.DefWindowProcW.argtypes = [wintypes.HWND, wintypes.UINT, wintypes.WPARAM, wintypes.LPARAM]
            self._user32.CreateWindowExW.restype = wintypes.HWND
            self._user32.RegisterPowerSettingNotification.restype = wintypes.HANDLE
            self._user32.PostMessageW.argtypes = [wintypes.HWND, wintypes.UINT, wintypes.WPARAM, wintypes.LPARAM]
            self._user32.DestroyWindow.argtypes = [wintypes.HWND]
            self._user32.RegisterPowerSettingNotification.argtypes = [wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD]
            self._wtsapi32.WTSRegisterSessionNotification.argtypes = [wintypes.HWND, wintypes.DWORD]
            self._wtsapi32.WTSUnRegisterSessionNotification.argtypes = [wintypes.HWND]
            self._window: int | None = None
            self._stopped = False

        def run(self, say: Callable[[SystemEvent], None]) -> None:
            def take(window: int, message: int, wparam: int, lparam: int) -> int:
                if message == WM_POWERBROADCAST and wparam == PBT_SETTING_CHANGE and lparam:
                    self._displays.take(ctypes.string_at(lparam, 24))
                elif event := event_of(message, wparam):
                    say(event)
                if message == WM_CLOSE:
                    self._user32.DestroyWindow(window)
                    self._user32.PostQuitMessage(0)
                    return 0
                if message in (WM_QUERYENDSESSION, WM_POWERBROADCAST):
                    return 1
                return int(self._user32.DefWindowProcW(window, message, wparam, lparam))

            procedure = _WNDPROC(take)  # kept alive here for as long as Windows may call it
            name = f"FallowAgent{id(self):x}"
            entry = _WindowClass(lpfnWndProc=procedure, lpszClassName=name)
            if not self._user32.RegisterClassW(ctypes.byref(entry)):
                raise Unreadable("the message window's class cannot be registered")
            try:
                self._pump(name)
            finally:
                self._window = None
                self._user32.UnregisterClassW(ctypes.c_wchar_p(name), None)

        def stop(self) -> None:
            self._stopped = True
            if self._window:
                self._user32.PostMessageW(self._window, WM_CLOSE, 0, 0)

        def _pump(self, name: str) -> None:
            text = ctypes.c_wchar_p(name)
            self._window = window = self._user32.CreateWindowExW(0, text, text, 0, 0, 0, 0, 0, None, None, None, None)
            if not window:
                raise Unreadable("the message window cannot be made")
            if self._stopped:
                self._user32.DestroyWindow(window)
                return
            guid = ctypes.create_string_buffer(DISPLAY_STATE.bytes_le, 16)
            self._user32.RegisterPowerSettingNotification(window, guid, 0)
            # It may fail while Windows starts; the session is asked every 2 s in any case.
            self._wtsapi32.WTSRegisterSessionNotification(window, 0)
            message = wintypes.MSG()
            while self._user32.GetMessageW(ctypes.byref(message), None, 0, 0) > 0:
                self._user32.TranslateMessage(ctypes.byref(message))
                self._user32.DispatchMessageW(ctypes.byref(message))
            self._wtsapi32.WTSUnRegisterSessionNotification(window)
