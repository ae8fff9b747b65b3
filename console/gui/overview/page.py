"""The overview: the fleet in numbers, what needs somebody, how each model is, and how fast it answered lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from agent.look.widgets import heading
from console import calls
from console.api.admin import types as wire
from console.gui.charts import Chart
from console.gui.feed import Feed
from console.gui.handing import begin_chat, copy_base_url, copy_curl
from console.gui.overview.alerts import alerts
from console.gui.overview.served import ServedModel, served
from console.gui.overview.totals import count
from console.gui.overview.tour import CHAT, tour
from console.gui.overview.tour_view import TourView
from console.gui.overview.widgets import AlertList, TotalsStrip
from console.gui.page import Desk, Page
from console.gui.rows import RowsView
from console.gui.states import States

PERFORMANCE_EVERY_S = 5.0


class OverviewPage(Page):
    """What somebody wants to know first."""

    name = "overview"
    heading = "Overview"
    icon = "overview"

    def __init__(self, desk: Desk) -> None:
        self.performance = Feed(desk.bridge, calls.performances(), PERFORMANCE_EVERY_S)
        super().__init__(desk, desk.status, desk.agents, desk.libraries, self.performance)
        self.strip = TotalsStrip()
        self.tour = TourView(desk.settings_folder)
        self.tour.wants.connect(self._follow_tour)
        self.alerts = AlertList()
        self.alerts.wants.connect(self.wants)
        self.model = ServedModel(self)
        self.models = RowsView("Models that are served", self.model, several=False)
        self.models.selectionModel().selectionChanged.connect(self._follow_choice)
        self.states = States(self.models)
        self.charts = (
            Chart("Tokens a second", ""),
            Chart("First token, p95 (ms)", " ms"),
            Chart("Between tokens, p95 (ms)", " ms"),
        )
        self._lay_out()
        self.states.follow(desk.status)
        for feed in self.feeds:
            feed.came.connect(self._show)
        self.performance.came.connect(self._draw)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Begin to watch, and draw what came meanwhile."""
        super().showEvent(event)
        self._show()
        self._draw()

    def _lay_out(self) -> None:
        self.rows.addWidget(self.strip)
        self.rows.addWidget(self.tour)
        self.rows.addWidget(heading("What needs you"))
        self.rows.addWidget(self.alerts)
        self.rows.addWidget(heading("Models"))
        self.rows.addLayout(self._buttons())
        self.rows.addWidget(self.states, 1)
        self.plots = QWidget()
        across = QHBoxLayout(self.plots)
        across.setContentsMargins(0, 0, 0, 0)
        for chart in self.charts:
            across.addWidget(chart, 1)
        self.plots.setMaximumHeight(self.fontMetrics().height() * 18)
        self.rows.addWidget(self.plots, 1)

    def _buttons(self) -> QHBoxLayout:
        across = QHBoxLayout()
        self.chat = QPushButton("Open &chat")
        self.chat.clicked.connect(lambda: begin_chat(self.said.emit))
        self.copy_url = QPushButton("Copy OpenAI &base URL")
        self.copy_url.clicked.connect(lambda: copy_base_url(self.desk.bridge.access, self.said.emit))
        self.copy_curl = QPushButton("Copy c&url")
        self.copy_curl.clicked.connect(lambda: copy_curl(self.desk.bridge.access, self._chosen(), self.said.emit))
        self.go = QPushButton("Go to the &model")
        self.go.clicked.connect(lambda: self.wants.emit("models", self._chosen()))
        for button in (self.chat, self.copy_url, self.copy_curl, self.go):
            across.addWidget(button)
        across.addStretch(1)
        self._follow_choice()
        return across

    def _show(self) -> None:
        status: wire.Status | None = self.desk.status.latest
        if status is None or not self.isVisible():
            return
        agents, libraries = self.desk.agents.latest, self.desk.libraries.latest
        measured: wire.Performances | None = self.performance.latest
        rows = served(status.pipelines, measured)
        known = [row.measured for row in rows if row.measured is not None]
        self.strip.show_totals(
            count(agents or [], status.pipelines),
            _most(one.first_token_ms for one in known),
            _most(one.between_tokens_ms for one in known),
        )
        if agents is not None:
            self.tour.show_steps(tour(status, agents, libraries))
            # The steps say what the hints would.
            found = alerts(status, agents, libraries)
            self.alerts.show_alerts([one for one in found if one.severity != "hint" or not self.tour.is_wanted])
        is_first = not self.model.shown
        self.model.take(rows)
        if rows:
            self.states.show_content()
            if is_first:  # only then: what is copied is never that of a model somebody did not choose
                self.models.selectRow(0)
        else:
            self.states.show_empty("No model is served yet.", "Go to the models", lambda: self.wants.emit("models", ""))
        self._follow_choice()

    def _draw(self) -> None:
        measured: wire.Performances | None = self.performance.latest
        if measured is None or not self.isVisible():
            return
        for chart, pick in zip(self.charts, (_rates, _firsts, _betweens), strict=True):
            chart.bucket_s = measured.bucket_s
            chart.show_series([(one.model, pick(one)) for one in measured.models])

    def _chosen(self) -> str:
        chosen = self.models.chosen()
        row = self.model.find(chosen[0]) if chosen else None
        return row.pipeline.model if row is not None else ""

    def _follow_choice(self) -> None:
        for button in (self.copy_curl, self.go):
            button.setEnabled(bool(self._chosen()))

    def _follow_tour(self, page: str, what: str) -> None:
        if page == CHAT:
            begin_chat(self.said.emit)
        else:
            self.wants.emit(page, what)


def _rates(one: wire.ModelPerformance) -> Sequence[float | None]:
    return one.tokens_per_second


def _firsts(one: wire.ModelPerformance) -> Sequence[float | None]:
    return one.first_token_ms_then


def _betweens(one: wire.ModelPerformance) -> Sequence[float | None]:
    return one.between_tokens_ms_then


def _most(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)
