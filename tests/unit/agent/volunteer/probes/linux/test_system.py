from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S

if sys.platform != "linux":
    pytest.skip("logind is on Linux", allow_module_level=True)

from agent.volunteer.probes.base import Absent, Source, SystemEvent, Unreadable
from agent.volunteer.probes.linux.system import (
    LOGIND,
    NETWORK,
    PROFILES,
    LogindIdle,
    LogindInhibitors,
    LogindSession,
    LogindWatch,
    MeteredNetwork,
    PowerProfile,
    session_event,
)  # fmt: skip
from agent.volunteer.probes.worker import WatchThread
from tests.support.desktop_bus import FakeService, MakeService, Refusal

SESSION = "/org/freedesktop/login1/session/_32"
USER = "/org/freedesktop/login1/user/_1000"
PROPERTIES = "org.freedesktop.login1.Session"


@pytest.fixture
def logind(make: MakeService) -> FakeService:
    service = make(LOGIND.service)
    service.methods[LOGIND.interface, "GetUser"] = ("o", (USER,))
    service.properties[USER, "org.freedesktop.login1.User"] = {"Display": ("(so)", ("2", SESSION))}
    service.properties[SESSION, PROPERTIES] = {
        "LockedHint": ("b", False),
        "Remote": ("b", False),
        "Active": ("b", True),
        "IdleHint": ("b", True),
        "IdleSinceHintMonotonic": ("t", 40_000_000),
    }
    return service


def told(source: Source) -> Any:
    try:
        return source.read()
    finally:
        source.finish()


def change(service: FakeService, **values: tuple[str, Any]) -> None:
    service.properties[SESSION, PROPERTIES].update(values)


@pytest.mark.parametrize(
    ("values", "environment", "seen"),
    [
        ({}, {}, (False, False, False)),
        ({"LockedHint": ("b", True)}, {}, (True, False, False)),
        ({"Remote": ("b", True)}, {}, (False, True, False)),
        ({"Active": ("b", False)}, {}, (False, False, True)),
        ({}, {"XRDP_SESSION": "1"}, (False, True, False)),
    ],
)
def test_logind_tells_lock_remote_and_switching(
    bus: dict[str, str],
    logind: FakeService,
    values: dict[str, Any],
    environment: dict[str, str],
    seen: tuple[bool, bool, bool],
) -> None:
    change(logind, **values)
    found = told(LogindSession({**bus, **environment}))
    assert (found["locked"], found["remote_session"], found["session_switched"]) == seen


def test_a_session_that_ends_is_looked_for_again(bus: dict[str, str], logind: FakeService) -> None:
    source = LogindSession(bus)
    source.read()
    other = SESSION.replace("_32", "_33")
    logind.properties[other, PROPERTIES] = {**logind.properties.pop((SESSION, PROPERTIES)), "Active": ("b", False)}
    logind.properties[USER, "org.freedesktop.login1.User"] = {"Display": ("(so)", ("3", other))}
    with pytest.raises(Absent):
        source.read()
    assert told(source)["session_switched"] is True


def test_a_program_outside_every_session_uses_the_one_it_was_started_in(
    bus: dict[str, str], logind: FakeService
) -> None:
    logind.properties[USER, "org.freedesktop.login1.User"] = {"Display": ("(so)", ("", "/"))}
    logind.methods[LOGIND.interface, "GetSession"] = lambda name: ("o", (SESSION if name == "2" else "/other",))
    assert told(LogindSession({**bus, "XDG_SESSION_ID": "2"}))["locked"] is False
    with pytest.raises(Absent, match="no session"):
        told(LogindSession(bus))
    logind.methods[LOGIND.interface, "GetSession"] = Refusal("org.freedesktop.login1.NoSuchSession")
    with pytest.raises(Absent):
        told(LogindSession({**bus, "XDG_SESSION_ID": "2"}))


def test_a_wrong_type_is_unreadable(bus: dict[str, str], logind: FakeService) -> None:
    change(logind, LockedHint=("s", "yes"))
    with pytest.raises(Unreadable, match="'yes'"):
        told(LogindSession(bus))


def test_the_idle_hint_counts_from_when_it_was_set(bus: dict[str, str], logind: FakeService) -> None:
    assert told(LogindIdle(bus, lambda: 100_000_000)) == {"idle_s": 60.0}
    change(logind, IdleHint=("b", False))
    assert told(LogindIdle(bus, lambda: 100_000_000)) == {"idle_s": 0.0}


@pytest.mark.parametrize("since_us", [0, 200_000_000, (1 << 64) - 1])
def test_an_idle_hint_of_no_time_or_of_the_future_is_unreadable(
    bus: dict[str, str], logind: FakeService, since_us: int
) -> None:
    change(logind, IdleSinceHintMonotonic=("t", since_us))
    with pytest.raises(Unreadable):
        told(LogindIdle(bus, lambda: 100_000_000))


@pytest.mark.parametrize(
    ("member", "arguments", "event"),
    [
        ("PrepareForSleep", (True,), "suspending"),
        ("PrepareForSleep", (False,), "resumed"),
        ("PrepareForShutdown", (True,), "shutting_down"),
        ("PrepareForShutdown", (False,), "resumed"),
        ("Lock", (), "locked"),
        ("Unlock", (), "unlocked"),
        ("PropertiesChanged", (PROPERTIES, {"LockedHint": ("b", True)}, []), "locked"),
        ("PropertiesChanged", (PROPERTIES, {"LockedHint": ("b", False)}, []), "unlocked"),
        ("PropertiesChanged", (PROPERTIES, {"Active": ("b", False)}, []), "session"),
        ("PropertiesChanged", (PROPERTIES, {"IdleHint": ("b", False)}, []), "input"),
        ("PropertiesChanged", (PROPERTIES, {"IdleHint": ("b", True)}, []), None),
        ("PropertiesChanged", (PROPERTIES,), None),
        ("Other", (True,), None),
    ],
)
def test_signals_have_a_meaning(member: str, arguments: tuple[Any, ...], event: str | None) -> None:
    assert session_event(member, arguments) == event


@pytest.mark.parametrize("has_session", [True, False])
def test_sleep_and_unlocking_are_pushed(bus: dict[str, str], logind: FakeService, has_session: bool) -> None:
    if not has_session:
        logind.methods[LOGIND.interface, "GetUser"] = Refusal("org.freedesktop.login1.NoSuchUser")
    heard: list[SystemEvent] = []
    came = threading.Semaphore(0)

    def take(event: SystemEvent) -> None:
        heard.append(event)
        came.release()

    thread = WatchThread(LogindWatch(bus), take)
    thread.start()
    wanted: list[SystemEvent] = ["unlocked"] if has_session else []
    # The bus takes the rules one after the other: until the last one holds, a signal may pass unheard.
    while not came.acquire(timeout=0.01):
        logind.emit(LOGIND.path, LOGIND.interface, "PrepareForSleep", "b", (True,))
    if has_session:
        while "unlocked" not in heard:
            logind.emit(SESSION, PROPERTIES, "Unlock")
            came.acquire(timeout=0.01)
    thread.stop()
    assert thread.join(PATIENCE_S)
    assert heard[0] == "suspending"
    assert set(heard) == {"suspending", *wanted}


@dataclass
class Watching:
    """A watch in its thread, what it said, and logind's word on where the PC goes."""

    logind: FakeService
    watch: LogindWatch
    heard: list[SystemEvent] = field(default_factory=list)
    came: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def take(self, event: SystemEvent) -> None:
        self.heard.append(event)
        self.came.release()

    def prepare(self, *, sleep: bool = False, shutdown: bool = False) -> None:
        self.logind.properties[LOGIND.path, LOGIND.interface] = {
            "PreparingForSleep": ("b", sleep),
            "PreparingForShutdown": ("b", shutdown),
        }

    def lose_the_bus(self) -> None:
        connection = self.watch._bus._socket
        assert connection is not None
        connection.shutdown(socket.SHUT_RDWR)

    def wait(self) -> SystemEvent:
        assert self.came.acquire(timeout=PATIENCE_S)
        return self.heard[-1]


@pytest.fixture
def watching(bus: dict[str, str], logind: FakeService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    monkeypatch.setattr("agent.volunteer.probes.worker.FIRST_PAUSE_S", 0.01)
    made = Watching(logind, LogindWatch(bus))
    made.prepare(sleep=True)
    thread = WatchThread(made.watch, made.take)
    thread.start()
    yield made
    thread.stop()
    assert thread.join(PATIENCE_S)


def test_a_return_that_nobody_heard_of_is_made_up_for(watching: Watching) -> None:
    assert watching.wait() == "suspending"  # the agent began while the PC prepared for sleep
    watching.prepare()
    watching.lose_the_bus()
    assert watching.wait() == "resumed"
    watching.prepare(shutdown=True, sleep=True)
    watching.lose_the_bus()
    assert watching.wait() == "shutting_down"
    watching.prepare()
    watching.lose_the_bus()
    assert watching.wait() == "resumed"


def test_what_was_said_already_is_not_said_again(watching: Watching) -> None:
    assert watching.wait() == "suspending"
    watching.lose_the_bus()
    while not watching.came.acquire(timeout=0.01):  # until somebody listens again
        watching.logind.emit(SESSION, PROPERTIES, "Lock")
    assert watching.heard[:2] == ["suspending", "locked"]
    assert watching.heard.count("suspending") == 1


def test_a_logind_that_is_gone_goes_nowhere(watching: Watching) -> None:
    assert watching.wait() == "suspending"
    del watching.logind.properties[LOGIND.path, LOGIND.interface]
    watching.lose_the_bus()
    assert watching.wait() == "resumed"


def test_programs_that_block_rest_are_named_and_those_that_delay_are_not(
    bus: dict[str, str], logind: FakeService
) -> None:
    logind.methods[LOGIND.interface, "ListInhibitors"] = ("a(ssssuu)", ([
        ("idle:sleep", "caffeine", "asked for", "block", 1000, 7),
        ("sleep", "backup", "copies", "block", 0, 8),
        ("idle", "updates", "runs", "delay", 0, 9),
        ("idle", "", "", "block-weak", 0, 10),
    ],))  # fmt: skip
    assert told(LogindInhibitors(bus)) == {"inhibitors": ("a program", "caffeine")}
    logind.methods[LOGIND.interface, "ListInhibitors"] = ("as", (["idle"],))
    with pytest.raises(Unreadable, match="another form"):
        told(LogindInhibitors(bus))


@pytest.mark.parametrize(("value", "metered"), [(1, True), (2, False), (3, True), (4, False)])
def test_network_manager_tells_what_bytes_cost(
    bus: dict[str, str], make: MakeService, value: int, metered: bool
) -> None:
    make(NETWORK.service).properties[NETWORK.path, NETWORK.interface] = {"Metered": ("u", value)}
    assert told(MeteredNetwork(bus)) == {"metered": metered}


def test_a_network_nobody_knows_the_price_of_is_unknown(bus: dict[str, str], make: MakeService) -> None:
    service = make(NETWORK.service)
    service.properties[NETWORK.path, NETWORK.interface] = {"Metered": ("u", 0)}
    with pytest.raises(Unreadable):
        told(MeteredNetwork(bus))
    service.properties[NETWORK.path, NETWORK.interface] = {"Metered": ("u", 77)}
    with pytest.raises(Unreadable):
        told(MeteredNetwork(bus))


@pytest.mark.parametrize("place", PROFILES, ids=lambda place: place.service)
def test_the_power_profile_has_two_names(bus: dict[str, str], make: MakeService, place: Any) -> None:
    service = make(place.service)
    service.properties[place.path, place.interface] = {"ActiveProfile": ("s", "power-saver")}
    assert told(PowerProfile(bus)) == {"power_saver": True}
    service.properties[place.path, place.interface] = {"ActiveProfile": ("s", "balanced")}
    assert told(PowerProfile(bus)) == {"power_saver": False}


def test_no_service_is_absent(bus: dict[str, str]) -> None:
    for source in (LogindSession(bus), MeteredNetwork(bus), PowerProfile(bus)):
        with pytest.raises(Absent):
            told(source)
