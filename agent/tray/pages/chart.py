"""A bar chart of what this PC gave, drawn by hand: no plotting library is worth its memory in a tray."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from agent.look import palettes

STEPS = (1.0, 2.0, 5.0, 10.0)
MOST_LINES = 4
"""Above the axis itself."""


class Bar(NamedTuple):
    """One bar: the label under it (may be empty), its height, and all of it in words."""

    label: str
    value: float
    words: str


def ticks_for(largest: float) -> list[float]:
    """Return the lines of the axis, from 0 to the first that holds it all: steps of 1, 2 or 5 times a power of 10."""
    if not math.isfinite(largest) or largest <= 0:
        largest = float(MOST_LINES)
    rough = largest / MOST_LINES
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in STEPS if factor * power >= rough * (1 - 1e-9))
    return [step * line for line in range(math.ceil(largest / step - 1e-9) + 1)]


class Chart(QWidget):
    """Bars with an axis. Left and right move through them with the keyboard, and screen readers hear each one."""

    chosen = Signal(int)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._bars: Sequence[Bar] = ()
        self._unit: Callable[[float], str] = str
        self._place = -1
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.MinimumExpanding)
        self.setMouseTracking(True)

    def sizeHint(self) -> QSize:  # noqa: N802 - Qt's name
        return QSize(self.fontMetrics().averageCharWidth() * 60, self.fontMetrics().height() * 11)

    def minimumSizeHint(self) -> QSize:  # noqa: N802 - Qt's name
        return QSize(self.fontMetrics().averageCharWidth() * 30, self.fontMetrics().height() * 8)

    def show_bars(self, bars: Sequence[Bar], unit: Callable[[float], str]) -> None:
        """Draw other bars; `unit` writes a number of the axis."""
        self._bars, self._unit = bars, unit
        self._place = min(self._place, len(bars) - 1)
        self._describe()
        self.update()

    @property
    def place(self) -> int:
        """The bar that is chosen, -1 for none."""
        return self._place

    def choose(self, place: int) -> None:
        """Mark a bar and say it."""
        if place != self._place and -1 <= place < len(self._bars):
            self._place = place
            self._describe()
            self.update()
            self.chosen.emit(place)

    def _describe(self) -> None:
        self.setAccessibleDescription(self._bars[self._place].words if 0 <= self._place < len(self._bars) else "")

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 - Qt's name
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        ticks, area = self._axis()
        self._paint_axis(painter, colours, area, ticks)
        self._paint_bars(painter, colours, area, ticks[-1])
        if self.hasFocus():
            painter.setPen(QPen(QColor(colours.accent), 1, Qt.PenStyle.DotLine))
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()

    def _axis(self) -> tuple[list[float], QRectF]:
        """Return the axis' lines, and where the bars are: right of the numbers, above the labels."""
        metrics = self.fontMetrics()
        ticks = ticks_for(max((bar.value for bar in self._bars), default=0.0))
        left = max(metrics.horizontalAdvance(self._unit(tick)) for tick in ticks) + metrics.averageCharWidth() * 1.5
        line = metrics.height()
        width, height = self.width() - left - line * 0.3, self.height() - line * 2.2
        return ticks, QRectF(left, line * 0.7, max(1.0, width), max(1.0, height))

    def _paint_axis(self, painter: QPainter, colours: palettes.Colours, area: QRectF, ticks: Sequence[float]) -> None:
        metrics = self.fontMetrics()
        for tick in ticks:
            y = area.bottom() - area.height() * tick / ticks[-1]
            painter.setPen(QPen(QColor(colours.border), 1.0 if tick else 1.6))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            painter.setPen(QColor(colours.quiet))
            box = QRectF(0, y - metrics.height() / 2, area.left() - metrics.averageCharWidth(), metrics.height())
            alignment = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(box, alignment, self._unit(tick))

    def _paint_bars(self, painter: QPainter, colours: palettes.Colours, area: QRectF, top: float) -> None:
        if not self._bars:
            return
        step = area.width() / len(self._bars)
        free_from = area.left()
        for place, bar in enumerate(self._bars):
            height = area.height() * max(0.0, bar.value) / top
            x = area.left() + step * place
            box = QRectF(x + step * 0.15, area.bottom() - height, step * 0.7, height)
            painter.setPen(QPen(QColor(colours.text), 2) if place == self._place else Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colours.accent))
            if height > 0 or place == self._place:
                painter.drawRect(box)
            width = self.fontMetrics().horizontalAdvance(bar.label)
            middle = x + step / 2
            if bar.label and middle - width / 2 >= free_from:  # a label that would touch the last one is left out
                painter.setPen(QColor(colours.quiet))
                below = QRectF(middle - width, area.bottom() + 2, width * 2, self.fontMetrics().height() * 1.4)
                painter.drawText(below, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter, bar.label)
                free_from = middle + width / 2 + self.fontMetrics().averageCharWidth()

    def _bar_at(self, position: QPointF) -> int:
        _, area = self._axis()
        if not self._bars or not area.left() <= position.x() < area.right():
            return -1
        return int((position.x() - area.left()) / (area.width() / len(self._bars)))

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        last = len(self._bars) - 1
        # By number: keyboards have keys that Qt has no name for.
        go = {
            Qt.Key.Key_Left.value: max(0, self._place - 1),
            Qt.Key.Key_Right.value: min(last, self._place + 1),
            Qt.Key.Key_Home.value: 0,
            Qt.Key.Key_End.value: last,
        }.get(event.key())
        if go is None or not self._bars:
            super().keyPressEvent(event)
            return
        self.choose(go)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        self.choose(self._bar_at(event.position()))

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802 - Qt's name
        super().focusInEvent(event)
        if self._place < 0 and event.reason() != Qt.FocusReason.MouseFocusReason:
            self.choose(len(self._bars) - 1)

    def event(self, event: QEvent) -> bool:
        """Show a bar's words where the pointer rests."""
        if isinstance(event, QHelpEvent):
            place = self._bar_at(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), self._bars[place].words if place >= 0 else "", self)
            return True
        return super().event(event)
