"""What is drawn of a plan: stages with their PC and its memory, what runs now, headings. GUI thread."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontMetricsF, QPainter, QPainterPath, QPen, QPolygonF
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from agent.look.palettes import Colours
from console.gui.plans.geometry import Box, LaneBoxes

CORNER = 0.25
PADDING = 0.45
FEWEST_LINES = 4.0
"""Narrower than so many lines are high, a stage has room for nothing but a name."""


class StageLook(NamedTuple):
    """What a stage shows: words, how full the memory is (1 is full), and marks."""

    name: str
    layers: str
    memory: str
    time: str
    filled: float
    wrong: bool
    pinned: bool
    new: bool
    selected: bool
    words: str


class LaneLook(NamedTuple):
    """What a lane shows: its heading, how fast it is, and who runs now, a name for each stage."""

    title: str
    rate: str
    running: list[str]


class Ink(NamedTuple):
    """What everything is drawn with; `line` is the height of a line of text."""

    colours: Colours
    font: QFont
    line: float

    @property
    def bold(self) -> QFont:
        font = QFont(self.font)
        font.setBold(True)
        return font


def rect_of(box: Box) -> QRectF:
    """Return a box as Qt takes it."""
    return QRectF(box.x, box.y, box.width, box.height)


class StageItem(QGraphicsItem):
    """A stage. It is drawn only: the view decides what a click means."""

    def __init__(self, box: Box, look: StageLook, ink: Ink) -> None:
        super().__init__()
        self.box, self.look, self._ink = box, look, ink
        self.setToolTip(look.words)

    def boundingRect(self) -> QRectF:  # noqa: N802 - Qt's name
        """Say where it is."""
        return rect_of(self.box)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw the block, its lines of text, the bar of memory and the marks."""
        (colours, _, line), look = self._ink, self.look
        edge = 2.0 if look.selected or look.wrong else 1.0
        rect = rect_of(self.box).adjusted(edge, edge, -edge, -edge)
        outline = colours.accent if look.selected else colours.bad if look.wrong else colours.outline
        style = Qt.PenStyle.DashLine if look.wrong else Qt.PenStyle.SolidLine
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(outline), 2.5 if edge > 1 else 1.0, style))
        painter.setBrush(QColor(colours.alternate if look.new else colours.base))
        painter.drawRoundedRect(rect, CORNER * line, CORNER * line)
        inner = rect.adjusted(PADDING * line, PADDING * line * 0.7, -PADDING * line, 0)
        if inner.width() < FEWEST_LINES * line:
            self._paint_narrow(painter, rect)
            return
        marks = line * 1.1 * (look.wrong + look.pinned)
        painter.setFont(self._ink.bold)
        self._text(painter, inner.adjusted(0, 0, -marks, 0), 0, look.name)
        painter.setFont(self._ink.font)
        self._mark(painter, QPointF(inner.right() - line * 0.4, inner.top() + line * 0.5))
        self._text(painter, inner, 1, look.layers)
        self._bar(painter, QRectF(inner.left(), inner.top() + line * 2.35, inner.width(), line * 0.55))
        self._text(painter, inner, 3, look.memory, colours.bad if look.filled > 1 else "")
        self._text(painter, inner, 4, look.time, colours.quiet)

    def _paint_narrow(self, painter: QPainter, rect: QRectF) -> None:
        """Draw the name from below to above, with the mark over it."""
        line = self._ink.line
        marked = self.look.wrong or self.look.pinned
        self._mark(painter, QPointF(rect.center().x(), rect.top() + line * 0.7))
        if rect.width() < line:
            return
        painter.save()
        painter.translate(rect.left(), rect.bottom())
        painter.rotate(-90)
        painter.setFont(self._ink.bold)
        length = rect.height() - line * (0.6 + marked)
        self._text(painter, QRectF(line * 0.4, (rect.width() - line * 1.04) / 2, length, line), 0, self.look.name)
        painter.restore()

    def _text(self, painter: QPainter, inner: QRectF, row: int, text: str, colour: str = "") -> None:
        painter.setPen(QColor(colour or self._ink.colours.text))
        shown = QFontMetricsF(painter.font()).elidedText(text, Qt.TextElideMode.ElideRight, inner.width())
        height = self._ink.line * 1.04
        where = QRectF(inner.left(), inner.top() + row * height, inner.width(), height)
        painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)

    def _bar(self, painter: QPainter, rect: QRectF) -> None:
        colours, full = self._ink.colours, self.look.filled
        painter.setPen(QPen(QColor(colours.outline), 1))
        painter.setBrush(QColor(colours.window))
        painter.drawRect(rect)
        part = QRectF(rect.left(), rect.top(), rect.width() * min(1.0, full), rect.height())
        # More than there is does not only look red: it is hatched.
        painter.fillRect(part, QBrush(QColor(colours.bad if full > 1 else colours.accent), Qt.BrushStyle.SolidPattern))
        if full > 1:
            painter.fillRect(part, QBrush(QColor(colours.window), Qt.BrushStyle.BDiagPattern))

    def _mark(self, painter: QPainter, middle: QPointF) -> None:
        """Draw a triangle for what is wrong, a pin for who has to take part."""
        colours, line = self._ink.colours, self._ink.line
        size = line * 0.42
        if self.look.wrong:
            x, y = middle.x(), middle.y()
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colours.bad))
            painter.drawPolygon(
                QPolygonF([QPointF(x, y - size), QPointF(x + size, y + size * 0.8), QPointF(x - size, y + size * 0.8)])
            )
            middle = QPointF(x - line * 1.1, y)
        if self.look.pinned:
            painter.setPen(QPen(QColor(colours.text), line * 0.1))
            painter.setBrush(QColor(colours.text))
            painter.drawEllipse(QPointF(middle.x(), middle.y() - size * 0.4), size * 0.55, size * 0.55)
            painter.drawLine(middle, QPointF(middle.x(), middle.y() + size))


class LaneItem(QGraphicsItem):
    """What is around the stages of a lane: its heading, the layer numbers, and what runs now."""

    def __init__(self, boxes: LaneBoxes, look: LaneLook, ink: Ink) -> None:
        super().__init__()
        self._boxes, self.look, self._ink = boxes, look, ink

    def boundingRect(self) -> QRectF:  # noqa: N802 - Qt's name
        """Say where it is."""
        boxes = self._boxes
        bottom = max(box.y + box.height for box in [*boxes.stages, *boxes.running, boxes.heading])
        heading = rect_of(boxes.heading)
        return QRectF(heading.left(), heading.top(), heading.width(), bottom - heading.top())

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw it."""
        colours, font, line = self._ink
        heading = rect_of(self._boxes.heading)
        painter.setFont(self._ink.bold)
        painter.setPen(QColor(colours.text))
        painter.drawText(heading, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, self.look.title)
        painter.setFont(font)
        painter.setPen(QColor(colours.quiet))
        painter.drawText(heading, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, self.look.rate)
        for x, layer in self._boxes.ticks:
            where = QRectF(x, self._boxes.ticks_y, line * 4, line)
            painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, str(layer))
        for box, name in zip(self._boxes.running, self.look.running, strict=True):
            self._running(painter, rect_of(box), name)

    def _running(self, painter: QPainter, rect: QRectF, name: str) -> None:
        colours, font, line = self._ink
        painter.setPen(QPen(QColor(colours.outline), 1, Qt.PenStyle.DotLine))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        path = QPainterPath()
        path.addRect(rect.adjusted(1, 0, -1, 0))
        painter.drawPath(path)
        inner = rect.adjusted(line * 0.3, 0, -line * 0.3, 0)
        shown = QFontMetricsF(font).elidedText(f"now: {name}", Qt.TextElideMode.ElideRight, inner.width())
        painter.setPen(QColor(colours.quiet))
        painter.drawText(inner, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
