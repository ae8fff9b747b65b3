"""console.gui.settings.support: a support bundle made from the window, by the real program and by one of the test."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtWidgets import QFileDialog, QLabel
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from agent.support.bundle import LEFT_OUT, Manifest, Member, progress_line
from console.data import log_path
from console.gui.page import Desk
from console.gui.programs import ERROR, Programs
from console.gui.settings.support import DOCTOR_FILE, HOLDS, SupportDialog, SupportPart
from console.support import console_parts
from tests.support.console_thread import ConsoleThread

MANIFEST = Manifest("fallow-console", 0.0, "", [Member("pc.json", "", 10), Member("pcs.json", "", 0, "It is away.")])
STEPS = [progress_line(1, 2, "pc.json"), progress_line(2, 2, "pcs.json")]
Open = Callable[..., SupportDialog]


@pytest.fixture
def opened(tmp_path: Path, qtbot: QtBot) -> Iterator[Open]:
    """Open the dialog on a program that says its `steps`, does what `script` says, and ends."""
    dialogs: list[SupportDialog] = []

    def open_on(script: str = "", *, said: str = "", steps: list[str] = STEPS, code: int = 0) -> SupportDialog:
        program = tmp_path / "program.py"
        lines = ["import pathlib, sys, time", *(f"print({step!r}, file=sys.stderr, flush=True)" for step in steps)]
        program.write_text("\n".join([*lines, script, f"print({said!r})", f"sys.exit({code})"]))
        dialog = SupportDialog(None, Programs(tmp_path, [sys.executable, str(program)]))
        dialogs.append(dialog)
        dialog.open()
        return dialog

    yield open_on
    for dialog in filter(isValid, dialogs):
        dialog.close()


def test_the_real_program_writes_a_bundle_of_the_service_that_runs(
    console: ConsoleThread, desk: Desk, tmp_path: Path, qtbot: QtBot
) -> None:
    desk.programs = Programs(console.folder)
    part = SupportPart(desk)
    part.ask()
    dialog = part.dialog
    assert dialog is not None
    dialog.doctor.setChecked(False)
    dialog.make_at(tmp_path / "bundle.zip")
    qtbot.waitUntil(lambda: "holds" in dialog.told.text())
    with zipfile.ZipFile(tmp_path / "bundle.zip") as bundle:
        assert {"manifest.json", "status.json", "pcs.json", "metrics.txt"} <= {*bundle.namelist()}
        assert DOCTOR_FILE not in bundle.namelist()
    assert dialog.close_button.text() == "&Close"
    assert not dialog.make.isVisible()
    dialog.close()
    part.deleteLater()


def test_everything_that_a_bundle_holds_is_told_before(tmp_path: Path, opened: Open) -> None:
    log_path(tmp_path).parent.mkdir(exist_ok=True)
    log_path(tmp_path).touch()
    meant = {name for names in HOLDS.values() for name in names}
    held = {part.name for part in console_parts(tmp_path, doctor=True)} - {DOCTOR_FILE}
    assert {name for name in held if not name.startswith("logs/")} == meant - {"logs/"}
    told = "\n".join(label.text() for label in opened().findChildren(QLabel))
    assert all(words in told for words in (*HOLDS, LEFT_OUT, "Nothing is sent anywhere"))


def test_what_it_is_at_is_shown_and_what_is_in_it_in_the_end(tmp_path: Path, opened: Open, qtbot: QtBot) -> None:
    go = tmp_path / "go"
    said = msgspec.json.encode(MANIFEST).decode()
    dialog = opened(f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)", said=said)
    dialog.make_at(tmp_path / "bundle.zip")
    assert (dialog.make.isEnabled(), dialog.doctor.isEnabled()) == (False, False)
    qtbot.waitUntil(lambda: dialog.told.text() == "pcs.json (2 of 2)")
    assert (dialog.bar.value(), dialog.bar.maximum()) == (1, 2)
    go.touch()
    qtbot.waitUntil(lambda: dialog.bar.value() == 2)
    told = dialog.told.text()
    assert f"{tmp_path / 'bundle.zip'} holds 1 file," in told
    assert "pcs.json: It is away." in told


@pytest.mark.parametrize("end", ["reject", "close"])
def test_closing_it_gives_it_up_and_leaves_nothing(tmp_path: Path, opened: Open, qtbot: QtBot, end: str) -> None:
    dialog = opened("time.sleep(600)")
    said: list[tuple[str, bool]] = []
    dialog.said.connect(lambda *what: said.append(what))
    dialog.make_at(tmp_path / "bundle.zip")
    qtbot.waitUntil(lambda: "2 of 2" in dialog.told.text())
    process = dialog._process
    assert process is not None
    gone: list[bool] = []
    process.destroyed.connect(lambda: gone.append(True))
    getattr(dialog, end)()
    assert said == [("No support bundle was written.", False)]
    qtbot.waitUntil(lambda: bool(gone))
    assert not (tmp_path / "bundle.zip").exists()


def test_one_that_was_written_just_before_it_was_given_up_is_told(tmp_path: Path, opened: Open, qtbot: QtBot) -> None:
    out = tmp_path / "bundle.zip"
    dialog = opened(f"pathlib.Path({str(out)!r}).touch(); time.sleep(600)")
    said: list[str] = []
    dialog.said.connect(lambda text, _: said.append(text))
    dialog.make_at(out)
    qtbot.waitUntil(out.exists)
    dialog.reject()
    assert said == [f"The support bundle is in {out}."]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"print({ERROR!r} + 'The disk is full; free space.', file=sys.stderr)", "The disk is full; free space."),
        ("", "It ended with the code 9 and wrote nothing; try again."),
    ],
)
def test_what_went_wrong_is_one_sentence_and_it_can_be_tried_again(
    tmp_path: Path, opened: Open, qtbot: QtBot, script: str, why: str
) -> None:
    dialog = opened(script, code=9)
    for _ in range(2):
        dialog.make_at(tmp_path / "bundle.zip")
        qtbot.waitUntil(lambda: dialog.told.text() == why)
        assert (dialog.make.isEnabled(), dialog.doctor.isEnabled(), dialog.bar.isVisible()) == (True, True, False)


def test_a_program_that_is_not_there_is_told(tmp_path: Path, qtbot: QtBot) -> None:
    dialog = SupportDialog(None, Programs(tmp_path, [str(tmp_path / "none")]))
    dialog.make_at(tmp_path / "bundle.zip")
    qtbot.waitUntil(lambda: "cannot be started" in dialog.told.text())
    dialog.reject()


def test_a_file_that_is_there_is_never_replaced(
    console: ConsoleThread, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "bundle.zip"
    out.write_text("somebody's")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **__: (str(out), ""))
    dialog = SupportDialog(None, Programs(console.folder))
    dialog.make.click()
    qtbot.waitUntil(lambda: "is there already" in dialog.told.text())
    assert out.read_text() == "somebody's"
    dialog.reject()


def test_of_a_service_on_another_pc_it_says_where_to_make_it(quiet_desk: Desk, qtbot: QtBot) -> None:
    part = SupportPart(quiet_desk)
    assert not part.button.isEnabled()
    assert any("where the service runs" in label.text() for label in part.findChildren(QLabel))
    part.deleteLater()
