"""The table of PCs: searched, sorted, and dragged from onto stages. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QItemSelection, QMimeData, QModelIndex, Qt, Signal
from PySide6.QtWidgets import QAbstractItemView

from console.gui.plans.lanes import PC_MIME, STAGE_MIME, mime_of, mime_text
from console.gui.plans.pcs import PcRow
from console.gui.rows import KEY_ROLE, Heading, Index, KeyedModel, RowsView

HEADINGS = (
    Heading("PC", 22),
    Heading("In the plan", 40),
    Heading("Memory", 12, number=True),
    Heading("ms a layer", 24, number=True),
    Heading("Place", 20),
)


class PcsModel(KeyedModel[PcRow]):
    """The PCs of the fleet. They can be dragged to stages, and stages to them."""

    headings = HEADINGS

    words = ""
    """What the rows that are shown have somewhere, in small letters."""

    given = Signal(str, str)
    """A stage was dropped on a PC: whose it is, and who is to have it."""

    def key_of(self, item: PcRow) -> str:
        """Return the PC's id."""
        return item.device_id

    def text(self, item: PcRow, column: int) -> str:
        """Return a cell."""
        return item.texts[column]

    def sort_key(self, item: PcRow, column: int) -> Any:
        """Return what a cell is sorted by."""
        return item.keys[column]

    def lets(self, item: PcRow) -> bool:
        """Whether a row has the words."""
        return any(self.words in text.lower() for text in item.texts)

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Let PCs be dragged, and stages be dropped on them."""
        return super().flags(index) | Qt.ItemFlag.ItemIsDragEnabled | Qt.ItemFlag.ItemIsDropEnabled

    def mimeTypes(self) -> list[str]:  # noqa: N802 - Qt's name
        """Say what is dragged here and away."""
        return [PC_MIME, STAGE_MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:  # noqa: N802 - Qt's name
        """Return the PC that is dragged."""
        return mime_of(PC_MIME, self.shown[indexes[0].row()].device_id)

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
            self.given.emit(device_id, self.shown[parent.row()].device_id)
        return False


class PcsTable(RowsView):
    """Shows the PCs, as many selected as somebody likes."""

    opened = Signal(str)
    """Somebody wants to see a PC: its id."""
    chose = Signal()
    """Other rows are selected."""

    def __init__(self, pcs: PcsModel) -> None:
        super().__init__("PCs", pcs)
        self._pcs = pcs
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDragDropOverwriteMode(True)
        self.sort_by(0)
        self.doubleClicked.connect(lambda index: self.opened.emit(index.data(KEY_ROLE)))

    def selectionChanged(self, selected: QItemSelection, deselected: QItemSelection) -> None:  # noqa: N802 - Qt's name
        """Tell of it."""
        super().selectionChanged(selected, deselected)
        self.chose.emit()

    def search(self, text: str) -> None:
        """Show only rows that have a text somewhere."""
        self._pcs.words = text.lower()
        self._pcs.look_again()
