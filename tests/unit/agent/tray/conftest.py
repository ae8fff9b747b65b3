"""Windows without a screen, and the service they are clients of."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before the first QApplication, which pytest-qt makes when a test first asks for one.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from agent.tray import palettes
from agent.tray.bridge import Bridge
from agent.tray.launch import Launch
from agent.tray.program import TrayProgram
from agent.tray.texts import Texts, load_texts
from tests.support.fake_service import FakeService, fake_service

RETRY_S = 0.05
PATIENCE_MS = 30_000


@pytest.fixture(scope="session")
def qapp(qapp: QApplication) -> QApplication:
    """Show everything as the program does."""
    qapp.setQuitOnLastWindowClosed(False)
    palettes.apply(qapp, "light")
    return qapp


class PatientBot(QtBot):
    """Waits as long as a machine with other work on it may need: what fails is never a matter of seconds here."""

    def waitUntil(self, callback: Callable[[], bool | None], *, timeout: int = PATIENCE_MS) -> None:
        super().waitUntil(callback, timeout=timeout)

    def waitSignal(self, signal: Any, *, timeout: int = PATIENCE_MS, **options: Any) -> Any:
        return super().waitSignal(signal, timeout=timeout, **options)


@pytest.fixture
def qtbot(qapp: QApplication, request: pytest.FixtureRequest) -> QtBot:
    return PatientBot(request)


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
