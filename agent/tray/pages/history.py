"""What this PC gave: hours, tokens and energy, drawn and as a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from PySide6.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QLabel

from agent.control.protocol import Answer, History, HistoryRow, QueryHistory, Refused
from agent.look.widgets import Table, label
from agent.tray.bridge import Bridge
from agent.tray.numbers import Numbers
from agent.tray.pages.chart import Bar, Chart
from agent.tray.pages.page import Page
from agent.tray.pages.periods import PERIODS, Period, end_of, fill, starts_of
from agent.tray.texts import Texts

MEASURES: dict[str, Callable[[HistoryRow], float]] = {
    "hours": lambda row: row.served_s / 3600,
    "tokens": lambda row: float(row.tokens),
    "energy": lambda row: row.energy_wh,
}


class HistoryPage(Page):
    """Asks the service each time it comes into sight or another period is chosen."""

    name = "history"

    def __init__(self, texts: Texts, bridge: Bridge, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(texts, scrolls=False)
        self._bridge, self._now = bridge, now
        self._numbers = Numbers(texts)
        self._starts: list[float] = []
        self._rows: list[HistoryRow] = []
        self.period, self.measure = QComboBox(), QComboBox()
        for box, group, names in ((self.period, "period", PERIODS), (self.measure, "measure", tuple(MEASURES))):
            box.setAccessibleName(texts(f"history.{group}"))
            for name in names:
                box.addItem(texts(f"{group}.{name}"), name)
        self.period.setCurrentIndex(PERIODS.index("fortnight"))
        self.period.currentIndexChanged.connect(self.entered)
        self.measure.currentIndexChanged.connect(self._draw)
        self.rows.addLayout(self._choices())
        self.sum = label()
        self.sum.setObjectName("sum")
        self.rows.addWidget(self.sum)
        self.chart = Chart(texts("page.history"))
        self.chart.chosen.connect(self._select_row)
        self.rows.addWidget(self.chart, 3)
        headers = [texts(f"history.{name}") for name in ("when", "hours", "tokens", "energy")]
        self.table = Table(texts("history.table"), headers, stretch=0)
        self.rows.addWidget(self.table, 2)
        self.rows.addWidget(label(texts("history.note"), quiet=True))

    def entered(self) -> None:
        """Ask for the chosen period."""
        period: Period = self.period.currentData()
        starts = starts_of(period, self._now())
        by: Literal["hour", "day"] = "hour" if period == "day" else "day"
        order = lambda id_: QueryHistory(id_, starts[0], end_of(period, starts[-1]), by)  # noqa: E731
        self._bridge.order(order, lambda answer: self._take(answer, period, starts))

    def _choices(self) -> QHBoxLayout:
        line = QHBoxLayout()
        for key, box in (("history.period", self.period), ("history.measure", self.measure)):
            pair = QFormLayout()
            said = QLabel(self.texts(key))
            said.setBuddy(box)
            pair.addRow(said, box)
            line.addLayout(pair)
        line.addStretch(1)
        return line

    def _take(self, answer: Answer, period: Period, starts: list[float]) -> None:
        if isinstance(answer, History) and period == self.period.currentData():
            self._starts, self._rows = starts, fill(answer.rows, starts)
            self._draw()
        elif isinstance(answer, Refused):
            self.sum.setText(answer.message)

    def _draw(self) -> None:
        measure = self.measure.currentData()
        bars = [Bar(self._label(row), MEASURES[measure](row), self._words(row)) for row in self._rows]
        self.chart.show_bars(bars, self._unit(measure))
        given = [row for row in self._rows if row.served_s > 0 or row.tokens > 0]
        cells = [
            (
                self._label(row, whole=True),
                self._numbers.decimal(row.served_s / 3600),
                self._numbers.whole(row.tokens),
                self._numbers.decimal(row.energy_wh),
            )
            for row in reversed(given)
        ]
        self.table.show_rows(cells, right=(1, 2, 3))
        self.sum.setText(self._said_sum())

    def _unit(self, measure: str) -> Callable[[float], str]:
        numbers = self._numbers
        if measure == "tokens":
            return numbers.whole
        return lambda value: numbers.decimal(value, 0 if float(value).is_integer() else 2)

    def _said_sum(self) -> str:
        if not any(row.served_s > 0 or row.tokens > 0 for row in self._rows):
            return self.texts("history.nothing")
        return self.texts(
            "history.sum",
            hours=self._numbers.hours(sum(row.served_s for row in self._rows) / 3600),
            tokens=self._numbers.tokens(sum(row.tokens for row in self._rows)),
            energy=self._numbers.energy(sum(row.energy_wh for row in self._rows)),
        )

    def _label(self, row: HistoryRow, *, whole: bool = False) -> str:
        local = time.localtime(row.start_s)
        if self.period.currentData() == "day":
            return time.strftime("%Y-%m-%d %H:00" if whole else "%H", local)
        if whole:
            return time.strftime("%Y-%m-%d", local)
        return self.texts("history.day", day=local.tm_mday, month=local.tm_mon)

    def _words(self, row: HistoryRow) -> str:
        return self.texts(
            "history.bar",
            when=self._label(row, whole=True),
            hours=self._numbers.hours(row.served_s / 3600),
            tokens=self._numbers.tokens(row.tokens),
            energy=self._numbers.energy(row.energy_wh),
        )

    def _select_row(self, place: int) -> None:
        given = [at for at, row in enumerate(self._rows) if row.served_s > 0 or row.tokens > 0]
        if place in given:
            self.table.selectRow(len(given) - 1 - given.index(place))
