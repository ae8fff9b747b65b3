"""The dialogs, the list of chats, and what is around the window."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QUrl
from PySide6.QtGui import QImage, QTextDocument
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from console.chat.records import Chat, Folder, Preset, Sampling, Setup
from console.chat.settings import ChatSettings
from console.chat.window.actions import SPECS, clashes
from console.chat.window.options import OptionsDialog, ShortcutsDialog
from console.chat.window.parts import RichText
from console.chat.window.rows import Row, Rows, rows_of, spoken
from console.chat.window.setup import SetupDialog
from console.chat.window.single import SingleWindow
from console.chat.window.window import ChatWindow
from tests.support.chat_windows import chat_window

SETUP = Setup("small", "Be brief.", Sampling(temperature=0.5, max_tokens=100, seed=3, stop=["a", "b"]))


@pytest.fixture
def window(tmp_path: Path, qtbot: QtBot) -> Iterator[ChatWindow]:
    with chat_window(tmp_path) as shown:
        qtbot.waitUntil(lambda: shown.desk.is_loaded)
        yield shown


def test_sampling_settings_come_back_as_they_were_chosen(qtbot: QtBot) -> None:
    dialog = SetupDialog(SETUP, [])
    qtbot.addWidget(dialog)
    assert dialog.setup() == SETUP
    dialog.temperature.used.setChecked(False)
    dialog.stop.setText("")
    assert dialog.setup().sampling == Sampling(max_tokens=100, seed=3)


def test_presets_are_taken_over_and_changed_only_by_their_own_buttons(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = Preset(id="1", name="Precise", system="Precisely.", sampling=Sampling(temperature=0.0), model="small")
    dialog = SetupDialog(SETUP, [preset])
    qtbot.addWidget(dialog)
    saved: list[Preset] = []
    dialog.saved_preset.connect(saved.append)
    dialog.presets.setCurrentIndex(1)
    assert dialog.setup() == Setup("small", "Precisely.", Sampling(temperature=0.0))
    dialog.system.setPlainText("Changed.")
    assert saved == []
    dialog.update_preset.click()
    assert saved[0].system == "Changed."
    dialog.default.click()
    assert saved[1].is_default
    dialog.show_presets([saved[1]])
    assert dialog.preset() == saved[1]
    monkeypatch.setattr("console.chat.window.setup.QInputDialog.getText", lambda *_: ("Mine", True))
    dialog.only.setChecked(True)
    dialog._save_as()
    assert (saved[2].name, saved[2].model, saved[2].is_default) == ("Mine", "small", False)


def test_a_chat_keeps_its_own_copy_of_a_preset(window: ChatWindow, qtbot: QtBot) -> None:
    desk = window.desk
    desk.save_preset(Preset(id="1", name="p", system="First.", is_default=True))
    qtbot.waitUntil(lambda: len(desk.presets) == 1)
    desk.open(None)
    assert desk.setup.system == "First."
    desk.add("user", "Hi", parent_id=None)
    desk.save_preset(Preset(id="1", name="p", system="Second.", is_default=True))
    qtbot.waitUntil(lambda: desk.presets[0].system == "Second.")
    assert desk.setup.system == "First."
    desk.open(None)
    assert desk.setup.system == "Second."


def test_options_are_told_as_they_are_chosen(qtbot: QtBot) -> None:
    dialog = OptionsDialog(ChatSettings())
    qtbot.addWidget(dialog)
    changes: list[dict[str, Any]] = []
    dialog.changed.connect(changes.append)
    dialog.theme.setCurrentIndex(2)
    dialog.text_size.setValue(120)
    dialog.line_width.setCurrentIndex(2)
    dialog.enter.setChecked(False)
    assert changes == [{"theme": "dark"}, {"font_percent": 120}, {"width": "full"}, {"enter_sends": False}]


def test_shortcuts_are_changed_unless_they_are_taken_and_go_back(qtbot: QtBot) -> None:
    dialog = ShortcutsDialog({})
    qtbot.addWidget(dialog)
    changes: list[dict[str, str]] = []
    dialog.changed.connect(changes.append)
    dialog.filter.setText("New chat")
    dialog.table.selectRow(0)
    dialog.keys.setKeySequence("Ctrl+K")
    dialog.set.click()
    assert "is taken" in dialog.said.text()
    dialog.keys.setKeySequence("Ctrl+T")
    dialog.set.click()
    dialog.reset.click()
    assert changes == [{"new": "Ctrl+T"}, {}]


def test_no_two_actions_have_the_same_keys() -> None:
    assert clashes({}) == {}
    assert clashes({"new": "Ctrl+K"}) == {"Ctrl+K": ["New chat", "Search all chats"]}
    assert len({spec.name for spec in SPECS}) == len(SPECS)


def test_the_list_has_pins_then_loose_chats_then_folders(qtbot: QtBot) -> None:
    chats = [
        Chat(id="a", title="A", changed_s=1.0),
        Chat(id="b", title="B", changed_s=2.0, folder_id="f"),
        Chat(id="c", title="", changed_s=3.0, pinned=True, folder_id="f"),
    ]
    folders = [Folder("f", "Work")]
    rows = rows_of(chats, folders, [], ["b"])
    assert [(row.key, row.inside) for row in rows] == [("c", False), ("a", False), ("f", False), ("b", True)]
    assert [row.key for row in rows_of(chats, folders, ["f"], [])] == ["c", "a", "f"]
    assert [spoken(row) for row in rows] == [
        "New chat, pinned", "A", "Folder Work, open", "B, an answer is coming",
    ]  # fmt: skip


def test_rows_move_without_a_reset(qtbot: QtBot) -> None:
    model = Rows()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Warning)
    resets: list[bool] = []
    model.modelReset.connect(lambda: resets.append(True))
    for keys in ("abc", "cab", "xcb", "", "ab", "ba"):
        model.show_rows([Row(key, "chat", key.upper()) for key in keys])
        assert [row.key for row in model.rows] == list(keys)
    assert resets == []
    tester.deleteLater()


def test_folders_pins_and_names(window: ChatWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = window.desk
    desk.add("user", "Hi", parent_id=None)
    chat_id = desk.open_id or ""
    names = iter(["Renamed", "Work", "Play"])
    monkeypatch.setattr("console.chat.window.chatlist.QInputDialog.getText", lambda *_: (next(names), True))
    window.actions_["rename"].trigger()
    window.actions_["pin"].trigger()
    assert (desk.chats[chat_id].title, desk.chats[chat_id].pinned) == ("Renamed", True)
    window.actions_["pin"].trigger()
    window.list._new_folder(chat_id)
    (folder,) = desk.folders
    assert [row.text for row in window.sidebar.model.rows] == ["Work", "Renamed"]
    window.sidebar.folder_toggled.emit(folder.id)
    assert [row.text for row in window.sidebar.model.rows] == ["Work"]
    window.list._rename_folder(folder.id)
    menu = window.list.menu_of("chat", chat_id)
    assert [action.text() for action in menu.actions() if action.text()] == [
        "Rename", "Pin", "Move to folder", "Delete",
    ]  # fmt: skip
    menu.deleteLater()
    desk.delete_folder(folder.id)
    assert [row.text for row in window.sidebar.model.rows] == ["Renamed"]


def test_no_address_is_loaded_whatever_names_it(qtbot: QtBot, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    QImage(4, 4, QImage.Format.Format_RGB32).save(str(picture))
    shown = RichText()
    qtbot.addWidget(shown)
    for name in ("http://127.0.0.1:9/x.png", QUrl.fromLocalFile(str(picture)).toString(), str(picture)):
        shown.setHtml(f'<img src="{name}">')
        shown.fit(200)
        loaded = shown.document().resource(QTextDocument.ResourceType.ImageResource.value, QUrl(name))
        assert isinstance(loaded, QImage)
        assert (loaded.width(), loaded.height()) == (1, 1)


def test_a_second_start_brings_the_first_window_up(tmp_path: Path, qtbot: QtBot) -> None:
    first = SingleWindow(tmp_path)
    wanted: list[bool] = []
    first.wanted.connect(lambda: wanted.append(True))
    assert first.begin()
    code = (
        "import sys; from pathlib import Path; from PySide6.QtCore import QCoreApplication;"
        "from console.chat.window.single import SingleWindow; app = QCoreApplication([]);"
        "sys.exit(7 if SingleWindow(Path(sys.argv[1])).begin() else 0)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    qtbot.waitUntil(lambda: bool(wanted) and other.poll() is not None)
    assert other.returncode == 0
    first.end()
    again = SingleWindow(tmp_path)
    assert again.begin()
    again.end()


def test_the_menu_of_a_row_opens_where_it_was_asked_for(window: ChatWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unopened(QMenu):
        def exec(self, *_: object) -> None:  # type: ignore[override]  # nobody is there to choose
            """Return at once."""

    monkeypatch.setattr("console.chat.window.chatlist.QMenu", Unopened)
    window.desk.add("user", "Hi", parent_id=None)
    asked: list[tuple[str, str]] = []
    window.sidebar.view.menu_wanted.connect(lambda kind, key, _: asked.append((kind, key)))
    window.sidebar.view.customContextMenuRequested.emit(QPoint(5, 5))
    window.sidebar.view.customContextMenuRequested.emit(QPoint(5, 500))
    assert asked == [("chat", window.desk.open_id)]
