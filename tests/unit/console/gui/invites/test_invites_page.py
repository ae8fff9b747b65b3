"""console.gui.invites and secret: an invite is made, shown once, and ended, with a real service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from agent.link.invite import decode
from console.api.admin import types as wire
from console.gui.asking import Question
from console.gui.invites.new import NewInvite
from console.gui.invites.page import InvitesPage, approval_text, state_of
from console.gui.page import Desk, Page
from console.gui.secret import QUIET_MODULES, QrCode, SecretDialog
from console.registry.approval import ApprovalRule
from console.registry.records import InviteRecord
from tests.support.console_thread import ConsoleThread

Show = Callable[[Page], Page]
OPEN = InviteRecord("ab", "manual", 2, 1, "", 0.0, "olga", 100.0, None)


@pytest.mark.parametrize(
    ("fields", "state"),
    [({}, "open"), ({"uses": 2}, "used up"), ({"expires_s": 50.0}, "ended"), ({"revoked_s": 1.0}, "revoked")],
)
def test_an_invite_says_whether_pcs_can_use_it(fields: dict[str, float], state: str) -> None:
    assert state_of(msgspec.structs.replace(OPEN, **fields), 50.0) == state


def test_an_invite_says_how_pcs_are_let_in() -> None:
    assert approval_text(OPEN) == "by an administrator"
    automatic = msgspec.structs.replace(OPEN, approve="auto")
    assert approval_text(automatic) == "at once"
    ruled = msgspec.structs.replace(automatic, rule=ApprovalRule(["10.1.0.0/16"], ["lab-*"], True))
    assert approval_text(ruled) == "at once, only 10.1.0.0/16, lab-*, a protected key"


def test_an_invite_is_made_shown_copied_saved_and_revoked(
    console: ConsoleThread, desk: Desk, shown: Show, qtbot: QtBot, tmp_path: Path
) -> None:
    page = shown(InvitesPage(desk))
    assert isinstance(page, InvitesPage)
    qtbot.waitUntil(lambda: "There is no invite yet" in page.states.text.text())
    page.states.button.click()
    dialog = page.findChild(NewInvite)
    assert dialog is not None
    dialog.uses.setValue(3)
    dialog.hint.setText("lab")
    dialog.tags.setText("site:oslo, lab")
    dialog.auto.setChecked(True)
    dialog.networks.setText("nowhere")
    dialog.yes.click()
    qtbot.waitUntil(lambda: "is not a network" in dialog.said.text())
    dialog.networks.setText("10.1.0.0/16")
    dialog.yes.click()
    qtbot.waitUntil(lambda: page.findChild(SecretDialog) is not None)
    secret = page.findChild(SecretDialog)
    assert secret is not None
    text = secret.text.toPlainText()
    assert decode(text).hint == "lab"
    secret.copy.click()
    assert QGuiApplication.clipboard().text() == text
    secret.save_as(tmp_path / "nowhere" / "invite.txt")
    secret.reject()  # too early: what cannot be written would be lost
    qtbot.waitUntil(lambda: "cannot be written" in secret.said.text())
    assert secret.isVisible()
    secret.save_as(tmp_path / "invite.txt")
    qtbot.waitUntil(lambda: "It is in" in secret.said.text())
    assert (tmp_path / "invite.txt").read_text("utf-8") == f"{text}\n"
    assert (tmp_path / "invite.txt").stat().st_mode & 0o077 == 0
    secret.save_as(tmp_path / "again.txt")
    secret.reject()
    qtbot.waitUntil(lambda: page.findChild(SecretDialog) is None)
    assert (tmp_path / "again.txt").exists()
    qtbot.waitUntil(lambda: page.model.rowCount() == 1)
    cells = [page.model.index(0, column).data() for column in range(4)]
    assert cells == ["open", "lab", "0 of 3", "at once, only 10.1.0.0/16"]
    page.table.selectRow(0)
    page.revoke.click()
    question = page.findChild(Question)
    assert question is not None
    question.yes.click()
    qtbot.waitUntil(lambda: page.model.index(0, 0).data() == "revoked")
    assert not page.revoke.isEnabled()


def test_a_code_on_the_screen_has_a_quiet_zone_and_holds_the_text_in_any_scheme(qtbot: QtBot) -> None:
    code = QrCode("fallow1.secret")
    code.resize(300, 300)
    image = code.grab().toImage()
    module = 300 // (len(code.matrix) + 2 * QUIET_MODULES)
    drawn = [
        [image.pixelColor(int((x + 0.5) * module), int((y + 0.5) * module)).lightness() < 128
         for x in range(QUIET_MODULES, QUIET_MODULES + len(code.matrix))]
        for y in range(QUIET_MODULES, QUIET_MODULES + len(code.matrix))
    ]  # fmt: skip
    assert drawn == [[bool(dark) for dark in row] for row in code.matrix]
    assert image.pixelColor(module, module).lightness() == 255
    code.deleteLater()


def test_who_may_only_look_makes_and_ends_no_invite(quiet_desk: Desk, shown: Show) -> None:
    quiet_desk.me = wire.Me("", "vera", ["view"])
    page = InvitesPage(quiet_desk)
    page.invites._take([OPEN])
    page.table.selectRow(0)
    assert not page.new.isEnabled()
    assert not page.revoke.isEnabled()
    page.deleteLater()
