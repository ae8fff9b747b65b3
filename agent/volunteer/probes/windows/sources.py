"""Windows' answers as facts: input, lock, remote session, fullscreen, power. Only the arithmetic and the meanings."""

from __future__ import annotations

from agent.volunteer.facts import Power
from agent.volunteer.probes.base import Seen, Unreadable
from agent.volunteer.probes.reading import Simple
from agent.volunteer.probes.windows.api import WindowsApi

TICK_SPAN = 1 << 32
LARGEST_IDLE_MS = 0x7FFFFFFF
NOT_PRESENT, BUSY, D3D_FULL_SCREEN, PRESENTATION, ACCEPTS, QUIET_TIME, APP = range(1, 8)
ACTIVE, CONNECTED, SHADOW = 0, 1, 3
LOCKED, UNLOCKED = 0, 1
NO_BATTERY, UNKNOWN = 128, 255


def idle_ms(now_tick: int, last_tick: int) -> int:
    """Return the milliseconds between two 32-bit ticks, across their wrap every 49.7 days.

    An input a moment ahead of the clock (injected input brings a time of its own) is no idle time at all.
    """
    between = (now_tick - last_tick) % TICK_SPAN
    return 0 if between > LARGEST_IDLE_MS else between


def power_of(ac: int, battery: int, percent: int, saver: int) -> Power:
    """Give SYSTEM_POWER_STATUS its meaning. 255 is unknown, and no battery is a desktop: on mains."""
    has_battery = battery == UNKNOWN or not battery & NO_BATTERY
    on_mains = True if not has_battery else {0: False, 1: True}.get(ac)
    level = float(percent) if has_battery and 0 <= percent <= 100 else None
    return Power(on_mains, has_battery, level, saver == 1)


class WindowsSource(Simple):
    """A source that asks Windows."""

    def __init__(self, windows: WindowsApi) -> None:
        self._windows = windows


class LastInput(WindowsSource):
    """This session's input, that over a remote desktop as well."""

    def read(self) -> Seen:
        last = self._windows.last_input_tick()  # before the time, which it then cannot be ahead of by much
        return {"idle_s": idle_ms(self._windows.tick(), last) / 1000}


class SessionState(WindowsSource):
    """Locked, shown elsewhere, or behind another user's session."""

    def read(self) -> Seen:
        remote = self._windows.is_remote()
        status = self._windows.session()
        seen: Seen = {"remote_session": remote or status.state == SHADOW}
        if status.flags in (LOCKED, UNLOCKED):
            seen["locked"] = status.flags == LOCKED
        # A locked session stays active. Disconnected: somebody else is in front, or the remote side just left.
        seen["session_switched"] = status.state not in (ACTIVE, CONNECTED, SHADOW)
        return seen


class Notifications(WindowsSource):
    """What the shell tells programs that want to interrupt: a game, a film, a presentation."""

    def read(self) -> Seen:
        state = self._windows.notification_state()
        if not NOT_PRESENT <= state <= APP:
            raise Unreadable(f"SHQueryUserNotificationState says {state}")
        return {"fullscreen": state in (BUSY, D3D_FULL_SCREEN, APP), "presentation": state == PRESENTATION}


class PowerState(WindowsSource):
    """Mains, battery, and the energy saver."""

    def read(self) -> Seen:
        return {"power": power_of(*self._windows.power())}
