"""Lines of the last quarter of an hour, one for each model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import numpy.typing as npt
import pyqtgraph
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from agent.look import palettes
from agent.look.widgets import label

Series = tuple[str, Sequence[float | None]]
STYLES = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine, Qt.PenStyle.DashDotLine)
MOST_LINES = 8


def drawable(values: Sequence[float | None]) -> npt.NDArray[np.float64]:
    """Return the values with gaps as NaN; a single one between gaps lasts for two, because a line has two ends."""
    drawn = np.array([np.nan if one is None else one for one in values], np.float64)
    gaps = np.concatenate([[True], np.isnan(drawn), [True]])
    for place in np.flatnonzero(~gaps[1:-1] & gaps[:-2] & gaps[2:]):
        beside = place + 1 if place + 1 < len(drawn) else place - 1
        if beside >= 0:
            drawn[beside] = drawn[place]
    return drawn


class Chart(QWidget):
    """One quantity over time. Values come at equal distances, the newest last. GUI thread."""

    def __init__(self, name: str, unit: str, bucket_s: float = 5.0) -> None:
        super().__init__()
        self._name, self._unit = name, unit
        self.bucket_s = bucket_s
        self._series: list[Series] = []
        self._coloured: set[str] = set()
        self._lines: dict[str, pyqtgraph.PlotDataItem] = {}
        self.title = label(quiet=True)
        self.plot = pyqtgraph.PlotWidget()
        self.plot.setMenuEnabled(False)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.hideButtons()
        self.plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.plot.setLabel("bottom", "minutes ago")
        self.plot.getPlotItem().showGrid(x=False, y=True, alpha=0.2)
        self.plot.setMinimumHeight(self.fontMetrics().height() * 8)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(0)
        self._keys: list[QLabel] = []
        self._keys_row = QHBoxLayout()
        self._keys_row.setSpacing(self.fontMetrics().height())
        self._keys_row.addStretch(1)
        rows.addWidget(self.title)
        rows.addLayout(self._keys_row)
        rows.addWidget(self.plot, 1)
        self._colour()
        self.show_series([])

    def show_series(self, series: Sequence[Series]) -> None:
        """Show other lines; None is a gap."""
        self._series = list(series[:MOST_LINES])
        names = {name for name, _ in self._series}
        for name in self._lines.keys() - names:
            self.plot.removeItem(self._lines.pop(name))
        for name, values in self._series:
            if name not in self._lines:
                self._lines[name] = self.plot.plot(name=name, connect="finite")
            minutes = -np.arange(len(values), 0, -1) * self.bucket_s / 60
            self._lines[name].setData(minutes, drawable(values))
        longest = max((len(values) for _, values in self._series), default=180)
        self.plot.setXRange(-longest * self.bucket_s / 60, 0, padding=0)
        known = [one for _, values in self._series for one in values if one is not None]
        self.plot.setYRange(0, max(known, default=1.0) * 1.1 or 1.0, padding=0)
        self._say()
        if names != self._coloured:
            self._coloured = names
            self._colour()

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802 - Qt's name
        """Follow other colours."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._colour()

    def _say(self) -> None:
        """Word the newest values: a screen reader reads no lines, and who is colour-blind no colours."""
        newest = [
            (name, next((one for one in reversed(values) if one is not None), None)) for name, values in self._series
        ]
        texts = [name if value is None else f"{name} {value:.1f}{self._unit}" for name, value in newest]
        self.title.setText(self._name if texts else f"{self._name}: nothing yet")
        self.setAccessibleName(f"{self._name}: {', '.join(texts) or 'nothing yet'}")
        while len(self._keys) < len(texts):
            self._keys.append(QLabel())
            self._keys[-1].setTextFormat(Qt.TextFormat.PlainText)
            self._keys_row.insertWidget(len(self._keys) - 1, self._keys[-1])
        for place, key in enumerate(self._keys):
            key.setVisible(place < len(texts))
            key.setText(texts[place] if place < len(texts) else "")

    def _colour(self) -> None:
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        self.plot.setBackground(self.palette().color(QPalette.ColorRole.Base))
        for side in ("left", "bottom"):
            axis = self.plot.getPlotItem().getAxis(side)
            axis.setPen(QColor(colours.outline))
            axis.setTextPen(QColor(colours.quiet))
        choices = cycle([(colour, style) for style in STYLES for colour in (colours.accent, colours.bad, colours.text)])
        for place, ((name, _), (colour, style)) in enumerate(zip(self._series, choices, strict=False)):
            if name in self._lines:
                self._lines[name].setPen(pyqtgraph.mkPen(QColor(colour), width=2, style=style))
            shown = QPalette()
            shown.setColor(QPalette.ColorRole.WindowText, QColor(colour))
            if place < len(self._keys):
                self._keys[place].setPalette(shown)
