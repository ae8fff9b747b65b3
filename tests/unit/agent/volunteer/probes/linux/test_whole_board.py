"""The board of a Linux PC, whole: a real display and a real bus, with a desktop's services on it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("the probes of a Linux PC", allow_module_level=True)

from agent.volunteer.probes.base import SystemEvent
from agent.volunteer.probes.board import ProbeBoard
from agent.volunteer.probes.linux.desktop import MUTTER
from agent.volunteer.probes.linux.system import LOGIND
from agent.volunteer.probes.thispc import open_board
from tests.support.desktop_bus import FakeService, private_bus, services
from tests.support.screens import XServer, x_server

SESSION = "/org/freedesktop/login1/session/_32"
USER = "/org/freedesktop/login1/user/_1000"


class Desk:
    """A PC with GNOME on X11 and somebody logged in; `inputs` and `events` are what the board told of."""

    def __init__(self, board: ProbeBoard, screen: XServer, logind: FakeService, mutter: FakeService) -> None:
        self.board, self.screen, self.logind, self.mutter = board, screen, logind, mutter

    def until(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(3_000):
            if condition():
                return
            self.board.refresh()
            pause.wait(0.02)
        pytest.fail("it never came")


@pytest.fixture
def inputs() -> list[str]:
    return []


@pytest.fixture
def events() -> list[SystemEvent]:
    return []


@pytest.fixture
def desk(tmp_path: Path, inputs: list[str], events: list[SystemEvent]) -> Iterator[Desk]:
    with private_bus(tmp_path) as bus, services(bus) as make, x_server() as screen:
        logind, mutter = make(LOGIND.service), make(MUTTER.service)
        logind.methods[LOGIND.interface, "GetUser"] = ("o", (USER,))
        logind.properties[USER, "org.freedesktop.login1.User"] = {"Display": ("(so)", ("2", SESSION))}
        logind.properties[SESSION, "org.freedesktop.login1.Session"] = {
            "LockedHint": ("b", False), "Remote": ("b", False), "Active": ("b", True), "IdleHint": ("b", False),
        }  # fmt: skip
        mutter.methods[MUTTER.interface, "GetIdletime"] = ("t", (900_000,))
        mutter.methods[MUTTER.interface, "AddUserActiveWatch"] = ("u", (1,))
        environment = {**bus, **screen.environment}
        board = open_board(tmp_path, on_input=inputs.append, on_event=events.append, environment=environment)
        board.start()
        try:
            yield Desk(board, screen, logind, mutter)
        finally:
            board.close()


def test_a_desktop_is_seen_whole(desk: Desk, inputs: list[str], events: list[SystemEvent]) -> None:
    desk.until(lambda: desk.board.snapshot().idle_s.source == "mutter+x11")
    desk.until(lambda: desk.board.snapshot().locked.value is not None)
    desk.until(lambda: desk.board.snapshot().memory.value is not None)
    desk.until(lambda: desk.board.snapshot().power.value is not None)
    seen = desk.board.snapshot()
    assert seen.idle_s.value is not None
    assert seen.idle_s.value < 60  # the display was only just used, whatever the shell says
    assert (seen.locked.value, seen.remote_session.value, seen.session_switched.value) == (False, False, False)

    # The display pushes once it rested for half a second.
    while "x11" not in inputs:
        desk.screen.type_key("mousemove_relative", "4", "4")
        threading.Event().wait(0.1)

    desk.logind.properties[SESSION, "org.freedesktop.login1.Session"]["LockedHint"] = ("b", True)
    desk.until(lambda: desk.board.snapshot().locked.value is True)
    desk.logind.emit(SESSION, "org.freedesktop.login1.Session", "Unlock")
    desk.until(lambda: "unlocked" in events)
    assert "logind" in inputs


def test_a_display_that_dies_leaves_the_shells_word(desk: Desk) -> None:
    desk.until(lambda: desk.board.snapshot().idle_s.source == "mutter+x11")
    desk.screen.kill()
    desk.until(lambda: desk.board.snapshot().idle_s.source == "mutter")
    assert desk.board.snapshot().idle_s.value == 900.0
    desk.mutter.close()
    desk.until(lambda: desk.board.snapshot().idle_s.value is None)
