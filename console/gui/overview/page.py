"""The overview: the fleet in numbers, what needs somebody, how each model is, and how fast it answered lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from agent.look.widgets import Table, heading
from console import calls
from console.api.admin import types as wire
from console.gui.feed import Feed
from console.gui.overview.alerts import alerts
from console.gui.overview.charts import Chart
from console.gui.overview.endpoint import base_url, curl
from console.gui.overview.totals import count
from console.gui.overview.tour import CHAT, tour
from console.gui.overview.tour_view import TourView
from console.gui.overview.widgets import AlertList, TotalsStrip, ms_text
from console.gui.page import Desk, Page
from console.gui.programs import open_chat
from console.gui.states import States
from console.gui.times import age_text

PERFORMANCE_EVERY_S = 5.0
COLUMNS = ("Model", "State", "Last token", "Tokens/s", "First token p95", "Between p95", "Running", "Waiting", "Says")


class OverviewPage(Page):
    """What somebody wants to know first."""

    name = "overview"
    heading = "Overview"
    icon = "overview"

    def __init__(self, desk: Desk) -> None:
        self.performance = Feed(desk.bridge, calls.performances(), PERFORMANCE_EVERY_S, desk.bridge)
        super().__init__(desk, desk.status, desk.agents, desk.libraries, self.performance)
        self.strip = TotalsStrip()
        self.tour = TourView(desk.settings_folder)
        self.tour.wants.connect(self._follow_tour)
        self.alerts = AlertList()
        self.alerts.wants.connect(self.wants)
        self.models = Table("Models that are served", COLUMNS)
        self.models.itemSelectionChanged.connect(self._follow_choice)
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
        self.chat.clicked.connect(self._open_chat)
        self.copy_url = QPushButton("Copy OpenAI &base URL")
        self.copy_url.clicked.connect(self._copy_url)
        self.copy_curl = QPushButton("Copy c&url")
        self.copy_curl.clicked.connect(self._copy_curl)
        self.go = QPushButton("Go to the &model")
        self.go.clicked.connect(lambda: self.wants.emit("models", self._chosen()))
        for button in (self.chat, self.copy_url, self.copy_curl, self.go):
            across.addWidget(button)
        across.addStretch(1)
        self._follow_choice()
        return across

    def _show(self) -> None:
        status: wire.Status | None = self.desk.status.latest
        if status is None:
            return
        agents, libraries = self.desk.agents.latest, self.desk.libraries.latest
        measured: wire.Performances | None = self.performance.latest
        by_model = {one.model: one for one in measured.models} if measured else {}
        slowest = [by_model[model] for model in {pipeline.model for pipeline in status.pipelines} & by_model.keys()]
        self.strip.show_totals(
            count(agents or [], status.pipelines),
            _most(one.first_token_ms for one in slowest),
            _most(one.between_tokens_ms for one in slowest),
        )
        if agents is not None:
            self.tour.show_steps(tour(status, agents, libraries))
            # The steps say what the hints would.
            found = alerts(status, agents, libraries)
            self.alerts.show_alerts([one for one in found if one.severity != "hint" or not self.tour.is_wanted])
        self.models.show_rows(
            [_row(pipeline, by_model.get(pipeline.model)) for pipeline in status.pipelines], right=(3, 4, 5, 6, 7)
        )
        if status.pipelines:
            self.states.show_content()
            if not self.models.selectedItems():
                self.models.selectRow(0)
        else:
            self.states.show_empty("No model is served yet.", "Go to the models", lambda: self.wants.emit("models", ""))
        self._follow_choice()
        if measured is not None:
            self._draw(measured)

    def _draw(self, measured: wire.Performances) -> None:
        for chart, pick in zip(self.charts, (_rates, _firsts, _betweens), strict=True):
            chart.bucket_s = measured.bucket_s
            chart.show_series([(one.model, pick(one)) for one in measured.models])

    def _chosen(self) -> str:
        row = self.models.currentRow()
        item = self.models.item(row, 0) if row >= 0 else None
        return item.text() if item is not None else ""

    def _follow_choice(self) -> None:
        for button in (self.copy_curl, self.go):
            button.setEnabled(bool(self._chosen()))

    def _follow_tour(self, page: str, what: str) -> None:
        if page == CHAT:
            self._open_chat()
        else:
            self.wants.emit(page, what)

    def _open_chat(self) -> None:
        if not open_chat():
            self.said.emit("The chat window could not be started; is fallow-chat installed on this PC?", True)

    def _copy_url(self) -> None:
        url = base_url(self.desk.bridge.access)
        QGuiApplication.clipboard().setText(url)
        self.said.emit(f"{url} is copied.", False)

    def _copy_curl(self) -> None:
        QGuiApplication.clipboard().setText(curl(self.desk.bridge.access, self._chosen()))
        self.said.emit("The command is copied. It takes an API key from the variable FALLOW_KEY.", False)


def _rates(one: wire.ModelPerformance) -> Sequence[float | None]:
    return one.tokens_per_second


def _firsts(one: wire.ModelPerformance) -> Sequence[float | None]:
    return one.first_token_ms_then


def _betweens(one: wire.ModelPerformance) -> Sequence[float | None]:
    return one.between_tokens_ms_then


def _most(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _row(pipeline: wire.PipelineView, measured: wire.ModelPerformance | None) -> Sequence[str]:
    probe = pipeline.probe
    last = "never" if probe.age_s is None else f"{age_text(probe.age_s)} ago"
    return [
        pipeline.model,
        pipeline.state,
        last if probe.ok or probe.age_s is None else f"{last}, not fresh",
        f"{pipeline.tokens_per_second:.1f}",
        ms_text(measured.first_token_ms if measured else None),
        ms_text(measured.between_tokens_ms if measured else None),
        str(pipeline.running),
        str(pipeline.queued),
        pipeline.message or ("" if probe.ok else probe.message),
    ]
