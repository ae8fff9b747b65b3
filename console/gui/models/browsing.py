"""Folders of the console's PC: chosen here, listed there."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from agent.look.loop import Job
from agent.look.widgets import label
from console import calls
from console.api.admin.build_types import Entry, EntryKind, Folder
from console.errors import ClientError
from console.gui.bridge import Bridge
from console.gui.models.parts import across, alive, button, say
from console.gui.models.texts import size_text

KINDS: dict[EntryKind, str] = {
    "folder": "folder",
    "checkpoint": "model",
    "gguf": "GGUF model",
    "library": "layer library",
    "file": "file",
}
_ENTRY = Qt.ItemDataRole.UserRole


class FolderView(QWidget):
    """One folder at a time. `wanted` are the kinds that can be chosen; the others are there to be opened or seen."""

    chosen = Signal(str)
    """A path of a wanted kind was chosen; empty: none is."""
    opened = Signal(str)
    """Another folder is shown."""

    def __init__(self, bridge: Bridge, wanted: frozenset[EntryKind]) -> None:
        super().__init__()
        self._bridge, self._wanted = bridge, wanted
        self._asking: Job | None = None
        self.folder: Folder | None = None
        self.path = QLineEdit()
        self.path.setAccessibleName("Path on the console's PC")
        self.path.returnPressed.connect(lambda: self.open(self.path.text().strip()))
        self.up = button("&Up", self._go_up)
        self.list = QListWidget()
        self.list.setAccessibleName("What is in the folder")
        self.list.itemActivated.connect(self._activate)
        self.list.itemSelectionChanged.connect(self._choose)
        self.said = label(quiet=True)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        line = across(self.up)
        line.insertWidget(0, self.path, 1)
        rows.addLayout(line)
        rows.addWidget(self.list, 1)
        rows.addWidget(self.said)

    def open(self, path: str = "") -> None:
        """Show a folder; empty: the one for models."""
        if self._asking is not None:
            self._asking.cancel()
        say(self.said, "Asking the service…")
        self._asking = self._bridge.ask(calls.folder(path), alive(self, self._show), alive(self, self._fail))

    def _show(self, folder: Folder) -> None:
        self.folder = folder
        self.path.setText(folder.path)
        self.up.setEnabled(bool(folder.parent))
        self.list.clear()
        for entry in folder.entries:
            size = f", {size_text(entry.size_bytes)}" if entry.size_bytes else ""
            item = QListWidgetItem(f"{entry.name}   ({KINDS[entry.kind]}{size})")
            item.setData(_ENTRY, entry)
            item.setSizeHint(QSize(0, round(self.fontMetrics().height() * 1.6)))
            if entry.kind == "file" and "file" not in self._wanted:
                item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEnabled)
            self.list.addItem(item)
        more = " There is more than is shown; type the path." if folder.more else ""
        if not folder.entries:
            say(self.said, "This folder is empty.")
        else:
            say(self.said, f"Double-click a folder to open it.{more}")
        self.opened.emit(folder.path)
        self._choose()

    def _fail(self, error: ClientError) -> None:
        say(self.said, str(error), bad=True)
        self.chosen.emit("")

    def _go_up(self) -> None:
        if self.folder is not None and self.folder.parent:
            self.open(self.folder.parent)

    def _activate(self, item: QListWidgetItem) -> None:
        entry: Entry = item.data(_ENTRY)
        if entry.kind == "folder":
            self.open(self._path_of(entry))

    def _choose(self) -> None:
        chosen = self.list.selectedItems()
        entry: Entry | None = chosen[0].data(_ENTRY) if chosen else None
        self.chosen.emit(self._path_of(entry) if entry is not None and entry.kind in self._wanted else "")

    def _path_of(self, entry: Entry) -> str:
        base = self.folder.path if self.folder is not None else ""
        # The service's PC may have another system than this one.
        separator = "\\" if "\\" in base and "/" not in base else "/"
        return f"{base.rstrip(separator)}{separator}{entry.name}"
