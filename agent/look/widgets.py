"""Small widgets the pages are made of. None has a size in pixels: everything follows the font, so that it scales."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QFont, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QLabel,
    QScrollArea,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from agent.look import palettes
from agent.look.icons import drawn

TITLE_SCALE = 1.5
HEADING_SCALE = 1.12
_SCALE = "scale"


def label(text: str = "", *, quiet: bool = False, scale: float = 1.0, bold: bool = False) -> QLabel:
    """Return a line or paragraph of text that wraps and can be selected with the mouse."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)  # names of devices and messages of a console are never markup
    made.setWordWrap(True)
    made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    # What this font does not say is the parent's, now and later.
    font = QFont()
    if bold:
        font.setBold(True)
    if scale != 1:
        font.setPointSizeF(made.font().pointSizeF() * scale)
        made.setProperty(_SCALE, scale)
    made.setFont(font)
    if quiet:
        made.setForegroundRole(QPalette.ColorRole.PlaceholderText)
    return made


def rescale(parent: QWidget) -> None:
    """Give labels of another size than their surroundings the size that belongs to their surroundings now."""
    for made in parent.findChildren(QLabel):
        scale, around = made.property(_SCALE), made.parentWidget()
        if scale and around is not None:
            font = made.font()
            font.setPointSizeF(around.font().pointSizeF() * scale)
            made.setFont(font)


def heading(text: str) -> QLabel:
    """Return the heading of a section, with room above."""
    made = label(text, bold=True, scale=HEADING_SCALE)
    made.setContentsMargins(0, round(made.fontMetrics().height() * 0.5), 0, 0)
    return made


def fit(window: QWidget, columns: int, lines: int) -> None:
    """Make a window so many letters wide and lines high, as far as the screen has room."""
    metrics = window.fontMetrics()
    room = window.screen().availableGeometry().size() * 0.95
    window.resize(QSize(metrics.averageCharWidth() * columns, metrics.height() * lines).boundedTo(room))


def title(text: str = "") -> QLabel:
    """Return the title of a page."""
    return label(text, bold=True, scale=TITLE_SCALE)


def scrolled(content: QWidget) -> QScrollArea:
    """Return a frameless scroll area that is as wide as there is room."""
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(content)
    # The page's own colour, not that of a list.
    area.viewport().setAutoFillBackground(False)
    content.setAutoFillBackground(False)
    return area


def announce(widget: QWidget, text: str) -> None:
    """Have a screen reader say something that appeared by itself."""
    QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, text))


class Picture(QWidget):
    """One of our icons, drawn in a colour of the palette, about two lines high."""

    def __init__(self, name: str, lines: float = 2.4) -> None:
        super().__init__()
        self.name = name
        side = round(self.fontMetrics().height() * lines)
        self.setFixedSize(side, side)

    def show_icon(self, name: str, said: str) -> None:
        """Show another icon; `said` is what a screen reader says of it."""
        self.name = name
        self.setAccessibleName(said)
        self.setToolTip(said)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 - Qt's name
        """Draw the icon at the screen's own resolution."""
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        colour = {"contributing": colours.good, "attention": colours.bad}.get(self.name, colours.text)
        painter = QPainter(self)
        painter.drawPixmap(0, 0, drawn(self.name, self.width(), colour, self.devicePixelRatioF()))
        painter.end()


class _RoomyCells(QStyledItemDelegate):
    """Keeps the text of one column away from the next."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:  # noqa: N802 - Qt's name
        size = super().sizeHint(option, index)
        widget = self.parent()
        letter = widget.fontMetrics().averageCharWidth() if isinstance(widget, QWidget) else 0
        return QSize(size.width() + 2 * letter, size.height())


class Table(QTableWidget):
    """A table to read: rows of text, one selected as a whole, columns as wide as they need and the last the rest."""

    def __init__(self, name: str, headers: Sequence[str], *, stretch: int = -1) -> None:
        super().__init__(0, len(headers))
        self.setAccessibleName(name)
        self.setHorizontalHeaderLabels(list(headers))
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAlternatingRowColors(True)
        self.setItemDelegate(_RoomyCells(self))
        self.setShowGrid(False)
        self.setWordWrap(True)
        self.setTabKeyNavigation(False)  # Tab leaves the table; arrows move inside
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.verticalHeader().setMinimumSectionSize(round(self.fontMetrics().height() * 1.6))
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(stretch % len(headers), QHeaderView.ResizeMode.Stretch)

    def show_rows(self, rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        """Show other rows, changing only the cells that differ; `right` are columns of numbers."""
        self.setRowCount(len(rows))
        for place, row in enumerate(rows):
            for column, text in enumerate(row):
                item = self.item(place, column)
                if item is None:
                    item = QTableWidgetItem(text)
                    if column in right:
                        item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                    self.setItem(place, column, item)
                elif item.text() != text:
                    item.setText(text)
