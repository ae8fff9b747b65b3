from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S

if sys.platform != "linux":
    pytest.skip("D-Bus desktops are on Linux", allow_module_level=True)

from agent.volunteer.probes.base import Absent, Source, SystemEvent, Unreadable
from agent.volunteer.probes.linux import dbus
from agent.volunteer.probes.linux.desktop import (
    GNOME_SAVER,
    GNOME_SESSION,
    KDE_POWER,
    KDE_SAVER,
    MUTTER,
    IdleInhibitors,
    KdeIdle,
    MutterIdle,
    MutterWatch,
    SaverLock,
)  # fmt: skip
from agent.volunteer.probes.worker import WatchThread
from tests.support.desktop_bus import HANG, FakeService, MakeService, Refusal


@pytest.fixture
def mutter(make: MakeService) -> FakeService:
    service = make(MUTTER.service)
    service.methods[MUTTER.interface, "GetIdletime"] = ("t", (5250,))
    service.methods[MUTTER.interface, "AddUserActiveWatch"] = ("u", (7,))
    return service


def read(source: Source) -> Any:
    try:
        return source.read()
    finally:
        source.finish()


def test_gnome_tells_idle_time(bus: dict[str, str], mutter: FakeService) -> None:
    assert read(MutterIdle(bus)) == {"idle_s": 5.25}


@pytest.mark.parametrize(
    "answer", [("s", ("soon",)), ("x", (-1,)), ("t", (1 << 63,)), Refusal("org.freedesktop.DBus.Error.NoReply")]
)
def test_nonsense_of_gnome_is_unreadable(bus: dict[str, str], mutter: FakeService, answer: Any) -> None:
    mutter.methods[MUTTER.interface, "GetIdletime"] = answer
    with pytest.raises(Unreadable):
        read(MutterIdle(bus))


def test_a_shell_that_hangs_is_given_up(bus: dict[str, str], mutter: FakeService) -> None:
    mutter.methods[MUTTER.interface, "GetIdletime"] = HANG
    source = MutterIdle(bus)
    source._bus = dbus.Bus("SESSION", bus, timeout_s=0.02)
    with pytest.raises(Unreadable, match="does not answer"):
        read(source)


def test_no_gnome_is_absent(bus: dict[str, str]) -> None:
    with pytest.raises(Absent, match="ServiceUnknown"):
        read(MutterIdle(bus))


def test_a_shell_that_went_away_is_unknown_until_it_is_back(bus: dict[str, str], make: MakeService) -> None:
    first = make(MUTTER.service)
    first.methods[MUTTER.interface, "GetIdletime"] = ("t", (1000,))
    source = MutterIdle(bus)
    assert source.read() == {"idle_s": 1.0}
    first.close()
    with pytest.raises(Unreadable, match="went away"):
        source.read()
    second = make(MUTTER.service)
    second.methods[MUTTER.interface, "GetIdletime"] = ("t", (2000,))
    assert read(source) == {"idle_s": 2.0}


def test_no_bus_at_all_is_absent_and_a_dead_one_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no session bus"):
        MutterIdle({}).read()
    address = f"unix:path={tmp_path / 'bus'}"
    with pytest.raises(Absent, match="cannot be reached"):
        MutterIdle({"DBUS_SESSION_BUS_ADDRESS": address}).read()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(tmp_path / "bus"))
    with pytest.raises(Unreadable, match="cannot be reached"):
        MutterIdle({"DBUS_SESSION_BUS_ADDRESS": address}).read()


def test_a_bus_that_accepts_and_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "bus"))
        silent.listen()
        source = MutterIdle({})
        address = {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path / 'bus'}"}
        source._bus = dbus.Bus("SESSION", address, timeout_s=0.02)
        with pytest.raises(Unreadable, match="cannot be reached"):
            source.read()


def test_closing_ends_the_greeting_of_a_bus_that_hangs(tmp_path: Path) -> None:
    """The greeting knows no timeout: the worker waits alone, and only until the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hanging:
        hanging.bind(str(tmp_path / "bus"))
        hanging.listen()
        source = MutterIdle({"DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path / 'bus'}"})
        problems: list[str] = []

        def wait() -> None:
            with pytest.raises(Unreadable) as caught:
                source.read()
            problems.append(str(caught.value))

        thread = threading.Thread(target=wait)
        thread.start()
        client, _ = hanging.accept()
        with client:
            said = b""
            while b"AUTH" not in said or not said.endswith(b"\r\n"):
                said += client.recv(4096)
            client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
            while b"Hello" not in said:
                said += client.recv(4096)
            source.close()
            thread.join(PATIENCE_S)
        assert "cannot be reached" in problems[0]


def test_the_users_bus_is_found_without_its_address(bus: dict[str, str], mutter: FakeService) -> None:
    folder = bus["DBUS_SESSION_BUS_ADDRESS"].removeprefix("unix:path=").removesuffix("/bus")
    assert read(MutterIdle({"XDG_RUNTIME_DIR": folder})) == {"idle_s": 5.25}


def test_closing_ends_a_read_that_waits(bus: dict[str, str], mutter: FakeService) -> None:
    mutter.methods[MUTTER.interface, "GetIdletime"] = HANG
    source = MutterIdle(bus)
    source._bus = dbus.Bus("SESSION", bus, timeout_s=20)
    problems = []

    def wait() -> None:
        with pytest.raises(Unreadable) as caught:
            read(source)
        problems.append(str(caught.value))

    thread = threading.Thread(target=wait)
    thread.start()
    assert mutter.called.wait(PATIENCE_S)
    source.close()
    thread.join(PATIENCE_S)
    assert "ended the connection" in problems[0]
    with pytest.raises(Unreadable, match="the probe ends"):
        source.read()


def test_kde_counts_milliseconds_and_a_zero_for_ever_is_unknown(bus: dict[str, str], make: MakeService) -> None:
    kde, answers = make(KDE_SAVER.service), iter([0, 0, 3000, 0, 0, 0, 0, 0, 250])
    kde.methods[KDE_SAVER.interface, "GetSessionIdleTime"] = lambda: ("u", (next(answers),))
    source = KdeIdle({**bus, "XDG_CURRENT_DESKTOP": "KDE"})
    for _ in range(2):
        with pytest.raises(Unreadable, match="all the time"):
            source.read()
    assert source.read() == {"idle_s": 3.0}
    for _ in range(4):
        assert source.read() == {"idle_s": 0.0}
    with pytest.raises(Unreadable, match="all the time"):
        source.read()
    assert read(source) == {"idle_s": 0.25}


def test_kde_on_wayland_does_not_count(bus: dict[str, str], make: MakeService) -> None:
    kde = make(KDE_SAVER.service)
    kde.methods[KDE_SAVER.interface, "GetSessionIdleTime"] = Refusal("org.freedesktop.DBus.Error.NotSupported")
    with pytest.raises(Absent, match="NotSupported"):
        read(KdeIdle({**bus, "XDG_CURRENT_DESKTOP": "KDE"}))


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        ({"XDG_CURRENT_DESKTOP": "KDE"}, True),
        ({"XDG_CURRENT_DESKTOP": "Unity:kde"}, True),
        ({"KDE_FULL_SESSION": "true"}, True),
        ({"XDG_CURRENT_DESKTOP": "XFCE"}, False),
        ({"XDG_CURRENT_DESKTOP": "NOTKDE", "KDE_FULL_SESSION": ""}, False),
        ({}, False),
    ],
)
def test_the_saver_of_another_desktop_is_not_kdes(
    bus: dict[str, str], make: MakeService, environment: dict[str, str], seen: bool
) -> None:
    locker = make(KDE_SAVER.service)  # as light-locker's: it counts seconds
    locker.methods[KDE_SAVER.interface, "GetSessionIdleTime"] = ("u", (900,))
    if seen:
        assert read(KdeIdle({**bus, **environment})) == {"idle_s": 0.9}
        return
    with pytest.raises(Absent, match="not KDE"):
        read(KdeIdle({**bus, **environment}))
    assert locker.calls == []


def test_a_screen_saver_tells_whether_it_covers_the_screen(bus: dict[str, str], make: MakeService) -> None:
    saver = make(GNOME_SAVER.service)
    saver.methods[GNOME_SAVER.interface, "GetActive"] = ("b", (True,))
    assert read(SaverLock(GNOME_SAVER, bus)) == {"locked": True}
    saver.methods[GNOME_SAVER.interface, "GetActive"] = ("u", (1,))
    with pytest.raises(Unreadable):
        read(SaverLock(GNOME_SAVER, bus))


class Listening:
    """A watch in its thread, and what it said."""

    def __init__(self, watch: MutterWatch) -> None:
        self.heard: list[SystemEvent] = []
        self.came = threading.Semaphore(0)
        self.thread = WatchThread(watch, self._take)
        self.thread.start()

    def _take(self, event: SystemEvent) -> None:
        self.heard.append(event)
        self.came.release()

    def stop(self) -> None:
        self.thread.stop()
        assert self.thread.join(PATIENCE_S)


def fire(service: FakeService, number: int) -> None:
    service.emit(MUTTER.path, MUTTER.interface, "WatchFired", "u", (number,))


def wait_called(service: FakeService, member: str, times: int) -> None:
    while service.calls.count(member) < times:
        service.called.clear()
        if service.calls.count(member) < times:
            assert service.called.wait(PATIENCE_S)


def test_the_first_input_is_pushed_and_the_watch_armed_again(bus: dict[str, str], mutter: FakeService) -> None:
    listening = Listening(MutterWatch(bus, sleep=lambda _: None))
    wait_called(mutter, "AddUserActiveWatch", 1)
    fire(mutter, 3)  # somebody else's watch
    fire(mutter, 7)
    assert listening.came.acquire(timeout=PATIENCE_S)
    wait_called(mutter, "AddUserActiveWatch", 2)
    fire(mutter, 7)
    assert listening.came.acquire(timeout=PATIENCE_S)
    listening.stop()
    assert listening.heard == ["input", "input"]


def test_the_watch_is_armed_anew_when_the_shell_starts_again(
    bus: dict[str, str], make: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.volunteer.probes.worker.FIRST_PAUSE_S", 0.01)
    first = make(MUTTER.service, {(MUTTER.interface, "AddUserActiveWatch"): ("u", (1,))})
    listening = Listening(MutterWatch(bus, sleep=lambda _: None))
    wait_called(first, "AddUserActiveWatch", 1)
    first.close()
    monkeypatch.setattr("agent.volunteer.probes.worker.ABSENT_INTERVAL_S", 0.01)
    second = make(MUTTER.service, {(MUTTER.interface, "AddUserActiveWatch"): ("u", (9,))})
    wait_called(second, "AddUserActiveWatch", 1)
    fire(second, 9)
    assert listening.came.acquire(timeout=PATIENCE_S)
    listening.stop()


def test_gnome_names_who_keeps_the_session_awake(bus: dict[str, str], make: MakeService) -> None:
    session = make(GNOME_SESSION.service)
    asked: list[int] = []

    def is_inhibited(flags: int) -> tuple[str, tuple[bool]]:
        asked.append(flags)
        return "b", (True,)

    session.methods[GNOME_SESSION.interface, "IsInhibited"] = is_inhibited
    session.methods[GNOME_SESSION.interface, "GetInhibitors"] = ("ao", (["/a", "/b"],))
    one = GNOME_SESSION.interface + ".Inhibitor"
    flags = iter([8, 4])
    session.methods[one, "GetFlags"] = lambda: ("u", (next(flags),))
    names = iter(["org.videolan.vlc", "backup"])
    session.methods[one, "GetAppId"] = lambda: ("s", (next(names),))
    assert read(IdleInhibitors(bus)) == {"inhibitors": ("org.videolan.vlc",)}
    assert asked == [8]
    session.methods[GNOME_SESSION.interface, "IsInhibited"] = ("b", (False,))
    assert read(IdleInhibitors(bus)) == {"inhibitors": ()}


def test_kde_tells_that_something_keeps_the_screen_on(bus: dict[str, str], make: MakeService) -> None:
    power = make(KDE_POWER.service)
    power.methods[KDE_POWER.interface, "HasInhibition"] = lambda kind: ("b", (kind == 4,))
    assert read(IdleInhibitors(bus)) == {"inhibitors": ("a program",)}


def test_without_a_desktop_nobody_tells_of_inhibitors(bus: dict[str, str]) -> None:
    with pytest.raises(Absent):
        read(IdleInhibitors(bus))
