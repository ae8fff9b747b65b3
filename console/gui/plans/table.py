"""The table of PCs: searched, sorted, and dragged from onto stages. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QMimeData,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from console.gui.plans.lanes import PC_MIME, STAGE_MIME, mime_of, mime_text
from console.gui.plans.pcs import HEADERS, PcRow

Index = QModelIndex | QPersistentModelIndex
NOWHERE = QModelIndex()
NUMBERS = (2, 3)
SORTED_BY = Qt.ItemDataRole.UserRole
DEVICE = Qt.ItemDataRole.UserRole + 1


class PcsModel(QAbstractTableModel):
    """Rows by PC. Only what differs is told, so that selection and scroll stay."""

    given = Signal(str, str)
    """A stage was dropped on a PC: whose it is, and who is to have it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[PcRow] = []

    def show_rows(self, rows: Sequence[PcRow]) -> None:
        """Show other rows; those of PCs that are there already stay where they are."""
        wanted = {row.device_id: row for row in rows}
        for place in reversed(range(len(self.rows))):
            if self.rows[place].device_id not in wanted:
                self.beginRemoveRows(NOWHERE, place, place)
                del self.rows[place]
                self.endRemoveRows()
        changed = [place for place, row in enumerate(self.rows) if wanted[row.device_id] != row]
        for place in changed:
            self.rows[place] = wanted[self.rows[place].device_id]
        if changed:
            # Told once for all: what lies between is only painted again.
            self.dataChanged.emit(self.index(changed[0], 0), self.index(changed[-1], len(HEADERS) - 1))
        known = {row.device_id for row in self.rows}
        new = [row for row in rows if row.device_id not in known]
        if new:
            self.beginInsertRows(NOWHERE, len(self.rows), len(self.rows) + len(new) - 1)
            self.rows += new
            self.endInsertRows()

    def rowCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        """Say how many PCs there are."""
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        """Say how much is shown of each."""
        return 0 if parent.isValid() else len(HEADERS)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell."""
        row, column = self.rows[index.row()], index.column()
        if role in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole}:
            return row.texts[column]
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{HEADERS[column]}: {row.texts[column] or 'not known'}"
        if role == SORTED_BY:
            return row.keys[column]
        if role == DEVICE:
            return row.device_id
        if role == Qt.ItemDataRole.TextAlignmentRole and column in NUMBERS:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(  # noqa: N802 - Qt's name
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return a heading."""
        shown = orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole
        return HEADERS[section] if shown else None

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Let PCs be dragged, and stages be dropped on them."""
        return super().flags(index) | Qt.ItemFlag.ItemIsDragEnabled | Qt.ItemFlag.ItemIsDropEnabled

    def mimeTypes(self) -> list[str]:  # noqa: N802 - Qt's name
        """Say what is dragged here and away."""
        return [PC_MIME, STAGE_MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:  # noqa: N802 - Qt's name
        """Return the PC that is dragged."""
        return mime_of(PC_MIME, self.rows[indexes[0].row()].device_id)

    def canDropMimeData(  # noqa: N802 - Qt's
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        """Let stages be dropped."""
        return data.hasFormat(STAGE_MIME)

    def dropMimeData(  # noqa: N802 - Qt's
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        """Take a stage for a PC. Nothing is removed where it came from."""
        device_id = mime_text(data, STAGE_MIME)
        if parent.isValid() and device_id:
            self.given.emit(device_id, self.rows[parent.row()].device_id)
        return False


class PcsTable(QTableView):
    """Shows the rows of a model, as many selected as somebody likes."""

    opened = Signal(str)
    """Somebody wants to see a PC: its id."""
    chose = Signal()
    """Other rows are selected."""

    def __init__(self, rows: PcsModel) -> None:
        super().__init__()
        self._sorted = QSortFilterProxyModel(self)
        self._sorted.setSourceModel(rows)
        self._sorted.setSortRole(SORTED_BY)
        self._sorted.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self._sorted.setFilterKeyColumn(-1)
        self._sorted.setDynamicSortFilter(False)  # rows stay where they are until somebody clicks a heading
        self.setModel(self._sorted)
        self.setAccessibleName("PCs")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDragDropOverwriteMode(True)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setSortingEnabled(True)
        self.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(round(self.fontMetrics().height() * 1.6))
        header = self.horizontalHeader()
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        letter = self.fontMetrics().averageCharWidth()
        for column, letters in enumerate((22, 40, 12, 24)):
            self.setColumnWidth(column, letter * letters)
        self.doubleClicked.connect(lambda index: self.opened.emit(index.data(DEVICE)))

    def selectionChanged(self, selected: QItemSelection, deselected: QItemSelection) -> None:  # noqa: N802 - Qt's name
        """Tell of it."""
        super().selectionChanged(selected, deselected)
        self.chose.emit()

    def search(self, text: str) -> None:
        """Show only rows that have a text somewhere."""
        self._sorted.setFilterFixedString(text)

    @property
    def chosen(self) -> list[str]:
        """The PCs whose rows are selected."""
        return [index.data(DEVICE) for index in self.selectionModel().selectedRows()]

    def choose(self, device_id: str) -> bool:
        """Select a PC's row alone and bring it into sight; False if it is not shown."""
        for row in range(self._sorted.rowCount()):
            index = self._sorted.index(row, 0)
            if index.data(DEVICE) == device_id:
                self.selectRow(row)
                self.scrollTo(index)
                return True
        return False
