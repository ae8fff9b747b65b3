"""What a chat asks with: its system prompt, its sampling, and presets to begin from. GUI thread."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QHBoxLayout,
    QInputDialog,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from agent.look.widgets import fit, label
from console.chat.records import Preset, Sampling, Setup, new_id

MOST_SEED = 2**31 - 1


class Optional(QWidget):
    """A number that may be left to the server."""

    def __init__(self, name: str, box: QDoubleSpinBox | QSpinBox, value: float | None) -> None:
        super().__init__()
        self.used = QCheckBox("Set")
        self.used.setAccessibleName(f"Set {name}")
        self.box = box
        box.setAccessibleName(name)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.used)
        row.addWidget(box, 1)
        self.used.toggled.connect(box.setEnabled)
        self.set_value(value)

    def set_value(self, value: float | None) -> None:
        """Show a value; None: the server's own."""
        self.used.setChecked(value is not None)
        self.box.setEnabled(value is not None)
        if isinstance(self.box, QSpinBox):
            self.box.setValue(self.box.value() if value is None else int(value))
        else:
            self.box.setValue(self.box.value() if value is None else value)

    def value(self) -> float | None:
        """Return the value, or None."""
        return self.box.value() if self.used.isChecked() else None

    def whole(self) -> int | None:
        """Return the value as a whole number, or None."""
        value = self.value()
        return None if value is None else int(value)


class SetupDialog(QDialog):
    """Changes the copy a chat has. Presets are changed only by their own buttons."""

    saved_preset = Signal(object)
    deleted_preset = Signal(str)

    def __init__(self, setup: Setup, presets: list[Preset], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("System prompt and sampling")
        self._setup = setup
        self.presets = QComboBox()
        self.presets.setAccessibleName("Preset")
        self.system = QPlainTextEdit()
        self.system.setAccessibleName("System prompt")
        self.system.setPlaceholderText("What the model should know or keep to in this chat")
        self.system.setTabChangesFocus(True)
        self.temperature = Optional("Temperature", _decimal(2.0, 0.1, 1.0), None)
        self.top_p = Optional("Top p", _decimal(1.0, 0.05, 1.0), None)
        self.max_tokens = Optional("Longest answer", _whole(1, 1_000_000, 1024), None)
        self.seed = Optional("Seed", _whole(0, MOST_SEED, 1), None)
        self.stop = QLineEdit()
        self.stop.setAccessibleName("Stop at")
        self.stop.setPlaceholderText("Up to four texts, separated by |")
        self._lay_out()
        self.show_presets(presets)
        self.show_setup(setup.system, setup.sampling)
        fit(self, columns=84, lines=32)

    def setup(self) -> Setup:
        """Return what was chosen."""
        return Setup(self._setup.model, self.system.toPlainText().strip(), self.sampling())

    def sampling(self) -> Sampling:
        """Return the chosen sampling."""
        stop = [text for text in self.stop.text().split("|") if text][:4]
        return Sampling(
            self.temperature.value(), self.top_p.value(), self.max_tokens.whole(), self.seed.whole(), stop
        )  # fmt: skip

    def show_setup(self, system: str, sampling: Sampling) -> None:
        """Show other values."""
        self.system.setPlainText(system)
        self.temperature.set_value(sampling.temperature)
        self.top_p.set_value(sampling.top_p)
        self.max_tokens.set_value(sampling.max_tokens)
        self.seed.set_value(sampling.seed)
        self.stop.setText("|".join(sampling.stop))

    def show_presets(self, presets: list[Preset]) -> None:
        """Show which presets there are; the one that was chosen stays."""
        chosen = self.preset()
        self.presets.blockSignals(True)
        self.presets.clear()
        self.presets.addItem("Choose a preset", None)
        for preset in presets:
            notes = [note for note in (preset.model, "default" if preset.is_default else "") if note]
            self.presets.addItem(f"{preset.name} ({', '.join(notes)})" if notes else preset.name, preset)
        if chosen is not None:
            ids = [preset.id for preset in presets]
            self.presets.setCurrentIndex(ids.index(chosen.id) + 1 if chosen.id in ids else 0)
        self.presets.blockSignals(False)
        self._enable()

    def preset(self) -> Preset | None:
        """Return the chosen preset."""
        found = self.presets.currentData()
        return found if isinstance(found, Preset) else None

    def _lay_out(self) -> None:
        self.update_preset = QPushButton("Update preset")
        self.default = QPushButton("Make default")
        self.delete = QPushButton("Delete preset")
        save = QPushButton("Save as preset…")
        self.update_preset.clicked.connect(self._update)
        self.default.clicked.connect(self._make_default)
        self.delete.clicked.connect(self._delete)
        save.clicked.connect(self._save_as)
        self.presets.currentIndexChanged.connect(self._apply)
        row = QHBoxLayout()
        for widget in (save, self.update_preset, self.default, self.delete):
            row.addWidget(widget)
        self.only = QCheckBox(f"New presets are only for {self._setup.model}")
        self.only.setVisible(bool(self._setup.model))
        row.addStretch(1)
        form = QFormLayout()
        form.addRow("Preset", self.presets)
        form.addRow("", row)
        form.addRow("", self.only)
        form.addRow("System prompt", self.system)
        form.addRow("Temperature", self.temperature)
        form.addRow("Top p", self.top_p)
        form.addRow("Longest answer", self.max_tokens)
        form.addRow("Seed", self.seed)
        form.addRow("Stop at", self.stop)
        rows = QVBoxLayout(self)
        rows.addWidget(label("The chat keeps a copy of its own: changing a preset changes no chat.", quiet=True))
        rows.addLayout(form, 1)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        rows.addWidget(buttons)

    def _apply(self) -> None:
        preset = self.preset()
        if preset is not None:
            self.show_setup(preset.system, preset.sampling)
        self._enable()

    def _enable(self) -> None:
        preset = self.preset()
        for button in (self.update_preset, self.default, self.delete):
            button.setEnabled(preset is not None)
        self.default.setText("No default any more" if preset is not None and preset.is_default else "Make default")

    def _save_as(self) -> None:
        name, agreed = QInputDialog.getText(self, "Save as preset", "Name")
        if agreed and name.strip():
            system = self.system.toPlainText().strip()
            model = self._setup.model if self.only.isChecked() else ""
            preset = Preset(id=new_id(), name=name.strip(), system=system, sampling=self.sampling(), model=model)
            self.saved_preset.emit(preset)

    def _update(self) -> None:
        if (preset := self.preset()) is not None:
            system = self.system.toPlainText().strip()
            self.saved_preset.emit(msgspec.structs.replace(preset, system=system, sampling=self.sampling()))

    def _make_default(self) -> None:
        if (preset := self.preset()) is not None:
            self.saved_preset.emit(msgspec.structs.replace(preset, is_default=not preset.is_default))

    def _delete(self) -> None:
        if (preset := self.preset()) is not None:
            self.deleted_preset.emit(preset.id)


def _decimal(most: float, step: float, usual: float) -> QDoubleSpinBox:
    box = QDoubleSpinBox()
    box.setRange(0.0, most)
    box.setSingleStep(step)
    box.setValue(usual)
    return box


def _whole(least: int, most: int, usual: int) -> QSpinBox:
    box = QSpinBox()
    box.setRange(least, most)
    box.setGroupSeparatorShown(True)
    box.setValue(usual)
    return box
