"""Windows without a screen, and the service they are clients of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot

from agent.tray.bridge import Bridge
from agent.tray.launch import Launch
from agent.tray.program import TrayProgram
from agent.tray.texts import Texts, load_texts
from tests.support.fake_service import FakeService, fake_service
from tests.support.windows import qapp, qtbot

__all__ = ["qapp", "qtbot"]

RETRY_S = 0.05


@pytest.fixture
def texts() -> Texts:
    return load_texts("en")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A data folder, with sockets of its own: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="fallow-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        data = tmp_path / "data"
        data.mkdir()
        yield data


@pytest.fixture
def service(folder: Path) -> Iterator[FakeService]:
    with fake_service(folder) as running:
        yield running


@pytest.fixture
def bridge(folder: Path, qtbot: QtBot) -> Iterator[Bridge]:
    """A bridge that looks for the service once it is started."""
    made = Bridge(folder, retry_s=RETRY_S)
    yield made
    made.stop()


@pytest.fixture
def make_program(folder: Path, tmp_path: Path, qtbot: QtBot) -> Iterator[Callable[..., TrayProgram]]:
    """Make tray programs, started, in any language."""
    made: list[TrayProgram] = []

    def make(language: str = "en", launch: Launch | None = None) -> TrayProgram:
        settings = QSettings(str(tmp_path / "tray.ini"), QSettings.Format.IniFormat)
        bridge = Bridge(folder, retry_s=RETRY_S)
        # A chat that happens to be installed here must not change what is shown.
        program = TrayProgram(folder, load_texts(language), settings, bridge=bridge, launch=launch or Chatless(folder))
        made.append(program)
        program.start()
        return program

    yield make
    for program in made:
        program.stop()
        program.deleteLater()
        if program.window is not None:
            program.window.deleteLater()


class Chatless(Launch):
    """Starts nothing that is not asked for."""

    def chat_program(self) -> str:
        return ""


@pytest.fixture
def program(service: FakeService, make_program: Callable[..., TrayProgram], qtbot: QtBot) -> TrayProgram:
    """A program that knows the service's status."""
    made = make_program()
    qtbot.waitUntil(lambda: made.status is not None)
    return made
