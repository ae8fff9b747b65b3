"""Dialogs with fields, that stay open until what they ask for is done: a refusal loses nothing that was typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QFormLayout, QLineEdit, QVBoxLayout, QWidget
from shiboken6 import isValid

from agent.look.widgets import announce, heading, label
from console.call import Call
from console.errors import ClientError
from console.gui.bridge import Bridge

T = TypeVar("T")


class FormDialog(QDialog):
    """Fields in `form`; `order` returns the call for what is filled in, or raises ClientError for what is missing."""

    def __init__(
        self,
        parent: QWidget,
        bridge: Bridge,
        title: str,
        *,
        yes: str,
        order: Callable[[], Call[T]],
        then: Callable[[T], object],
        about: str = "",
    ) -> None:
        """`then` hears the answer once the dialog is closed, also when somebody closed it first: it may be a secret."""
        super().__init__(parent)

        def send() -> None:
            bridge.ask(order(), lambda answer: self._done(lambda: then(answer)), self._fail)

        self._send: Callable[[], None] = send
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.form = QFormLayout()
        self.form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        self.said = label()
        self.said.setForegroundRole(QPalette.ColorRole.BrightText)
        self.said.hide()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.yes = buttons.addButton(yes, QDialogButtonBox.ButtonRole.AcceptRole)
        self.yes.setDefault(True)
        buttons.accepted.connect(self._want)
        buttons.rejected.connect(self.reject)
        line = self.fontMetrics().height()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(line, line, line, line)
        rows.setSpacing(round(line * 0.6))
        rows.addWidget(heading(title))
        if about:
            rows.addWidget(label(about, quiet=True))
        rows.addLayout(self.form)
        rows.addWidget(self.said)
        rows.addWidget(buttons)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * 75)

    def _want(self) -> None:
        try:
            self._send()
        except ClientError as error:
            self._fail(error)
        else:
            self.yes.setEnabled(False)
            self.said.hide()

    def _done(self, then: Callable[[], object]) -> None:
        if isValid(self):
            self.accept()
        then()

    def _fail(self, error: ClientError) -> None:
        if not isValid(self):
            return
        self.yes.setEnabled(True)
        self.said.setText(str(error))
        self.said.show()
        announce(self.said, str(error))


def secret_field() -> QLineEdit:
    """Return a field whose text nobody reads over a shoulder."""
    field = QLineEdit()
    field.setEchoMode(QLineEdit.EchoMode.Password)
    return field


def words_of(text: str) -> list[str]:
    """Return what somebody typed with commas between."""
    return [word.strip() for word in text.split(",") if word.strip()]
