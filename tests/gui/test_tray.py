"""The pages of the owner's window."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings, QSize
from pytestqt.qtbot import QtBot

from agent.control.status import Status
from agent.tray.bridge import Bridge
from agent.tray.launch import Launch
from agent.tray.program import TrayProgram
from agent.tray.texts import Texts, load_texts
from agent.tray.view import show
from agent.tray.window import Window
from tests.support.fake_service import NOW_S, make_busy_status, make_held_status
from tests.support.pictures import check

SIZE = QSize(900, 620)


class Chatless(Launch):
    """No chat is installed: what is drawn must not depend on the PC."""

    def chat_program(self) -> str:
        return ""


@pytest.fixture
def texts() -> Texts:
    return load_texts("en")


@pytest.fixture
def window(tmp_path: Path, texts: Texts, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> Iterator[Window]:
    """The window of a program that looks for no service."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    settings = QSettings(str(tmp_path / "tray.ini"), QSettings.Format.IniFormat)
    program = TrayProgram(tmp_path, texts, settings, bridge=Bridge(tmp_path), launch=Chatless(tmp_path))
    program.open_window()
    assert program.window is not None
    yield program.window
    program.stop()
    program.window.deleteLater()
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("now", make_busy_status(NOW_S)),
        ("now", make_held_status(NOW_S)),
        ("settings", make_busy_status(NOW_S)),
        ("company", make_busy_status(NOW_S)),
        ("membership", make_busy_status(NOW_S)),
    ],
    ids=["now", "held", "settings", "company", "membership"],
)
def test_page(window: Window, texts: Texts, request: pytest.FixtureRequest, page: str, status: Status) -> None:
    window.go(page)
    window.follow(status, show(status, NOW_S, texts, trouble="", chat_here=False))
    check(f"tray-{request.node.callspec.id}", window, SIZE)
