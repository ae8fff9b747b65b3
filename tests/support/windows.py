"""Windows without a screen. A conftest imports `qapp` and `qtbot` from here before anything else of Qt."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

# Before the first QApplication, which pytest-qt makes when a test first asks for one.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from agent.look import palettes

PATIENCE_MS = 30_000


@pytest.fixture(scope="session")
def qapp(qapp: QApplication) -> QApplication:
    """Show everything as the programs do."""
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
    """Find what is in the windows, and use it."""
    return PatientBot(request)
