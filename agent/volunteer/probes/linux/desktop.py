"""Presence as the desktops tell it on the session bus: GNOME's Mutter, KDE's screen saver; and who locks the screen.

Mutter also pushes: the first input after a moment of rest fires a watch, on X11 and on Wayland alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from jeepney import MatchRule

from agent.volunteer.probes.base import Absent, ProbeError, Seen, SystemEvent, Unreadable
from agent.volunteer.probes.linux.dbus import Bus, BusSource, Place, flag, member_of, signal_rule, whole

MUTTER = Place(
    "SESSION",
    "org.gnome.Mutter.IdleMonitor",
    "/org/gnome/Mutter/IdleMonitor/Core",
    "org.gnome.Mutter.IdleMonitor",
)
KDE_SAVER = Place(
    "SESSION", "org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", "org.freedesktop.ScreenSaver"
)
GNOME_SAVER = Place("SESSION", "org.gnome.ScreenSaver", "/org/gnome/ScreenSaver", "org.gnome.ScreenSaver")
MAX_IDLE_MS = 1 << 40
ZEROS_IN_DOUBT = 5
"""So many exact zeros in a row are no person who never rests but a desktop that does not count."""
QUIET_S = 0.5
"""Between two pushes of one source: while somebody types, one a moment is enough."""


class MutterIdle(BusSource):
    """GNOME's idle time, of all input devices."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SESSION", environment)
        self._was_here = False

    def read(self) -> Seen:
        try:
            (idle_ms,) = self._bus.call(MUTTER, "GetIdletime")
        except Absent:
            if self._was_here:
                # The shell is starting again: until then nobody knows, and a lesser source must not step in.
                raise Unreadable("Mutter went away") from None
            raise
        self._was_here = True
        return {"idle_s": whole(idle_ms, 0, MAX_IDLE_MS, "Mutter") / 1000}


class KdeIdle(BusSource):
    """KDE's idle time, where its screen saver counts it: milliseconds on X11, nothing or for ever 0 on Wayland.

    Absent on other desktops: their lockers have the same name on the bus, and some of them count seconds.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SESSION", environment)
        self._is_kde = is_kde(environment)
        self._zeros = ZEROS_IN_DOUBT

    def read(self) -> Seen:
        if not self._is_kde:
            raise Absent("the desktop is not KDE")
        (idle_ms,) = self._bus.call(KDE_SAVER, "GetSessionIdleTime")
        idle_ms = whole(idle_ms, 0, MAX_IDLE_MS, "KDE")
        self._zeros = self._zeros + 1 if idle_ms == 0 else 0
        if self._zeros >= ZEROS_IN_DOUBT:
            raise Unreadable("KDE says 0 all the time")
        return {"idle_s": idle_ms / 1000}


def is_kde(environment: Mapping[str, str]) -> bool:
    """Tell whether this session's desktop is KDE, by what it puts into the environment of its programs."""
    desktops = environment.get("XDG_CURRENT_DESKTOP", "").upper().split(":")
    return "KDE" in desktops or bool(environment.get("KDE_FULL_SESSION"))


class SaverLock(BusSource):
    """Whether a desktop's screen saver covers the screen, which is how GNOME and KDE lock."""

    def __init__(self, place: Place, environment: Mapping[str, str]) -> None:
        self._place = place
        super().__init__(place.bus, environment)

    def read(self) -> Seen:
        (active,) = self._bus.call(self._place, "GetActive")
        return {"locked": flag(active, self._place.service)}


class MutterWatch:
    """Says `input` at the first input after a moment of rest; arms again when the shell starts anew."""

    name = "mutter"

    def __init__(self, environment: Mapping[str, str], sleep: Callable[[float], None] = time.sleep) -> None:
        self._bus = Bus("SESSION", environment)
        self._sleep = sleep

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        bus = self._bus
        owner = MatchRule(type="signal", interface="org.freedesktop.DBus", member="NameOwnerChanged")
        owner.add_arg_condition(0, MUTTER.service)
        try:
            bus.listen(signal_rule(MUTTER, "WatchFired"), owner)
            armed = self._arm()
            while True:
                member, arguments = member_of(bus.next_signal())
                if member == "NameOwnerChanged" and arguments[:1] == (MUTTER.service,):
                    if not arguments[2]:
                        raise Unreadable("Mutter went away")
                    armed = self._arm()
                elif member == "WatchFired" and arguments == (armed,):
                    say("input")
                    self._sleep(QUIET_S)
                    armed = self._arm()
        finally:
            bus.drop()

    def stop(self) -> None:
        self._bus.close()

    def _arm(self) -> int:
        """Ask for the next input. It may have come already: the watch fires at the next one then."""
        (number,) = self._bus.call(MUTTER, "AddUserActiveWatch")
        return whole(number, 0, (1 << 32) - 1, "Mutter")


class IdleInhibitors(BusSource):
    """Which programs keep the session awake, as GNOME's session manager or KDE's power management tells."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SESSION", environment)

    def read(self) -> Seen:
        try:
            return {"inhibitors": self._of_gnome()}
        except Absent:
            return {"inhibitors": self._of_kde()}

    def _of_gnome(self) -> tuple[str, ...]:
        (inhibited,) = self._bus.call(GNOME_SESSION, "IsInhibited", "u", GNOME_IDLE)
        if not flag(inhibited, GNOME_SESSION.service):
            return ()
        names = set[str]()
        (paths,) = self._bus.call(GNOME_SESSION, "GetInhibitors")
        for path in paths[:32]:
            one = Place("SESSION", GNOME_SESSION.service, str(path), GNOME_SESSION.interface + ".Inhibitor")
            try:
                (flags,) = self._bus.call(one, "GetFlags")
                (name,) = self._bus.call(one, "GetAppId")
            except ProbeError:
                continue  # it ended meanwhile
            if isinstance(flags, int) and flags & GNOME_IDLE:
                names.add(str(name) or "a program")
        return tuple(sorted(names)) or ("a program",)

    def _of_kde(self) -> tuple[str, ...]:
        (inhibited,) = self._bus.call(KDE_POWER, "HasInhibition", "u", KDE_SCREEN)
        return ("a program",) if flag(inhibited, KDE_POWER.service) else ()


GNOME_SESSION = Place("SESSION", "org.gnome.SessionManager", "/org/gnome/SessionManager", "org.gnome.SessionManager")
GNOME_IDLE = 8
KDE_POWER = Place(
    "SESSION",
    "org.kde.Solid.PowerManagement.PolicyAgent",
    "/org/kde/Solid/PowerManagement/PolicyAgent",
    "org.kde.Solid.PowerManagement.PolicyAgent",
)
KDE_SCREEN = 4
"""Kind of inhibition: the screen must stay on."""
