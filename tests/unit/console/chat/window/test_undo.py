"""What was deleted comes back, whatever was said or done after it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel

from console.chat.records import Folder, new_id
from console.chat.settings import read_settings
from console.chat.window.options import OptionsDialog
from console.pipeline import types as pipeline
from tests.support.chat_windows import Talk, chat_window


def test_a_line_about_something_else_does_not_take_the_way_back(talk: Talk) -> None:
    talk.ask("Hi")
    talk.window.actions_["delete_chat"].trigger()
    talk.window.say("The message was copied.")
    assert not talk.window.said.undo.isVisible()
    talk.window.actions_["undo"].trigger()
    assert talk.texts() == ["Hi", "Good day"]
    assert not talk.window.actions_["undo"].isEnabled()


def test_its_keys_work_while_somebody_types(talk: Talk) -> None:
    window, field = talk.window, talk.window.page.composer.field
    talk.ask("Hi")
    window.activateWindow()
    talk.qtbot.waitUntil(window.isActiveWindow)
    window.actions_["delete_chat"].trigger()
    field.setFocus()
    QTest.keyClicks(field, "not sent")
    assert window.actions_["undo"].shortcut() == QKeySequence("Alt+Z")
    QTest.keyClick(field, Qt.Key.Key_Z, Qt.KeyboardModifier.AltModifier)
    assert talk.texts() == ["Hi", "Good day"]


def test_what_was_erased_for_good_has_no_way_back(talk: Talk) -> None:
    talk.ask("Hi")
    talk.window.actions_["delete_chat"].trigger()
    talk.window.erase()
    assert not talk.window.actions_["undo"].isEnabled()
    talk.window.actions_["undo"].trigger()
    assert talk.window.desk.chats == {}


def test_it_comes_back_with_what_it_followed_and_is_kept(talk: Talk, tmp_path: Path) -> None:
    talk.ask("Hi", [pipeline.Failed("stage_lost", "A PC left.")])
    talk.ask("More")
    desk = talk.window.desk
    desk.delete_message(desk.branch[2].id)
    talk.window.answers.regenerate(desk.branch[1].id)
    talk.window.answers.stop_all()
    talk.window.actions_["undo"].trigger()
    assert [message.text for message in desk.branch][:3] == ["Hi", "", "More"]
    chat_id = desk.open_id
    talk.window.close()
    desk.stop()
    with chat_window(tmp_path / "chat") as again:
        talk.qtbot.waitUntil(lambda: chat_id in again.desk._trees)
        assert "More" in [message.text for message in again.desk.branch]


def test_a_chat_comes_back_without_the_folder_that_is_gone(talk: Talk) -> None:
    talk.ask("Hi")
    desk = talk.window.desk
    chat_id = desk.open_id or ""
    folder = Folder(new_id(), "Work")
    desk.save_folder(folder)
    desk.change_chat(chat_id, folder_id=folder.id)
    desk.delete_chat(chat_id)
    desk.delete_folder(folder.id)
    talk.window.actions_["undo"].trigger()
    troubles: list[str] = []
    desk.trouble.connect(troubles.append)
    desk.change_chat(chat_id, title="Renamed")
    titles: list[str] = []
    desk.store.do(lambda file: [chat.title for chat in file.chats()], titles.extend)
    talk.qtbot.waitUntil(lambda: bool(titles))
    assert (titles, troubles) == (["Renamed"], [])


def test_people_are_not_promised_more_than_that(talk: Talk) -> None:
    dialog = OptionsDialog(talk.window.desk.settings)
    talk.qtbot.addWidget(dialog)
    texts = " ".join(each.text() for each in dialog.findChildren(QLabel))
    assert "The last thing you deleted can be brought back until you close the window" in texts


def test_settings_are_kept_also_where_the_chats_cannot_be_opened(tmp_path: Path, talk: Talk) -> None:
    folder = tmp_path / "other"
    (folder / "chats.sqlite").mkdir(parents=True)
    with chat_window(folder) as window:
        talk.qtbot.waitUntil(lambda: bool(window.desk.broken))
        window.desk.change_settings(font_percent=130)
    assert read_settings(folder / "settings.json").font_percent == 130
