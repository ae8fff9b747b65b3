"""The dialog for a new invite."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QSpinBox, QWidget

from console import calls
from console.api.admin import types as wire
from console.call import Call
from console.gui.bridge import Bridge
from console.gui.forms import FormDialog, words_of

MOST_USES = 10_000
LIVES = (("1 hour", 1.0), ("1 day", 24.0), ("7 days", 168.0), ("30 days", 720.0))


class NewInvite(FormDialog):
    """Asks what an invite should be."""

    def __init__(self, parent: QWidget, bridge: Bridge, then: Callable[[wire.Invite], object]) -> None:
        super().__init__(parent, bridge, "New invite", yes="Make the &invite", order=self.call, then=then)
        self.uses = QSpinBox()
        self.uses.setRange(1, MOST_USES)
        self.life = QComboBox()
        for text, hours in LIVES:
            self.life.addItem(text, hours)
        self.life.setCurrentIndex(1)
        self.hint = QLineEdit()
        self.hint.setPlaceholderText("What it is for, like: lab on the second floor")
        self.tags = QLineEdit()
        self.tags.setPlaceholderText("site:oslo, lab")
        self.auto = QCheckBox("Let PCs in &without approval")
        self.auto.toggled.connect(self._follow)
        self.networks = QLineEdit()
        self.networks.setPlaceholderText("10.1.0.0/16 (empty: any)")
        self.names = QLineEdit()
        self.names.setPlaceholderText("lab-* (empty: any)")
        self.keyring = QCheckBox("its key is not in a plain &file")
        self.form.addRow("&PCs that may use it", self.uses)
        self.form.addRow("It ends &after", self.life)
        self.form.addRow("&Hint", self.hint)
        self.form.addRow("&Tags the PCs get", self.tags)
        self.form.addRow("", self.auto)
        self.form.addRow("only from &networks", self.networks)
        self.form.addRow("only with na&mes", self.names)
        self.form.addRow("only if", self.keyring)
        self._follow()

    def call(self) -> Call[wire.Invite]:
        """Return the order for what is filled in."""
        automatic = self.auto.isChecked()
        return calls.create_invite(
            uses=self.uses.value(),
            hours=self.life.currentData(),
            auto_approve=automatic,
            hint=self.hint.text().strip(),
            tags=words_of(self.tags.text()),
            networks=words_of(self.networks.text()) if automatic else [],
            names=words_of(self.names.text()) if automatic else [],
            keyring=automatic and self.keyring.isChecked(),
        )

    def _follow(self) -> None:
        for widget in (self.networks, self.names, self.keyring):
            widget.setEnabled(self.auto.isChecked())
