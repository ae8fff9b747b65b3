"""Folders of the console's PC: chosen here, listed there."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from agent.look.loop import Job
from agent.look.widgets import label
from console import calls
from console.api.admin.build_types import Entry, EntryKind, Folder
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.bridge import Bridge
from console.gui.models.parts import across, button, say
from console.gui.times import size_text

KINDS: dict[EntryKind, str] = {
    "folder": "folder",
    "checkpoint": "model",
    "gguf": "GGUF model",
    "library": "layer library",
    "file": "file",
}
_ENTRY = Qt.ItemDataRole.UserRole


class PathField(QLineEdit):
    """A path to type. Enter is meant for it alone, not for the button that a dialog presses at Enter."""

    entered = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        """Keep Enter."""
        if event.key() in {Qt.Key.Key_Return.value, Qt.Key.Key_Enter.value}:
            self.entered.emit()
        else:
            super().keyPressEvent(event)


class FolderView(QWidget):
    """One folder at a time. `wanted` are the kinds that can be chosen; the others are there to be opened or seen."""

    chosen = Signal(str)
    """A path of a wanted kind was chosen: a selected entry, else what is opened itself. Empty: none is."""

    def __init__(self, bridge: Bridge, wanted: frozenset[EntryKind]) -> None:
        super().__init__()
        self._bridge, self._wanted = bridge, wanted
        self._asking: Job | None = None
        self.folder: Folder | None = None
        self.path = PathField()
        self.path.setAccessibleName("Path on the console's PC")
        self.path.entered.connect(lambda: self.open(self.path.text().strip()))
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
        # Until it answers nothing is chosen: a button must not take what was selected before.
        with QSignalBlocker(self.list):
            self.list.clearSelection()
        self.chosen.emit("")
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
        say(self.said, self._about(folder))
        self._choose()

    def _about(self, folder: Folder) -> str:
        """Say what is opened, and what can be done with it."""
        if folder.kind in self._wanted:
            return f"This is a {KINDS[folder.kind]}, and it is chosen."
        if folder.kind == "gguf":
            return f"This is a {KINDS[folder.kind]}, and none that can be chosen here."
        more = " There is more than is shown; type the path and press Enter." if folder.more else ""
        return f"Double-click a folder to open it.{more}" if folder.entries else "This folder is empty."

    def _fail(self, error: ClientError) -> None:
        say(self.said, str(error), bad=True)

    def _go_up(self) -> None:
        if self.folder is not None and self.folder.parent:
            self.open(self.folder.parent)

    def _activate(self, item: QListWidgetItem) -> None:
        entry: Entry = item.data(_ENTRY)
        if entry.kind == "folder":
            self.open(self._path_of(entry))

    def _choose(self) -> None:
        chosen = self.list.selectedItems()
        if chosen:
            entry: Entry = chosen[0].data(_ENTRY)
            kind, path = entry.kind, self._path_of(entry)
        elif self.folder is not None:
            kind, path = self.folder.kind, self.folder.path
        else:
            return
        self.chosen.emit(path if kind in self._wanted else "")

    def _path_of(self, entry: Entry) -> str:
        base = self.folder.path if self.folder is not None else ""
        # The service's PC may have another system than this one.
        separator = "\\" if "\\" in base and "/" not in base else "/"
        return f"{base.rstrip(separator)}{separator}{entry.name}"
