"""The settings: for each row what holds, who set it, what the others asked for, and the owner's own wish."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QPushButton, QWidget
from shiboken6 import isValid

from agent.control.protocol import Answer, ChangeSetting, Refused
from agent.control.status import PolicyRow, PolicyValue, Status
from agent.look.widgets import announce, heading, label
from agent.tray.commands import Commands
from agent.tray.pages.editors import editor_for, said
from agent.tray.pages.page import Page
from agent.tray.texts import Texts
from agent.tray.view import Shown, can_change

SECTIONS: dict[str, tuple[str, ...]] = {
    "when": ("enabled", "consent_needed", "unattended", "schedule", "idle_start_s", "idle_locked_s", "idle_resume_s",
             "settle_s", "startup_delay_s", "contribute_now"),
    "how_much": ("devices", "memory_max_bytes", "memory_max_percent", "memory_floor_bytes", "memory_floor_percent",
                 "disk_reserve_bytes", "release_after_s"),
    "while": ("on_battery_above_percent", "power_saver", "heat_limit_celsius", "metered", "cpu_busy_percent",
              "gpu_busy_percent", "exclusive_programs", "fullscreen", "remote_session", "inhibited"),
    "privacy": ("learn_availability", "share_availability", "quit_allowed", "self_update"),
}  # fmt: skip
"""Where a row is shown; what is named nowhere comes last, under `other`."""
ELSEWHERE = frozenset({"paused", "drain", "devices_off"})
"""Rows with buttons of their own on the first page."""


class SettingsPage(Page):
    """Built anew only when the service has other rows; values are brought up to date in place."""

    name = "settings"

    def __init__(self, texts: Texts, commands: Commands) -> None:
        super().__init__(texts)
        self._commands = commands
        self._fields: list[tuple[str, str]] = []
        self.editors: dict[str, RowEditor] = {}
        self.rows.addWidget(label(texts("settings.intro"), quiet=True))
        self._empty = label(texts("settings.empty"))
        self.rows.addWidget(self._empty)
        self._sections: list[QWidget] = []
        self.rows.addStretch(1)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Show the rows of a status."""
        policy = [row for row in status.policy if row.field not in ELSEWHERE] if status else []
        self._empty.setVisible(not policy)
        fields: list[tuple[str, str]] = [(row.field, row.kind) for row in policy]
        if fields != self._fields:
            self._fields = fields
            self._build(policy)
        for row in policy:
            self.editors[row.field].follow(row)

    def _build(self, policy: Sequence[PolicyRow]) -> None:
        for section in self._sections:
            self.rows.removeWidget(section)
            section.deleteLater()
        self._sections, self.editors = [], {}
        known = {field for fields in SECTIONS.values() for field in fields}
        sections = {**SECTIONS, "other": tuple(row.field for row in policy if row.field not in known)}
        by_field = {row.field: row for row in policy}
        for name, fields in sections.items():
            rows = [by_field[field] for field in fields if field in by_field]
            if rows:
                self._sections += [heading(self.texts(f"settings.section.{name}")), self._section(rows)]
        for place, section in enumerate(self._sections):
            self.rows.insertWidget(self.rows.count() - 1, section)
            section.setObjectName(f"section_{place}")

    def _section(self, rows: Sequence[PolicyRow]) -> QWidget:
        section = QWidget()
        grid = QGridLayout(section)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(round(self.fontMetrics().height() * 0.9))
        grid.setHorizontalSpacing(self.fontMetrics().height())
        grid.setColumnStretch(0, 1)
        for place, row in enumerate(rows):
            shown = self.editors[row.field] = RowEditor(row, self.texts, self._commands)
            grid.addWidget(shown.left, place, 0)
            grid.addWidget(shown.right, place, 1, Qt.AlignmentFlag.AlignTop)
        return section


class RowEditor:
    """One row: `left` is its name and where its value comes from, `right` the editor of the owner's wish."""

    def __init__(self, row: PolicyRow, texts: Texts, commands: Commands) -> None:
        self._texts, self._commands = texts, commands
        self._row = row
        self.name = texts.named("policy", row.field)
        self.left, self.right = QWidget(), QWidget()
        left, right = QGridLayout(self.left), QGridLayout(self.right)
        for layout in (left, right):
            layout.setContentsMargins(0, 0, 0, 0)
        self._origin = label(quiet=True)
        self._origin.setObjectName("origin")
        self._trouble = label()
        self._trouble.setObjectName("trouble")
        self._trouble.hide()
        left.addWidget(label(self.name), 0, 0)
        left.addWidget(self._origin, 1, 0)
        left.addWidget(self._trouble, 2, 0)
        left.setVerticalSpacing(round(self.left.fontMetrics().height() * 0.15))
        self.editor = editor_for(row, texts)
        self.editor.setObjectName(f"editor_{row.field}")
        self.editor.edited.connect(self._change)
        self.reset = QPushButton(texts("settings.reset"))
        self.reset.setAccessibleName(texts("settings.reset_named", name=self.name))
        self.reset.setToolTip(texts("settings.reset_tip"))
        self.reset.clicked.connect(lambda: self._change(None))
        right.addWidget(self.editor, 0, 0)
        right.addWidget(self.reset, 1, 0, Qt.AlignmentFlag.AlignLeft)
        # The same in every section, and narrow enough to leave room for words at twice the letters.
        self.right.setFixedWidth(self.right.fontMetrics().averageCharWidth() * 34)

    def follow(self, row: PolicyRow) -> None:
        """Show what holds now. What somebody is typing stays."""
        self._row = row
        wish = row.asked.get("employee")
        if not self.editor.busy():
            self.editor.show_value(row.value if wish is None else wish)
        origin = self._said_origin(row, wish)
        self._origin.setText(origin)
        self.editor.name(self.name, origin)
        self.editor.setEnabled(can_change(row))
        self.reset.setVisible(wish is not None)

    def _said_origin(self, row: PolicyRow, wish: PolicyValue) -> str:
        texts = self._texts
        parts = [
            texts("settings.holds", value=said(row, row.value, texts), who=texts(f"set_by.{row.set_by}")),
        ]
        if wish is not None and wish != row.value:
            parts.append(texts("settings.wish", value=said(row, wish, texts)))
        asked = row.asked.get("admin")
        if asked is not None and row.set_by != "admin":
            parts.append(texts("settings.admin_asked", value=said(row, asked, texts)))
        if not can_change(row):
            parts.append(texts("settings.locked"))
        return " ".join(parts)

    def _change(self, value: PolicyValue) -> None:
        field = self._row.field
        self._commands.bridge.order(lambda id_: ChangeSetting(id_, field, value), self._answered)

    def _answered(self, answer: Answer) -> None:
        if not isValid(self._trouble):
            return  # the page was built anew meanwhile
        self._trouble.setVisible(isinstance(answer, Refused))
        if isinstance(answer, Refused):
            self._trouble.setText(answer.message)
            announce(self._trouble, answer.message)
            self.follow(self._row)
