"""The map of who talks to whom, drawn; a PC is chosen by mouse or keys. GUI thread."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter, QPainterPath, QPen, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QGraphicsItem,
    QGraphicsScene,
    QGraphicsView,
    QStyleOptionGraphicsItem,
    QWidget,
)

from agent.look import palettes
from agent.look.widgets import announce
from console.gui.plans.drawing import Ink, rect_of
from console.gui.plans.geometry import Box
from console.gui.plans.topology import CONSOLE, ROLE_WORDS, Map, Node, Placed, Strand, placed
from shard_export.library.counts import counted

PENS = {"console": Qt.PenStyle.SolidLine, "direct": Qt.PenStyle.SolidLine, "relay": Qt.PenStyle.DashLine,
        "reserve": Qt.PenStyle.DotLine}  # fmt: skip
"""How lines differ besides their words: what is direct is thick, what is relayed dashed, what is in reserve dotted."""


class MapView(QGraphicsView):
    """Shows a map."""

    opened = Signal(str)
    """Somebody wants to see a PC: its id."""

    def __init__(self) -> None:
        super().__init__()
        self.setScene(QGraphicsScene(self))
        self.drawn: Map | None = None
        self.placed: Placed | None = None
        self.selected = ""
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        self.setAccessibleName("Who talks to whom")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def show_map(self, drawn: Map) -> None:
        """Show another map; one that is the same is not drawn again."""
        if drawn != self.drawn:
            self.drawn = drawn
            self.rebuild()

    def rebuild(self) -> None:
        """Draw it."""
        scene, drawn = self.scene(), self.drawn
        scene.clear()
        if drawn is None:
            return
        line = float(self.fontMetrics().height())
        ink = Ink(palettes.COLOURS[palettes.scheme_of(self.palette())], self.font(), line)
        where = self.placed = placed(drawn, self.viewport().width(), line)
        if self.selected not in where.boxes:
            self.selected = ""
        for strand in drawn.strands:
            scene.addItem(_StrandItem(strand, where.boxes[strand.source], where.boxes[strand.target], ink))
        for node in drawn.nodes:
            scene.addItem(_NodeItem(node, where.boxes[node.key], ink, selected=node.key == self.selected))
        for (x, y), name in zip(where.headings, drawn.rows, strict=True):
            self._heading(name, x, y, ink)
        if any(node.row < 0 and node.key != CONSOLE for node in drawn.nodes):
            more = f" ({drawn.more} more are not drawn)" if drawn.more else ""
            self._heading(f"PCs without a stage{more}", line, where.rest_y, ink)
        scene.setSceneRect(0, 0, where.width, where.height)
        chosen = self._chosen()
        self.setAccessibleDescription(
            chosen.words if chosen else f"{counted(len(drawn.nodes) - 1, 'PC is', 'PCs are')} drawn."
        )

    def select(self, key: str) -> None:
        """Select a node and bring it into sight."""
        self.selected = key
        self.rebuild()
        node = self._chosen()
        if node is not None and self.placed is not None:
            self.ensureVisible(rect_of(self.placed.boxes[key]), 8, 8)
            announce(self, node.words)

    def select_pc(self, device_id: str) -> bool:
        """Select a PC; False if it is not drawn."""
        found = [node.key for node in (self.drawn.nodes if self.drawn else ()) if node.device_id == device_id]
        if found:
            self.select(found[0])
        return bool(found)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        """Arrows go to the nearest in that direction, Enter shows the PC."""
        directions = {
            Qt.Key.Key_Left.value: (-1.0, 0.0), Qt.Key.Key_Right.value: (1.0, 0.0),
            Qt.Key.Key_Up.value: (0.0, -1.0), Qt.Key.Key_Down.value: (0.0, 1.0),
        }  # fmt: skip
        direction = directions.get(event.key())
        node = self._chosen()
        if direction is not None:
            self.select(self._nearest(*direction))
        elif event.key() in {Qt.Key.Key_Return.value, Qt.Key.Key_Enter.value} and node is not None and node.device_id:
            self.opened.emit(node.device_id)
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Show the PC that is clicked."""
        super().mouseReleaseEvent(event)
        at = self.mapToScene(event.position().toPoint())
        boxes = {} if self.placed is None else self.placed.boxes
        key = next((key for key, box in boxes.items() if box.holds(at.x(), at.y())), "")
        if key and event.button() == Qt.MouseButton.LeftButton:
            self.select(key)
            node = self._chosen()
            if node is not None and node.device_id:
                self.opened.emit(node.device_id)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802 - Qt's name
        """Use the room there is."""
        super().resizeEvent(event)
        self.rebuild()

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802 - Qt's name
        """Follow other colours and letters."""
        super().changeEvent(event)
        if event.type() in {QEvent.Type.PaletteChange, QEvent.Type.FontChange}:
            self.rebuild()

    def _chosen(self) -> Node | None:
        nodes = () if self.drawn is None else self.drawn.nodes
        return next((node for node in nodes if node.key == self.selected), None)

    def _nearest(self, right: float, down: float) -> str:
        boxes = {} if self.placed is None else self.placed.boxes
        here = boxes.get(self.selected)
        if here is None:
            return CONSOLE if CONSOLE in boxes else ""
        best, least = self.selected, math.inf
        for key, box in boxes.items():
            x, y = box.x - here.x, box.y - here.y
            ahead, aside = x * right + y * down, abs(x * down) + abs(y * right)
            if ahead > 1 and ahead + 2 * aside < least:
                best, least = key, ahead + 2 * aside
        return best

    def _heading(self, text: str, x: float, y: float, ink: Ink) -> None:
        item = self.scene().addText(text, ink.bold)
        item.setDefaultTextColor(QColor(ink.colours.text))
        item.setPos(x - ink.line * 0.3, y - ink.line * 0.2)


class _NodeItem(QGraphicsItem):
    """A PC or the console. Roles differ by outline and words, not by colour alone."""

    def __init__(self, node: Node, box: Box, ink: Ink, *, selected: bool) -> None:
        super().__init__()
        self.node, self._rect, self._ink, self._selected = node, rect_of(box), ink, selected
        self.setToolTip(node.words)

    def boundingRect(self) -> QRectF:  # noqa: N802 - Qt's name
        """Say where it is."""
        return self._rect.adjusted(-3, -3, 3, 3)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw outline, name, role and lines."""
        (colours, font, line), node = self._ink, self.node
        dashed = node.role in {"hot", "warm"}
        style = (
            Qt.PenStyle.DashLine if dashed else Qt.PenStyle.DotLine if node.role == "away" else Qt.PenStyle.SolidLine
        )
        strong = node.role in {"console", "stage"}
        colour = colours.accent if self._selected else colours.outline
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(colour), 3.0 if self._selected else 2.0 if strong else 1.0, style))
        painter.setBrush(QColor(colours.alternate if node.role == "console" else colours.base))
        radius = line * (1.2 if node.role == "console" else 0.3)
        painter.drawRoundedRect(self._rect, radius, radius)
        inner = self._rect.adjusted(line * 0.6, line * 0.35, -line * 0.5, 0)
        rows = [(node.name, self._ink.bold, colours.disabled if node.role == "away" else colours.text)]
        rows += [(text, font, colours.quiet) for text in (ROLE_WORDS[node.role], *node.lines) if node.role != "console"]
        rows += [(text, font, colours.quiet) for text in node.lines if node.role == "console"]
        for row, (text, letters, shade) in enumerate(rows[:5]):
            painter.setFont(letters)
            painter.setPen(QColor(shade))
            shown = QFontMetricsF(letters).elidedText(text, Qt.TextElideMode.ElideRight, inner.width())
            where = QRectF(inner.left(), inner.top() + row * line, inner.width(), line * 1.05)
            painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)


class _StrandItem(QGraphicsItem):
    """A line with an arrow and what is said of it."""

    def __init__(self, strand: Strand, source: Box, target: Box, ink: Ink) -> None:
        super().__init__()
        self.strand, self._ink = strand, ink
        begin, end = rect_of(source), rect_of(target)
        if strand.target == CONSOLE:
            self._path = _back(begin, end, ink.line)
        else:
            self._path = _onward(begin, end)
        self.setZValue(-1)
        self.setToolTip(f"{strand.carries}: {strand.label or strand.way}. {strand.note}".strip())

    def boundingRect(self) -> QRectF:  # noqa: N802 - Qt's name
        """Say where it is."""
        edge = self._ink.line * 2
        return self._path.boundingRect().adjusted(-edge, -edge, edge, edge)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw line, arrow and words."""
        colours, font, line = self._ink
        way = self.strand.way
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colour = QColor(colours.accent if way == "direct" else colours.outline)
        painter.setPen(QPen(colour, 2.5 if way == "direct" else 1.5, PENS[way]))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(self._path)
        self._arrow(painter, colour)
        if self.strand.label:
            painter.setFont(font)
            middle = self._path.pointAtPercent(0.5)
            width = QFontMetricsF(font).horizontalAdvance(self.strand.label)
            where = QRectF(middle.x() - width / 2 - 2, middle.y() - line * 1.15, width + 4, line)
            if way in {"console", "reserve"}:  # lines that go across: the words stand on them
                where.translate(0, line * 0.65)
                painter.fillRect(where, QColor(colours.base))
            painter.setPen(QColor(colours.quiet))
            painter.drawText(where, Qt.AlignmentFlag.AlignCenter, self.strand.label)

    def _arrow(self, painter: QPainter, colour: QColor) -> None:
        size = self._ink.line * 0.45
        ahead = size if self.strand.target == CONSOLE else -size
        tip = self._path.currentPosition()
        painter.setPen(QPen(colour, 1.5))
        for side in (-size, size):
            painter.drawLine(tip, QPointF(tip.x() + ahead, tip.y() + side * 0.6))


def _onward(begin: QRectF, end: QRectF) -> QPainterPath:
    """Go from the right of one to the left of the other."""
    path = QPainterPath(QPointF(begin.right(), begin.center().y()))
    x, y = end.left(), end.center().y()
    half = (x - begin.right()) / 2
    path.cubicTo(begin.right() + half, begin.center().y(), x - half, y, x, y)
    return path


def _back(begin: QRectF, end: QRectF, line: float) -> QPainterPath:
    """Go below a row back to the console."""
    below, turn = begin.bottom() + line * 0.8, end.right() + line * 1.2
    below_middle = begin.center().y() > end.center().y()
    y = end.bottom() - line if below_middle else end.top() + line
    path = QPainterPath(QPointF(begin.center().x(), begin.bottom()))
    path.lineTo(begin.center().x(), below)
    path.lineTo(turn, below)
    path.lineTo(turn, y)
    path.lineTo(end.right(), y)
    return path
