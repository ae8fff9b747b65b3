"""The question of the first run: may this PC work for others while its owner is away? The service keeps the answer."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QVBoxLayout, QWidget

from agent.control.status import PolicyRow, Status
from agent.look.widgets import fit, heading, label, scrolled, title
from agent.tray.pages.editors import said
from agent.tray.texts import Texts
from agent.tray.view import idle_start_s


class ConsentDialog(QDialog):
    """GUI thread. `answered` carries yes or no; `rejected`: it was put off, or closed without an answer."""

    answered = Signal(bool)

    def __init__(self, status: Status, texts: Texts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(texts("consent.title"))
        content = QWidget()
        lines = QVBoxLayout(content)
        lines.addWidget(title(texts("consent.title")))
        for section, text in self._sections(status, texts):
            lines.addWidget(heading(texts(f"consent.{section}_heading")))
            lines.addWidget(label(text))
        lines.addStretch(1)
        buttons = QDialogButtonBox()
        yes = buttons.addButton(texts("consent.yes"), QDialogButtonBox.ButtonRole.AcceptRole)
        no = buttons.addButton(texts("consent.no"), QDialogButtonBox.ButtonRole.DestructiveRole)
        buttons.addButton(texts("consent.later"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.setAccessibleName(texts("consent.title"))
        yes.clicked.connect(lambda: self._answer(agreed=True))
        no.clicked.connect(lambda: self._answer(agreed=False))
        buttons.rejected.connect(self.reject)
        rows = QVBoxLayout(self)
        rows.addWidget(scrolled(content), 1)
        rows.addWidget(buttons)
        self.yes, self.no = yes, no
        fit(self, columns=100, lines=42)

    def _sections(self, status: Status, texts: Texts) -> list[tuple[str, str]]:
        def of(field: str) -> str:
            row: PolicyRow | None = next((row for row in status.policy if row.field == field), None)
            return said(row, row.value, texts) if row else texts("value.unknown")

        idle = texts.duration(idle_start_s(status))
        return [
            ("what", texts("consent.what", fleet=status.fleet_name or texts("consent.fleet"))),
            ("when", texts("consent.when", idle=idle)),
            ("how_much", texts("consent.how_much", share=of("memory_max_percent"), floor=of("memory_floor_bytes"))),
            ("sees", texts("company.sees")),
            ("never", texts("company.never")),
            ("change", texts("consent.change")),
        ]

    def _answer(self, *, agreed: bool) -> None:
        self.answered.emit(agreed)
        self.accept()
