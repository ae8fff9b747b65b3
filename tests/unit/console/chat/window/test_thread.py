"""The list of messages: what is made when, and what the view does while it grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from console.chat.records import Message
from console.chat.render import Shades, code_html, markdown_html
from console.chat.tree import Fork
from console.chat.window.column import MOST_VIEWS
from console.chat.window.message import Shown
from console.chat.window.thread import Thread

CODE = "Some words before.\n\n```python\n" + "x = [1, 2, 3]\n" * 12 + "```\n\nAnd after.\n"


def shown(place: int, text: str = CODE) -> Shown:
    role = "assistant" if place % 2 else "user"
    message = Message(id=f"m{place}", chat_id="c", parent_id=None, role=role, text=text)  # type: ignore[arg-type]
    return Shown(message, Fork(1, 1))


def running(place: int, text: str = "") -> Shown:
    return Shown(shown(place, "").message, Fork(1, 1), text, runs=True)


@pytest.fixture
def thread(qtbot: QtBot) -> Iterator[Thread]:
    made = Thread()
    made.resize(700, 500)
    made.show()
    yield made
    made.close()
    made.deleteLater()


def show(thread: Thread, qtbot: QtBot, branch: Sequence[Shown]) -> None:
    thread.show_branch(branch, anew=True)
    settle(thread, qtbot)


def settle(thread: Thread, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not thread._later.isActive() and all(item.view for item in thread._around(0)))


def views(thread: Thread) -> int:
    return sum(item.view is not None for item in thread.items)


def at_end(thread: Thread) -> bool:
    bar = thread.verticalScrollBar()
    return bar.value() == bar.maximum()


def test_only_messages_near_the_view_have_widgets(thread: Thread, qtbot: QtBot) -> None:
    show(thread, qtbot, [shown(place) for place in range(200)])
    assert at_end(thread)
    assert thread.items[-1].view is not None
    assert thread.items[0].view is None
    bar = thread.verticalScrollBar()
    for value in range(bar.maximum(), 0, -6000):
        bar.setValue(min(value, bar.maximum()))
        settle(thread, qtbot)
        assert views(thread) <= MOST_VIEWS + 12


def test_sticky_scroll_follows_the_end_only_while_it_is_in_sight(thread: Thread, qtbot: QtBot) -> None:
    show(thread, qtbot, [*(shown(place) for place in range(20)), running(20)])
    for _ in range(30):
        thread.grow("m20", "more words and\n\n")
        assert at_end(thread)
    bar = thread.verticalScrollBar()
    bar.setValue(bar.value() - 700)
    settle(thread, qtbot)
    stays = bar.value()
    assert thread.latest.isVisible()
    for _ in range(30):
        thread.grow("m20", "more words and\n\n")
    assert bar.value() == stays
    thread.latest.click()
    assert at_end(thread)
    assert not thread.latest.isVisible()
    thread.grow("m20", "more\n\n" * 20)
    assert at_end(thread)


def test_what_is_looked_at_stays_when_messages_above_turn_out_higher(thread: Thread, qtbot: QtBot) -> None:
    show(thread, qtbot, [shown(place) for place in range(60)])
    bar = thread.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    settle(thread, qtbot)
    anchor = thread._anchor()
    assert anchor is not None
    item, below = anchor
    thread.update_message(shown(int(item.shown.message.id[1:]) - 3, CODE * 3))
    thread._make(thread.items[0])
    thread._lay_out((item, below))
    assert item.top - bar.value() == below


def test_another_branch_keeps_the_widgets_of_messages_that_stay(thread: Thread, qtbot: QtBot) -> None:
    branch = [shown(place, "short") for place in range(6)]
    show(thread, qtbot, branch)
    kept = thread.view_of("m4")
    thread.show_branch([*branch[:5], shown(7, "other")], anew=False)
    assert thread.view_of("m4") is kept
    assert thread.view_of("m5") is None


def test_keyboard_goes_from_message_to_message_and_scrolls(thread: Thread, qtbot: QtBot) -> None:
    show(thread, qtbot, [shown(place) for place in range(30)])
    thread.activateWindow()
    thread.step(-1)
    assert thread.current == "m29"
    thread.step(-1)
    assert thread.current == "m28"
    view = thread.view_of("m28")
    assert view is not None
    QTest.keyClick(view, Qt.Key.Key_Up)
    assert thread.current == "m27"
    assert thread.scroll_by_key(Qt.Key.Key_Home)
    settle(thread, qtbot)
    assert thread.verticalScrollBar().value() == 0
    assert thread.scroll_by_key(Qt.Key.Key_PageDown)
    assert thread.verticalScrollBar().value() > 0
    assert thread.scroll_by_key(Qt.Key.Key_End)
    assert at_end(thread)
    assert not thread.scroll_by_key(Qt.Key.Key_A)


def test_only_the_open_block_is_shown_anew_and_code_is_coloured_once_when_it_closes(
    thread: Thread, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    coloured: list[str] = []

    def watched_text(source: str, shades: Shades) -> str:
        rendered.append(source)
        return markdown_html(source, shades)

    def watched_code(source: str, language: str, shades: Shades) -> str:
        coloured.append(source)
        return code_html(source, language, shades)

    monkeypatch.setattr("console.chat.window.parts.markdown_html", watched_text)
    monkeypatch.setattr("console.chat.window.parts.code_html", watched_code)
    show(thread, qtbot, [shown(0, "Hi"), running(1)])
    thread.grow("m1", "First paragraph.\n\n")
    rendered.clear()
    for piece in ("```python\n", "x = 1\n", "y =", " 2\n"):
        thread.grow("m1", piece)
    assert rendered == []
    assert coloured == []
    thread.grow("m1", "```\n")
    qtbot.waitUntil(lambda: coloured == ["x = 1\ny = 2\n"])
    thread.grow("m1", "Last")
    thread.grow("m1", " words")
    assert rendered == ["Last", "Last words"]
    assert coloured == ["x = 1\ny = 2\n"]
    view = thread.view_of("m1")
    assert view is not None
    assert [text.toPlainText().strip() for text in view.body.texts()] == [
        "First paragraph.", "x = 1\ny = 2", "Last words",
    ]  # fmt: skip


def test_an_answer_that_grows_out_of_sight_is_whole_when_its_widget_is_made(thread: Thread, qtbot: QtBot) -> None:
    show(thread, qtbot, [*(shown(place) for place in range(60)), running(60, "Begun ")])
    thread.scroll_by_key(Qt.Key.Key_Home)
    settle(thread, qtbot)
    thread.show_branch([*(shown(place) for place in range(60)), running(61, "Anew ")], anew=False)
    assert thread.view_of("m61") is None
    for piece in ("and ", "on ", "it ", "goes"):
        thread.grow("m61", piece)
    thread.to_end()
    settle(thread, qtbot)
    thread.grow("m61", " on")
    view = thread.view_of("m61")
    assert view is not None
    assert view.body.texts()[0].toPlainText().strip() == "Anew and on it goes on"


def test_a_change_of_the_look_does_not_touch_the_stream(thread: Thread, qtbot: QtBot) -> None:
    show(thread, qtbot, [shown(0, "Hi"), running(1, "Begun ")])
    thread.grow("m1", "and on")
    thread.recolour()
    thread.set_width("narrow")
    thread.grow("m1", " it goes")
    view = thread.view_of("m1")
    assert view is not None
    assert view.body.texts()[0].toPlainText().strip() == "Begun and on it goes"
