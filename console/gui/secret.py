"""A secret that is shown once: to copy, to save, or to scan from the screen."""

from __future__ import annotations

from pathlib import Path

import segno
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHBoxLayout,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import isValid

from agent.look.widgets import announce, heading, label
from console.data import write_whole
from console.gui.filing import write_beside

QUIET_MODULES = 4
"""What a scanner wants around the code."""
QR_LINES = 22


class QrCode(QWidget):
    """A QR code, black on white in any scheme, as large as fits."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.matrix = segno.make(text, error="l", micro=False).matrix
        self.setAccessibleName("QR code of the text")
        side = self.fontMetrics().height() * QR_LINES
        self.setMinimumSize(QSize(side, side))

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 - Qt's name
        """Draw whole pixels for each module, so that edges are sharp."""
        modules = len(self.matrix) + 2 * QUIET_MODULES
        ratio = self.devicePixelRatioF()
        size = max(1, int(min(self.width(), self.height()) * ratio) // modules) / ratio
        painter = QPainter(self)
        painter.fillRect(QRectF(0, 0, size * modules, size * modules), Qt.GlobalColor.white)
        for y, row in enumerate(self.matrix, start=QUIET_MODULES):
            for x, dark in enumerate(row, start=QUIET_MODULES):
                if dark:
                    painter.fillRect(QRectF(x * size, y * size, size, size), QColor(Qt.GlobalColor.black))
        painter.end()


def show_secret(parent: QWidget, title: str, about: str, secret: str, file_name: str) -> SecretDialog:
    """Show a secret over the page that asked for it, or over the window if that page is gone meanwhile."""
    owner = parent if isValid(parent) else QApplication.activeWindow()
    shown = SecretDialog(owner, title, about, secret, file_name)
    shown.open()
    return shown


class SecretDialog(QDialog):
    """Shows a secret with what it is for. It is in no log, and forgotten when the dialog is closed.

    While it is written to a file the dialog stays: if that fails, there is no other place where the secret is.
    """

    def __init__(self, parent: QWidget | None, title: str, about: str, secret: str, file_name: str) -> None:
        super().__init__(parent)
        self._secret, self._file_name = secret, file_name
        self._writes = self._wants_close = False
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.text = QPlainTextEdit(secret)
        self.text.setReadOnly(True)
        self.text.setAccessibleName(title)
        self.text.setTabChangesFocus(True)
        self.text.setFixedHeight(self.fontMetrics().lineSpacing() * 7)
        self.code = QrCode(secret)
        self.said = label()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        self.copy = buttons.addButton("&Copy", QDialogButtonBox.ButtonRole.ActionRole)
        self.save = buttons.addButton("&Save as file…", QDialogButtonBox.ButtonRole.ActionRole)
        self.copy.clicked.connect(self._copy)
        self.save.clicked.connect(self._ask_file)
        buttons.rejected.connect(self.reject)
        line = self.fontMetrics().height()
        words = QVBoxLayout()
        words.addWidget(heading(title))
        words.addWidget(label(about))
        words.addWidget(self.text)
        words.addWidget(label("It is shown only this once. Hand it over like a password.", quiet=True))
        words.addWidget(self.said)
        words.addStretch(1)
        across = QHBoxLayout()
        across.setSpacing(line)
        across.addLayout(words, 1)
        across.addWidget(self.code, 0, Qt.AlignmentFlag.AlignTop)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(line, line, line, line)
        rows.addLayout(across, 1)
        rows.addWidget(buttons)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * 110)

    def save_as(self, path: Path) -> None:
        """Write the secret to a file that only its owner can read; what came of it is said."""
        content = f"{self._secret}\n".encode()
        self._writes = True
        self.save.setEnabled(False)
        self._say(f"It is being written to {path}…", failed=False)
        write_beside(self, lambda: write_whole(path, content, mode=0o600), lambda why: self._written(path, why))

    def reject(self) -> None:
        """Close; while the secret is written, once that is done."""
        if self._writes:
            self._wants_close = True
        else:
            super().reject()

    def _written(self, path: Path, why: str) -> None:
        self._writes = False
        self.save.setEnabled(True)
        self._say(why or f"It is in {path}, which only you can read.", failed=bool(why))
        if self._wants_close and not why:
            super().reject()
        self._wants_close = False

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._secret)
        self._say("It is copied.", failed=False)

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(self, "Save as file", self._file_name)
        if name:
            self.save_as(Path(name))

    def _say(self, text: str, *, failed: bool) -> None:
        self.said.setText(text)
        self.said.setForegroundRole(QPalette.ColorRole.BrightText if failed else QPalette.ColorRole.WindowText)
        announce(self.said, text)
