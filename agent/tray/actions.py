"""Every command as a QAction: the same in the tray's menu and in the window, for mouse, keys and screen readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu

from agent.control.status import DeviceShown, Status
from agent.tray.commands import Commands
from agent.tray.texts import Texts
from agent.tray.view import Ability, Shown, why_not_switch

PAUSES_S = {"pause_15_min": 15 * 60, "pause_1_h": 60 * 60}


@dataclass(frozen=True)
class _Bound:
    action: QAction
    text: str
    ability: Ability | None


class Actions(QObject):
    """GUI thread. What only concerns the windows (`wants`) is left to whoever owns them."""

    wants = Signal(str)
    """`open`, `code`, `help`, `quit`, `chat`, `start`, `enrol`."""
    devices_changed = Signal()

    def __init__(self, commands: Commands, texts: Texts, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._commands = commands
        self._texts = texts
        self._bound: dict[str, _Bound] = {}
        self.devices: dict[str, QAction] = {}
        """By name, in the order the service lists them."""
        self._devices: list[DeviceShown] = []
        for name, seconds in PAUSES_S.items():
            self._add(name, partial(commands.pause_for, seconds), "pause")
        self._add("pause_tomorrow", commands.pause_until_tomorrow, "pause")
        self._add("pause_open_end", commands.pause_until_resumed, "pause")
        self._add("resume", commands.resume, "resume", "Ctrl+R")
        self._add("release", commands.release, "release", "Ctrl+G")
        self._add("contribute", commands.contribute_now, "contribute")
        abilities: dict[str, Ability] = {"chat": "chat", "start": "start", "enrol": "enrol", "quit": "quit"}
        keys = {"help": "F1", "quit": "Ctrl+Q"}
        for name in ("open", "code", "chat", "start", "enrol", "help", "quit"):
            self._add(name, partial(self.wants.emit, name), abilities.get(name), keys.get(name, ""))

    def __getitem__(self, name: str) -> QAction:
        """Return an action by name. Raises KeyError."""
        return self._bound[name].action

    @property
    def pauses(self) -> list[QAction]:
        """The four ways to pause."""
        return [self[name] for name in (*PAUSES_S, "pause_tomorrow", "pause_open_end")]

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Enable what can be done now, and let the rest say why not."""
        for bound in self._bound.values():
            why_not = shown.why_not.get(bound.ability, "") if bound.ability else ""
            bound.action.setEnabled(not why_not)
            bound.action.setToolTip(why_not or bound.text.replace("&", ""))
            bound.action.setStatusTip(why_not)
        self["start"].setVisible(status is None)
        quit_ = self._bound["quit"]
        why_not = shown.why_not.get("quit", "")
        # The tray itself can always be closed while there is no service it would belong to.
        if status is None:
            quit_.action.setEnabled(True)
        elif why_not:
            quit_.action.setText(self._texts("action.quit_why_not", why=why_not))
            return
        quit_.action.setText(quit_.text)

    def follow_devices(self, devices: list[DeviceShown] | None) -> None:
        """Show one switch for each device; emits `devices_changed` if they are others than before.

        None: there is no service to switch anything. They show what it said last, and why they do nothing.
        """
        has_service = devices is not None
        self._devices = devices = self._devices if devices is None else devices
        if list(self.devices) != [device.name for device in devices]:
            for action in self.devices.values():
                action.deleteLater()
            self.devices = {device.name: self._device_action(device) for device in devices}
            self.devices_changed.emit()
        for device in devices:
            action = self.devices[device.name]
            why_not = why_not_switch(device, self._texts, has_service=has_service)
            action.setChecked(device.on)
            action.setEnabled(not why_not)
            action.setToolTip(why_not or device.full_name)

    def _device_action(self, device: DeviceShown) -> QAction:
        action = QAction(self._texts("action.device", name=device.name, full_name=device.full_name), self)
        action.setObjectName(f"device_{device.name}")
        action.setCheckable(True)
        # `triggered` comes from people only; `toggled` would answer the service's own news with an order.
        action.triggered.connect(lambda on, name=device.name: self._commands.switch_device(name, on))
        return action

    def _add(self, name: str, do: Callable[[], None], ability: Ability | None = None, keys: str = "") -> None:
        text = self._texts(f"action.{name}")
        action = QAction(text, self)
        action.setObjectName(name)
        action.setMenuRole(QAction.MenuRole.NoRole)
        if keys:
            action.setShortcut(QKeySequence(keys))
        action.triggered.connect(lambda _checked=False: do())
        self._bound[name] = _Bound(action, text, ability)


def fill_menu(menu: QMenu, actions: Actions, headline: QAction, detail: QAction, texts: Texts) -> None:
    """Put everything into the tray's menu, the status line first."""
    for old in menu.findChildren(QMenu, options=Qt.FindChildOption.FindDirectChildrenOnly):
        old.deleteLater()  # `clear` takes them out and leaves them behind
    menu.clear()
    menu.setToolTipsVisible(True)
    menu.addAction(headline)
    menu.addAction(detail)
    menu.addSeparator()
    menu.addAction(actions["start"])
    pauses = menu.addMenu(texts("menu.pause"))
    pauses.setObjectName("menu_pause")
    pauses.addActions(actions.pauses)
    for name in ("resume", "release", "contribute"):
        menu.addAction(actions[name])
    if actions.devices:
        devices = menu.addMenu(texts("menu.devices"))
        devices.setObjectName("menu_devices")
        devices.addActions(list(actions.devices.values()))
    menu.addSeparator()
    for name in ("open", "chat", "code", "help"):
        menu.addAction(actions[name])
    menu.addSeparator()
    menu.addAction(actions["quit"])
