"""Tables that follow the service: rows keep their place while cells change, so that selection and scroll do, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
)
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

Index = QModelIndex | QPersistentModelIndex
KEY_ROLE = Qt.ItemDataRole.UserRole
SORT_ROLE = Qt.ItemDataRole.UserRole + 1
NOWHERE = QModelIndex()
MOST_RUNS = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: what is above it, how many letters wide it is, and whether it holds numbers."""

    text: str
    letters: int
    number: bool = False


class KeyedModel(QAbstractTableModel, Generic[T]):
    """Items in the order in which they came; cells are worded when they are drawn. Never reset. GUI thread."""

    headings: Sequence[Heading] = ()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.items: list[T] = []
        self._rows: dict[str, int] = {}

    def key_of(self, item: T) -> str:
        """Return what an item is known by, whatever else of it changes."""
        raise NotImplementedError

    def text(self, item: T, column: int) -> str:
        """Word a cell."""
        raise NotImplementedError

    def sort_key(self, item: T, column: int) -> Any:
        """Return what a cell is sorted by: its text, unless a model knows better."""
        return self.text(item, column)

    def take(self, items: Sequence[T]) -> None:
        """Show the items as they are now: only what differs is touched, what is new comes behind."""
        new = {self.key_of(item): item for item in items}
        self._remove([row for row, item in enumerate(self.items) if self.key_of(item) not in new])
        changed = []
        for row, item in enumerate(self.items):
            now = new.pop(self.key_of(item))
            if now != item:
                self.items[row] = now
                changed.append(row)
        self.tell(changed)
        if new:
            first = len(self.items)
            self.beginInsertRows(NOWHERE, first, first + len(new) - 1)
            self.items.extend(new.values())
            self._index()
            self.endInsertRows()

    def find(self, key: str) -> T | None:
        """Return an item."""
        row = self._rows.get(key)
        return None if row is None else self.items[row]

    def tell(self, rows: Sequence[int]) -> None:
        """Say which rows changed, neighbours together; many that lie apart are said to be all between."""
        runs: list[tuple[int, int]] = []
        for row in rows:
            if runs and row == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], row)
            else:
                runs.append((row, row))
        if len(runs) > MOST_RUNS:
            runs = [(runs[0][0], runs[-1][1])]
        for first, last in runs:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(self.headings) - 1))

    def tell_column(self, column: int) -> None:
        """Have a column worded anew, because time passes."""
        if self.items:
            first, last = self.index(0, column), self.index(len(self.items) - 1, column)
            self.dataChanged.emit(first, last, [Qt.ItemDataRole.DisplayRole])

    def row_of(self, key: str) -> int | None:
        """Return where an item is."""
        return self._rows.get(key)

    def rowCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self.items)

    def columnCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self.headings)

    def headerData(  # noqa: N802 - Qt's name
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return self.headings[section].text
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        item, column = self.items[index.row()], index.column()
        heading = self.headings[column]
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(item, column)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{heading.text}: {self.text(item, column) or 'empty'}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return self.text(item, column) or None
        if role == Qt.ItemDataRole.TextAlignmentRole and heading.number:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == KEY_ROLE:
            return self.key_of(item)
        if role == SORT_ROLE:
            return self.sort_key(item, column)
        return None

    def _remove(self, rows: Sequence[int]) -> None:
        for row in reversed(rows):
            self.beginRemoveRows(NOWHERE, row, row)
            del self.items[row]
            self._index()
            self.endRemoveRows()

    def _index(self) -> None:
        self._rows = {self.key_of(item): row for row, item in enumerate(self.items)}


class SortedRows(QSortFilterProxyModel):
    """Rows sorted when somebody asks for it: they do not jump while they are read."""

    def __init__(self, source: KeyedModel[Any], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._keyed = source
        self.setDynamicSortFilter(False)
        self.setSourceModel(source)
        self.setSortRole(SORT_ROLE)

    def lessThan(self, left: Index, right: Index) -> bool:  # noqa: N802 - Qt's name
        keyed = self._keyed
        one = keyed.sort_key(keyed.items[left.row()], left.column())
        return bool(one < keyed.sort_key(keyed.items[right.row()], right.column()))


class RowsView(QTableView):
    """A table to read and to choose rows of; Tab leaves it, arrows move inside."""

    def __init__(
        self, name: str, model: QAbstractItemModel, headings: Sequence[Heading], *, several: bool = True
    ) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setModel(model)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        if not several:
            self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        # One height for all: measuring each of a thousand rows would take longer than showing them.
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(round(self.fontMetrics().height() * 1.7))
        header = self.horizontalHeader()
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setHighlightSections(False)
        header.setStretchLastSection(True)
        letter = self.fontMetrics().averageCharWidth()
        for column, heading in enumerate(headings):
            self.setColumnWidth(column, heading.letters * letter)

    def chosen(self) -> list[str]:
        """Return the keys of the selected rows."""
        return [index.data(KEY_ROLE) for index in self.selectionModel().selectedRows()]

    def choose(self, key: str) -> bool:
        """Select the row of a key and bring it into sight. Returns whether it is there."""
        model = self.model()
        for row in range(model.rowCount()):
            index = model.index(row, 0)
            if index.data(KEY_ROLE) == key:
                self.selectRow(row)
                self.scrollTo(index)
                return True
        return False
