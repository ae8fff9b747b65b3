"""Editors of policy values: one for each kind of row, all with the same few methods."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtGui import QValidator, QWheelEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from agent.control.status import PolicyRow, PolicyValue
from agent.tray.numbers import Numbers
from agent.tray.texts import Texts

GIB = 2**30
NO_LIMIT_BYTES = 2**48
"""The most a policy can hold, and more than any PC has."""
LARGEST = 2**31 - 1
PERMISSIONS = frozenset({"fullscreen", "remote_session", "inhibited", "metered", "power_saver", "contribute_now"})
"""Rows that say that work may go on while something is so."""
_DURATION = re.compile(r"\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*min)?\s*(?:(\d+)\s*s?)?\s*")


def editor_for(row: PolicyRow, texts: Texts) -> Editor:
    """Return the editor of a row's kind, not yet showing a value."""
    made: dict[str, Callable[[PolicyRow, Texts], Editor]] = {
        "switch": SwitchEditor, "number": NumberEditor, "percent": NumberEditor, "seconds": DurationEditor,
        "bytes": BytesEditor, "choice": ChoiceEditor, "names": NamesEditor, "schedule": TextEditor,
    }  # fmt: skip
    return made[row.kind](row, texts)


def said(row: PolicyRow, value: PolicyValue, texts: Texts) -> str:
    """Say a value of a row in words."""
    if isinstance(value, bool):
        return texts("value.yes" if value else "value.no")
    if isinstance(value, list):
        return ", ".join(value) or texts("value.none")
    if isinstance(value, str):
        return texts.named("choice", value)
    if value is None:
        return texts("value.none")
    if row.kind == "seconds":
        return texts.duration(value)
    numbers = Numbers(texts)
    if row.kind == "bytes":
        return texts("value.no_limit") if value >= NO_LIMIT_BYTES else numbers.memory(value)
    number = numbers.whole(value) if float(value).is_integer() else numbers.decimal(value)
    return f"{number}{unit_of(row)}"


def unit_of(row: PolicyRow) -> str:
    """Return what is written behind a number of a row."""
    return " %" if row.kind == "percent" else " °C" if row.field.endswith("_celsius") else ""


class Editor(QWidget):
    """GUI thread. `edited` comes when a person has finished a change; `show_value` never causes it."""

    edited = Signal(object)

    def __init__(self, inner: QWidget) -> None:
        super().__init__()
        self.inner = inner
        self.setFocusProxy(inner)
        lines = QVBoxLayout(self)
        lines.setContentsMargins(0, 0, 0, 0)
        lines.addWidget(inner)

    def name(self, text: str, hint: str) -> None:
        """Say what a screen reader calls this editor."""
        self.inner.setAccessibleName(text)
        self.inner.setAccessibleDescription(hint)

    def busy(self) -> bool:
        """Whether somebody types here: what the service says must not overwrite it."""
        return self.inner.hasFocus()

    def show_value(self, value: PolicyValue) -> None:
        """Show a value without reporting a change."""
        raise NotImplementedError


class SwitchEditor(Editor):
    """Yes or no."""

    def __init__(self, row: PolicyRow, texts: Texts) -> None:
        self._box = QCheckBox(texts("value.allowed") if row.field in PERMISSIONS else texts("value.yes"))
        super().__init__(self._box)
        self._box.clicked.connect(self._clicked)

    def _clicked(self, on: bool) -> None:
        self.edited.emit(on)

    def busy(self) -> bool:
        return False

    def show_value(self, value: PolicyValue) -> None:
        self._box.setChecked(bool(value))


class _NoWheel:
    """The wheel scrolls the page; it must not change a setting on its way past."""

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802 - Qt's name
        event.ignore()


class _DoubleBox(_NoWheel, QDoubleSpinBox):
    pass


class _ChoiceBox(_NoWheel, QComboBox):
    pass


class NumberEditor(Editor):
    """A number or percentage."""

    factor = 1.0
    decimals = 0

    def __init__(self, row: PolicyRow, texts: Texts) -> None:
        self._box = self.make_box(texts)
        super().__init__(self._box)
        self._box.setDecimals(self.decimals)
        self._suffix = self.suffix(row, texts)
        self._box.setSuffix(self._suffix)
        low = row.minimum if row.minimum is not None else 0.0
        high = row.maximum if row.maximum is not None else float(LARGEST) * self.factor
        self._box.setRange(low / self.factor, high / self.factor)
        self._shown = 0.0
        self._box.editingFinished.connect(self._finished)

    def make_box(self, texts: Texts) -> QDoubleSpinBox:
        """Return the box to type in."""
        return _DoubleBox()

    def suffix(self, row: PolicyRow, texts: Texts) -> str:
        """Return the unit."""
        return unit_of(row)

    def show_value(self, value: PolicyValue) -> None:
        self._shown = float(value) if isinstance(value, int | float) else 0.0
        self._box.setValue(self._shown / self.factor)

    def _finished(self) -> None:
        value = self._box.value() * self.factor
        if not math.isclose(value, self._shown, rel_tol=1e-9, abs_tol=0.05 * self.factor):
            self._shown = value
            self.edited.emit(value)


class _SizeBox(_DoubleBox):
    """GiB; what is too large to be a limit is said in words."""

    def __init__(self, no_limit: str) -> None:
        super().__init__()
        self._no_limit = no_limit

    def textFromValue(self, value: float) -> str:  # noqa: N802 - Qt's name
        return self._no_limit if value * GIB >= NO_LIMIT_BYTES else super().textFromValue(value)

    def valueFromText(self, text: str) -> float:  # noqa: N802 - Qt's name
        return NO_LIMIT_BYTES / GIB if text == self._no_limit else super().valueFromText(text)

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        if text == self._no_limit:
            return QValidator.State.Acceptable, text, position
        return super().validate(text, position)


class BytesEditor(NumberEditor):
    """A size, in GiB."""

    factor = float(GIB)
    decimals = 1

    def make_box(self, texts: Texts) -> QDoubleSpinBox:
        return _SizeBox(texts("value.no_limit"))

    def suffix(self, row: PolicyRow, texts: Texts) -> str:
        return texts("unit.gibibytes", number="")

    def show_value(self, value: PolicyValue) -> None:
        endless = isinstance(value, int | float) and value >= NO_LIMIT_BYTES
        self._box.setSuffix("" if endless else self._suffix)
        super().show_value(value)

    def _finished(self) -> None:
        value = round(self._box.value() * self.factor)
        if abs(value - self._shown) > GIB // 20:
            self._shown = float(value)
            self.edited.emit(value)


class DurationBox(_NoWheel, QSpinBox):
    """Seconds, shown and typed as `5 min`, `1 h 30 min` or `45 s`."""

    def textFromValue(self, value: int) -> str:  # noqa: N802 - Qt's name
        minutes, seconds = divmod(value, 60)
        hours, minutes = divmod(minutes, 60)
        parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{seconds} s" if seconds else ""]
        return " ".join(part for part in parts if part) or "0 s"

    def valueFromText(self, text: str) -> int:  # noqa: N802 - Qt's name
        match = _DURATION.fullmatch(text)
        if match is None:
            return self.value()
        hours, minutes, seconds = (int(group or 0) for group in match.groups())
        return hours * 3600 + minutes * 60 + seconds

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        match = _DURATION.fullmatch(text)
        if match is None:
            # Half-typed words are no error yet.
            fine = re.fullmatch(r"[\d hmins]*", text)
            return (QValidator.State.Intermediate if fine else QValidator.State.Invalid, text, position)
        fits = self.minimum() <= self.valueFromText(text) <= self.maximum()
        return (QValidator.State.Acceptable if fits and text.strip() else QValidator.State.Intermediate, text, position)

    def stepBy(self, steps: int) -> None:  # noqa: N802 - Qt's name
        value = self.value()
        step = 10 if value < 120 else 60 if value < 3600 else 900
        self.setValue(value + steps * step)


class DurationEditor(Editor):
    """A duration in seconds."""

    def __init__(self, row: PolicyRow, texts: Texts) -> None:
        self._box = DurationBox()
        super().__init__(self._box)
        high = row.maximum if row.maximum is not None else LARGEST
        self._box.setRange(math.ceil(row.minimum or 0), int(min(high, LARGEST)))
        self._shown = 0
        self._box.editingFinished.connect(self._finished)

    def show_value(self, value: PolicyValue) -> None:
        self._shown = round(value) if isinstance(value, int | float) else 0
        self._box.setValue(self._shown)

    def _finished(self) -> None:
        if self._box.value() != self._shown:
            self._shown = self._box.value()
            self.edited.emit(float(self._shown))


class ChoiceEditor(Editor):
    """One of several words."""

    def __init__(self, row: PolicyRow, texts: Texts) -> None:
        self._box = _ChoiceBox()
        super().__init__(self._box)
        for choice in row.choices:
            self._box.addItem(texts.named("choice", choice), choice)
        self._box.activated.connect(lambda place: self.edited.emit(self._box.itemData(place)))

    def show_value(self, value: PolicyValue) -> None:
        self._box.setCurrentIndex(self._box.findData(value))


class TextEditor(Editor):
    """A text in one line, such as a schedule. The service says whether it can be read."""

    def __init__(self, row: PolicyRow, texts: Texts) -> None:
        self._line = QLineEdit()
        super().__init__(self._line)
        self._shown = ""
        if row.kind == "schedule":
            self._line.setPlaceholderText("Mon-Fri 20:00-06:00; Sat,Sun 00:00-24:00")
        self._line.editingFinished.connect(self._finished)

    def text_of(self, value: PolicyValue) -> str:
        """Write a value."""
        return value if isinstance(value, str) else ""

    def value_of(self, text: str) -> PolicyValue:
        """Read what was typed."""
        return text.strip()

    def show_value(self, value: PolicyValue) -> None:
        self._shown = self.text_of(value)
        self._line.setText(self._shown)

    def _finished(self) -> None:
        text = self._line.text()
        if text != self._shown:
            self._shown = text
            self.edited.emit(self.value_of(text))


class NamesEditor(TextEditor):
    """Names, with commas between."""

    def text_of(self, value: PolicyValue) -> str:
        return ", ".join(value) if isinstance(value, list) else ""

    def value_of(self, text: str) -> PolicyValue:
        return [name.strip() for name in text.split(",") if name.strip()]
