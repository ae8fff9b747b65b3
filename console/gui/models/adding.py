"""The dialog that adds a library which is on the console's disk already."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from agent.look.widgets import label
from console import calls
from console.api.admin import types as wire
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.models.browsing import FolderView
from console.gui.models.parts import Dialog, across, button, say
from console.gui.page import Desk
from shard_export.library.counts import counted


class AddDialog(Dialog):
    """Pick a library's folder, and add it."""

    said = Signal(str, bool)

    def __init__(self, desk: Desk, parent: QWidget) -> None:
        super().__init__(parent, "Add a layer library", columns=100, lines=32)
        self._desk = desk
        self._path = ""
        self.pick = FolderView(desk.bridge, frozenset({"library"}))
        self.pick.chosen.connect(self._choose)
        self.problem = label()
        self.problem.setObjectName("problem")
        self.problem.hide()
        self.add = button("&Add", self._add)
        self.add.setEnabled(False)
        self.add.setDefault(True)
        self.rows.addWidget(label("Choose a folder that holds a finished layer library.", quiet=True))
        self.rows.addWidget(self.pick, 1)
        self.rows.addWidget(self.problem)
        self.rows.addLayout(across(self.add, button("Close", self.close), ends=True))
        self.pick.open()

    def _choose(self, path: str) -> None:
        self._path = path
        self.add.setEnabled(bool(path))

    def _add(self) -> None:
        self.add.setEnabled(False)
        say(self.problem, "Adding it…")
        self._desk.bridge.ask(calls.add_library_at(self._path), alive(self, self._added), alive(self, self._refused))

    def _added(self, library: wire.Library) -> None:
        self.said.emit(f"{library.model_id} can be deployed: {counted(library.layer_count, 'layer')}.", False)
        self._desk.libraries.now()
        self.close()

    def _refused(self, error: ClientError) -> None:
        self.add.setEnabled(True)
        say(self.problem, str(error), bad=True)
