"""The list of chats: folders, pins, search, and a mark with a stop button on those an answer comes in. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QFont, QKeyEvent, QMouseEvent, QPainter, QPalette
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from agent.look import palettes
from agent.look.icons import drawn
from console.chat.window.actions import Actions
from console.chat.window.parts import quiet_line
from console.chat.window.rows import Index, Row, Rows

SEARCH_MS = 200


class Painter(QStyledItemDelegate):
    """Draws a row: its text, what is below, a pin, and a square to stop an answer with."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:  # noqa: N802 - Qt's name
        metrics: Any = option.fontMetrics
        row = _row(index)
        lines = 1 if not row.second else 2
        return QSize(0, round(metrics.height() * (lines + 0.7)))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row = _row(index)
        painter.save()
        widget: Any = option.widget
        rect: QRect = option.rect
        state: Any = option.state
        palette: QPalette = option.palette
        colours = palettes.COLOURS[palettes.scheme_of(palette)]
        selected = bool(state & QStyle.StateFlag.State_Selected)
        widget.style().drawPrimitive(QStyle.PrimitiveElement.PE_PanelItemViewItem, option, painter, widget)
        role = QPalette.ColorRole.HighlightedText if selected else QPalette.ColorRole.Text
        text_colour = palette.color(role)
        line = widget.fontMetrics().height()
        inside = rect.adjusted(round(line * (1.0 if row.inside else 0.5)), 0, -round(line * 0.4), 0)
        font = QFont(widget.font())
        if row.kind == "folder":
            side = round(line * 0.9)
            icon = drawn("open" if row.is_open else "right", side, text_colour.name(), widget.devicePixelRatioF())
            painter.drawPixmap(inside.left(), rect.top() + (rect.height() - side) // 2, icon)
            inside.setLeft(inside.left() + round(line * 1.2))
            font.setBold(True)
        if row.runs:
            side = round(line * 0.9)
            accent = text_colour.name() if selected else colours.accent
            place = stop_rect(rect, line)
            painter.drawPixmap(place.topLeft() + QPoint((place.width() - side) // 2, (place.height() - side) // 2),
                               drawn("stop", side, accent, widget.devicePixelRatioF()))  # fmt: skip
            inside.setRight(place.left() - 2)
        elif row.pinned:
            side = round(line * 0.8)
            quiet = text_colour.name() if selected else colours.quiet
            icon = drawn("pin", side, quiet, widget.devicePixelRatioF())
            painter.drawPixmap(inside.right() - side, rect.top() + (rect.height() - side) // 2, icon)
            inside.setRight(inside.right() - side - 4)
        painter.setFont(font)
        painter.setPen(text_colour)
        lines = 2 if row.second else 1
        top = rect.top() + (rect.height() - lines * line) // 2
        for number, text in enumerate([row.text, row.second][:lines]):
            if number and not selected:
                painter.setPen(palette.color(QPalette.ColorRole.PlaceholderText))
            metrics = painter.fontMetrics()
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, inside.width())
            place = QRect(inside.left(), top + number * line, inside.width(), line)
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, shown)
        painter.restore()


class ChatView(QListView):
    """The view on the rows."""

    chosen = Signal(QModelIndex)
    """By a click or by Enter: once, however the desktop opens things and however quickly somebody clicks."""
    stopped = Signal(str)
    menu_wanted = Signal(str, str, QPoint)

    def __init__(self, model: Rows) -> None:
        super().__init__()
        self._is_second = False
        self.setModel(model)
        self.clicked.connect(self.chosen)
        self.setItemDelegate(Painter(self))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._menu)
        self.setAccessibleName("Chats")
        self.setTabKeyNavigation(False)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Stop an answer by its square; everything else selects."""
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and _row(index).runs:
            square = stop_rect(self.visualRect(index), self.fontMetrics().height())
            if square.contains(event.position().toPoint()):
                self.stopped.emit(_row(index).key)
                return
        super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Take the second click of two for nothing: the first one has chosen, and a folder would close again."""
        self._is_second = True

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Choose, unless it ends the second click of two."""
        is_second, self._is_second = self._is_second, False
        if not is_second:
            super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        """Choose by Enter."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.chosen.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)

    def _menu(self, at: QPoint) -> None:
        index = self.indexAt(at)
        row = _row(index) if index.isValid() else None
        if row is not None and row.kind != "hit":
            self.menu_wanted.emit(row.kind, row.key, self.viewport().mapToGlobal(at))


class Sidebar(QWidget):
    """Emits what somebody wants; shows what it is given."""

    chosen = Signal(str, str)
    """A chat's id, and a message's or empty."""
    folder_toggled = Signal(str)
    searched = Signal(str)
    menu_wanted = Signal(str, str, QPoint)
    stopped = Signal(str)

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.model = Rows()
        self.view = ChatView(self.model)
        self.view.chosen.connect(self._pressed)
        self.view.menu_wanted.connect(self.menu_wanted)
        self.view.stopped.connect(self.stopped)
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search all chats")
        self.search.setAccessibleName("Search all chats")
        self.search.setClearButtonEnabled(True)
        self.search.installEventFilter(self)
        self._typed = QTimer(self)
        self._typed.setSingleShot(True)
        self._typed.setInterval(SEARCH_MS)
        self._typed.timeout.connect(lambda: self.searched.emit(self.search.text().strip()))
        self.search.textChanged.connect(self._type)
        self.new = QToolButton()
        self.new.setDefaultAction(actions["new"])
        self.new.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.new.setAccessibleName("New chat")
        self.empty = quiet_line()
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        head = QHBoxLayout()
        head.addWidget(self.new, 1)
        rows = QVBoxLayout(self)
        margin = round(self.fontMetrics().height() * 0.5)
        rows.setContentsMargins(margin, margin, 0, margin)
        rows.addLayout(head)
        rows.addWidget(self.search)
        rows.addWidget(self.empty)
        rows.addWidget(self.view, 1)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * 24)

    def show_rows(self, rows: Sequence[Row], selected: str, empty: str = "") -> None:
        """Show rows with one of them selected; `empty` is said when there are none."""
        self.model.show_rows(rows)
        self.empty.setText(empty)
        self.empty.setVisible(not rows and bool(empty))
        place = next((place for place, row in enumerate(self.model.rows) if row.key == selected), None)
        if place is None:
            self.view.clearSelection()
            self.view.setCurrentIndex(QModelIndex())
        elif self.view.currentIndex().row() != place:
            self.view.setCurrentIndex(self.model.index(place))

    def eventFilter(self, watched: object, event: QEvent) -> bool:  # noqa: N802 - Qt's name
        """Go from the search field into the list with the arrow, and out of the search with Escape."""
        override = event.type() == QEvent.Type.ShortcutOverride
        if watched is self.search and override and event.key() == Qt.Key.Key_Escape:  # type: ignore[attr-defined]
            # Escape stops an answer elsewhere.
            event.accept()
            return True
        if watched is self.search and event.type() == QEvent.Type.KeyPress:
            key = event.key()  # type: ignore[attr-defined]
            if key == Qt.Key.Key_Down:
                self.view.setFocus()
                if self.model.rows and not self.view.currentIndex().isValid():
                    self.view.setCurrentIndex(self.model.index(0))
                return True
            if key == Qt.Key.Key_Escape and self.search.text():
                self.search.clear()
                return True
        return super().eventFilter(watched, event)  # type: ignore[arg-type]

    def _type(self, text: str) -> None:
        self._typed.start()

    def _pressed(self, index: QModelIndex) -> None:
        row = self.model.rows[index.row()]
        if row.kind == "folder":
            self.folder_toggled.emit(row.key)
        elif row.kind == "hit":
            self.chosen.emit(row.key.partition("/")[0], row.message_id)
        else:
            self.chosen.emit(row.key, "")


def stop_rect(rect: QRect, line: int) -> QRect:
    """Return where a row's stop square is."""
    side = round(line * 1.5)
    return QRect(rect.right() - side - 2, rect.top() + (rect.height() - side) // 2, side, side)


def _row(index: Index) -> Row:
    model = index.model()
    assert isinstance(model, Rows)  # noqa: S101 - no other model is ever given to the view
    return model.rows[index.row()]
