"""A support bundle of the service on this PC: what is in it is said first, and a program of its own makes it."""

from __future__ import annotations

from pathlib import Path
from time import strftime

import msgspec
from PySide6.QtCore import QProcess, QStandardPaths, Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from agent.look.widgets import announce, heading, label
from agent.support.bundle import LEFT_OUT, Manifest, after_lines, read_progress
from console.gui.page import Desk
from console.gui.programs import ERROR, Programs

ABOUT = (
    "One file about how all is, for whoever helps you: without keys, and without a word of what is asked or answered."
)
ELSEWHERE = "It is made where the service runs: in this window there, or with fallow-console support-bundle."
HOLDS = {
    "versions of Fallow and of what it stands on, and facts about this PC": ("versions.json", "pc.json"),
    "what the service was started with, and how much it logs": ("settings.json", "log_levels.json"),
    "what is deployed and how it is; libraries, builds and deliveries": (
        "status.json", "libraries.json", "builds.json", "deliveries.json",
    ),
    "the PCs by name: devices, memory, and why they are held; the policy": ("pcs.json", "policy.json"),
    "the numbers of this moment, and the service's log": ("metrics.txt", "logs/"),
}  # fmt: skip
"""What people are told, and the files that are meant (a folder: all in it)."""
DOCTOR_FILE = "doctor.json"
KILL_MS = 5000
MAKING = "{name} ({number} of {count})"


class SupportPart(QWidget):
    """The button in the settings. GUI thread."""

    said = Signal(str, bool)

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        programs = desk.programs
        self.button = QPushButton("Make a support &bundle…")
        self.button.setEnabled(programs is not None)
        self.button.clicked.connect(self.ask)
        self.dialog: SupportDialog | None = None
        self._programs = programs
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(label(ABOUT if programs is not None else f"{ABOUT} {ELSEWHERE}", quiet=True))
        across = QHBoxLayout()
        across.addWidget(self.button)
        across.addStretch(1)
        rows.addLayout(across)

    def ask(self) -> None:
        """Open the dialog."""
        if self._programs is not None:
            self.dialog = SupportDialog(self.window(), self._programs)
            self.dialog.said.connect(self.said)
            self.dialog.open()


class SupportDialog(QDialog):
    """Says what a bundle holds, makes one, and can be closed at any time: then none is written. GUI thread."""

    said = Signal(str, bool)

    def __init__(self, parent: QWidget | None, programs: Programs) -> None:
        super().__init__(parent)
        self._programs = programs
        self._process: QProcess | None = None
        self._out = Path()
        self._told, self._why = b"", ""
        self._rows = QVBoxLayout(self)
        self.setWindowTitle("Make a support bundle")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.doctor = QCheckBox("Let the &doctor look as well: it reads all model files, which may take minutes")
        self.doctor.setChecked(True)
        self.bar = QProgressBar()
        self.bar.setAccessibleName("Parts that are made")
        self.bar.hide()
        self.told = label()
        self.told.hide()
        buttons = QDialogButtonBox()
        self.close_button = buttons.addButton(QDialogButtonBox.StandardButton.Cancel)
        self.close_button.setAutoDefault(False)
        self.make = buttons.addButton("&Save as…", QDialogButtonBox.ButtonRole.AcceptRole)
        self.make.setDefault(True)
        self.make.clicked.connect(self._ask_file)
        buttons.rejected.connect(self.reject)
        self._lay_out(buttons)

    def _lay_out(self, buttons: QDialogButtonBox) -> None:
        line, rows = self.fontMetrics().height(), self._rows
        rows.setContentsMargins(line, line, line, line)
        rows.setSpacing(round(line * 0.6))
        rows.addWidget(heading("Make a support bundle"))
        rows.addWidget(label("It holds:\n" + "\n".join(f"  •  {words}" for words in HOLDS)))
        rows.addWidget(label(LEFT_OUT))
        rows.addWidget(label("Nothing is sent anywhere: it becomes a zip file that you can look at first.", quiet=True))
        for widget in (self.doctor, self.bar, self.told, buttons):
            rows.addWidget(widget)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * 95)

    def make_at(self, out: Path) -> None:
        """Begin to make a bundle, never in the place of another file."""
        self._out, self._told, self._why = out, b"", ""
        self.make.setEnabled(False)
        self.doctor.setEnabled(False)
        self.bar.setRange(0, 0)
        self.bar.show()
        self._say("It begins…", failed=False)
        process = self._programs.support_bundle(out, doctor=self.doctor.isChecked())
        process.setParent(self)  # which ends it, should the window go
        process.readyReadStandardError.connect(self._hear)
        process.finished.connect(self._end)
        process.errorOccurred.connect(self._not_begun)
        self._process = process
        process.start()

    def reject(self) -> None:
        """Close; what is being made is given up, and nothing is written."""
        process, self._process = self._process, None
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.waitForFinished(KILL_MS)
            # What was about to be written may have been: then it is whole.
            came = self._out.exists()
            self.said.emit(
                f"The support bundle is in {self._out}." if came else "No support bundle was written.", False
            )
        super().reject()

    def _ask_file(self) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        suggested = str(Path(folder) / strftime("fallow-support-%Y-%m-%d.zip"))
        # Who is asked whether a file may be replaced believes that it is.
        name, _ = QFileDialog.getSaveFileName(
            self, "Save the support bundle", suggested, "Zip files (*.zip)",
            options=QFileDialog.Option.DontConfirmOverwrite,
        )  # fmt: skip
        if name:
            self.make_at(Path(name))

    def _hear(self) -> None:
        if self._process is None:
            return
        self._told += self._process.readAllStandardError().data()
        *whole, self._told = self._told.split(b"\n")
        for line in whole:
            self._hear_line(line.decode("utf-8", "replace"))

    def _hear_line(self, line: str) -> None:
        if (progress := read_progress(line)) is not None:
            number, count, name = progress
            self.bar.setRange(0, count)
            self.bar.setValue(number - 1)
            self._say(MAKING.format(name=name, number=number, count=count), failed=False, aloud=False)
        elif line.startswith(ERROR):
            self._why = line.removeprefix(ERROR).strip()

    def _not_begun(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart:
            self._fail("The program fallow-console cannot be started; install Fallow again.")

    def _end(self, code: int) -> None:
        process = self._process
        if process is None:
            return
        self._hear()
        self._hear_line(self._told.decode("utf-8", "replace"))
        if code:
            self._fail(self._why or f"It ended with the code {code} and wrote nothing; try again.")
            return
        manifest = msgspec.json.decode(process.readAllStandardOutput().data(), type=Manifest)
        self._process = None
        self.bar.setValue(self.bar.maximum())
        self.make.hide()
        self.doctor.hide()
        self.close_button.setText("&Close")
        self.close_button.setDefault(True)
        self._say("\n".join(after_lines(self._out, manifest)), failed=False)

    def _fail(self, why: str) -> None:
        self._process = None
        self.make.setEnabled(True)
        self.doctor.setEnabled(True)
        self.bar.hide()
        self._say(why, failed=True)

    def _say(self, text: str, *, failed: bool, aloud: bool = True) -> None:
        self.told.setText(text)
        self.told.setForegroundRole(QPalette.ColorRole.BrightText if failed else QPalette.ColorRole.WindowText)
        self.told.show()
        self._grow()
        if aloud:
            announce(self.told, text)

    def _grow(self) -> None:
        """Make room for what appeared: labels that break their lines are squeezed otherwise."""
        self._rows.activate()
        self.resize(self.width(), max(self.height(), self._rows.totalHeightForWidth(self.width())))
