"""The tray and the real service: started by the tray, asked, told, and quit."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication

from agent.tray.consent import ConsentDialog
from agent.tray.pages.doctor import DoctorPage
from agent.tray.pages.settings import SettingsPage
from agent.tray.program import TrayProgram
from agent.tray.texts import load_texts

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="the runtime folder of a test")]

STARTS_MS = 60_000


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, qtbot: QtBot) -> Iterator[TrayProgram]:
    with tempfile.TemporaryDirectory(prefix="fallow-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        (tmp_path / "data").mkdir()
        settings = QSettings(str(tmp_path / "tray.ini"), QSettings.Format.IniFormat)
        made = TrayProgram(tmp_path / "data", load_texts("en"), settings)
        made.start()
        yield made
        made.stop()
        made.deleteLater()
        if made.window is not None:
            made.window.deleteLater()


def test_the_tray_starts_asks_tells_and_ends_the_service(
    program: TrayProgram, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(QApplication, "quit", lambda: ended.append(True))
    program.actions["start"].trigger()
    qtbot.waitUntil(lambda: program.status is not None, timeout=STARTS_MS)
    try:
        assert program.icon.headline.text() == "This PC has not joined a fleet."
        consent = program._dialogs["consent"]
        assert isinstance(consent, ConsentDialog)
        consent.no.click()
        qtbot.waitUntil(lambda: _asked(program, "enabled") is False)
        settings = program.open_window("settings").pages["settings"]
        assert isinstance(settings, SettingsPage)
        settings.editors["idle_start_s"].editor.edited.emit(900.0)
        qtbot.waitUntil(lambda: _asked(program, "idle_start_s") == 900.0)
        qtbot.waitUntil(lambda: "15 min, set by you" in settings.editors["idle_start_s"]._origin.text())
        doctor = program.open_window("doctor").pages["doctor"]
        assert isinstance(doctor, DoctorPage)
        qtbot.waitUntil(lambda: doctor.probes.rowCount() > 5, timeout=STARTS_MS)
    finally:
        program.commands.quit_service(QApplication.quit)
        qtbot.waitUntil(lambda: program.status is None, timeout=STARTS_MS)
    assert ended == [True]


def _asked(program: TrayProgram, field: str) -> object:
    assert program.status is not None
    return next(row.asked.get("employee") for row in program.status.policy if row.field == field)
