"""What the system's services tell: logind (lock, seat, remote, sleep), NetworkManager, power profiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from jeepney import MatchRule

from agent.volunteer.probes.base import Absent, Seen, SystemEvent, Unreadable
from agent.volunteer.probes.linux.dbus import Bus, BusSource, Place, flag, member_of, signal_rule, whole

LOGIND = Place("SYSTEM", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
NETWORK = Place(
    "SYSTEM",
    "org.freedesktop.NetworkManager",
    "/org/freedesktop/NetworkManager",
    "org.freedesktop.NetworkManager",
)
PROFILES = tuple(
    Place("SYSTEM", service, "/" + service.replace(".", "/"), service)
    for service in ("org.freedesktop.UPower.PowerProfiles", "net.hadess.PowerProfiles")
)
METERED = {1: True, 2: False, 3: True, 4: False}
"""NMMetered: yes, no, and the guesses of both; 0 is unknown."""


class Session:
    """This user's session in logind: the one on the user's screen, else the one the program belongs to."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._path = ""

    def properties(self, bus: Bus) -> dict[str, Any]:
        """Return the session's properties. Raises Absent or Unreadable."""
        if not self._path:
            self._path = self._find(bus)
        try:
            return bus.get_all(self.place)
        except Absent:
            self._path = ""  # it ended; the next read looks for another one
            raise

    @property
    def place(self) -> Place:
        return Place("SYSTEM", LOGIND.service, self._path, "org.freedesktop.login1.Session")

    def _find(self, bus: Bus) -> str:
        try:
            (user,) = bus.call(LOGIND, "GetUser", "u", os.getuid())
            display = bus.get(Place("SYSTEM", LOGIND.service, str(user), "org.freedesktop.login1.User"), "Display")
            if isinstance(display, tuple) and len(display) == 2 and display[0]:
                return str(display[1])
        except Absent:
            pass  # a user nobody logged in as
        name = self._environment.get("XDG_SESSION_ID")
        if not name:
            raise Absent("this user has no session with a screen")
        (path,) = bus.call(LOGIND, "GetSession", "s", name)
        return str(path)


class LogindSession(BusSource):
    """Lock, remote and fast user switching."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SYSTEM", environment)
        self._session = Session(environment)
        self._xrdp = "XRDP_SESSION" in environment

    def read(self) -> Seen:
        properties = self._session.properties(self._bus)
        return {
            "locked": flag(properties.get("LockedHint"), "logind"),
            "remote_session": self._xrdp or flag(properties.get("Remote"), "logind"),
            "session_switched": not flag(properties.get("Active"), "logind"),
        }


class LogindIdle(BusSource):
    """The desktop's own hint, which many desktops never give: a last resort."""

    def __init__(self, environment: Mapping[str, str], clock_us: Callable[[], int]) -> None:
        """`clock_us` is CLOCK_MONOTONIC in microseconds, which logind's times are of."""
        super().__init__("SYSTEM", environment)
        self._session = Session(environment)
        self._clock_us = clock_us

    def read(self) -> Seen:
        properties = self._session.properties(self._bus)
        if not flag(properties.get("IdleHint"), "logind"):
            return {"idle_s": 0.0}
        now_us = self._clock_us()
        since_us = whole(properties.get("IdleSinceHintMonotonic"), 1, now_us, "logind")
        return {"idle_s": (now_us - since_us) / 1e6}


class LogindInhibitors(BusSource):
    """Which programs keep the PC from resting, where no desktop tells: those that block it, not those that delay."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SYSTEM", environment)

    def read(self) -> Seen:
        (listed,) = self._bus.call(LOGIND, "ListInhibitors")
        try:
            names = {str(who) or "a program" for what, who, _, mode, _, _ in listed if blocks_rest(what, mode)}
        except (TypeError, ValueError):
            raise Unreadable("logind lists inhibitors in another form") from None
        return {"inhibitors": tuple(sorted(names))}


def blocks_rest(what: str, mode: str) -> bool:
    """Tell whether an inhibitor of logind keeps the PC from counting as idle."""
    return "idle" in what.split(":") and mode.startswith("block")


class LogindWatch:
    """Says when the PC goes to sleep, wakes up or shuts down, and what becomes of this session."""

    name = "logind"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._bus = Bus("SYSTEM", environment)
        self._session = Session(environment)
        self._going: SystemEvent = "resumed"
        """What was last said of sleep and shutdown."""

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        bus = self._bus
        try:
            bus.listen(signal_rule(LOGIND, "PrepareForSleep"), signal_rule(LOGIND, "PrepareForShutdown"))
            try:
                self._session.properties(bus)
            except Absent:
                pass  # sleep and shutdown concern a user without a session, too
            else:
                self._listen_to_session()
            # Last of all, as a signal that comes before an answer is dropped: what is told now is newer than that.
            going = self._going_now()
            if going != self._going:
                self._say(going, say)
            while True:
                event = session_event(*member_of(bus.next_signal()))
                if event is not None:
                    self._say(event, say)
        finally:
            bus.drop()

    def stop(self) -> None:
        self._bus.close()

    def _listen_to_session(self) -> None:
        place = self._session.place
        self._bus.listen(
            signal_rule(place, "Lock"),
            signal_rule(place, "Unlock"),
            MatchRule(
                type="signal",
                interface="org.freedesktop.DBus.Properties",
                member="PropertiesChanged",
                path=place.path,
            ),
        )

    def _going_now(self) -> SystemEvent:
        """Ask what may have been missed while nobody listened; a logind that is not there goes nowhere."""
        try:
            properties = self._bus.get_all(LOGIND)
        except Absent:
            return "resumed"
        if properties.get("PreparingForShutdown") is True:
            return "shutting_down"
        return "suspending" if properties.get("PreparingForSleep") is True else "resumed"

    def _say(self, event: SystemEvent, say: Callable[[SystemEvent], None]) -> None:
        if event in ("suspending", "resumed", "shutting_down"):
            self._going = event
        say(event)


def session_event(member: str, arguments: tuple[Any, ...]) -> SystemEvent | None:
    """Tell what a signal of logind means for us. Pure."""
    if member in ("Lock", "Unlock"):
        return "locked" if member == "Lock" else "unlocked"
    if member == "PrepareForSleep":
        return "suspending" if arguments[:1] == (True,) else "resumed"
    if member == "PrepareForShutdown":
        return "shutting_down" if arguments[:1] == (True,) else "resumed"
    if member == "PropertiesChanged" and len(arguments) == 3 and isinstance(arguments[1], dict):
        changed = {name: value for name, (_, value) in arguments[1].items()}
        if "LockedHint" in changed:
            return "locked" if changed["LockedHint"] else "unlocked"
        if changed.get("IdleHint") is False:
            return "input"
        if "Active" in changed:
            return "session"
    return None


class MeteredNetwork(BusSource):
    """Whether the connection in use costs by the byte."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SYSTEM", environment)

    def read(self) -> Seen:
        metered = METERED.get(whole(self._bus.get(NETWORK, "Metered"), 0, 4, "NetworkManager"))
        if metered is None:
            raise Unreadable("NetworkManager does not know")
        return {"metered": metered}


class PowerProfile(BusSource):
    """Whether the user asked to save energy."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("SYSTEM", environment)

    def read(self) -> Seen:
        problem = Absent("there are no power profiles")
        for place in PROFILES:
            try:
                return {"power_saver": self._bus.get(place, "ActiveProfile") == "power-saver"}
            except Absent as error:
                problem = error
        raise problem
