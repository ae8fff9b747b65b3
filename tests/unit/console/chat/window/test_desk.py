"""What the window shows: read late, taken in, begun as a model's chats begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QProxyStyle, QStyle
from pytestqt.qtbot import QtBot

from console.chat.chatfile import ChatFile
from console.chat.client import Model
from console.chat.export import as_json, read_json
from console.chat.records import Chat, Folder, Preset, Sampling, Setup
from console.chat.window.window import ChatWindow
from tests.support.chat_windows import chat_window
from tests.support.patience import PATIENCE_S


@pytest.fixture
def window(tmp_path: Path, qtbot: QtBot) -> Iterator[ChatWindow]:
    with chat_window(tmp_path) as shown:
        qtbot.waitUntil(lambda: shown.desk.is_loaded)
        yield shown


@pytest.fixture
def gate(tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A chat is kept and was open last; whoever reads it has to wait for the gate."""
    with chat_window(tmp_path) as before:
        qtbot.waitUntil(lambda: before.desk.is_loaded)
        before.desk.add("user", "Earlier", parent_id=None)
        before.desk.save_folder(Folder("f", "Work"))
    made, read = threading.Event(), ChatFile.chats

    def late(file: ChatFile) -> list[Chat]:
        assert made.wait(PATIENCE_S)
        return read(file)

    monkeypatch.setattr(ChatFile, "chats", late)
    return made


def test_what_was_asked_before_the_chats_were_read_stays_in_sight(
    tmp_path: Path, qtbot: QtBot, gate: threading.Event
) -> None:
    with chat_window(tmp_path) as window:
        desk = window.desk
        said = desk.add("user", "Quicker", parent_id=None)
        desk.save_folder(Folder("g", "Art"))
        gate.set()
        qtbot.waitUntil(lambda: desk.is_loaded)
        assert desk.open_id == said.chat_id
        assert [message.text for message in desk.branch] == ["Quicker"]
        assert [row.text for row in window.sidebar.model.rows] == ["Quicker", "Earlier", "Art", "Work"]


def test_what_was_typed_or_set_before_the_chats_were_read_is_not_swapped_for_the_last_chat(
    tmp_path: Path, qtbot: QtBot, gate: threading.Event
) -> None:
    with chat_window(tmp_path) as window:
        desk = window.desk
        window.page.composer.field.setPlainText("Typed quickly")
        desk.change_setup(Setup("small", "Be brief."))
        gate.set()
        qtbot.waitUntil(lambda: desk.is_loaded)
        assert desk.open_id is None
        assert (window.page.composer.field.toPlainText(), desk.setup.system) == ("Typed quickly", "Be brief.")
        assert [chat.title for chat in desk.chats.values()] == ["Earlier"]


class ActsOnOneClick(QProxyStyle):
    """Some desktops open what is clicked once."""

    def styleHint(self, hint: QStyle.StyleHint, *others: Any) -> int:
        return 1 if hint == QStyle.StyleHint.SH_ItemView_ActivateItemOnSingleClick else super().styleHint(hint, *others)


@pytest.mark.parametrize("one_click", [False, True])
def test_a_folder_opens_and_closes_once_for_a_click_two_quick_ones_and_enter(
    window: ChatWindow, qtbot: QtBot, *, one_click: bool
) -> None:
    desk, view = window.desk, window.sidebar.view
    if one_click:
        style = ActsOnOneClick()
        style.setParent(view)
        view.setStyle(style)
    desk.save_folder(Folder("f", "Work"))
    toggled: list[str] = []
    window.sidebar.folder_toggled.connect(toggled.append)
    at = view.visualRect(window.sidebar.model.index(0)).center()
    left = Qt.MouseButton.LeftButton
    QTest.mouseClick(view.viewport(), left, pos=at)
    assert (toggled, desk.settings.closed_folders) == (["f"], ["f"])
    QTest.mouseClick(view.viewport(), left, pos=at)
    QTest.mouseDClick(view.viewport(), left, pos=at)
    QTest.mouseRelease(view.viewport(), left, pos=at)
    assert (toggled, desk.settings.closed_folders) == (["f"] * 2, [])
    QTest.mouseClick(view.viewport(), left, pos=at)
    view.setCurrentIndex(window.sidebar.model.index(0))
    QTest.keyClick(view, Qt.Key.Key_Return)
    assert (toggled, desk.settings.closed_folders) == (["f"] * 4, [])


def test_a_chat_that_is_taken_in_is_the_newest(window: ChatWindow) -> None:
    desk = window.desk
    desk.add("user", "First", parent_id=None)
    assert desk.chat is not None
    text = as_json(desk.chat, desk.tree().all())
    desk.open(None)
    desk.add("user", "Second", parent_id=None)
    desk.take_in(*read_json(text.encode()))
    assert [row.text for row in window.sidebar.model.rows] == ["First", "Second", "First"]
    assert window.sidebar.model.rows[0].key == desk.open_id


def test_a_new_chat_begins_as_the_chosen_models_chats_do_unless_somebody_set_it_up(
    window: ChatWindow, qtbot: QtBot
) -> None:
    desk, combo = window.desk, window.page.model
    desk.save_preset(
        Preset(id="1", name="p", system="For b.", sampling=Sampling(seed=3), model="b", is_default=True)
    )  # fmt: skip
    qtbot.waitUntil(lambda: len(desk.presets) == 1)
    desk.take_models([Model("a"), Model("b")])
    assert desk.setup == Setup("a")
    combo.activated.emit(combo.findData("b"))
    assert desk.setup == Setup("b", "For b.", Sampling(seed=3))
    combo.activated.emit(combo.findData("a"))
    assert desk.setup == Setup("a")
    desk.change_setup(Setup("a", "Mine."))
    combo.activated.emit(combo.findData("b"))
    assert desk.setup == Setup("b", "Mine.")
    desk.take_models([Model("c")])
    assert desk.setup == Setup("c", "Mine.")
    desk.take_models([Model("a"), Model("b")])
    desk.add("user", "Hi", parent_id=None)
    combo.activated.emit(combo.findData("a"))
    assert desk.setup == Setup("a", "Mine.")
