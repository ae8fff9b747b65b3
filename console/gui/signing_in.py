"""The dialog that connects the window: with the service on this PC, or with another one."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QVBoxLayout,
    QWidget,
)

from agent.look.widgets import announce, label
from console.errors import ClientError, ConsoleError
from console.gui.connecting import Connecting, Entry
from console.gui.kept import KeptTokens
from console.gui.places import Place, address_of
from console.gui.programs import Programs

LOOK_EVERY_MS = 500
START_TRIES = 180
"""How often a service that was just started is looked for: 90 s, for a first start makes keys."""


class SignInDialog(QDialog):
    """Asks until it is in or closed.

    `again` is said first, when a sign-in has ended; `nobody_here`: no service answers on this PC, so it offers to
    start one.
    """

    entered = Signal(object)
    """An Entry that works."""

    def __init__(
        self,
        programs: Programs,
        kept: KeptTokens,
        place: Place,
        again: str = "",
        parent: QWidget | None = None,
        *,
        nobody_here: bool = False,
    ) -> None:
        super().__init__(parent)
        self._programs = programs
        self._place = place
        self._tries_left = 0
        self._connecting = Connecting(programs.folder, kept, self)
        self._connecting.came.connect(self._enter)
        self._connecting.failed.connect(self._refuse)
        self._looking = QTimer(self)
        self._looking.setSingleShot(True)
        self._looking.setInterval(LOOK_EVERY_MS)
        self._looking.timeout.connect(self._connecting.here)
        self.setWindowTitle("Connect to a Fallow service")
        self._make_fields(place)
        self._lay_out()
        self._follow_choice()
        self.start.setVisible(nobody_here and self.here.isChecked())
        if again:
            self._say(again, failed=True)

    def done(self, result: int) -> None:
        """Give up what is under way."""
        self._looking.stop()
        self._connecting.stop()
        super().done(result)

    def _make_fields(self, place: Place) -> None:
        self.here = QRadioButton("The service on &this PC")
        self.there = QRadioButton("A service on &another PC")
        self.here.setChecked(not place.url)
        self.there.setChecked(bool(place.url))
        self.here.toggled.connect(self._follow_choice)
        self.start = QPushButton("&Start the service")
        self.start.clicked.connect(self._start)
        self.start.hide()
        self.address = QLineEdit(place.url)
        self.address.setPlaceholderText("https://console.example.org:8460")
        self.authority = QLineEdit(place.authority)
        self.authority.setPlaceholderText("authorities.pem of the console's data folder")
        self.browse = QPushButton("&Browse…")
        self.browse.clicked.connect(self._browse)
        self.sign_in = QComboBox()
        self.sign_in.addItem("Name and password", "password")
        self.sign_in.addItem("API key", "key")
        self.sign_in.setCurrentIndex(self.sign_in.findData(place.sign_in))
        self.sign_in.currentIndexChanged.connect(self._follow_choice)
        self.user = QLineEdit(place.user)
        self.secret = QLineEdit()
        self.secret.setEchoMode(QLineEdit.EchoMode.Password)
        self.stay = QCheckBox("Stay signed &in, with the system's keyring")
        self.stay.setChecked(place.stay)
        self.said = label()
        self.said.setObjectName("said")
        self.said.hide()

    def _lay_out(self) -> None:
        line = self.fontMetrics().height()
        about_here = label("Its administrator is who may read its data folder; nothing to type.", quiet=True)
        self.local = QWidget()
        rows = QVBoxLayout(self.local)
        rows.setContentsMargins(line * 2, 0, 0, 0)
        rows.addWidget(about_here)
        rows.addWidget(label(str(self._programs.folder), quiet=True))
        start = QHBoxLayout()
        start.addWidget(self.start)
        start.addStretch(1)
        rows.addLayout(start)
        self.remote = QWidget()
        form = QFormLayout(self.remote)
        form.setContentsMargins(line * 2, 0, 0, 0)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        certificate = QHBoxLayout()
        certificate.addWidget(self.authority, 1)
        certificate.addWidget(self.browse)
        _add(form, "Add&ress", self.address)
        _add(form, "&Certificate of the fleet", self.authority, certificate)
        _add(form, "Sign in &with", self.sign_in)
        _add(form, "&Name", self.user)
        self.secret_said = _add(form, "&Password", self.secret)
        form.addRow("", self.stay)
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.connect_button = self.buttons.addButton("C&onnect", QDialogButtonBox.ButtonRole.AcceptRole)
        self.buttons.accepted.connect(self._connect)
        self.buttons.rejected.connect(self.reject)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(line, line, line, line)
        whole.setSpacing(round(line * 0.6))
        for widget in (self.here, self.local, self.there, self.remote, self.said):
            whole.addWidget(widget)
        whole.addStretch(1)
        whole.addWidget(self.buttons)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * 80)

    def _follow_choice(self) -> None:
        here, with_key = self.here.isChecked(), self.sign_in.currentData() == "key"
        self.local.setEnabled(here)
        self.remote.setEnabled(not here)
        self.user.setEnabled(not here and not with_key)
        self.secret_said.setText("API &key" if with_key else "&Password")
        self.secret.setPlaceholderText("sk-…" if with_key else "")

    def _browse(self) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self, "Certificate of the fleet", self.authority.text(), "Certificates (*.pem *.crt);;All files (*)"
        )
        if name:
            self.authority.setText(name)

    def _connect(self) -> None:
        if self.here.isChecked():
            self._busy("Connecting…")
            self._connecting.here()
            return
        try:
            place = Place(
                url=address_of(self.address.text()),
                authority=self._certificate(),
                user="" if self.sign_in.currentData() == "key" else self.user.text().strip(),
                sign_in=self.sign_in.currentData(),
                stay=self.stay.isChecked(),
            )
        except ClientError as error:
            self._say(str(error), failed=True)
            return
        if not self.secret.text() or (place.sign_in == "password" and not place.user):
            what = "name and password" if place.sign_in == "password" else "the API key"
            self._say(f"Type {what}.", failed=True)
            return
        self._busy("Connecting…")
        self._connecting.there(place, self.secret.text())

    def _certificate(self) -> str:
        text = self.authority.text().strip()
        return str(Path(text).expanduser().absolute()) if text else ""

    def _start(self) -> None:
        try:
            started = self._programs.service()
        except ConsoleError as error:
            self._say(str(error), failed=True)
            return
        if not started:
            self._say("The service could not be started; start it with: fallow-console serve", failed=True)
            return
        self._tries_left = START_TRIES
        self._busy("The service starts; the first time it makes the fleet's keys, which takes a few seconds.")
        self._looking.start()

    def _enter(self, entry: Entry) -> None:
        self.entered.emit(entry)
        self.accept()

    def _refuse(self, why: str, unreachable: bool) -> None:
        told = self._programs.why_not() if self._tries_left else ""
        if unreachable and self._tries_left > 0 and not told:
            self._tries_left -= 1
            self._looking.start()
            return
        self._tries_left = 0
        self._free()
        self.start.setVisible(unreachable and self.here.isChecked())
        self._say(f"The service did not start: {told}" if told else why, failed=True)
        self.secret.selectAll()

    def _busy(self, text: str) -> None:
        self.connect_button.setEnabled(False)
        self.start.setEnabled(False)
        self._say(text, failed=False)

    def _free(self) -> None:
        self.connect_button.setEnabled(True)
        self.start.setEnabled(True)

    def _say(self, text: str, *, failed: bool) -> None:
        self.said.setText(text)
        self.said.setForegroundRole(QPalette.ColorRole.BrightText if failed else QPalette.ColorRole.WindowText)
        self.said.show()
        announce(self.said, text)


def _add(form: QFormLayout, text: str, field: QWidget, content: QLayout | None = None) -> QLabel:
    said = QLabel(text)
    said.setBuddy(field)
    field.setAccessibleName(text.replace("&", ""))
    if content is None:
        form.addRow(said, field)
    else:
        form.addRow(said, content)
    return said
