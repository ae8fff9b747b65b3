"""The first page: what this PC does now and why, and what can be done about it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QGridLayout,
    QHBoxLayout,
    QMenu,
    QProgressBar,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from agent.control.status import Contribution, DeviceShown, StageShown, Status
from agent.look.widgets import TITLE_SCALE, Picture, heading, label
from agent.tray.actions import Actions
from agent.tray.commands import Commands
from agent.tray.numbers import Numbers
from agent.tray.pages.page import Page
from agent.tray.texts import Texts
from agent.tray.view import Shown, why_not_switch


class NowPage(Page):
    """Everything of the tray's menu, as buttons."""

    name = "now"

    def __init__(self, texts: Texts, actions: Actions, commands: Commands) -> None:
        super().__init__(texts)
        self.heading.hide()  # the headline is the title here
        self._numbers = Numbers(texts)
        self.picture = Picture("offline")
        self.headline = label(bold=True, scale=TITLE_SCALE)
        self.headline.setObjectName("headline")
        self.detail = label(quiet=True)
        self.detail.setObjectName("detail")
        lines = QVBoxLayout()
        lines.addWidget(self.headline)
        lines.addWidget(self.detail)
        top = QHBoxLayout()
        top.setSpacing(self.fontMetrics().height())
        top.addWidget(self.picture, 0, Qt.AlignmentFlag.AlignTop)
        top.addLayout(lines, 1)
        self.rows.addLayout(top)
        self.rows.addLayout(self._buttons(actions))
        self.reasons_heading = heading(texts("now.reasons"))
        self.reasons = label()
        self.reasons.setObjectName("reasons")
        self.rows.addWidget(self.reasons_heading)
        self.rows.addWidget(self.reasons)
        self.stages = _Stages(texts)
        self.devices = _Devices(texts, commands, self._numbers)
        self.rows.addWidget(self.stages)
        self.rows.addWidget(self.devices)
        self.given_heading = heading(texts("now.given"))
        self.given = label()
        self.given.setObjectName("given")
        self.rows.addWidget(self.given_heading)
        self.rows.addWidget(self.given)
        self.rows.addStretch(1)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Show a status."""
        self.picture.show_icon(shown.icon, shown.state)
        self.headline.setText(shown.headline)
        self.detail.setText(shown.detail)
        self.detail.setVisible(bool(shown.detail))
        several = len(shown.reasons) > 1 or bool(status and status.pause_until_s is not None and shown.reasons)
        self.reasons.setText("\n".join(f"• {line}" for line in shown.reasons))
        self.reasons.setVisible(several)
        self.reasons_heading.setVisible(several)
        self.stages.follow(status.stages if status else [])
        self.devices.follow(status.devices if status else None)
        self.given.setText(self._given(status.contribution) if status else "")
        self.given.setVisible(status is not None)
        self.given_heading.setVisible(status is not None)
        self.start.setVisible(status is None)
        self.enrol.setVisible(status is not None and status.phase == "unenrolled")

    def _buttons(self, actions: Actions) -> QGridLayout:
        pause = QToolButton()
        pause.setObjectName("button_pause")
        pause.setText(self.texts("menu.pause"))
        pause.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(pause)
        menu.addActions(actions.pauses)
        menu.setToolTipsVisible(True)
        pause.setMenu(menu)
        any_pause = actions.pauses[0]
        any_pause.enabledChanged.connect(pause.setEnabled)
        any_pause.changed.connect(lambda: pause.setToolTip("" if any_pause.isEnabled() else any_pause.toolTip()))
        pause.setEnabled(any_pause.isEnabled())
        buttons = [pause]
        for name in ("resume", "release", "contribute", "chat", "start", "enrol"):
            button = QToolButton()
            button.setObjectName(f"button_{name}")
            button.setDefaultAction(actions[name])
            buttons.append(button)
        self.start, self.enrol = buttons[5], buttons[6]
        grid = QGridLayout()
        for place, button in enumerate(buttons):
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.setSizePolicy(button.sizePolicy().Policy.Expanding, button.sizePolicy().Policy.Fixed)
            button.setMinimumHeight(round(self.fontMetrics().height() * 2))
            button.setAccessibleName(button.text().replace("&", ""))
            grid.addWidget(button, place // 3, place % 3)
        for column in range(3):
            grid.setColumnStretch(column, 1)
        return grid

    def _given(self, given: Contribution) -> str:
        def line(key: str, hours: float, tokens: int, watt_hours: float) -> str:
            numbers = self._numbers
            return self.texts(
                key, hours=numbers.hours(hours), tokens=numbers.tokens(tokens), energy=numbers.energy(watt_hours)
            )

        today = line("now.today", given.today_h, given.today_tokens, given.today_wh)
        return f"{today}\n{line('now.total', given.total_h, given.total_tokens, given.total_wh)}"


class _StageLine(QWidget):
    """One stage: what it is and, while it loads, how far."""

    def __init__(self) -> None:
        super().__init__()
        lines = QVBoxLayout(self)
        lines.setContentsMargins(0, 0, 0, 0)
        self._said, self._bar = label(), QProgressBar()
        lines.addWidget(self._said)
        lines.addWidget(self._bar)

    def follow(self, text: str, done: float) -> None:
        self._said.setText(text)
        self._bar.setAccessibleName(text)
        self._bar.setValue(round(100 * done))
        self._bar.setVisible(done < 1)


class _Stages(QWidget):
    """The layers in this PC's memory, and how far they are loaded."""

    def __init__(self, texts: Texts) -> None:
        super().__init__()
        self._texts = texts
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.addWidget(heading(texts("now.stages")))
        self._lines: list[_StageLine] = []

    def follow(self, stages: list[StageShown]) -> None:
        self.setVisible(bool(stages))
        for line in self._lines[len(stages) :]:
            self._rows.removeWidget(line)
            line.deleteLater()
        del self._lines[len(stages) :]
        while len(self._lines) < len(stages):
            self._lines.append(_StageLine())
            self._rows.addWidget(self._lines[-1])
        for line, stage in zip(self._lines, stages, strict=True):
            text = self._texts(
                "now.stage", first=stage.first, last=stage.last - 1, device=stage.device, engine=stage.engine
            )
            line.follow(text, stage.done)


class _Devices(QWidget):
    """A switch for each device. One that can do nothing says why: the administrator's, or all without a service."""

    def __init__(self, texts: Texts, commands: Commands, numbers: Numbers) -> None:
        super().__init__()
        self._texts, self._commands, self._numbers = texts, commands, numbers
        self._lines = QVBoxLayout(self)
        self._lines.setContentsMargins(0, 0, 0, 0)
        self._lines.addWidget(heading(texts("now.devices")))
        self.boxes: dict[str, QCheckBox] = {}
        self._devices: list[DeviceShown] = []

    def follow(self, devices: list[DeviceShown] | None) -> None:
        has_service = devices is not None
        self._devices = devices = self._devices if devices is None else devices
        self.setVisible(bool(devices))
        if list(self.boxes) != [device.name for device in devices]:
            for box in self.boxes.values():
                self._lines.removeWidget(box)
                box.deleteLater()
            self.boxes = {device.name: self._add(device.name) for device in devices}
        for device in devices:
            box = self.boxes[device.name]
            text = self._texts(
                "now.device",
                name=device.name,
                full_name=device.full_name,
                memory=self._numbers.memory(device.memory_bytes),
            )
            why_not = why_not_switch(device, self._texts, has_service=has_service)
            box.setText(text)
            box.setAccessibleName(text)
            box.setChecked(device.on)
            box.setEnabled(not why_not)
            box.setToolTip(why_not)

    def _add(self, name: str) -> QCheckBox:
        box = QCheckBox()
        box.setObjectName(f"device_{name}")
        # `clicked` comes from people only.
        box.clicked.connect(lambda on: self._commands.switch_device(name, on))
        self._lines.addWidget(box)
        return box
