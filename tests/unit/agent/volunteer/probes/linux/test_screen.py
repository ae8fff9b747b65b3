from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

if sys.platform != "linux":
    pytest.skip("X11 probes are for Linux", allow_module_level=True)

from agent.volunteer.probes.base import Absent, SystemEvent, Unreadable
from agent.volunteer.probes.linux.screen import XIdle, XScreen, XWatch
from agent.volunteer.probes.linux.x11 import X11Connection, cookie_for, display_number
from agent.volunteer.probes.worker import WatchThread
from tests.support.screens import XServer, x_server


@pytest.fixture(scope="module")
def server() -> Iterator[XServer]:
    with x_server() as server:
        yield server


def test_idle_time_grows_until_there_is_input(server: XServer) -> None:
    server.type_key()
    source = XIdle(server.environment)
    first = source.read()["idle_s"]
    while source.read()["idle_s"] <= first + 0.02:
        pass
    assert source.read()["idle_s"] < 5
    rested = source.read()["idle_s"]
    server.type_key()
    while source.read()["idle_s"] > rested:
        pass
    source.finish()


def test_the_first_input_is_pushed(server: XServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volunteer.probes.linux.screen.QUIET_MS", 50)
    came = threading.Semaphore(0)
    heard: list[SystemEvent] = []

    def take(event: SystemEvent) -> None:
        heard.append(event)
        came.release()

    thread = WatchThread(XWatch(server.environment), take)
    thread.start()
    for _ in range(2):
        while not came.acquire(timeout=0.1):  # each time after a rest that is long enough
            server.type_key("mousemove_relative", "3", "3")
    thread.stop()
    assert thread.join(PATIENCE_S)
    assert set(heard) == {"input"}


def set_property(connection: X11Connection, window: int, name: str, kind: str, values: list[int]) -> None:
    """Do what a window manager does: ChangeProperty with 32-bit numbers. The reply of a question says it is done."""
    head = struct.pack("<IIIBxxxI", window, made(connection, name), made(connection, kind), 32, len(values))
    connection.tell(18, 0, head + struct.pack(f"<{len(values)}I", *values))
    connection.numbers(window, made(connection, name))


def made(connection: X11Connection, name: str) -> int:
    raw = name.encode()
    reply = connection.ask(16, 0, struct.pack("<HH", len(raw), 0) + raw + bytes(-len(raw) % 4))
    return int(struct.unpack_from("<I", reply, 8)[0])


def test_a_window_over_everything_is_fullscreen() -> None:
    with x_server() as server:
        source, manager = XScreen(server.environment), X11Connection(server.environment)
        with pytest.raises(Absent):
            source.read()  # no window manager, and Xvfb's displays never sleep
        window, state = manager.root, "_NET_WM_STATE"
        set_property(manager, window, state, "ATOM", [made(manager, "_NET_WM_STATE_ABOVE")])
        set_property(manager, manager.root, "_NET_ACTIVE_WINDOW", "WINDOW", [window])
        assert source.read() == {"fullscreen": False}
        both = [made(manager, "_NET_WM_STATE_ABOVE"), made(manager, "_NET_WM_STATE_FULLSCREEN")]
        set_property(manager, window, state, "ATOM", both)
        assert source.read() == {"fullscreen": True}
        set_property(manager, manager.root, "_NET_ACTIVE_WINDOW", "WINDOW", [0])
        assert source.read() == {"fullscreen": False}
        manager.close()
        source.finish()


def test_a_window_that_has_just_been_closed_is_unreadable(server: XServer) -> None:
    connection = X11Connection(server.environment)
    with pytest.raises(Unreadable, match="error 3"):
        connection.numbers(0x7FFFFF, made(connection, "_NET_WM_STATE"))
    assert connection.atom("_NET_NEVER_HEARD_OF") == 0
    connection.close()


def test_a_server_that_dies_is_unreadable_and_its_watch_ends() -> None:
    with x_server() as server:
        source = XIdle(server.environment)
        source.read()
        ended = threading.Event()

        def listen() -> None:
            with pytest.raises(Unreadable, match=r"closed the connection|cannot be reached"):
                XWatch(server.environment).run(lambda _: None)
            ended.set()

        thread = threading.Thread(target=listen)
        thread.start()
        server.kill()
        assert ended.wait(PATIENCE_S)
        thread.join()
        with pytest.raises(Unreadable):
            source.read()
        with pytest.raises(Unreadable, match="cannot be reached"):
            source.read()
        source.finish()


def test_a_stopped_watch_or_source_does_not_begin(server: XServer) -> None:
    watch, source = XWatch(server.environment), XIdle(server.environment)
    watch.stop()
    source.close()
    with pytest.raises(Unreadable, match="the probe ends"):
        watch.run(lambda _: None)
    with pytest.raises(Unreadable, match="the probe ends"):
        source.read()


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "no X display"),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, "Wayland"),
        ({"DISPLAY": ":0", "XDG_SESSION_TYPE": "wayland"}, "Wayland"),
        ({"DISPLAY": "localhost:10.0"}, "another computer"),
        ({"DISPLAY": "pc:0"}, "another computer"),
    ],
)
def test_only_this_pcs_own_x_display_counts(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(Absent, match=reason):
        display_number(environment)


def test_a_display_has_a_number() -> None:
    assert [display_number({"DISPLAY": text}) for text in (":0", ":12.0", "unix:3")] == [0, 12, 3]


def entry(family: int, address: bytes, number: bytes, name: bytes, secret: bytes) -> bytes:
    fields = b"".join(struct.pack(">H", len(field)) + field for field in (address, number, name, secret))
    return struct.pack(">H", family) + fields


def test_the_displays_secret_is_found_among_others(tmp_path: Path) -> None:
    path, cookie = tmp_path / "auth", b"MIT-MAGIC-COOKIE-1"
    environment = {"XAUTHORITY": str(path)}
    assert cookie_for(1, environment, "pc") == b""
    wild = entry(65535, b"", b"", cookie, b"wild")
    own = entry(256, b"pc", b"1", cookie, b"own")
    path.write_bytes(entry(256, b"other", b"1", cookie, b"x") + entry(256, b"pc", b"2", cookie, b"y") + wild)
    assert cookie_for(1, environment, "pc") == b"wild"
    path.write_bytes(wild + entry(256, b"pc", b"1", b"XDM", b"z") + own)
    assert cookie_for(1, environment, "pc") == b"own"
    path.write_bytes(wild + own[:7])
    assert cookie_for(1, environment, "pc") == b"wild"


class TalkingServer:
    """Answers the greeting as an X server does, then with the given bytes, whatever is asked."""

    def __init__(self, *answers: bytes) -> None:
        self.client, self.server = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.client.settimeout(0.05)
        body = struct.pack("<IIIIHHBB10x", 1, 0x200000, 0x1FFFFF, 0, 0, 65535, 1, 0) + struct.pack("<I", 291)
        self.server.sendall(struct.pack("<BxHHH", 1, 11, 0, len(body) // 4) + body + b"".join(answers))


def reply(number: int, content: bytes, *, detail: int = 0, more: bytes = b"") -> bytes:
    return struct.pack("<BBHI", 1, detail, number, len(more) // 4) + content.ljust(24, b"\0") + more


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TalkingServer]]:
    servers: list[TalkingServer] = []
    monkeypatch.setattr("agent.volunteer.probes.linux.x11._local_socket", lambda *_: servers[-1].client)
    yield servers
    for server in servers:
        server.server.close()


DISPLAY = {"DISPLAY": ":5", "HOME": "/nonexistent"}


@pytest.mark.parametrize(("level", "enabled", "off"), [(0, 1, False), (3, 1, True), (1, 1, True), (3, 0, False)])
def test_displays_that_sleep_are_off(talk: list[TalkingServer], level: int, enabled: int, off: bool) -> None:
    no_atom = reply(1, bytes(4)) + reply(2, bytes(4)) + reply(3, bytes(4))
    extension = reply(4, bytes([1, 140, 0, 0]))
    capable, info = reply(5, bytes([1])), reply(6, struct.pack("<HB", level, enabled))
    talk.append(TalkingServer(no_atom, extension, capable, info))
    source = XScreen(DISPLAY)
    assert source.read() == {"displays_off": off}
    source.finish()


def test_a_server_that_accepts_and_says_nothing_is_given_up(talk: list[TalkingServer]) -> None:
    talk.append(TalkingServer())
    with pytest.raises(Unreadable, match="does not answer"):
        XIdle(DISPLAY).read()


@pytest.mark.parametrize(("high", "low"), [(-1, 0), (0x7FFFFFFF, 0)])
def test_an_absurd_idle_time_is_unreadable(talk: list[TalkingServer], high: int, low: int) -> None:
    extension, version = reply(1, bytes([1, 134, 83, 0])), reply(2, b"")
    counter = struct.pack("<IiIH", 9, 0, 4, 8) + b"IDLETIME" + bytes(2)
    counters = reply(3, struct.pack("<I", 1), more=counter)
    talk.append(TalkingServer(extension, version, counters, reply(4, struct.pack("<iI", high, low))))
    source = XIdle(DISPLAY)
    with pytest.raises(Unreadable, match="idle time"):
        source.read()
    source.finish()


def test_a_server_without_the_counter_is_absent(talk: list[TalkingServer]) -> None:
    talk.append(TalkingServer(reply(1, bytes([0]))))
    source = XIdle(DISPLAY)
    with pytest.raises(Absent, match="no SYNC"):
        source.read()
    source.finish()
