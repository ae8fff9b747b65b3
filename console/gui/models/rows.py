"""A table whose rows keep their place: only what changed is told, so that selection and scroll stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from console.gui.models.texts import Column

T = TypeVar("T")

Index = QModelIndex | QPersistentModelIndex
NOWHERE = QModelIndex()


class RowModel(QAbstractTableModel, Generic[T]):
    """Things with a key, in the order in which they came. GUI thread."""

    def __init__(
        self, columns: Sequence[Column[T]], key: Callable[[T], str], parent: QObject | None = None, *, newest: bool
    ) -> None:
        """`newest`: what is new comes at the top."""
        super().__init__(parent)
        self._columns, self._key, self._newest = columns, key, newest
        self.things: list[T] = []
        self._texts: list[list[str]] = []

    def take(self, things: Sequence[T]) -> None:
        """Show the things as they are now."""
        new = {self._key(thing): thing for thing in things}
        for row in reversed(range(len(self.things))):
            if self._key(self.things[row]) not in new:
                self.beginRemoveRows(NOWHERE, row, row)
                del self.things[row], self._texts[row]
                self.endRemoveRows()
        for row, thing in enumerate(self.things):
            self._change(row, new.pop(self._key(thing)))
        if new:
            first = 0 if self._newest else len(self.things)
            self.beginInsertRows(NOWHERE, first, first + len(new) - 1)
            self.things[first:first] = new.values()
            self._texts[first:first] = [self._worded(thing) for thing in new.values()]
            self.endInsertRows()

    def row_of(self, key: str) -> int:
        """Return where a thing is, -1 if it is not there."""
        return next((row for row, thing in enumerate(self.things) if self._key(thing) == key), -1)

    def rowCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self.things)

    def columnCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self._columns)

    def headerData(  # noqa: N802 - Qt's name
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return self._columns[section].heading
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        text = self._texts[index.row()][index.column()]
        column = self._columns[index.column()]
        if role in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole}:
            return text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{column.heading}: {text}"
        if role == Qt.ItemDataRole.TextAlignmentRole and column.number:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def _worded(self, thing: T) -> list[str]:
        return [column.text(thing) for column in self._columns]

    def _change(self, row: int, thing: T) -> None:
        self.things[row] = thing
        texts = self._worded(thing)
        if texts != self._texts[row]:
            self._texts[row] = texts
            self.dataChanged.emit(self.index(row, 0), self.index(row, len(self._columns) - 1))


class RowTable(QTableView, Generic[T]):
    """Shows a RowModel: whole rows are selected, Enter and a double click `activated` them."""

    def __init__(self, name: str, model: RowModel[T]) -> None:
        super().__init__()
        self.rows = model
        self.setModel(model)
        self.setAccessibleName(name)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(round(self.fontMetrics().height() * 1.7))
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)

    def widths(self, *letters: int) -> None:
        """Make the columns so many letters wide; the last one gets the rest."""
        letter = self.fontMetrics().averageCharWidth()
        for column, count in enumerate(letters):
            self.setColumnWidth(column, letter * count)

    def fit_rows(self, most: int) -> None:
        """Be as high as the rows, up to so many of them."""
        height = self.verticalHeader().defaultSectionSize() * min(most, max(1, len(self.rows.things)))
        self.setFixedHeight(height + self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth())

    @property
    def chosen(self) -> T | None:
        """The thing that is selected."""
        found = self.selectionModel().selectedRows()
        return self.rows.things[found[0].row()] if found else None

    def choose(self, key: str) -> bool:
        """Select a thing; returns whether it is there."""
        row = self.rows.row_of(key)
        if row >= 0:
            self.selectRow(row)
        return row >= 0
