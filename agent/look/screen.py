"""Whether there is a screen for windows. Asked before Qt is started, which ends the process where there is none."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

EXIT_NO_SCREEN = 20
_NOWHERE = "There is no screen here to show a window on; start it in the session of whoever sits at this PC."
_REFUSED = "The screen {name} cannot be reached; start it in the session of whoever is logged in there."


def why_no_screen(environment: Mapping[str, str] = os.environ) -> str:
    """Return a sentence that says why no window can be shown here; empty where one can, as far as this can tell.

    Only X and Wayland can be missing; `QT_QPA_PLATFORM` says that somebody has chosen. May wait for an X server.
    """
    if sys.platform != "linux" or environment.get("QT_QPA_PLATFORM"):
        return ""
    if _wayland_answers(environment):
        return ""
    name = environment.get("DISPLAY", "")
    if name and _x_answers(name):
        return ""
    name = name or environment.get("WAYLAND_DISPLAY", "")
    return _REFUSED.format(name=name) if name else _NOWHERE


def _wayland_answers(environment: Mapping[str, str]) -> bool:
    path = Path(environment.get("XDG_RUNTIME_DIR", "/"), environment.get("WAYLAND_DISPLAY", "wayland-0"))
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _x_answers(name: str) -> bool:
    """Try to connect as Qt will, with its own library: that knows every kind of name and of permission."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return True  # Qt says what it lacks
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    xcb.xcb_connection_has_error.argtypes = xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    link = xcb.xcb_connect(os.fsencode(name), None)
    failed = xcb.xcb_connection_has_error(link)
    xcb.xcb_disconnect(link)
    return not failed
