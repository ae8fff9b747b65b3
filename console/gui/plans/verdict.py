"""What the service says of the plan: how fast, what would change, what is wrong, what is good to know. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from agent.look.widgets import announce, heading, label, scrolled
from console.gui.plans import words
from console.gui.plans.editor import PlanEditor

CHECKING = "Checking the plan…"
FEWEST_LETTERS = 44


class Verdict(QWidget):
    """Follows an editor."""

    def __init__(self, editor: PlanEditor) -> None:
        super().__init__()
        self._editor = editor
        self._faults = ""
        self.headline = label(bold=True)
        self.headline.setObjectName("headline")
        self.difference, self.faults, self.notes = label(), label(), label(quiet=True)
        self.faults.setForegroundRole(QPalette.ColorRole.BrightText)
        self.headings = [heading(text) for text in ("Against what runs now", "What is wrong", "Good to know")]
        inside = QWidget()
        rows = QVBoxLayout(inside)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(self.headline)
        for title, body in zip(self.headings, (self.difference, self.faults, self.notes), strict=True):
            rows.addWidget(title)
            rows.addWidget(body)
        rows.addStretch(1)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * FEWEST_LETTERS)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(self.fontMetrics().height() // 2, 0, 0, 0)
        whole.addWidget(scrolled(inside))
        editor.changed.connect(self._wait)
        editor.looked.connect(self._show)

    def _wait(self) -> None:
        """Keep what was said of the plan before, greyed, until the answer comes."""
        self.headline.setEnabled(False)
        self.difference.setEnabled(False)
        if self._editor.found is None and not self._editor.problem:
            self.headline.setText(CHECKING)

    def _show(self) -> None:
        found = self._editor.found
        self.headline.setEnabled(True)
        self.difference.setEnabled(True)
        plan = self._editor.plan
        if found is None or plan is None or not plan.lanes:
            self.headline.setText(self._editor.problem or "There is no plan yet.")
            self._say(0, self.difference, [])
            self._say(1, self.faults, [])
            self._say(2, self.notes, [])
            return
        self.headline.setText(words.headline(found))
        self._say(0, self.difference, words.difference(found))
        # With a sign, and not in red alone.
        faults = [f"\N{WARNING SIGN} {fault}" for fault in self._editor.faults]
        self._say(1, self.faults, faults)
        self._say(2, self.notes, list(dict.fromkeys([*self._editor.reasons, *found.notes])))
        if self.faults.text() != self._faults:
            self._faults = self.faults.text()
            announce(self.faults, self._faults or "Nothing is wrong with the plan.")

    def _say(self, place: int, body: QLabel, lines: Sequence[str]) -> None:
        body.setText("\n".join(lines))
        for widget in (self.headings[place], body):
            widget.setVisible(bool(lines))
