"""agent.tray.enrol: joining, waiting for approval and giving that up, with a real control server behind it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox

from agent.control.protocol import CancelEnrolment, Enrol
from agent.tray.program import TrayProgram
from tests.support.fake_service import FakeService, make_status
from tests.support.tray import fields, hear

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot


def test_joining_a_fleet_from_paste_to_approval(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    dialog = program.enrol()
    assert not dialog.join.isEnabled()
    dialog.invite.setPlainText("fallow1.abc.defghijk")
    dialog.name.setText("desk-17")
    QTest.mouseClick(dialog.join, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: dialog.code.text() == "ABCD-EFGH-K")
    assert dialog.code.isVisible()
    assert dialog.invite.isReadOnly()
    service.approve()
    qtbot.waitUntil(lambda: "member of the fleet" in dialog.said.text())
    assert dialog.invite.toPlainText() == ""
    assert not any(over.isVisible() for over in (dialog.intro, dialog.form, dialog.code, dialog.invite, dialog.join))


def test_a_dialog_closed_while_it_waits_comes_back_as_it_was(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    dialog = program.enrol()
    dialog.invite.setPlainText("fallow1.abc.defghijk")
    dialog.join.click()
    qtbot.waitUntil(lambda: dialog.code.text() == "ABCD-EFGH-K")
    dialog.reject()
    assert program.enrol() is dialog
    assert dialog.code.isVisible()
    dialog.reject()
    service.approve()
    qtbot.waitUntil(lambda: not dialog.waiting)
    fresh = program.enrol()
    assert fresh is not dialog
    assert fresh.invite.isVisible()
    assert fresh.join.isVisible()


def test_waiting_is_stopped_where_it_began(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    dialog = program.enrol()
    assert not dialog.stop.isVisible()
    dialog.invite.setPlainText("fallow1.abc.defghijk")
    dialog.join.click()
    qtbot.waitUntil(dialog.stop.isVisible)
    dialog.stop.click()
    qtbot.waitUntil(lambda: not dialog.waiting)
    qtbot.waitUntil(lambda: "no longer waits" in dialog.said.text())
    assert not dialog.code.isVisible()
    assert not dialog.stop.isVisible()
    assert dialog.join.isEnabled(), "another invite may be used"
    assert [type(order) for order in service.orders] == [Enrol, CancelEnrolment]


PENDING = make_status(phase="pending", device_code="WXYZ-EFGH-K", device_id="", fleet_name="", link="stopped")


def test_a_wait_of_an_earlier_life_is_shown_in_window_and_dialog(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    hear(program, service, qtbot, PENDING)
    page: Any = program.open_window("membership").pages["membership"]
    assert (page.code.text(), page.stop.isVisible()) == ("WXYZ-EFGH-K", True)
    dialog = program.enrol()
    assert (dialog.code.text(), dialog.stop.isVisible()) == ("WXYZ-EFGH-K", True)
    assert "waits for approval already" in dialog.said.text()
    assert not dialog.invite.isReadOnly(), "another invite may take its place"
    hear(program, service, qtbot, make_status(phase="available"))
    assert "member of the fleet" in dialog.said.text()
    assert not page.stop.isVisible()


def test_a_no_to_a_wait_of_an_earlier_life_is_read_in_the_dialog(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    hear(program, service, qtbot, PENDING)
    dialog = program.enrol()
    refused = msgspec.structs.replace(PENDING, phase="unenrolled", device_code="", link_message="Not a company PC.")
    hear(program, service, qtbot, refused)
    assert dialog.said.text() == "Not a company PC."
    assert not dialog.code.isVisible()
    assert not dialog.stop.isVisible()


def test_stopping_to_wait_asks_first(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    hear(program, service, qtbot, PENDING)
    page: Any = program.open_window("membership").pages["membership"]
    for answer in ("Cancel", "Stop waiting"):
        page.stop.click()
        box = page.findChildren(QMessageBox)[-1]
        (button,) = [button for button in box.buttons() if button.text() == answer]
        assert service.orders == []
        button.click()
        qtbot.waitUntil(lambda: not page.findChildren(QMessageBox))
    qtbot.waitUntil(lambda: [fields(order) for order in service.orders] == [(CancelEnrolment,)])


def test_a_bad_invite_can_be_corrected(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    service.refuse(Enrol, "The text is not a whole invite; copy the whole line again.")
    dialog = program.enrol()
    dialog.invite.setPlainText("fallow1.abc")
    dialog.join.click()
    qtbot.waitUntil(lambda: "whole invite" in dialog.said.text())
    assert dialog.join.isEnabled()
    assert not dialog.invite.isReadOnly()


def test_an_invite_comes_from_a_file_too(program: TrayProgram, tmp_path: Path) -> None:
    dialog = program.enrol()
    (tmp_path / "invite.txt").write_bytes("\ufefffallow1.abc\r\n".encode())
    dialog.read_file(tmp_path / "invite.txt")
    assert dialog.invite.toPlainText() == "fallow1.abc"
    dialog.read_file(tmp_path / "nothing.txt")
    assert "cannot be read" in dialog.said.text()
    (tmp_path / "film.bin").write_bytes(bytes(100_000))
    dialog.read_file(tmp_path / "film.bin")
    assert "too long" in dialog.said.text()
