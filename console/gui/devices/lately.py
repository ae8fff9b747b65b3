"""One PC lately: its free memory and round trips drawn, and the last lines of its log when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QTimer
from PySide6.QtGui import QFontDatabase, QHideEvent, QShowEvent
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from agent.look.loop import Job
from agent.look.widgets import heading, label
from console import calls
from console.api.admin.lately import LatelySample, LatelyView, LogView
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.charts import Chart
from console.gui.page import Desk

SHOWN_S = 3600.0
AGAIN_MS = 15_000
LOG_LINES_SHOWN, CHART_LINES = 10, 12


class Lately(QWidget):
    """Follows the PC it was last given, while it is in sight. GUI thread."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._device = ""
        self._job: Job | None = None
        self.memory = Chart("Free memory", " GB", 15.0)
        self.round_trip = Chart("Round trip", " ms", 15.0)
        self.rested = label(quiet=True)
        self.read = QPushButton("Read its &log")
        self.read.setVisible(desk.may("operate"))
        self.read.clicked.connect(self._read_log)
        self.log_said = label(quiet=True)
        self.log = QPlainTextEdit()
        self.log.setReadOnly(True)
        self.log.setAccessibleName("Log of this PC")
        self.log.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.log.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.log.setFixedHeight(self.fontMetrics().lineSpacing() * LOG_LINES_SHOWN)
        for chart in (self.memory, self.round_trip):
            chart.setFixedHeight(self.fontMetrics().lineSpacing() * CHART_LINES)
        self._again = QTimer(self, singleShot=True, interval=AGAIN_MS)
        self._again.timeout.connect(self._ask)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        for part in (
            heading("Last hour"), self.rested, self.memory, self.round_trip, heading("Log"), self.log_said, self.read,
            self.log,
        ):  # fmt: skip
            rows.addWidget(part)

    def follow(self, device_id: str) -> None:
        """Show another PC."""
        if device_id == self._device:
            return
        self._device = device_id
        self._show_nothing()
        if self.isVisible():
            self._ask()

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Ask at once."""
        super().showEvent(event)
        self._ask()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802 - Qt's name
        """Ask no more."""
        super().hideEvent(event)
        self._again.stop()
        self._cancel()

    def _ask(self) -> None:
        self._again.stop()
        self._cancel()
        if self._device:
            asked = calls.lately(self._device)
            self._job = self._desk.bridge.ask(asked, alive(self, self._show), alive(self, self._fail))

    def _show(self, view: LatelyView) -> None:
        memory = values_of(view, lambda one: one.memory_free_bytes / 1e9)
        trips = values_of(view, lambda one: one.round_trip_ms)
        for chart, name, values in ((self.memory, "free", memory), (self.round_trip, "there and back", trips)):
            chart.bucket_s = view.every_s
            chart.show_series([(name, values)] if any(value is not None for value in values) else [])
        self.rested.setText(rested_text(view))
        self._again.start()

    def _fail(self, error: ClientError) -> None:
        self.rested.setText(str(error))
        self._again.start()

    def _read_log(self) -> None:
        self.read.setEnabled(False)
        self.log_said.setText("Asking the PC…")
        device = self._device
        self._desk.bridge.ask(
            calls.log_of(device),
            alive(self, partial(self._show_log, device)),
            alive(self, partial(self._no_log, device)),
        )

    def _show_log(self, device: str, view: LogView) -> None:
        self.read.setEnabled(True)
        if device == self._device:
            self.log_said.setText("" if view.lines else "Nothing was logged there since its agent started.")
            self.log.setPlainText("\n".join(view.lines))
            bar = self.log.verticalScrollBar()
            bar.setValue(bar.maximum())

    def _no_log(self, device: str, error: ClientError) -> None:
        self.read.setEnabled(True)
        if device == self._device:
            self.log_said.setText(str(error))

    def _show_nothing(self) -> None:
        self.memory.show_series([])
        self.round_trip.show_series([])
        self.rested.setText("")
        self.log_said.setText("What the agent did about links, stages and deliveries; its owner sees that it was read.")
        self.log.clear()

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job = None


def values_of(view: LatelyView, value_of: Callable[[LatelySample], float | None]) -> list[float | None]:
    """Spread values over equal distances, the newest last; None where the PC was not here."""
    places = round(SHOWN_S / view.every_s)
    spread: list[float | None] = [None] * places
    for sample in view.samples:
        place = places - 1 - round((view.now_s - sample.at_s) / view.every_s)
        if 0 <= place < places:
            spread[place] = value_of(sample)
    return spread


def rested_text(view: LatelyView) -> str:
    """Say how much of the hour the PC was here and could be planned with."""
    if not view.samples:
        return "It was not connected here in the last hour."
    here_min, free_min = (
        round(count * view.every_s / 60) for count in (len(view.samples), sum(not one.held for one in view.samples))
    )
    return f"Connected for {here_min} and available for {free_min} of the last {SHOWN_S / 60:.0f} minutes."
