"""The settings of the window, and the list of shortcuts that can be changed. GUI thread."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QHBoxLayout,
    QKeySequenceEdit,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from agent.look.widgets import Table, fit, heading, label
from console.chat.settings import ChatSettings, Theme, Width
from console.chat.window.actions import SPECS, clashes

THEMES: dict[Theme, str] = {
    "system": "As the system", "light": "Light", "dark": "Dark", "contrast": "High contrast",
}  # fmt: skip
WIDTHS: dict[Width, str] = {"narrow": "Narrow", "wide": "Wide", "full": "As wide as the window"}


class OptionsDialog(QDialog):
    """Changes settings at once, as they are chosen."""

    changed = Signal(dict)
    erases = Signal()
    signs_out = Signal()

    def __init__(self, settings: ChatSettings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        self.theme = _choice("Theme", THEMES, settings.theme)
        self.theme.currentIndexChanged.connect(lambda: self._change(theme=self.theme.currentData()))
        self.text_size = QSpinBox()
        self.text_size.setAccessibleName("Text size")
        self.text_size.setRange(70, 250)
        self.text_size.setSingleStep(10)
        self.text_size.setSuffix(" %")
        self.text_size.setValue(settings.font_percent)
        self.text_size.valueChanged.connect(lambda value: self._change(font_percent=value))
        self.line_width = _choice("Width of the text", WIDTHS, settings.width)
        self.line_width.currentIndexChanged.connect(lambda: self._change(width=self.line_width.currentData()))
        self.enter = QCheckBox("Enter sends, Shift+Enter breaks the line (off: Ctrl+Enter sends)")
        self.enter.setChecked(settings.enter_sends)
        self.enter.toggled.connect(lambda on: self._change(enter_sends=on))
        self.announces = QCheckBox("Tell a screen reader each sentence of an answer")
        self.announces.setChecked(settings.announces)
        self.announces.toggled.connect(lambda on: self._change(announces=on))
        form = QFormLayout()
        form.addRow("Theme", self.theme)
        form.addRow("Text size", self.text_size)
        form.addRow("Width of the text", self.line_width)
        form.addRow("", self.enter)
        form.addRow("", self.announces)
        self.erase = QPushButton("Delete all chats for good…")
        self.erase.clicked.connect(self.erases)
        self.sign_out = QPushButton("Sign out")
        self.sign_out.clicked.connect(self.signs_out)
        row = QHBoxLayout()
        row.addWidget(self.sign_out)
        row.addWidget(self.erase)
        row.addStretch(1)
        rows = QVBoxLayout(self)
        rows.addLayout(form)
        rows.addWidget(heading("Your data"))
        rows.addWidget(
            label(
                "Chats are kept on this PC only. The last thing you deleted can be brought back until you close the "
                "window; what was deleted is gone from the disk after 30 days.",
                quiet=True,
            )
        )
        rows.addLayout(row)
        rows.addStretch(1)
        rows.addWidget(_close(self))
        fit(self, columns=76, lines=22)

    def _change(self, **changes: Any) -> None:
        self.changed.emit(changes)


class ShortcutsDialog(QDialog):
    """Every action with its keys: a list to look at, and to change."""

    changed = Signal(dict)
    """The shortcuts that are not an action's own."""

    def __init__(self, shortcuts: dict[str, str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        self._changed = dict(shortcuts)
        self.filter = QLineEdit()
        self.filter.setPlaceholderText("Filter")
        self.filter.setAccessibleName("Filter")
        self.filter.textChanged.connect(self._show)
        self.table = Table("Shortcuts", ["Action", "Keys", "Where"], stretch=0)
        self.table.itemSelectionChanged.connect(self._select)
        self.keys = QKeySequenceEdit()
        self.keys.setMaximumSequenceLength(1)
        self.keys.setAccessibleName("Keys of the chosen action")
        self.set = QPushButton("Set keys")
        self.clear = QPushButton("No keys")
        self.reset = QPushButton("As it was")
        self.set.clicked.connect(lambda: self._set(self.keys.keySequence().toString()))
        self.clear.clicked.connect(lambda: self._set(""))
        self.reset.clicked.connect(lambda: self._set(None))
        self.said = label()
        row = QHBoxLayout()
        row.addWidget(self.keys, 1)
        for button in (self.set, self.clear, self.reset):
            row.addWidget(button)
        rows = QVBoxLayout(self)
        rows.addWidget(self.filter)
        rows.addWidget(self.table, 1)
        rows.addLayout(row)
        rows.addWidget(self.said)
        rows.addWidget(_close(self))
        self._show()
        self._select()
        fit(self, columns=84, lines=36)

    def _show(self) -> None:
        wanted = self.filter.text().casefold()
        self._names = [spec.name for spec in SPECS if wanted in f"{spec.text} {spec.group}".casefold()]
        shown = {spec.name: spec for spec in SPECS}
        self.table.show_rows(
            [(shown[name].text, self._keys_of(name), shown[name].group) for name in self._names]
        )  # fmt: skip

    def _keys_of(self, name: str) -> str:
        own = next(spec.keys for spec in SPECS if spec.name == name)
        return QKeySequence(self._changed.get(name, own)).toString(QKeySequence.SequenceFormat.NativeText)

    def _chosen(self) -> str:
        rows = self.table.selectionModel().selectedRows()
        return self._names[rows[0].row()] if rows else ""

    def _select(self) -> None:
        name = self._chosen()
        for widget in (self.keys, self.set, self.clear, self.reset):
            widget.setEnabled(bool(name))
        if name:
            self.keys.setKeySequence(QKeySequence(self._keys_of(name)))
            self.reset.setEnabled(name in self._changed)

    def _set(self, keys: str | None) -> None:
        name = self._chosen()
        if not name:
            return
        wanted = {each: value for each, value in self._changed.items() if each != name}
        own = next(spec.keys for spec in SPECS if spec.name == name)
        if keys is not None and QKeySequence(keys) != QKeySequence(own):
            wanted[name] = keys
        if twice := clashes(wanted):
            keys_, texts = next(iter(twice.items()))
            self.said.setText(f"{keys_} is taken: {' and '.join(texts)}.")
            return
        self.said.setText("")
        self._changed = wanted
        self._show()
        self._select()
        self.changed.emit(dict(wanted))


def _choice(name: str, texts: dict[Any, str], value: str) -> QComboBox:
    box = QComboBox()
    box.setAccessibleName(name)
    for key, text in texts.items():
        box.addItem(text, key)
    box.setCurrentIndex(list(texts).index(value))
    return box


def _close(dialog: QDialog) -> QDialogButtonBox:
    buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
    buttons.rejected.connect(dialog.accept)
    return buttons
