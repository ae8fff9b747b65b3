"""`python -m tests.bench chat_window`: how smoothly a long chat with code scrolls, and an answer comes into it.

A real window without a screen: what is drawn goes into memory, as it would on a screen without a graphics card. A frame
is all that the window does after one turn of the wheel, or one bundle of the answer, and drawing it. `cpu_` figures are
the processor time of that, which other programs on the machine do not change much.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QPoint, QPointF, QSettings, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication

from agent.look import palettes
from console.chat.account import Account
from console.chat.events import Piece
from console.chat.records import Facts, Message, Setup, new_id
from console.chat.window.answers import Running
from console.chat.window.desk import Desk
from console.chat.window.window import ChatWindow

ROUNDS = 1
MESSAGES = 200
FRAME_S = 1 / 60
SCROLLS = 400
PIECES_PER_FRAME = 3
WIDTH, HEIGHT = 1200, 800

PROSE = "This is what the function does: it reads the file line by line, keeps what is asked for and sums it up. "
CODE = """```python
def total(path: str, column: str) -> float:
    \"\"\"Sum a column of a CSV file.\"\"\"
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        return sum(float(row[column]) for row in rows if row[column])


class Report:
    def __init__(self, path: str) -> None:
        self.path = path
        self.columns: dict[str, float] = {}
```"""
TABLE = "| Column | Type | Example |\n|---|---|---|\n| a | integer | 1 |\n| b | decimal | 2.5 |"
ANSWER = f"{PROSE * 2}\n\n{CODE}\n\n{PROSE}\n\n1. {PROSE}\n2. {PROSE}\n\n{TABLE}\n\n{CODE}\n\n{PROSE}\n"


def run(*, rounds: int, tokens: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure; `tokens` is not used: the answer is as long as it is. Frames are in milliseconds."""
    found = [_round(say) for _ in range(rounds)]
    return {
        name: {figure: statistics.median(one[name][figure] for one in found) for figure in found[0][name]}
        for name in found[0]
    }


def _round(say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    app.setQuitOnLastWindowClosed(False)
    palettes.apply(app, "light")
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder), Account(Path(folder), lambda: None))
        window = ChatWindow(desk, QSettings(str(Path(folder) / "window.ini"), QSettings.Format.IniFormat))
        window.resize(WIDTH, HEIGHT)
        desk.start()
        _wait(app, lambda: desk.is_loaded)
        window.bring_up()
        began_s = time.perf_counter()
        _fill(desk)
        app.processEvents()
        opened_ms = 1000 * (time.perf_counter() - began_s)
        say(f"{MESSAGES} messages, {sum(len(message.text) for message in desk.branch):,} characters")
        measured = {"opening": {"ms": round(opened_ms, 1)}}
        measured["scrolling"] = _scroll(app, window)
        measured["streaming"] = _stream(app, window)
        measured["streaming_while_scrolled_up"] = _stream(app, window, at_end=False)
        for name, figures in measured.items():
            say(f"{name}: {figures}")
        window.close()
        desk.stop()
        window.deleteLater()
        app.processEvents()
    return measured


def _fill(desk: Desk) -> None:
    desk.fresh = Setup("small")
    first = desk.add("user", PROSE, parent_id=None)
    messages = [first]
    for place in range(1, MESSAGES):
        role: Any = "assistant" if place % 2 else "user"
        text = ANSWER if place % 2 else f"{PROSE}\n\n{CODE * (place % 3 == 0)}"
        # Nothing that was seen once may make the next one cheap.
        text = text.replace("total", f"total_{place}").replace("reads", f"reads {place}")
        facts = Facts(model="small", completion_tokens=300, first_token_ms=200, total_ms=9000, pcs=["WS-1", "WS-2"])
        messages.append(
            Message(id=new_id(), chat_id=first.chat_id, parent_id=messages[-1].id, role=role, text=text, facts=facts)
        )
    for message in messages[1:]:
        desk.tree().put(message)
    desk.change_chat(first.chat_id, leaf_id=messages[-1].id)
    desk.branch_changed.emit()


def _scroll(app: QApplication, window: ChatWindow) -> dict[str, float]:
    """Turn the wheel from the end to the beginning and back, quickly: three notches a frame."""
    area = window.page.thread_
    frames: list[Frame] = []
    for number in range(SCROLLS):
        up = number < SCROLLS // 2
        at = QPointF(area.viewport().width() / 2, area.viewport().height() / 2)
        turn = QWheelEvent(
            at, area.viewport().mapToGlobal(at), QPoint(), QPoint(0, 360 if up else -360), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        frames.append(_frame(app, partial(QApplication.sendEvent, area.viewport(), turn)))
    return _figures(frames)


def _stream(app: QApplication, window: ChatWindow, *, at_end: bool = True) -> dict[str, float]:
    """Let an answer come, as fast as frames allow, three pieces in each."""
    desk, answers = window.desk, window.answers
    chat_id = desk.open_id or ""
    message = desk.add("assistant", "", parent_id=desk.branch[-1].id, state="open", facts=Facts(model="small"))
    answers.running[chat_id] = Running(message, desk.bridge.models(lambda _: None, lambda _: None))
    answers.began.emit(chat_id)
    if not at_end:
        bar = window.page.thread_.verticalScrollBar()
        bar.setValue(bar.maximum() // 2)
        app.processEvents()
    pieces = [ANSWER[place : place + 4] for place in range(0, len(ANSWER), 4)] * 3
    frames = []
    for place in range(0, len(pieces), PIECES_PER_FRAME):
        events: list[Any] = [Piece(text) for text in pieces[place : place + PIECES_PER_FRAME]]
        frames.append(_frame(app, partial(answers._take, chat_id, events)))
    answers._end(chat_id, Facts(model="small", ending="stop"), None)
    return _figures(frames)


class Frame(NamedTuple):
    """How long a frame took, and how much of that the processor worked for it."""

    took_s: float
    cpu_s: float


def _frame(app: QApplication, step: Callable[[], object]) -> Frame:
    """Do one step, and let the window do and draw what follows of it."""
    began_s, began_cpu_s = time.perf_counter(), time.thread_time()
    step()
    app.processEvents()
    frame = Frame(time.perf_counter() - began_s, time.thread_time() - began_cpu_s)
    # What is done between two frames of a screen is free.
    while time.perf_counter() - began_s < FRAME_S:
        app.processEvents()
    return frame


def _figures(frames: list[Frame]) -> dict[str, float]:
    took = sorted(frame.took_s for frame in frames)
    cpu = sorted(frame.cpu_s for frame in frames)
    return {
        "frames": len(frames),
        "frames_per_second": round(len(frames) / sum(max(frame, FRAME_S) for frame in took), 1),
        "median_ms": round(1000 * statistics.median(took), 1),
        "longest_ms": round(1000 * took[-1], 1),
        "over_50_ms": sum(frame > 0.05 for frame in took),
        "cpu_median_ms": round(1000 * statistics.median(cpu), 1),
        "cpu_p99_ms": round(1000 * cpu[int(len(cpu) * 0.99)], 1),
        "cpu_longest_ms": round(1000 * cpu[-1], 1),
    }


def _wait(app: QApplication, until: Callable[[], bool]) -> None:
    while not until():
        app.processEvents()
        time.sleep(0.001)
