"""Tables that follow the service: rows keep their place while cells change, so that selection and scroll do, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelectionModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
)
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

Index = QModelIndex | QPersistentModelIndex
KEY_ROLE = int(Qt.ItemDataRole.UserRole)
# Numbers: comparing one with an enumeration takes as long as the rest of `data`, which is called thousands of times.
_DISPLAY, _TOOL_TIP = int(Qt.ItemDataRole.DisplayRole), int(Qt.ItemDataRole.ToolTipRole)
_ALIGNMENT, _SPOKEN = int(Qt.ItemDataRole.TextAlignmentRole), int(Qt.ItemDataRole.AccessibleTextRole)
_ANSWERED = frozenset({_DISPLAY, _TOOL_TIP, _ALIGNMENT, _SPOKEN, KEY_ROLE})
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
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
    """Items, and which of them are shown in which order; cells are worded when they are drawn. GUI thread.

    Never reset, and no proxy before it: a proxy makes ten thousands of indexes for one look at the table. Rows are
    sorted when somebody asks for it; what comes later comes behind, so that nothing jumps while it is read.
    """

    headings: Sequence[Heading] = ()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: dict[str, T] = {}
        self.shown: list[T] = []
        self._rows: dict[str, int] = {}
        self._sorted_by: tuple[int, Qt.SortOrder] | None = None

    def key_of(self, item: T) -> str:
        """Return what an item is known by, whatever else of it changes."""
        raise NotImplementedError

    def text(self, item: T, column: int) -> str:
        """Word a cell."""
        raise NotImplementedError

    def sort_key(self, item: T, column: int) -> Any:
        """Return what a cell is sorted by: its text, unless a model knows better."""
        return self.text(item, column)

    def lets(self, item: T) -> bool:
        """Whether an item is shown: all are, unless a model knows better."""
        return True

    @property
    def items(self) -> list[T]:
        """All items, shown or not."""
        return list(self._all.values())

    def find(self, key: str) -> T | None:
        """Return an item, shown or not."""
        return self._all.get(key)

    def row_of(self, key: str) -> int | None:
        """Return where an item is shown."""
        return self._rows.get(key)

    def take(self, items: Sequence[T]) -> None:
        """Show the items as they are now: only what differs is touched."""
        self._all = {self.key_of(item): item for item in items}
        self._follow()

    def look_again(self) -> None:
        """Show and hide what `lets` says now, and sort: somebody asked for other rows."""
        self._follow()
        self._sort()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column as it is now."""
        self._sorted_by = (column, order)
        self._sort()

    def tell(self, rows: Sequence[int]) -> None:
        """Say which rows changed, neighbours together; many that lie apart are said to be all between."""
        runs = _runs(rows)
        if len(runs) > MOST_RUNS:
            runs = [(runs[0][0], runs[-1][1])]
        for first, last in runs:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(self.headings) - 1))

    def tell_column(self, column: int) -> None:
        """Have a column worded anew, because time passes."""
        if self.shown:
            first, last = self.index(0, column), self.index(len(self.shown) - 1, column)
            self.dataChanged.emit(first, last, [_DISPLAY])

    def _follow(self) -> None:
        empty = not self.shown
        wanted = {key: item for key, item in self._all.items() if self.lets(item)}
        gone = [row for row, item in enumerate(self.shown) if self.key_of(item) not in wanted]
        for first, last in reversed(_runs(gone)):
            self.beginRemoveRows(NOWHERE, first, last)
            del self.shown[first : last + 1]
            self.endRemoveRows()
        changed = []
        for row, item in enumerate(self.shown):
            now = wanted.pop(self.key_of(item))
            if now != item:
                self.shown[row] = now
                changed.append(row)
        self.tell(changed)
        if wanted:
            first = len(self.shown)
            new = list(wanted.values())
            if empty:
                new = self._in_order(new)
            self.beginInsertRows(NOWHERE, first, first + len(new) - 1)
            self.shown.extend(new)
            self.endInsertRows()
        self._index()

    def _sort(self) -> None:
        ordered = self._in_order(self.shown)
        if all(one is other for one, other in zip(ordered, self.shown, strict=True)):
            return
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        keys = [self.key_of(self.shown[index.row()]) for index in before]
        self.shown = ordered
        self._index()
        after = [self.index(self._rows[key], index.column()) for key, index in zip(keys, before, strict=True)]
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def _in_order(self, items: Sequence[T]) -> list[T]:
        if self._sorted_by is None:
            return list(items)
        column, order = self._sorted_by
        backwards = order == Qt.SortOrder.DescendingOrder
        return sorted(items, key=lambda item: self.sort_key(item, column), reverse=backwards)

    def _index(self) -> None:
        self._rows = {self.key_of(item): row for row, item in enumerate(self.shown)}

    def rowCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self.shown)

    def columnCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self.headings)

    def headerData(  # noqa: N802 - Qt's name
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return self.headings[section].text
        return None

    def data(self, index: Index, role: int = _DISPLAY) -> Any:
        # Views ask for eight roles of each cell they draw: the ones that have no answer leave first.
        if role not in _ANSWERED:
            return None
        item, column = self.shown[index.row()], index.column()
        if role in (_DISPLAY, _TOOL_TIP):
            return self.text(item, column)
        if role == _ALIGNMENT:
            return _RIGHT if self.headings[column].number else None
        if role == KEY_ROLE:
            return self.key_of(item)
        return f"{self.headings[column].text}: {self.text(item, column) or 'empty'}"


def _runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Put neighbours of ascending rows together."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and row == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], row)
        else:
            runs.append((row, row))
    return runs


class RowsView(QTableView):
    """A table to read and to choose rows of; Tab leaves it, arrows move inside."""

    def __init__(self, name: str, model: KeyedModel[Any], *, several: bool = True) -> None:
        super().__init__()
        self._keyed = model
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
        for column, heading in enumerate(model.headings):
            self.setColumnWidth(column, heading.letters * letter)

    def rowsAboutToBeRemoved(self, parent: Index, first: int, last: int) -> None:  # noqa: N802 - Qt's name
        """Select nothing in the place of what goes, as Qt does where one row at most is selected: nobody chose it."""
        is_single = self.selectionMode() == QAbstractItemView.SelectionMode.SingleSelection
        if is_single and first <= self.currentIndex().row() <= last:
            self.selectionModel().clear()
        super().rowsAboutToBeRemoved(parent, first, last)

    def sort_by(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort, and by any heading that is clicked from now on."""
        self.setSortingEnabled(True)
        self.sortByColumn(column, order)

    def chosen(self) -> list[str]:
        """Return the keys of the selected rows."""
        keyed = self._keyed
        ranges = self.selectionModel().selection()
        parts = [ranges.at(place) for place in range(ranges.count())]
        rows = {row for part in parts for row in range(part.top(), part.bottom() + 1)}
        return [keyed.key_of(keyed.shown[row]) for row in sorted(rows)]

    def choose(self, key: str) -> bool:
        """Select the row of a key alone, whatever keys are held, and show it. Returns whether it is there."""
        row = self._keyed.row_of(key)
        if row is None:
            return False
        index, flags = self._keyed.index(row, 0), QItemSelectionModel.SelectionFlag
        self.selectionModel().setCurrentIndex(index, flags.ClearAndSelect | flags.Rows)
        self.scrollTo(index)
        return True
