"""The chat window against a served model: asking, stopping, branches, failures, and what is kept."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QPushButton
from pytestqt.qtbot import QtBot

from console.chat.window.message import MessageView
from console.pipeline import types as pipeline
from tests.support.api import CHAT_KEY, Keys, ScriptedModel, chat_app, finished, says
from tests.support.chat_windows import Ring, Talk, chat_window, ended, send, served, sign_in

ANSWER = "Use this:\n\n```python\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n"


def says_so(view: MessageView, words: str) -> bool:
    return words in view.note.text()


def test_an_answer_comes_and_is_kept_with_its_figures(talk: Talk, tmp_path: Path, qtbot: QtBot) -> None:
    details = pipeline.Details(["WS-1", "WS-2"], drafted=4, accepted=3)
    timings = pipeline.Timings(0, 500, 1450)
    talk.model.script = [*says(ANSWER)[:-1], pipeline.Finished("stop", pipeline.Usage(5, 20), timings, details)]
    talk.ask("How?")
    assert talk.texts() == ["How?", ANSWER]
    view = talk.view(1)
    assert view.facts.text() == "20 tokens · 20.0 tokens/s · first after 0.5 s · 75% guessed right · by WS-1, WS-2"
    assert [part.__class__.__name__ for part in view.body._parts] == ["TextPart", "CodePart", "TextPart"]
    assert "25 of 1.0k" in talk.window.page.composer.meter.text.text()
    assert talk.window.desk.chat is not None
    assert talk.window.desk.chat.title == "How?"
    talk.window.close()
    talk.window.desk.stop()
    with chat_window(tmp_path / "chat") as again:
        qtbot.waitUntil(lambda: len(again.desk.branch) == 2)
        assert [message.text for message in again.desk.branch] == ["How?", ANSWER]


def test_text_shows_while_it_comes_and_stop_frees_the_place(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.model.script = [pipeline.Text("Half ", [1]), gate, finished()]
    send(talk.window, "Hi")
    chat_id = talk.window.desk.open_id or ""
    talk.qtbot.waitUntil(lambda: "Half" in "".join(talk.window.answers.running[chat_id].text))
    assert talk.window.page.composer.stop_button.isVisible()
    assert [row.runs for row in talk.window.sidebar.model.rows] == [True]
    view = talk.view(1)
    assert "Half" in view.body.texts()[0].toPlainText()
    talk.window.actions_["stop"].trigger()
    assert talk.texts() == ["Hi", "Half "]
    assert talk.window.desk.branch[1].state == "stopped"
    assert talk.window.page.composer.send_button.isVisible()
    talk.qtbot.waitUntil(talk.model.closed.is_set)


def test_stop_from_the_list_ends_the_answer_of_a_chat_that_is_not_open(talk: Talk) -> None:
    talk.model.script = [pipeline.Text("a", [1]), asyncio.Event(), finished()]
    send(talk.window, "Hi")
    chat_id = talk.window.desk.open_id or ""
    talk.qtbot.waitUntil(lambda: bool(talk.window.answers.running[chat_id].text))
    talk.window.actions_["new"].trigger()
    assert talk.window.desk.open_id is None
    talk.window.sidebar.view.stopped.emit(chat_id)
    talk.qtbot.waitUntil(talk.model.closed.is_set)
    assert talk.window.desk.chats[chat_id].title == "Hi"


def test_queue_prefill_and_a_pc_that_left_are_told(talk: Talk) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    talk.model.script = [pipeline.Waiting(2), gates[0], pipeline.Reading(256, 1024), gates[1],
                         pipeline.Recovering("PC 7 left."), gates[2], *says("Hi")]  # fmt: skip
    send(talk.window, "Hi")
    view = talk.view(1)
    expected = ("2 answers are ahead", "256 of 1,024 tokens", "PC 7 left. Others are taking over")
    for gate, words in zip(gates, expected, strict=False):
        talk.qtbot.waitUntil(partial(says_so, view, words))
        assert view.note.isVisible()
        assert view.progress.isVisible() == ("1,024" in words)
        talk.server.set(gate)
    ended(talk.window, talk.qtbot)
    assert not view.note.isVisible()


def test_answering_again_makes_a_branch_and_the_switcher_goes_between(talk: Talk) -> None:
    talk.ask("Hi")
    talk.model.script = says("Other")
    talk.view(1).buttons["regenerate"].click()
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi", "Other"]
    view = talk.view(1)
    assert (view.place.text(), view.left.isVisible()) == ("2/2", True)
    view.left.click()
    assert talk.texts() == ["Hi", "Good day"]
    talk.window.actions_["next_branch"].trigger()
    assert talk.texts() == ["Hi", "Other"]


def test_edit_either_role(talk: Talk) -> None:
    talk.ask("Hi")
    talk.window.page.thread_.focus_message(talk.window.desk.branch[0].id)
    talk.window.actions_["edit_message"].trigger()
    view = talk.view(0)
    assert view.editor is not None
    view.editor.text.setPlainText("Hello")
    talk.model.script = says("Edited")
    view.editor.save.click()
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hello", "Edited"]
    asked = len(talk.model.requests)
    view = talk.view(1)
    view.begin_edit()
    assert view.editor is not None
    view.editor.text.setPlainText("Mine")
    view.editor.save.click()
    assert talk.texts() == ["Hello", "Mine"]
    assert len(talk.model.requests) == asked
    assert len(talk.window.desk.tree()) == 5


def test_a_new_chat_from_here_copies_the_branch(talk: Talk) -> None:
    talk.ask("Hi")
    talk.ask("More")
    first = talk.window.desk.open_id
    talk.view(1).buttons["fork"].click()
    assert talk.window.desk.open_id != first
    assert talk.texts() == ["Hi", "Good day"]
    assert len(talk.window.desk.chats) == 2


def test_deleting_is_undone(talk: Talk) -> None:
    talk.ask("Hi")
    talk.view(0).buttons["delete"].click()
    assert talk.texts() == []
    assert talk.window.said.text.text() == "2 messages were deleted."
    talk.window.said.undo.click()
    assert talk.texts() == ["Hi", "Good day"]
    talk.window.actions_["delete_chat"].trigger()
    assert talk.window.desk.chats == {}
    talk.window.actions_["undo"].trigger()
    assert talk.texts() == ["Hi", "Good day"]


def test_copy_message_code_and_all(talk: Talk) -> None:
    talk.ask("Hi", says(ANSWER))
    view = talk.view(1)
    clipboard = QGuiApplication.clipboard()
    view.buttons["copy"].click()
    assert clipboard.text() == ANSWER
    view.body._parts[1].copy.click()  # type: ignore[union-attr]  # it is the code
    assert clipboard.text() == "x = 1\n"
    talk.window.actions_["copy_all"].trigger()
    assert clipboard.text().startswith("# Hi\n\n## You\n\nHi\n\n## Assistant")


def test_a_revoked_key_leads_to_signing_in_and_nothing_is_lost(tmp_path: Path, qtbot: QtBot) -> None:
    keys = Keys()
    with (
        served(chat_app(ScriptedModel(says("Good day")), keys=keys)) as server,
        chat_window(tmp_path / "chat") as window,
    ):
        sign_in(window, qtbot, server.url)
        talk = Talk(ScriptedModel([]), server, window, qtbot)
        talk.ask("Hi")
        keys._principals.clear()
        talk.ask("Again")
        card = talk.view(3).card
        assert card is not None
        assert "revoked" in card.accessibleName()
        (button,) = (each for each in card.findChildren(QPushButton) if each.text() == "Sign in")
        button.click()
        assert window.stack.currentWidget() is window.signin
        assert talk.texts() == ["Hi", "Good day", "Again", ""]


def test_a_server_that_is_away_is_said_and_asked_again(talk: Talk) -> None:
    talk.ask("Hi")
    talk.server.end()
    talk.ask("Again")
    card = talk.view(3).card
    assert card is not None
    assert "does not answer" in card.accessibleName()
    assert card.retry.isEnabled()
    talk.window.desk.ask_models()
    talk.qtbot.waitUntil(talk.window.page.banner.isVisible)
    assert "cannot be reached" in talk.window.page.banner.text.text()
    assert talk.texts() == ["Hi", "Good day", "Again", ""]


@pytest.mark.parametrize(
    ("failed", "title"),
    [
        (pipeline.Failed("stage_lost", "A PC left."), "Something went wrong"),
        (pipeline.Failed("cancelled", "The model was taken down."), "The model is not there"),
    ],
)
def test_an_error_in_the_stream_is_a_card_with_what_came_and_retry_asks_again(
    talk: Talk, failed: pipeline.Failed, title: str
) -> None:
    talk.ask("Hi", [pipeline.Text("Half", [1]), failed])
    view = talk.view(1)
    assert view.card is not None
    assert title in view.card.accessibleName()
    assert talk.texts() == ["Hi", "Half"]
    talk.model.script = says("Whole")
    view.card.retry.click()
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi", "Whole"]
    assert talk.view(1).place.text() == "2/2"


def test_a_busy_server_counts_down_until_it_may_be_asked_again(talk: Talk) -> None:
    talk.ask("Hi", [pipeline.Failed("too_many_waiting", "This key asks too much.")])
    card = talk.view(1).card
    assert card is not None
    assert card.retry.text().startswith("Try again in ")
    assert not card.retry.isEnabled()
    talk.window.answers.retry_at_s.clear()
    talk.window.page._replace(talk.window.desk.branch[1])
    card = talk.view(1).card
    assert card is not None
    talk.model.script = says("Now")
    card.retry.click()
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi", "Now"]
    assert len(talk.window.desk.tree()) == 2


def test_drafts_are_kept_for_each_chat(talk: Talk) -> None:
    talk.ask("Hi")
    first = talk.window.desk.open_id
    field = talk.window.page.composer.field
    field.setPlainText("not sent")
    talk.window.actions_["new"].trigger()
    assert field.toPlainText() == ""
    field.setPlainText("new one")
    talk.window.desk.open(first)
    assert field.toPlainText() == "not sent"
    talk.window.desk.open(None)
    assert field.toPlainText() == "new one"


def test_enter_sends_or_breaks_the_line_as_it_is_set(talk: Talk) -> None:
    field = talk.window.page.composer.field
    field.setFocus()
    QTest.keyClicks(field, "Hi")
    QTest.keyClick(field, Qt.Key.Key_Enter, Qt.KeyboardModifier.ShiftModifier)
    assert talk.window.desk.chats == {}
    talk.window.desk.change_settings(enter_sends=False)
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert talk.window.desk.chats == {}
    QTest.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi", "Good day"]


def test_text_files_go_along_and_others_are_refused(talk: Talk, tmp_path: Path) -> None:
    text, picture, huge = tmp_path / "a.py", tmp_path / "b.png", tmp_path / "c.txt"
    text.write_text("x = 1\n")
    picture.write_bytes(b"\x89PNG\x00\xff")
    huge.write_bytes(b"x" * 2_000_000)
    said: list[str] = []
    talk.window.files.trouble.connect(said.append)
    talk.window.files.attach([text, picture, huge, tmp_path / "nowhere"])
    talk.qtbot.waitUntil(lambda: len(said) == 3)
    talk.ask("What is it?")
    assert "a.py:\n```\nx = 1\n\n```" in talk.model.messages[-1]["content"]
    assert "a.py (6 B, about 2 tokens)" in talk.view(0).files.text()


def test_search_across_chats_opens_the_branch_that_matches(talk: Talk) -> None:
    talk.ask("Where is the quokka?")
    talk.model.script = says("Elsewhere")
    talk.view(1).buttons["regenerate"].click()
    ended(talk.window, talk.qtbot)
    talk.window.actions_["new"].trigger()
    talk.window.sidebar.search.setText("good")
    talk.qtbot.waitUntil(lambda: [row.kind for row in talk.window.sidebar.model.rows] == ["hit"])
    talk.window.sidebar._pressed(talk.window.sidebar.model.index(0))
    assert talk.texts() == ["Where is the quokka?", "Good day"]
    talk.window.sidebar.search.setText("quok")
    talk.qtbot.waitUntil(lambda: [row.kind for row in talk.window.sidebar.model.rows] == ["chat", "hit"])


def test_find_in_chat_marks_and_steps(talk: Talk) -> None:
    talk.ask("Good morning")
    talk.window.actions_["find"].trigger()
    bar = talk.window.page.find_bar
    bar.field.setText("good")
    assert bar.count.text() == "2 of 2"
    QTest.keyClick(bar.field, Qt.Key.Key_Return)
    assert bar.count.text() == "1 of 2"
    assert len(talk.view(1).body.texts()[0].extraSelections()) == 1
    bar.close_bar()
    assert talk.view(1).body.texts()[0].extraSelections() == []


def test_export_and_import_in_the_window(talk: Talk, tmp_path: Path) -> None:
    talk.ask("Hi")
    for ending in ("md", "json", "html"):
        talk.window.files.export_to(tmp_path / f"chat.{ending}", "md")
        talk.qtbot.waitUntil((tmp_path / f"chat.{ending}").exists)
        assert "Good day" in (tmp_path / f"chat.{ending}").read_text()
    talk.window.files.import_from(tmp_path / "chat.json")
    talk.qtbot.waitUntil(lambda: len(talk.window.desk.chats) == 2)
    assert talk.texts() == ["Hi", "Good day"]
    talk.window.files.import_from(tmp_path / "chat.md")
    talk.qtbot.waitUntil(lambda: "no chat that Fallow exported" in talk.window.said.text.text())


def test_signing_in_is_kept_in_the_keyring_and_signing_out_forgets_it(tmp_path: Path, qtbot: QtBot) -> None:
    ring = Ring()
    with served(chat_app(ScriptedModel(says("x")))) as server:
        with chat_window(tmp_path, ring) as window:
            window.signin.link.setText("nonsense")
            window.signin.go.click()
            assert "no chat link" in window.signin.said.text()
            window.signin.clear()
            window.signin.address.setText(server.url)
            window.signin.key.setText("wrong")
            window.signin.go.click()
            qtbot.waitUntil(lambda: "not valid any more" in window.signin.said.text())
            sign_in(window, qtbot, server.url)
        with chat_window(tmp_path, ring) as window:
            qtbot.waitUntil(lambda: bool(window.desk.models))
            assert window.stack.currentWidget() is window.split
            window.signing.sign_out()
            qtbot.waitUntil(lambda: window.stack.currentWidget() is window.signin)
    assert ring.kept == {}


def test_every_button_has_a_name_for_a_screen_reader(talk: Talk) -> None:
    talk.ask("Hi", says(ANSWER))
    talk.view(1)
    for button in talk.window.findChildren(QAbstractButton):
        if button.objectName().startswith("qt_") or button.parent() is talk.window.sidebar.search:
            continue
        name = QAccessible.queryAccessibleInterface(button).text(QAccessible.Text.Name)
        assert name, button
        assert isinstance(button, QPushButton) or len(name) > 3
    assert talk.view(1).accessibleName().startswith("small: Use this:")


def test_finished_sentences_are_announced(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("console.chat.window.chatpage.announce", lambda _, text: said.append(text))
    talk.ask("Hi", says("One is ", "here. Two", " is not"))
    assert [text for text in said if text != "Asking…"] == ["One is here.", "Two is not"]


def test_settings_change_the_window_and_shortcuts_are_edited(talk: Talk) -> None:
    window = talk.window
    window._change({"shortcuts": {"new": "Ctrl+T"}})
    assert window.actions_["new"].shortcut().toString() == "Ctrl+T"
    before = window.font().pointSizeF()
    window.actions_["bigger"].trigger()
    assert window.font().pointSizeF() == pytest.approx(before * 1.1, abs=0.06)
    window._change({"theme": "dark"})
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    assert app.palette().window().color().name() == "#1d211c"
    window._change({"theme": "light", "width": "full"})
    assert window.page.thread_.width_wanted == "full"


def test_all_chats_are_deleted_for_good(talk: Talk) -> None:
    talk.ask("Hi")
    talk.window.erase()
    assert talk.window.desk.chats == {}
    heard: list[object] = []
    talk.window.desk.store.do(lambda file: file.chats(), heard.append)
    talk.qtbot.waitUntil(lambda: heard == [[]])


def test_deleting_a_question_stops_its_answer_first(talk: Talk) -> None:
    talk.model.script = [pipeline.Text("a", [1]), asyncio.Event(), finished()]
    send(talk.window, "Hi")
    talk.qtbot.waitUntil(lambda: bool(talk.window.answers.running))
    talk.view(0).buttons["delete"].click()
    assert (talk.texts(), talk.window.answers.running) == ([], {})
    talk.window.said.undo.click()
    assert [message.state for message in talk.window.desk.branch] == ["whole", "stopped"]


def test_keys_reach_their_actions_while_somebody_types(talk: Talk) -> None:
    window = talk.window
    field = window.page.composer.field
    window.activateWindow()
    talk.qtbot.waitUntil(window.isActiveWindow)
    control = Qt.KeyboardModifier.ControlModifier
    for key, wanted in ((Qt.Key.Key_K, window.sidebar.search), (Qt.Key.Key_F, window.page.find_bar.field)):
        field.setFocus()
        QTest.keyClick(field, key, control)
        assert wanted.hasFocus()
    window.sidebar.search.setText("x")
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Escape)
    assert window.sidebar.search.text() == ""


def test_chats_that_cannot_be_read_are_said_and_the_window_still_asks(tmp_path: Path, qtbot: QtBot) -> None:
    (tmp_path / "chats.sqlite").mkdir()
    with served(chat_app(ScriptedModel(says("Yes")))) as server, chat_window(tmp_path) as window:
        qtbot.waitUntil(lambda: bool(window.desk.broken))
        assert "cannot be opened" in window.page.empty.more.text()
        assert window.sidebar.empty.text() == "They cannot be read"
        window.signin.address.setText("http://console.example")
        window.signin.key.setText("x")
        window.signin.go.click()
        assert "only over https" in window.signin.said.text()
        window.signin.address.setText(server.url)
        window.signin.key.setText(CHAT_KEY)
        window.signin.go.click()
        qtbot.waitUntil(lambda: bool(window.desk.models))
        send(window, "Hi")
        ended(window, qtbot)
        assert [message.text for message in window.desk.branch] == ["Hi", "Yes"]
