"""The parts of an answer's time as bars below each other: name, bar, time and share."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from agent.look import palettes
from console.gui.answers.texts import Bar, time_text

LINE = 1.5
"""Heights of a letter for a bar and the space around it."""
WIDEST_LETTERS = 60


class PartBars(QWidget):
    """Shows bars; the longest is as wide as there is room. The largest part has the colour of what is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self._bars: list[Bar] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Parts of the time")

    def show_bars(self, bars: Sequence[Bar]) -> None:
        """Show other bars."""
        self._bars = list(bars)
        said = [f"{bar.name} {time_text(bar.took_ms)}, {bar.share:.0%}" for bar in self._bars]
        self.setAccessibleName("Parts of the time: " + ("; ".join(said) or "none"))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:  # noqa: N802 - Qt's name
        """Return room for all bars."""
        letter = self.fontMetrics()
        return QSize(letter.averageCharWidth() * WIDEST_LETTERS, round(letter.height() * LINE * len(self._bars)))

    def minimumSizeHint(self) -> QSize:  # noqa: N802 - Qt's name
        """As `sizeHint`, however narrow."""
        return QSize(self.fontMetrics().averageCharWidth() * WIDEST_LETTERS // 2, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 - Qt's name
        """Draw everything: there is little of it."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        letters, most = self.fontMetrics(), max((bar.took_ms for bar in self._bars), default=0.0)
        gap, line = letters.averageCharWidth() * 2, letters.height() * LINE
        names = max((letters.horizontalAdvance(bar.name) for bar in self._bars), default=0)
        figures = [f"{time_text(bar.took_ms)}  {bar.share:.0%}" for bar in self._bars]
        room = min(
            self.width() - names - 2 * gap - max(map(letters.horizontalAdvance, figures), default=0),
            letters.averageCharWidth() * WIDEST_LETTERS,
        )
        for place, (bar, figure) in enumerate(zip(self._bars, figures, strict=True)):
            top = place * line
            painter.setPen(QColor(colours.text))
            flags = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
            painter.drawText(QRectF(0, top, names + gap, line), flags, bar.name)
            wide = max(2.0, room * bar.took_ms / most) if most else 2.0
            shape = QRectF(names + gap, top + line * 0.2, wide, line * 0.6)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colours.bad if bar.took_ms == most else colours.accent))
            painter.drawRoundedRect(shape, 2, 2)
            painter.setPen(QColor(colours.text))
            painter.drawText(QRectF(shape.right() + gap / 2, top, self.width(), line), flags, figure)
