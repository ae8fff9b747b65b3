"""macOS, as far as it tells programs without rights: input, lock, displays, mains and battery.

Signatures: CoreGraphics `CGEventSource.h`, `CGSession.h`, `CGDirectDisplay.h`, IOKit `IOPowerSources.h`,
`IOPSKeys.h`. Behind `MacApi`, which tests fake.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Final, NamedTuple, Protocol

from agent.volunteer.facts import Power
from agent.volunteer.probes.base import Seen, Unreadable
from agent.volunteer.probes.reading import Simple

HID_SYSTEM_STATE: Final = 1
ANY_INPUT: Final = 0xFFFFFFFF
LONGEST_IDLE_S: Final = 1e9


class PowerSource(NamedTuple):
    """One source of IOKit: `kind` is `InternalBattery` or `UPS`, `state` `AC Power`, `Battery Power` or `Off Line`."""

    kind: str
    state: str
    percent: float | None


class MacApi(Protocol):
    """What the sources ask of macOS."""

    def idle_s(self) -> float: ...

    def session(self) -> dict[str, bool]:
        """Return `locked` and `on_console` as far as the session tells; empty without a session with a screen."""
        ...

    def is_display_asleep(self) -> bool: ...

    def power_sources(self) -> list[PowerSource]: ...


class MacSource(Simple):
    """A source that asks macOS."""

    def __init__(self, mac: MacApi) -> None:
        self._mac = mac


class MacIdle(MacSource):
    """Input of every device, below the session."""

    def read(self) -> Seen:
        idle_s = self._mac.idle_s()
        if not math.isfinite(idle_s) or not 0 <= idle_s < LONGEST_IDLE_S:
            raise Unreadable(f"macOS counts {idle_s} s of idle time")
        return {"idle_s": idle_s}


class MacSession(MacSource):
    """Lock, fast user switching, displays."""

    def read(self) -> Seen:
        seen: Seen = {"displays_off": self._mac.is_display_asleep()}
        session = self._mac.session()
        if not session:
            seen["session_switched"] = True
            return seen
        seen["locked"] = session.get("locked", False)
        seen["session_switched"] = not session.get("on_console", False)
        return seen


class MacPower(MacSource):
    """The internal battery counts alone: a UPS is not the PC's own."""

    def read(self) -> Seen:
        batteries = [source for source in self._mac.power_sources() if source.kind == "InternalBattery"]
        if not batteries:
            return {"power": Power(on_mains=True, has_battery=False)}
        states = {battery.state for battery in batteries}
        on_mains = False if "Battery Power" in states else True if "AC Power" in states else None
        levels = [battery.percent for battery in batteries if battery.percent is not None]
        return {"power": Power(on_mains, has_battery=True, battery_percent=min(levels, default=None))}


if sys.platform == "darwin":
    _FRAMEWORKS = "/System/Library/Frameworks"
    _UTF8 = 0x08000100
    _INT = 9  # kCFNumberIntType

    class RealMac:
        """macOS itself."""

        def __init__(self) -> None:
            self._graphics = ctypes.CDLL(f"{_FRAMEWORKS}/CoreGraphics.framework/CoreGraphics")
            self._core = ctypes.CDLL(f"{_FRAMEWORKS}/CoreFoundation.framework/CoreFoundation")
            self._kit = ctypes.CDLL(f"{_FRAMEWORKS}/IOKit.framework/IOKit")
            self._graphics.CGEventSourceSecondsSinceLastEventType.restype = ctypes.c_double
            self._graphics.CGEventSourceSecondsSinceLastEventType.argtypes = [ctypes.c_int32, ctypes.c_uint32]
            pointer, long = ctypes.c_void_p, ctypes.c_long
            for library, name, result, arguments in (
                (self._graphics, "CGSessionCopyCurrentDictionary", pointer, []),
                (self._graphics, "CGMainDisplayID", ctypes.c_uint32, []),
                (self._graphics, "CGDisplayIsAsleep", ctypes.c_int, [ctypes.c_uint32]),
                (self._core, "CFDictionaryGetValue", pointer, [pointer, pointer]),
                (self._core, "CFStringCreateWithCString", pointer, [pointer, ctypes.c_char_p, ctypes.c_uint32]),
                (self._core, "CFStringGetCString", ctypes.c_bool, [pointer, ctypes.c_char_p, long, ctypes.c_uint32]),
                (self._core, "CFBooleanGetValue", ctypes.c_bool, [pointer]),
                (self._core, "CFNumberGetValue", ctypes.c_bool, [pointer, long, pointer]),
                (self._core, "CFArrayGetCount", long, [pointer]),
                (self._core, "CFArrayGetValueAtIndex", pointer, [pointer, long]),
                (self._core, "CFRelease", None, [pointer]),
                (self._kit, "IOPSCopyPowerSourcesInfo", pointer, []),
                (self._kit, "IOPSCopyPowerSourcesList", pointer, [pointer]),
                (self._kit, "IOPSGetPowerSourceDescription", pointer, [pointer, pointer]),
            ):
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments

        def idle_s(self) -> float:
            return float(self._graphics.CGEventSourceSecondsSinceLastEventType(HID_SYSTEM_STATE, ANY_INPUT))

        def is_display_asleep(self) -> bool:
            return bool(self._graphics.CGDisplayIsAsleep(self._graphics.CGMainDisplayID()))

        def session(self) -> dict[str, bool]:
            session = self._graphics.CGSessionCopyCurrentDictionary()
            if not session:
                return {}
            try:
                found = {}
                for key, name in (("locked", "CGSSessionScreenIsLocked"), ("on_console", "kCGSSessionOnConsoleKey")):
                    value = self._value(session, name)
                    if value:
                        found[key] = bool(self._core.CFBooleanGetValue(value))
                return found or {"on_console": False}
            finally:
                self._core.CFRelease(session)

        def power_sources(self) -> list[PowerSource]:
            info = self._kit.IOPSCopyPowerSourcesInfo()
            if not info:
                raise Unreadable("IOKit tells no power sources")
            sources = self._kit.IOPSCopyPowerSourcesList(info)
            try:
                count = self._core.CFArrayGetCount(sources) if sources else 0
                return [self._source(info, self._core.CFArrayGetValueAtIndex(sources, at)) for at in range(count)]
            finally:
                if sources:
                    self._core.CFRelease(sources)
                self._core.CFRelease(info)

        def _source(self, info: int, source: int) -> PowerSource:
            entry = self._kit.IOPSGetPowerSourceDescription(info, source)
            if not entry:
                raise Unreadable("IOKit does not describe a power source")
            now, most = self._number(entry, "Current Capacity"), self._number(entry, "Max Capacity")
            percent = 100 * now / most if now is not None and most and 0 <= now <= most else None
            return PowerSource(self._text(entry, "Type"), self._text(entry, "Power Source State"), percent)

        def _value(self, dictionary: int, name: str) -> int:
            key = self._core.CFStringCreateWithCString(None, name.encode(), _UTF8)
            try:
                return int(self._core.CFDictionaryGetValue(dictionary, key) or 0)
            finally:
                self._core.CFRelease(key)

        def _text(self, dictionary: int, name: str) -> str:
            value, buffer = self._value(dictionary, name), ctypes.create_string_buffer(128)
            if not value or not self._core.CFStringGetCString(value, buffer, len(buffer), _UTF8):
                return ""
            return buffer.value.decode("utf-8", "replace")

        def _number(self, dictionary: int, name: str) -> int | None:
            value, number = self._value(dictionary, name), ctypes.c_int()
            if not value or not self._core.CFNumberGetValue(value, _INT, ctypes.byref(number)):
                return None
            return number.value
