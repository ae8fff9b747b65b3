"""Questions before something is done that cannot be taken back, and orders that are carried out one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QLineEdit,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import isValid

from agent.look.widgets import heading, label
from console.call import Call
from console.errors import ClientError
from console.gui.bridge import Bridge
from console.visible import visible

MOST_LINES = 8


class Question(QDialog):
    """Asks once. `answered` comes with the text of the field and whether the box is ticked, only for a yes."""

    answered = Signal(str, bool)

    def __init__(
        self,
        parent: QWidget,
        title: str,
        text: str,
        yes: str,
        *,
        lines: Sequence[str] = (),
        field: str = "",
        filled: str = "",
        tick: str = "",
    ) -> None:
        """`lines` are what it is about, `field` and `tick` what else is asked (empty: nothing)."""
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        line = self.fontMetrics().height()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(line, line, line, line)
        rows.setSpacing(round(line * 0.6))
        rows.addWidget(heading(title))
        rows.addWidget(label(text))
        if lines:
            rows.addWidget(_list_of(lines, self))
        self.field = QLineEdit(filled)
        self.field.setAccessibleName(field)
        if field:
            rows.addWidget(label(field, quiet=True))
            rows.addWidget(self.field)
        self.tick = QCheckBox(tick)
        if tick:
            rows.addWidget(self.tick)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.yes = buttons.addButton(yes, QDialogButtonBox.ButtonRole.AcceptRole)
        self.yes.setDefault(bool(field))
        buttons.button(QDialogButtonBox.StandardButton.Cancel).setDefault(not field)
        buttons.accepted.connect(self._agree)
        buttons.rejected.connect(self.reject)
        rows.addWidget(buttons)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * 70)

    def _agree(self) -> None:
        self.answered.emit(self.field.text().strip(), self.tick.isChecked())
        self.accept()


def _list_of(lines: Sequence[str], parent: QWidget) -> QPlainTextEdit:
    # One line each, whatever names are in them: neither a break in a name nor a long one makes a line of its own.
    shown = QPlainTextEdit("\n".join(visible(line) for line in lines), parent)
    shown.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
    shown.setReadOnly(True)
    shown.setAccessibleName("What it is about")
    shown.setTabChangesFocus(True)
    metrics = shown.fontMetrics()
    bar = shown.horizontalScrollBar().sizeHint().height()
    shown.setFixedHeight(metrics.lineSpacing() * min(len(lines), MOST_LINES) + metrics.height() + bar)
    return shown


class Orders(QObject):
    """Carries several calls out, and says at the end what came of them. GUI thread."""

    said = Signal(str, bool)
    """A sentence, and whether something failed."""

    def __init__(self, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge

    def carry_out(
        self,
        calls: Sequence[tuple[str, Call[Any]]],
        done: str,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Ask one after the other; `done` is said if all worked.

        Each call comes with the name of what it is about. `then` is called at the end, whatever came of it.
        """
        waiting = list(calls)
        failed: list[str] = []

        def go_on() -> None:
            if waiting:
                name, call = waiting.pop(0)
                self._bridge.ask(call, lambda _: go_on(), lambda error: fail(name, error))
                return
            if not isValid(self):  # the page is gone; all that was ordered is carried out nevertheless
                return
            self.said.emit(_summary(len(calls), failed, done), bool(failed))
            then()

        def fail(name: str, error: ClientError) -> None:
            failed.append(f"{name}: {error}" if len(calls) > 1 else str(error))
            go_on()

        go_on()


def _summary(total: int, failed: Sequence[str], done: str) -> str:
    if not failed:
        return done
    if total == 1:
        return failed[0]
    return f"{len(failed)} of {total} failed. " + " ".join(failed[:MOST_LINES])
