"""The page of answers: the slowest or the newest of the last hour, and where the time of one went."""

from __future__ import annotations

import time
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QSplitter, QVBoxLayout, QWidget

from agent.look.widgets import Table, heading, label, scrolled
from console import calls
from console.api.admin import types as wire
from console.gui.answers.bars import PartBars
from console.gui.answers.texts import bars, end_text, largest_text, stage_rows, summary_text, time_text
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from console.gui.rows import Heading, KeyedModel, RowsView
from console.gui.states import States
from console.gui.times import age_text

EVERY_S = 5.0
MOST = 200
TABLE_SHARE = 45
"""Of the height, in percent."""
ORDERS: dict[wire.AnswerOrder, str] = {
    "slowest": "The slowest of the last hour",
    "newest": "The newest",
}


class AnswerModel(KeyedModel[wire.AnswerTime]):
    """Answers; they never change, but grow older."""

    headings = (
        Heading("Ended", 15), Heading("Model", 24), Heading("Took", 10, number=True),
        Heading("First token", 13, number=True), Heading("Tokens", 10, number=True), Heading("End", 18),
        Heading("Largest part", 40),
    )  # fmt: skip

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.words = ""
        """What the rows that are shown have in their model, request, key or PCs."""

    def key_of(self, item: wire.AnswerTime) -> str:
        return f"{item.ended_s:.6f} {item.request_id}"

    def lets(self, item: wire.AnswerTime) -> bool:
        return self.words in " ".join((item.model, item.request_id, item.key_id, *item.pcs)).lower()

    def text(self, item: wire.AnswerTime, column: int) -> str:
        return (
            f"{age_text(time.time() - item.ended_s)} ago",
            item.model,
            time_text(item.total_ms),
            time_text(item.first_token_ms) if item.answer_tokens else "-",
            str(item.answer_tokens),
            end_text(item),
            largest_text(item.parts),
        )[column]

    def sort_key(self, item: wire.AnswerTime, column: int) -> Any:
        numbers = {0: -item.ended_s, 2: item.total_ms, 3: item.first_token_ms, 4: item.answer_tokens}
        return numbers[column] if column in numbers else self.text(item, column)


class AnswersPage(Page):
    """Which answers were slow, and why."""

    name = "answers"
    heading = "Answers"
    icon = "answers"

    def __init__(self, desk: Desk) -> None:
        self.by_order = {order: Feed(desk.bridge, calls.answer_times(order, MOST), EVERY_S) for order in ORDERS}
        super().__init__(desk, self.by_order["slowest"])
        self.by_order["newest"].setParent(self)
        self.model = AnswerModel(self)
        self.table = RowsView("Answers", self.model, several=False)
        self.table.selectionModel().selectionChanged.connect(self._show_chosen)
        self.states = States(self.table)
        self.order = QComboBox()
        self.order.setAccessibleName("Which answers")
        self.words = QLineEdit()
        self.why = label(bold=True)
        self.bars = PartBars()
        self.stages = Table("PCs", ["PC", "Inference", "Waiting there", "Way there and back"], stretch=0)
        self.more = label(quiet=True)
        self._lay_out()
        for feed in self.by_order.values():
            feed.came.connect(self._show)
            feed.failed.connect(lambda error, feed=feed: self.states.show_error(error, feed.now))
        self._show_chosen()

    def search(self) -> None:
        """Go to the search."""
        self.words.setFocus()
        self.words.selectAll()

    def select(self, what: str) -> None:
        """Show the answers of one model, request, key or PC."""
        self.words.setText(what)

    def _lay_out(self) -> None:
        for order, text in ORDERS.items():
            self.order.addItem(text, order)
        self.order.activated.connect(lambda _: self._follow_order())
        self.words.setPlaceholderText("Search models, PCs, requests and keys")
        self.words.setAccessibleName("Search")
        self.words.setClearButtonEnabled(True)
        self.words.textChanged.connect(self._filter)
        across = QHBoxLayout()
        across.addWidget(self.order)
        across.addWidget(self.words, 1)
        inside = QWidget()
        rows = QVBoxLayout(inside)
        rows.setContentsMargins(0, 0, 0, 0)
        self.title = heading("Where its time went")
        for widget in (self.title, self.why, self.bars, self.stages, self.more):
            rows.addWidget(widget)
        rows.addStretch(1)
        split = QSplitter(Qt.Orientation.Vertical)
        split.setChildrenCollapsible(False)
        split.addWidget(self.states)
        split.addWidget(scrolled(inside))
        split.setStretchFactor(0, 3)
        split.setStretchFactor(1, 4)
        split.setSizes([TABLE_SHARE, 100 - TABLE_SHARE])
        self.rows.addLayout(across)
        self.rows.addWidget(split, 1)

    @property
    def feed(self) -> Feed:
        """What is looked at now."""
        order: wire.AnswerOrder = self.order.currentData()
        return self.by_order[order]

    def _follow_order(self) -> None:
        if self.feeds == (self.feed,):
            return
        for feed in self.feeds:
            feed.leave()
        self.feeds = (self.feed,)
        self.feed.watch()
        self._show()
        self.model.look_again()

    def _filter(self) -> None:
        self.model.words = self.words.text().strip().lower()
        self.model.look_again()

    def _show(self) -> None:
        answers: list[wire.AnswerTime] | None = self.feed.latest
        if answers is None:
            return
        is_first = not self.model.items
        self.model.take(answers)
        self.model.tell_column(0)
        if is_first or self.feed is self.by_order["newest"]:
            self.model.look_again()
        if answers:
            self.states.show_content()
            if not self.table.chosen():
                self.table.selectRow(0)
        else:
            self.states.show_empty("Nobody was answered in the last hour.")
        self._show_chosen()

    def _show_chosen(self) -> None:
        chosen = [self.model.find(key) for key in self.table.chosen()]
        answer = chosen[0] if chosen else None
        for widget in (self.title, self.why, self.bars, self.stages, self.more):
            widget.setVisible(answer is not None)
        if answer is None:
            return
        self.why.setText(answer.slowest)
        self.bars.show_bars(bars(answer.parts))
        self.stages.show_rows(stage_rows(answer.stages), right=(1, 2, 3))
        self.stages.setVisible(bool(answer.stages))
        rows = self.stages.verticalHeader().minimumSectionSize() * len(answer.stages)
        frame = 2 * self.stages.frameWidth()
        self.stages.setFixedHeight(rows + self.stages.horizontalHeader().sizeHint().height() + frame)
        self.more.setText(summary_text(answer))
