"""Facts of the service, and the fleet's certificate authority with its rotation."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import heading, label, scrolled
from console import calls
from console.api.admin import types as wire
from console.call import Call
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.asking import Question
from console.gui.feed import Feed
from console.gui.forms import FormDialog, secret_field
from console.gui.page import Desk
from console.gui.settings.support import SupportPart
from console.gui.states import States
from console.gui.times import moment_text

SERVICE = ("Version", "Runs since", "API", "Agents dial", "PCs", "Signed in")
AUTHORITY = ("Fleet", "Fleet id", "Pin of new invites", "Roots", "Rotation", "Next step", "Key kept in")
PHASES = {
    "steady": "none is under way",
    "announced": "the next root is announced; PCs learn it",
    "switched": "the next root signs; the former one is still trusted",
}


class ServiceTab(QWidget):
    """Follows the status and the authority. GUI thread."""

    said = Signal(str, bool)

    def __init__(self, desk: Desk, authority: Feed) -> None:
        super().__init__()
        self._desk, self._authority = desk, authority
        self.facts: dict[str, QLabel] = {}
        content = QWidget()
        rows = QVBoxLayout(content)
        rows.addWidget(heading("Service"))
        rows.addLayout(self._form(SERVICE))
        self.password = QPushButton("Change my &password…")
        self.password.setVisible(bool(desk.me.user))
        self.password.clicked.connect(self._ask_password)
        rows.addLayout(_left(self.password))
        rows.addWidget(heading("Support"))
        self.support = SupportPart(desk)
        self.support.said.connect(self.said)
        rows.addWidget(self.support)
        rows.addWidget(heading("Certificate authority"))
        rows.addLayout(self._form(AUTHORITY))
        rows.addWidget(
            label(
                "Every PC trusts this authority. A rotation announces the next root, which signs 30 days later: by "
                "then all PCs have learnt it. At once is for a key that may be stolen; PCs that are away then need "
                "a new invite.",
                quiet=True,
            )
        )
        self.rotate, self.at_once = QPushButton("&Announce the next root…"), QPushButton("Let it sign at &once…")
        self.rotate.clicked.connect(lambda: self._ask_rotation(at_once=False))
        self.at_once.clicked.connect(lambda: self._ask_rotation(at_once=True))
        rows.addLayout(_left(self.rotate, self.at_once))
        rows.addStretch(1)
        self.states = States(scrolled(content))
        self.states.follow(authority)
        whole = QVBoxLayout(self)
        whole.addWidget(self.states)
        authority.came.connect(self._show_authority)
        desk.status.came.connect(self._show_status)
        if desk.status.latest is not None:
            self._show_status()

    def _form(self, names: tuple[str, ...]) -> QFormLayout:
        form = QFormLayout()
        for name in names:
            self.facts[name] = label("-")
            form.addRow(label(name, quiet=True), self.facts[name])
        return form

    def _show_status(self) -> None:
        status: wire.Status = self._desk.status.latest
        me = self._desk.me
        self._show(
            {
                "Version": status.version,
                "Runs since": moment_text(status.started_s),
                "API": status.api_url,
                "Agents dial": ", ".join(status.agents_urls),
                "PCs": f"{status.agents_connected} connected, {status.agents_known} known",
                "Signed in": f"{me.user or 'with a key'}, may {', '.join(me.scopes)}",
            }
        )

    def _show_authority(self) -> None:
        view: wire.AuthorityView = self._authority.latest
        self._show(
            {
                "Fleet": view.fleet_name,
                "Fleet id": view.fleet_id,
                "Pin of new invites": view.pin,
                "Roots": ", ".join(view.roots),
                "Rotation": PHASES[view.phase],
                "Next step": moment_text(view.next_step_s) if view.next_step_s else "-",
                "Key kept in": view.key_protection,
            }
        )
        may = self._desk.may("admin")
        self.rotate.setEnabled(may and view.phase == "steady")
        self.at_once.setEnabled(may and view.phase != "switched")
        self.states.show_content()

    def _show(self, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            if self.facts[name].text() != text:
                self.facts[name].setText(text or "-")

    def _ask_rotation(self, *, at_once: bool) -> None:
        text = (
            "The present key counts as stolen from now on: PCs that do not connect before it ends need a new invite."
            if at_once
            else "PCs learn it when they connect. It signs in 30 days, and nothing has to be done until then."
        )
        title = "Let the next root sign at once?" if at_once else "Announce the next root?"
        question = Question(self, title, text, "Sign at once" if at_once else "Announce")
        question.answered.connect(lambda *_: self._rotate(at_once=at_once))
        question.open()

    def _rotate(self, *, at_once: bool) -> None:
        order = calls.rotate_authority(at_once=at_once)
        self._desk.bridge.ask(order, alive(self, self._rotated), alive(self, self._refused))

    def _rotated(self, view: wire.AuthorityView) -> None:
        self.said.emit(f"Rotation: {PHASES[view.phase]}.", False)
        self._authority.now()

    def _refused(self, error: ClientError) -> None:
        self.said.emit(str(error), True)

    def _ask_password(self) -> None:
        PasswordForm(self, self._desk, alive(self, self._password_changed)).open()

    def _password_changed(self, _: None) -> None:
        self.said.emit("The password is changed; sign in with it.", False)
        self._authority.now()  # which is refused now, so that the dialog for signing in comes at once


class PasswordForm(FormDialog):
    """Asks for one's own new password; every sign-in ends with it."""

    def __init__(self, parent: QWidget, desk: Desk, then: Callable[[None], object]) -> None:
        about = "Every sign-in of yours ends, this one too."
        super().__init__(
            parent, desk.bridge, "Change my password", yes="&Change", order=self.call, then=then, about=about
        )
        self.present, self.password, self.again = secret_field(), secret_field(), secret_field()
        self.form.addRow("&Present password", self.present)
        self.form.addRow("&New password", self.password)
        self.form.addRow("New password &again", self.again)

    def call(self) -> Call[None]:
        """Return the order. Raises ClientError."""
        if self.password.text() != self.again.text():
            raise ClientError("The two new passwords are not the same; type them again.")
        return calls.change_own_password(self.present.text(), self.password.text())


def _left(*buttons: QPushButton) -> QHBoxLayout:
    across = QHBoxLayout()
    for button in buttons:
        across.addWidget(button)
    across.addStretch(1)
    return across
