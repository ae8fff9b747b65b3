"""Small pieces of the models' views: bars with a sentence, forms that are read, buttons in a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import (
    QDialog,
    QFormLayout,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from agent.look.widgets import fit, label

THOUSAND = 1000


def button(text: str, do: Callable[[], object], name: str = "") -> QPushButton:
    """Return a button that does something."""
    made = QPushButton(text)
    made.clicked.connect(lambda _checked: do())
    if name:
        made.setObjectName(name)
    return made


def across(*widgets: QWidget, ends: bool = False) -> QHBoxLayout:
    """Return widgets beside each other, at the left, or with the last at the right (`ends`)."""
    line = QHBoxLayout()
    for place, widget in enumerate(widgets):
        if ends and place == len(widgets) - 1:
            line.addStretch(1)
        line.addWidget(widget)
    if not ends:
        line.addStretch(1)
    return line


def field(form: QFormLayout, text: str, widget: QWidget) -> None:
    """Add a field with its name, which a screen reader says, too."""
    named = label(text)
    named.setWordWrap(False)
    named.setBuddy(widget)
    widget.setAccessibleName(text)
    form.addRow(named, widget)


def say(shown: QLabel, text: str, *, bad: bool = False) -> None:
    """Show a sentence, in the colour of what is wrong if it is; hide the label when there is none."""
    if shown.text() != text:
        shown.setText(text)
    shown.setForegroundRole(QPalette.ColorRole.BrightText if bad else QPalette.ColorRole.WindowText)
    shown.setVisible(bool(text))


class Facts(QWidget):
    """Names and values to read, one pair a line."""

    def __init__(self) -> None:
        super().__init__()
        self._form = QFormLayout(self)
        self._form.setContentsMargins(0, 0, 0, 0)
        self._form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        self._form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.DontWrapRows)
        self.values: dict[str, QLabel] = {}

    def show_facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Show other values; the names are made when they first come."""
        for name, value in facts:
            if name not in self.values:
                self.values[name] = label()
                self.values[name].setAccessibleName(name)
                named = label(name, quiet=True)
                named.setWordWrap(False)
                self._form.addRow(named, self.values[name])
            if self.values[name].text() != value:
                self.values[name].setText(value)


class Bars(QWidget):
    """Bars, one a line: a name, how far it is, and what is said beside."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setColumnStretch(1, 1)
        self._rows: list[tuple[QLabel, QProgressBar, QLabel]] = []

    def show_bars(self, rows: Sequence[tuple[str, float | None, str]]) -> None:
        """Show rows of name, share (0 to 1; None: nobody knows) and a sentence."""
        while len(self._rows) < len(rows):
            self._add()
        for place, (named, bar, said) in enumerate(self._rows):
            shown = place < len(rows)
            for widget in (named, bar, said):
                widget.setVisible(shown)
            if shown:
                name, share, sentence = rows[place]
                named.setText(name)
                said.setText(sentence)
                bar.setAccessibleName(name)
                bar.setRange(0, 0 if share is None else THOUSAND)
                if share is not None:
                    bar.setValue(round(share * THOUSAND))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """What is said, by name."""
        return [(named.text(), said.text()) for named, _, said in self._rows if not named.isHidden()]

    def _add(self) -> None:
        named, said, bar = label(), label(quiet=True), QProgressBar()
        named.setWordWrap(False)
        said.setWordWrap(False)
        bar.setTextVisible(False)
        bar.setMaximumHeight(round(self.fontMetrics().height() * 0.9))
        row = len(self._rows)
        for column, widget in enumerate((named, bar, said)):
            self._grid.addWidget(widget, row, column)
        self._rows.append((named, bar, said))


class Dialog(QDialog):
    """A dialog beside the window, which may be closed at any time: what it began goes on."""

    def __init__(self, parent: QWidget, title: str, *, columns: int, lines: int) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.rows = QVBoxLayout(self)
        line = self.fontMetrics().height()
        self.rows.setContentsMargins(line, line, line, line)
        self.rows.setSpacing(round(line * 0.6))
        fit(self, columns=columns, lines=lines)
