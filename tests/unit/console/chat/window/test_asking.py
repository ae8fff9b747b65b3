"""Asking again, editing, copying and exporting while an answer comes: nothing that was said is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel

from console.chat.window.parts import CodePart, RichText
from console.chat.window.window import ChatWindow
from console.pipeline import types as pipeline
from tests.support.api import finished, says
from tests.support.chat_windows import Talk, ended, send

LEFT = pipeline.Failed("stage_lost", "A PC left.")


def half(talk: Talk, text: str = "And?") -> str:
    """Send, and wait until half an answer has come; returns the id of that answer."""
    talk.model.script = [pipeline.Text("Half ", [1]), asyncio.Event(), finished()]
    send(talk.window, text)
    running = talk.window.answers.running
    talk.qtbot.waitUntil(lambda: any(one.text for one in running.values()))
    (one,) = running.values()
    return one.message.id


def test_trying_a_failed_answer_again_keeps_what_was_said_after_it(talk: Talk) -> None:
    talk.ask("Hi", [LEFT])
    talk.ask("Never mind", says("Fine"))
    assert talk.texts() == ["Hi", "", "Never mind", "Fine"]
    later = talk.window.desk.branch[-1].id
    talk.model.script = says("Hello")
    talk.window.page.wish("regenerate", talk.window.desk.branch[1].id)
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi", "Hello"]
    talk.window.desk.show_branch(later)
    assert talk.texts() == ["Hi", "", "Never mind", "Fine"]
    kept: list[int] = []
    chat_id = talk.window.desk.open_id or ""
    talk.window.desk.store.do(lambda file: len(file.messages(chat_id)), kept.append)
    talk.qtbot.waitUntil(lambda: kept == [5])


def test_trying_a_failed_answer_again_replaces_it_if_nothing_followed(talk: Talk) -> None:
    talk.ask("Hi", [LEFT])
    talk.model.script = says("Hello")
    talk.window.page.wish("regenerate", talk.window.desk.branch[1].id)
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi", "Hello"]
    assert len(talk.window.desk.tree()) == 2


def test_files_stay_with_the_chat_they_were_attached_in(talk: Talk, tmp_path: Path) -> None:
    window, (first, second) = talk.window, (tmp_path / "a.py", tmp_path / "b.py")
    composer = window.page.composer
    first.write_text("x = 1\n")
    second.write_text("y = 2\n")
    talk.ask("Hi")
    chat_id = window.desk.open_id
    window.files.attach([first])
    talk.qtbot.waitUntil(lambda: bool(composer.files))
    window.actions_["new"].trigger()
    assert (composer.files, composer._chips.isVisible()) == ([], False)
    talk.ask("Something else")
    assert "x = 1" not in talk.model.messages[-1]["content"]
    window.actions_["new"].trigger()
    window.files.attach([second])
    talk.qtbot.waitUntil(lambda: bool(composer.files))
    window.desk.open(chat_id)
    assert [file.name for file in composer.files] == ["a.py"]
    assert composer._chips.isVisible()
    talk.ask("With it")
    assert "x = 1" in talk.model.messages[-1]["content"]
    assert (composer.files, window.desk.files) == ([], [])
    window.desk.open(None)
    assert [file.name for file in composer.files] == ["b.py"]


def sizes(window: ChatWindow) -> dict[str, set[float]]:
    """Return the sizes of all text in the window, by what it is."""
    found: dict[str, set[float]] = {}
    for each in [*window.findChildren(QLabel), *window.findChildren(RichText)]:
        name = f"{each.property('scale') or 1} {type(each).__name__}"
        found.setdefault(name, set()).add(round(each.font().pointSizeF(), 1))
    for part in window.findChildren(CodePart):
        found.setdefault("code", set()).add(round(part.code.document().defaultFont().pointSizeF(), 1))
    return found


def test_text_size_reaches_every_label_and_all_code_there_is_and_comes(talk: Talk) -> None:
    talk.ask("Hi", says("Use *this*:\n\n```python\nx = 1\n```\n"))
    talk.view(1)
    before = sizes(talk.window)
    assert {"1 QLabel", "0.9 QLabel", "1.5 QLabel", "1 TextPart", "1 RichText", "code"} <= set(before)
    talk.window.desk.change_settings(font_percent=200)
    talk.ask("More")
    talk.view(3)
    after = sizes(talk.window)
    assert set(after) == set(before)
    for name, found in after.items():
        (size,) = before[name]
        assert [*found] == [pytest.approx(2 * size, abs=0.2)], name
    parts = talk.window.findChildren(CodePart)
    assert parts
    talk.qtbot.waitUntil(lambda: all(part.code.height() >= part.code.document().size().height() for part in parts))


@pytest.mark.parametrize("wish", ["regenerate", "edit"])
def test_asking_about_another_message_stops_the_answer_that_comes_and_keeps_it(talk: Talk, wish: str) -> None:
    talk.ask("Hi", [LEFT])
    first, failed = talk.window.desk.branch
    coming = half(talk)
    talk.model.script = says("Other")
    if wish == "regenerate":
        talk.window.page.wish("regenerate", failed.id)
    else:
        talk.window.answers.edit(first.id, "Hello")
    ended(talk.window, talk.qtbot)
    assert talk.texts() == ["Hi" if wish == "regenerate" else "Hello", "Other"]
    assert len(talk.model.requests) == 3
    stopped = talk.window.desk.tree()[coming]
    assert (stopped.text, stopped.state) == ("Half ", "stopped")
    assert failed.id in talk.window.desk.tree()


def test_what_has_come_of_an_answer_is_copied_exported_and_found(talk: Talk, tmp_path: Path) -> None:
    window, clipboard = talk.window, QGuiApplication.clipboard()
    coming = half(talk)
    window.page.wish("copy", coming)
    assert clipboard.text() == "Half "
    window.actions_["copy_all"].trigger()
    assert clipboard.text().endswith("## Assistant\n\nHalf \n")
    for ending in ("md", "html", "json"):
        window.files.export_to(tmp_path / f"chat.{ending}", "md")
    talk.qtbot.waitUntil(lambda: all((tmp_path / f"chat.{ending}").exists() for ending in ("md", "html", "json")))
    assert "Half" in (tmp_path / "chat.md").read_text()
    assert "Half" in (tmp_path / "chat.html").read_text()
    assert json.loads((tmp_path / "chat.json").read_text())["messages"][1]["text"] == "Half "
    window.actions_["find"].trigger()
    window.page.find_bar.field.setText("half")
    assert window.page.find_bar.count.text() == "1 of 1"
    assert coming in {one.message.id for one in window.answers.running.values()}


def test_what_is_left_of_an_answer_is_spoken_wherever_somebody_looks_at_its_end(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("console.chat.window.chatpage.announce", lambda _, text: said.append(text))
    talk.ask("Hi", says("Good day."))
    question, answer = talk.window.desk.branch
    coming = half(talk, "More")
    talk.window.answers.edit(answer.id, "My own answer")
    assert talk.texts() == ["Hi", "My own answer"]
    assert question.id != coming
    said.clear()
    talk.window.page.stop()
    assert said == ["Half"]
    assert talk.window.page._sentences == {}
