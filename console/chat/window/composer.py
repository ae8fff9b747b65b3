"""Where people type: the text, files beside it, send and stop, and how full the context is. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QMimeData, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QDragEnterEvent, QDropEvent, QKeyEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QProgressBar, QToolButton, QVBoxLayout, QWidget

from agent.look import palettes
from agent.look.widgets import label
from console.chat.records import Attachment
from console.chat.tokens import short_count
from console.chat.window.actions import Actions
from console.chat.window.message import file_line
from console.chat.window.parts import quiet_line
from shard_export.library.counts import counted

MOST_LINES = 12
NEARLY_FULL = 0.9


class Field(QPlainTextEdit):
    """The text field: grows with its text; keys that it has no use for scroll the messages."""

    sent = Signal()
    scrolls = Signal(int)
    dropped = Signal(list)

    def __init__(self) -> None:
        super().__init__()
        self.enter_sends = True
        self.setAccessibleName("Message")
        self.setPlaceholderText("Ask something")
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.textChanged.connect(self.fit)
        self.fit()

    def fit(self) -> None:
        """Be as high as the text, within reason."""
        lines = max(2, min(MOST_LINES, round(self.document().size().height())))
        margin = round(2 * self.document().documentMargin())
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + margin + 2)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        """Send or break the line, as it is set; scroll while there is nothing to move in."""
        key = Qt.Key(event.key())
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
            shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
            if control or (self.enter_sends and not shift):
                self.sent.emit()
                return
        scrolling = (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End)
        if key in scrolling and not self.toPlainText():
            self.scrolls.emit(int(key))
            return
        super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:  # noqa: N802 - Qt's name
        return source.hasUrls() or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:  # noqa: N802 - Qt's name
        """Take files that are pasted or dropped as files, everything else as plain text."""
        files = [url.toLocalFile() for url in source.urls() if url.isLocalFile()]
        if files:
            self.dropped.emit(files)
        elif source.hasText():
            self.insertPlainText(source.text())


class Composer(QFrame):
    """Emits `sent` with the text and its files; `typed` with every change."""

    sent = Signal(str, list)
    typed = Signal(str)
    files_changed = Signal(list)
    attaches = Signal(list)
    """Paths of the files that are to go along."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.files: list[Attachment] = []
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAutoFillBackground(True)
        self.setBackgroundRole(QPalette.ColorRole.Base)
        self.field = Field()
        self.field.sent.connect(self.send)
        self.field.textChanged.connect(lambda: self.typed.emit(self.field.toPlainText()))
        self.field.dropped.connect(lambda paths: self.attaches.emit([Path(path) for path in paths]))
        self._chips = QWidget()
        self._chip_rows = QVBoxLayout(self._chips)
        self._chip_rows.setContentsMargins(0, 0, 0, 0)
        self._chips.hide()
        self.attach_button = _button(actions, "attach")
        self.setup_button = _button(actions, "setup")
        self.stop_button = _button(actions, "stop")
        self.send_button = _button(actions, "send")
        actions["send"].triggered.connect(self.send)
        self.meter = Meter()
        line = QHBoxLayout()
        for widget in (self.attach_button, self.setup_button):
            line.addWidget(widget)
        line.addStretch(1)
        line.addWidget(self.meter)
        line.addWidget(self.stop_button)
        line.addWidget(self.send_button)
        rows = QVBoxLayout(self)
        rows.setSpacing(2)
        rows.addWidget(self._chips)
        rows.addWidget(self.field)
        rows.addLayout(line)
        self.set_running(False)
        self.setAcceptDrops(True)

    def set_running(self, runs: bool) -> None:
        """Show stop while an answer comes, else send."""
        self.stop_button.setVisible(runs)
        self.send_button.setVisible(not runs)

    def set_text(self, text: str) -> None:
        """Put a kept draft into the field."""
        if text != self.field.toPlainText():
            self.field.setPlainText(text)
            self.field.moveCursor(self.field.textCursor().MoveOperation.End)

    def set_files(self, files: Sequence[Attachment]) -> None:
        """Show the files that were put beside another draft."""
        if self.files != list(files):
            self.files = list(files)
            self._show_files()

    def send(self) -> None:
        """Hand over what was typed; the field is emptied by `taken`."""
        text = self.field.toPlainText().strip()
        if (text or self.files) and not self.stop_button.isVisibleTo(self):
            self.sent.emit(text, list(self.files))

    def taken(self) -> None:
        """What was handed over is on its way."""
        self.field.clear()
        self.files.clear()
        self._change_files()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:  # noqa: N802 - Qt's name
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:  # noqa: N802 - Qt's name
        self.field.insertFromMimeData(event.mimeData())

    def _change_files(self) -> None:
        self._show_files()
        self.files_changed.emit(list(self.files))

    def _show_files(self) -> None:
        while (item := self._chip_rows.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        for file in self.files:
            chip = QWidget()
            row = QHBoxLayout(chip)
            row.setContentsMargins(0, 0, 0, 0)
            row.addWidget(label(file_line(file.name, file.text), quiet=True), 1)
            remove = QToolButton()
            remove.setText("Remove")
            remove.setAutoRaise(True)
            remove.setAccessibleName(f"Remove {file.name}")
            remove.clicked.connect(lambda _=False, file=file: self._remove(file))
            row.addWidget(remove)
            self._chip_rows.addWidget(chip)
        self._chips.setVisible(bool(self.files))

    def _remove(self, file: Attachment) -> None:
        self.files.remove(file)
        self._change_files()


class Gauge(QProgressBar):
    """A bar whose end can be seen in every theme."""

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 - Qt's name
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        edge = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        share = self.value() / max(1, self.maximum())
        painter.fillRect(QRectF(edge.left(), edge.top(), edge.width() * share, edge.height()), QColor(colours.accent))
        painter.setPen(QColor(colours.outline))
        painter.drawRect(edge)
        painter.end()


class Meter(QWidget):
    """How full the context is, and how fast an answer comes."""

    def __init__(self) -> None:
        super().__init__()
        self.text = quiet_line()
        self.text.setWordWrap(False)
        self.bar = Gauge()
        self.bar.setFixedHeight(round(self.fontMetrics().height() * 0.5))
        self.bar.setFixedWidth(self.fontMetrics().averageCharWidth() * 10)
        self.bar.setAccessibleName("How full the context is")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.text)
        row.addWidget(self.bar)

    def show_used(self, used: int, limit: int, *, estimated: bool, speed: float = 0.0) -> None:
        """Show the tokens that are used, of so many (0: not known), and the speed of a running answer."""
        about = "about " if estimated and used else ""
        of = f" of {short_count(limit)}" if limit else ""
        fast = f"{speed:.1f} tokens/s · " if speed else ""
        full = bool(limit) and used > NEARLY_FULL * limit
        self.text.setText(
            f"{fast}{about}{counted(limit or used, 'token', shown=f'{short_count(used)}{of}')}"
            + (", nearly full" if full else "")
        )
        self.text.setForegroundRole(QPalette.ColorRole.BrightText if full else QPalette.ColorRole.PlaceholderText)
        self.bar.setVisible(bool(limit))
        self.bar.setRange(0, max(1, limit))
        self.bar.setValue(min(used, limit))


def _button(actions: Actions, name: str) -> QToolButton:
    button = QToolButton()
    button.setDefaultAction(actions[name])
    button.setAccessibleName(actions[name].text())
    button.setAutoRaise(True)
    return button
