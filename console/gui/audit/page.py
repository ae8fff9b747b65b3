"""The page of the audit log: search, facets, older entries, export, and the check of its chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLineEdit, QPushButton

from agent.look.loop import Job
from agent.look.widgets import label
from console import calls
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.audit.entries import AuditModel, Sought, detail_text, values_of
from console.gui.page import Desk, Page
from console.gui.rows import RowsView
from console.gui.states import States
from console.gui.times import moment_text
from console.registry.chain import Checked
from console.registry.records import AuditEntry
from shard_export.library.counts import counted

PAGE = 200
TYPING_MS = 250
FACET_LETTERS = 18
ANY = {"actor": "Anybody", "action": "Anything done", "target": "Any target"}


class AuditPage(Page):
    """Newest entries first; older ones are asked for when somebody wants them."""

    name = "audit"
    heading = "Activity"
    icon = "audit"
    scope = "audit"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._asking: Job | None = None
        self._seen: dict[int, AuditEntry] = {}
        self._oldest = self._looked_at = 0
        self.model = AuditModel(self)
        self.table = RowsView("Entries of the audit log", self.model, several=False)
        self.table.sort_by(0, Qt.SortOrder.DescendingOrder)
        self.table.selectionModel().selectionChanged.connect(self._show_whole)
        self.states = States(self.table)
        self.whole = label(quiet=True)
        self.whole.setAccessibleName("The selected entry")
        self.older = QPushButton("&Older entries")
        self.older.clicked.connect(self._ask_older)
        self._lay_out()

    def select(self, what: str) -> None:
        """Show what happened to one thing: its id."""
        self._reset_facets()
        self.words.setText(what)
        self._ask()

    def search(self) -> None:
        """Go to the search."""
        self.words.setFocus()
        self.words.selectAll()

    def refresh(self) -> None:
        """Ask for the newest entries."""
        self._ask()

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Ask for the newest entries."""
        super().showEvent(event)
        self._ask()

    def _lay_out(self) -> None:
        self.words = QLineEdit()
        self.words.setPlaceholderText("Search names, ids, actions, addresses: words or their beginnings")
        self.words.setAccessibleName("Search")
        self.words.setClearButtonEnabled(True)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(TYPING_MS)
        self._typing.timeout.connect(self._ask)
        self.words.textChanged.connect(lambda _: self._typing.start())
        first, second = QHBoxLayout(), QHBoxLayout()
        first.addWidget(self.words, 1)
        self.facets: dict[str, QComboBox] = {}
        for field, text in ANY.items():
            facet = QComboBox()
            facet.setAccessibleName(text)
            facet.addItem(text, "")
            facet.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            facet.setMinimumContentsLength(FACET_LETTERS)
            facet.activated.connect(lambda _: self._ask())
            self.facets[field] = facet
            first.addWidget(facet)
        self.export, self.verify = QPushButton("&Export…"), QPushButton("&Check the chain")
        self.export.clicked.connect(self._ask_file)
        self.verify.clicked.connect(self._verify)
        second.addWidget(self.older)
        second.addStretch(1)
        second.addWidget(self.verify)
        second.addWidget(self.export)
        self.rows.addLayout(first)
        self.rows.addWidget(self.states, 1)
        self.rows.addWidget(self.whole)
        self.rows.addLayout(second)

    @property
    def sought(self) -> Sought:
        """What is looked for now."""
        chosen = {field: facet.currentData() for field, facet in self.facets.items()}
        return Sought(self.words.text().strip(), **chosen)

    def _ask(self, before: int = 0) -> None:
        if self._asking is not None:
            self._asking.cancel()
        sought = self.sought
        asked = calls.audit(limit=PAGE, before=before, search=sought.search())
        self._asking = self.desk.bridge.ask(
            asked,
            alive(self, lambda entries: self._show(sought, entries, before)),
            alive(self, lambda error: self._fail(error, before)),
        )

    def _ask_older(self) -> None:
        self._ask(self._oldest)

    def _show(self, sought: Sought, entries: Sequence[AuditEntry], before: int) -> None:
        fitting = [entry for entry in entries if sought.fits(entry)]
        self.model.take([*self.model.items, *fitting] if before else fitting)
        self.model.look_again()
        # Of all that was answered, not of what fits: behind a page of which nothing fits there are others.
        self._oldest = min((entry.sequence for entry in entries), default=0)
        self._looked_at = len(entries) + (self._looked_at if before else 0)
        there_are_more = len(entries) == PAGE
        self.older.setEnabled(there_are_more)
        self._list_values(entries)
        if self.model.items:
            self.states.show_content()
        elif there_are_more:
            newest = counted(self._looked_at, "entry", "entries")
            text = f"Nothing like that is among the newest {newest} in question; look at older ones."
            self.states.show_empty(text, "&Older entries", self._ask_older)
        else:
            self.states.show_empty("Nothing like that is in the log.", "Show &all", self._show_all)

    def _fail(self, error: ClientError, before: int) -> None:
        if before or self.model.items:
            self.said.emit(str(error), True)
        else:
            self.states.show_error(error, self._ask)

    def _list_values(self, entries: Sequence[AuditEntry]) -> None:
        """Offer what was seen so far; what is chosen stays."""
        self._seen.update((entry.sequence, entry) for entry in entries)
        for field, facet in self.facets.items():
            known = {facet.itemData(place) for place in range(facet.count())}
            for value in values_of(list(self._seen.values()), field):
                if value not in known:
                    facet.addItem(value, value)

    def _show_all(self) -> None:
        self._reset_facets()
        self.words.clear()
        self._ask()

    def _reset_facets(self) -> None:
        for facet in self.facets.values():
            facet.setCurrentIndex(0)

    def _show_whole(self) -> None:
        chosen = [self.model.find(key) for key in self.table.chosen()]
        entry = chosen[0] if chosen else None
        self.whole.setText(
            f"{moment_text(entry.at_s)}, {entry.actor} from {entry.source or 'this console'}: {entry.action} "
            f"{entry.target}. {detail_text(entry)}\nHash {entry.hash}"
            if entry is not None
            else ""
        )

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(self, "Export the audit log", "fallow-audit.jsonl")
        if name:
            self.export_to(Path(name))

    def export_to(self, path: Path) -> None:
        """Write the whole log to a file, one JSON object a line."""
        self.export.setEnabled(False)
        self.desk.bridge.save(
            calls.export_audit(),
            path,
            alive(
                self, lambda count: self._tell(self.export, f"{counted(count, 'entry is', 'entries are')} in {path}.")
            ),
            alive(self, lambda error: self._tell(self.export, str(error), failed=True)),
        )

    def _verify(self) -> None:
        self.verify.setEnabled(False)

        def holds(checked: Checked) -> None:
            entries = counted(checked.entries, "entry", "entries")
            said = f"The chain holds: {entries}, the last is {checked.last_sequence} with the hash "
            self._tell(self.verify, f"{said}{checked.last_hash}. Note it, and a log that was cut off is found out.")

        self.desk.bridge.ask(
            calls.verify_audit(),
            alive(self, holds),
            alive(self, lambda error: self._tell(self.verify, str(error), failed=True)),
        )

    def _tell(self, button: QPushButton, text: str, *, failed: bool = False) -> None:
        button.setEnabled(True)
        self.said.emit(text, failed)
