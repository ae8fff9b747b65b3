"""What the overview is made of: numbers beside each other, and the list of what needs somebody."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import Picture, label
from console.gui.overview.alerts import Alert, Severity
from console.gui.overview.totals import Totals
from console.gui.times import size_text

ICONS: dict[Severity, str] = {"bad": "attention", "wait": "waiting", "hint": "idle"}
SAID: dict[Severity, str] = {"bad": "Does not work", "wait": "Waits", "hint": "Hint"}
MOST = 5


class TotalsStrip(QFrame):
    """Numbers beside each other, each with what it counts."""

    NAMES = (
        "PCs connected", "available", "serving", "held", "memory free", "models ready", "tokens/s", "running, waiting",
        "first token p95", "between p95",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        across = QHBoxLayout(self)
        across.setContentsMargins(0, 0, 0, 0)
        self.values: dict[str, QLabel] = {}
        for name in self.NAMES:
            value = label("-", bold=True, scale=1.4)
            value.setAccessibleName(name)
            value.setWordWrap(False)
            box = QWidget()
            rows = QVBoxLayout(box)
            rows.setContentsMargins(0, 0, 0, 0)
            rows.setSpacing(0)
            rows.addWidget(value)
            rows.addWidget(label(name, quiet=True))
            across.addWidget(box, 0, Qt.AlignmentFlag.AlignTop)
            self.values[name] = value

    def show_totals(self, totals: Totals, first_ms: float | None, between_ms: float | None) -> None:
        """Show other numbers; times None: nobody asked in the last minutes."""
        texts = (
            f"{totals.connected} / {totals.known}", str(totals.available), str(totals.serving), str(totals.held),
            size_text(totals.memory_free_bytes), f"{totals.models_ready} / {totals.models}",
            f"{totals.tokens_per_second:.1f}", f"{totals.running}, {totals.queued}", ms_text(first_ms),
            ms_text(between_ms),
        )  # fmt: skip
        for name, text in zip(self.NAMES, texts, strict=True):
            if self.values[name].text() != text:
                self.values[name].setText(text)


def ms_text(ms: float | None) -> str:
    """Say a time of a request; a dash for none."""
    if ms is None:
        return "-"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"


class AlertList(QWidget):
    """What needs somebody, each with a button that goes where it can be done. The widgets stay while the texts do."""

    wants = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._shown: list[Alert] = []
        self.lines: list[_AlertLine] = []
        self.more = label(quiet=True)
        self.none = label("Nothing needs you now.", quiet=True)
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 0, 0, 0)
        for _ in range(MOST):
            line = _AlertLine()
            line.wants.connect(self.wants)
            line.hide()
            self.lines.append(line)
            self._rows.addWidget(line)
        self._rows.addWidget(self.none)
        self._rows.addWidget(self.more)
        self.more.hide()

    def show_alerts(self, alerts: Sequence[Alert]) -> None:
        """Show others."""
        if list(alerts) == self._shown:
            return
        self._shown = list(alerts)
        for place, line in enumerate(self.lines):
            line.show_alert(alerts[place] if place < len(alerts) else None)
        self.none.setVisible(not alerts)
        self.more.setText(f"and {len(alerts) - MOST} more")
        self.more.setVisible(len(alerts) > MOST)


class _AlertLine(QWidget):
    wants = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._alert: Alert | None = None
        self.picture = Picture("idle", 1.6)
        self.text = label()
        self.step = label(quiet=True)
        self.button = QPushButton()
        self.button.clicked.connect(self._go)
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(self.text)
        words.addWidget(self.step)
        across = QHBoxLayout(self)
        across.setContentsMargins(0, 0, 0, 0)
        across.addWidget(self.picture, 0, Qt.AlignmentFlag.AlignTop)
        across.addLayout(words, 1)
        across.addWidget(self.button)

    def show_alert(self, alert: Alert | None) -> None:
        self._alert = alert
        self.setVisible(alert is not None)
        if alert is not None:
            self.picture.show_icon(ICONS[alert.severity], SAID[alert.severity])
            self.text.setText(alert.text)
            self.step.setText(alert.step)
            self.button.setText(alert.button)

    def _go(self) -> None:
        if self._alert is not None:
            self.wants.emit(self._alert.page, self._alert.what)
