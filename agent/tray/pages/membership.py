"""This PC in its fleet: its code and id, the console's address, joining and leaving."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QHBoxLayout, QLabel, QMessageBox, QPushButton

from agent.control.status import Status
from agent.look.widgets import label
from agent.tray.actions import Actions
from agent.tray.commands import Commands
from agent.tray.pages.page import Page
from agent.tray.texts import Texts
from agent.tray.view import Shown

OUTSIDE = ("suspended_by_admin", "revoked")
"""Reasons for which a PC with an identity is no member that works."""
FACTS = ("fleet", "device_id", "console", "link", "policy_revision")


class MembershipPage(Page):
    """The code is large, because two people compare it over the telephone."""

    name = "membership"

    def __init__(self, texts: Texts, actions: Actions, commands: Commands) -> None:
        super().__init__(texts)
        self._commands = commands
        self.rows.addWidget(label(texts("membership.intro"), quiet=True))
        self.code = label(bold=True, scale=2.0)
        self.code.setObjectName("code")
        self.code.setAccessibleName(texts("membership.code"))
        self.code_said = label()
        self.code_said.setObjectName("code_said")
        self.rows.addWidget(self.code)
        self.rows.addWidget(self.code_said)
        form = QFormLayout()
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        self.facts: dict[str, QLabel] = {}
        for name in FACTS:
            self.facts[name] = label()
            self.facts[name].setObjectName(f"fact_{name}")
            form.addRow(label(texts(f"membership.{name}"), quiet=True), self.facts[name])
        self.rows.addLayout(form)
        self.join = QPushButton(texts("action.enrol"))
        self.join.clicked.connect(actions["enrol"].trigger)
        self.leave = QPushButton(texts("membership.leave"))
        self.leave.clicked.connect(self._leave)
        self.stop = QPushButton(texts("membership.stop"))
        self.stop.clicked.connect(self._stop_waiting)
        buttons = QHBoxLayout()
        buttons.addWidget(self.join)
        buttons.addWidget(self.stop)
        buttons.addWidget(self.leave)
        buttons.addStretch(1)
        self.rows.addLayout(buttons)
        self.rows.addStretch(1)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Show a status."""
        code = status.device_code if status else ""
        device = status.device_id if status else ""
        self.code.setText(code or device)
        self.code.setVisible(bool(code or device))
        self.code_said.setText(self._membership(status) if code or device else "")
        self.code_said.setVisible(bool(code or device))
        facts = {
            "fleet": status.fleet_name if status else "",
            "device_id": device,
            "console": status.console_url if status else "",
            "link": self._link(status) if status else shown.headline,
            "policy_revision": str(status.policy_revision) if status and status.policy_revision else "",
        }
        for name, text in facts.items():
            self.facts[name].setText(text or "-")
        for button, ability in ((self.join, "enrol"), (self.stop, "stop"), (self.leave, "leave")):
            why_not = shown.why_not.get(ability, "")  # type: ignore[call-overload]  # all are abilities
            button.setEnabled(not why_not)
            button.setToolTip(why_not)
        self.stop.setVisible(self.stop.isEnabled())

    def _membership(self, status: Status | None) -> str:
        if status is None:
            return ""
        for reason in status.reasons:
            if reason.code in OUTSIDE:
                return self.texts.named("reason", reason.code, reason.text)
        return self.texts("membership.compare" if status.device_code else "membership.joined")

    def _link(self, status: Status) -> str:
        said = self.texts.named("link", status.link)
        return f"{said}: {status.link_message}" if status.link_message else said

    def _leave(self) -> None:
        self._ask("leave", self._commands.leave)

    def _stop_waiting(self) -> None:
        self._ask("stop", self._commands.stop_waiting)

    def _ask(self, what: str, then: Callable[[], None]) -> None:
        """Do what only a new invite makes good again, once the owner has said so."""
        box = QMessageBox(self)
        box.setIcon(QMessageBox.Icon.Warning)
        box.setWindowTitle(self.texts(f"membership.{what}").replace("&", ""))
        box.setText(self.texts(f"membership.{what}_ask"))
        box.setStandardButtons(QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.Cancel)
        box.button(QMessageBox.StandardButton.Yes).setText(self.texts(f"membership.{what}_yes"))
        box.button(QMessageBox.StandardButton.Cancel).setText(self.texts("button.cancel"))
        box.setDefaultButton(QMessageBox.StandardButton.Cancel)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.finished.connect(lambda: then() if self._agreed(box) else None)
        box.open()

    def _agreed(self, box: QMessageBox) -> bool:
        return box.standardButton(box.clickedButton()) == QMessageBox.StandardButton.Yes
