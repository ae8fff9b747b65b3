"""The dialog in which a PC joins a fleet: paste an invite or open its file, compare the code, wait for approval."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from agent.control.protocol import Answer, CancelEnrolment, Done, Enrol, Refused, Told
from agent.control.status import Status
from agent.look.widgets import TITLE_SCALE, announce, fit, label
from agent.tray.bridge import Bridge
from agent.tray.texts import Texts

MAX_INVITE_BYTES = 64 * 1024


class EnrolDialog(QDialog):
    """GUI thread. Closing it while an administrator has to approve stops nothing: the service goes on waiting."""

    def __init__(self, bridge: Bridge, texts: Texts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge, self._texts = bridge, texts
        self.setWindowTitle(texts("enrol.title"))
        self.waiting = False
        """Whether the service has yet to answer."""
        self.intro, self.form = label(texts("enrol.intro")), QWidget()
        self.invite = QPlainTextEdit()
        self.invite.setAccessibleName(texts("enrol.invite"))
        self.invite.setPlaceholderText("fallow1.…")
        self.invite.setTabChangesFocus(True)
        self.invite.textChanged.connect(self._enable)
        self.name = QLineEdit()
        self.name.setMaxLength(120)
        self.name.setPlaceholderText(texts("enrol.name_hint"))
        self.name.setAccessibleName(texts("enrol.name"))
        self.open_file = QPushButton(texts("enrol.file"))
        self.open_file.clicked.connect(self._choose_file)
        self.said = label()
        self.said.setObjectName("said")
        self.code = label(bold=True, scale=TITLE_SCALE * 1.4)
        self.code.setObjectName("code")
        self.code.setAccessibleName(texts("membership.code"))
        self.code.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.busy = QProgressBar()
        self.busy.setRange(0, 0)
        self.busy.setAccessibleName(texts("enrol.waiting"))
        self.buttons = QDialogButtonBox()
        self.join = self.buttons.addButton(texts("enrol.join"), QDialogButtonBox.ButtonRole.AcceptRole)
        self.stop = self.buttons.addButton(texts("membership.stop_yes"), QDialogButtonBox.ButtonRole.ResetRole)
        self.stop.clicked.connect(self._stop)
        self.close_button = self.buttons.addButton(texts("button.close"), QDialogButtonBox.ButtonRole.RejectRole)
        self.buttons.accepted.connect(self._join)
        self.buttons.rejected.connect(self.reject)
        self._lay_out()
        for late in (self.code, self.busy, self.stop):
            late.hide()
        self._enable()

    def _lay_out(self) -> None:
        rows = QVBoxLayout(self)
        rows.addWidget(self.intro)
        rows.addWidget(self.invite, 1)
        file_line = QHBoxLayout()
        file_line.addWidget(self.open_file)
        file_line.addStretch(1)
        rows.addLayout(file_line)
        form = QFormLayout(self.form)
        form.setContentsMargins(0, 0, 0, 0)
        form.addRow(self._texts("enrol.name"), self.name)
        rows.addWidget(self.form)
        for widget in (self.said, self.code, self.busy):
            rows.addWidget(widget)
        rows.addStretch()
        rows.addWidget(self.buttons)
        fit(self, columns=80, lines=24)

    def read_file(self, path: Path) -> None:
        """Take the invite from a file."""
        try:
            with path.open("rb") as file:
                data = file.read(MAX_INVITE_BYTES + 1)
        except OSError as error:
            self._say(self._texts("enrol.file_unreadable", reason=error.strerror or type(error).__name__))
            return
        if len(data) > MAX_INVITE_BYTES:
            self._say(self._texts("enrol.file_too_long"))
            return
        self.invite.setPlainText(data.decode("utf-8-sig", errors="replace").strip())
        self._say("")

    def _choose_file(self) -> None:
        chooser = QFileDialog(self, self._texts("enrol.file"))
        chooser.setFileMode(QFileDialog.FileMode.ExistingFile)
        chooser.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        chooser.fileSelected.connect(lambda path: self.read_file(Path(path)))
        chooser.open()

    def _enable(self) -> None:
        self.join.setEnabled(bool(self.invite.toPlainText().strip()) and not self.waiting)

    def _join(self) -> None:
        text, name = self.invite.toPlainText()[:MAX_INVITE_BYTES], self.name.text().strip()
        self._wait(waiting=True)
        self._say(self._texts("enrol.connecting"))
        self._bridge.order(lambda id_: Enrol(id_, text, name), self._answered, self._told)

    def follow(self, status: Status) -> None:
        """Show a wait for approval that this dialog did not order, and its end."""
        if self.waiting:
            return
        if status.phase == "pending":
            self._show_code(status.device_code)
            if not self.said.text():
                self._say(self._texts("enrol.waits"))
        elif not self.code.isHidden():
            if status.phase == "unenrolled":
                self._hide_code()
                self._say(status.link_message)
            else:
                self._succeed()

    def _told(self, told: Told) -> None:
        if told.phase == "pending":
            self._show_code(told.text)
            self._say(self._texts("enrol.pending"))

    def _show_code(self, code: str) -> None:
        self.code.setText(code)
        for late in (self.code, self.stop):
            late.show()

    def _hide_code(self) -> None:
        for late in (self.code, self.stop):
            late.hide()

    def _stop(self) -> None:
        self.stop.setEnabled(False)
        self._bridge.order(CancelEnrolment, self._stopped)

    def _stopped(self, answer: Answer) -> None:
        self.stop.setEnabled(True)
        if isinstance(answer, Refused):
            self._say(answer.message)
            return
        self._hide_code()
        if isinstance(answer, Done):
            self._say(self._texts("said.stopped_waiting"))

    def _answered(self, answer: Answer) -> None:
        self._wait(waiting=False)
        if isinstance(answer, Refused):
            self._hide_code()
            self._say(answer.message)
            return
        self._succeed()

    def _succeed(self) -> None:
        # The invite is used up; what is left to do is to read that it worked.
        self.invite.clear()
        for over in (self.intro, self.invite, self.open_file, self.form, self.code, self.join, self.stop):
            over.hide()
        self._say(self._texts("enrol.done"))
        self.close_button.setFocus()
        # The layout has heard of it only when the events of this moment are done.
        QTimer.singleShot(0, self, lambda: self.resize(self.width(), self.minimumSizeHint().height()))

    def _wait(self, *, waiting: bool) -> None:
        self.waiting = waiting
        self.busy.setVisible(waiting)
        self.invite.setReadOnly(waiting)
        self.open_file.setEnabled(not waiting)
        self.name.setEnabled(not waiting)
        self._enable()

    def _say(self, text: str) -> None:
        self.said.setText(text)
        if text:
            announce(self.said, text)
