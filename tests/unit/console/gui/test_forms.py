"""console.gui.forms and secret: an answer that comes after its dialog, and secrets that are shown nevertheless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from console import calls
from console.errors import ClientError
from console.gui.forms import FormDialog
from console.gui.secret import SecretDialog, show_secret
from tests.support.asked import AskedBridge


@pytest.fixture
def bridge(qtbot: QtBot) -> Iterator[AskedBridge]:
    made = AskedBridge()
    yield made
    made.stop()


@pytest.fixture
def owner(qtbot: QtBot) -> Iterator[QWidget]:
    made = QWidget()
    yield made
    made.deleteLater()


def goes(one: QObject, qtbot: QtBot) -> None:
    """Wait until it is gone."""
    gone: list[object] = []
    one.destroyed.connect(lambda: gone.append(True))
    qtbot.waitUntil(lambda: bool(gone))


def test_an_answer_after_the_dialog_was_closed_is_heard_and_a_failure_is_no_trouble(
    bridge: AskedBridge, owner: QWidget, qtbot: QtBot
) -> None:
    heard: list[object] = []
    dialog = FormDialog(owner, bridge, "New", yes="&Make", order=lambda: calls.create_key("wiki"), then=heard.append)
    dialog.open()
    dialog.yes.click()
    dialog.reject()
    goes(dialog, qtbot)
    bridge.asked[0].on_failed(ClientError("no"))
    bridge.asked[0].on_answer("a secret that is shown only once")
    assert heard == ["a secret that is shown only once"]


def test_a_dialog_stays_open_for_a_refusal_and_closes_with_the_answer(bridge: AskedBridge, owner: QWidget) -> None:
    heard: list[object] = []
    dialog = FormDialog(owner, bridge, "New", yes="&Make", order=lambda: calls.create_key("wiki"), then=heard.append)
    dialog.open()
    dialog.yes.click()
    assert not dialog.yes.isEnabled()
    bridge.asked[0].on_failed(ClientError("Choose another name."))
    assert dialog.isVisible()
    assert dialog.said.text() == "Choose another name."
    dialog.yes.click()
    bridge.asked[1].on_answer("made")
    assert not dialog.isVisible()
    assert heard == ["made"]


def test_a_secret_is_shown_though_its_page_is_gone(owner: QWidget, qtbot: QtBot) -> None:
    page = QWidget(owner)
    page.deleteLater()
    goes(page, qtbot)
    shown = show_secret(page, "The key", "About it.", "sk-once", "key.txt")
    assert isinstance(shown, SecretDialog)
    assert shown in QApplication.topLevelWidgets()
    assert shown.text.toPlainText() == "sk-once"
    shown.reject()
