"""The icon in the system's tray: shown when there is a tray, looked for when there is none, back when it returns.

`QSystemTrayIcon.isVisible` says yes with no tray at all, so it proves nothing; only `isSystemTrayAvailable` is asked.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from agent.tray.actions import Actions, fill_menu
from agent.tray.icons import tray_icon
from agent.tray.texts import Texts
from agent.tray.view import Shown

LOOK_MS = 2000
LOOKS = 30
"""A desktop that is starting may take a minute to have its tray."""
LATER_MS = 30_000


class TrayIcon(QObject):
    """GUI thread. `without_tray` comes once, when no tray appeared in the first minute."""

    without_tray = Signal()
    clicked = Signal()

    def __init__(
        self,
        actions: Actions,
        texts: Texts,
        *,
        available: Callable[[], bool] = QSystemTrayIcon.isSystemTrayAvailable,
        look_ms: int = LOOK_MS,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._texts, self._actions = texts, actions
        self._available = available
        self._looks_left = LOOKS
        self.shown = False
        """Whether there was a tray when it was last looked for."""
        self.headline, self.detail = QAction(self), QAction(self)
        self.headline.triggered.connect(self.clicked)
        self.detail.setEnabled(False)
        self.menu = QMenu()
        self.icon = QSystemTrayIcon(self)
        self.icon.setContextMenu(self.menu)
        self.icon.activated.connect(self._activated)
        self.icon.messageClicked.connect(self.clicked)
        actions.devices_changed.connect(self._fill)
        self._fill()
        self._timer = QTimer(self)
        self._timer.setInterval(look_ms)
        self._timer.timeout.connect(self._look)

    def start(self) -> None:
        """Show the icon as soon as there is a tray. Call `follow` first: an icon without a picture is refused."""
        self._look()
        self._timer.start()

    def stop(self) -> None:
        """Take the icon away."""
        self._timer.stop()
        self.icon.hide()
        self.menu.deleteLater()

    def follow(self, shown: Shown) -> None:
        """Show how the agent is."""
        self.icon.setIcon(tray_icon(shown.icon))
        self.icon.setToolTip(shown.tooltip)
        self.headline.setText(shown.headline)
        self.detail.setText(shown.detail)
        self.detail.setVisible(bool(shown.detail))

    def notify(self, title: str, text: str, *, warning: bool = False) -> None:
        """Show a notification, where the system shows them."""
        kind = QSystemTrayIcon.MessageIcon
        if self.shown:
            self.icon.showMessage(title, text, kind.Warning if warning else kind.Information)

    def _look(self) -> None:
        found = self._available()
        if found and not self.shown:
            # A tray that went and came back has forgotten the icon.
            self.icon.hide()
            self.icon.show()
        self.shown = found
        if found or self._looks_left < 0:
            self._timer.setInterval(max(self._timer.interval(), LATER_MS))
            return
        self._looks_left -= 1
        if self._looks_left < 0:
            self.without_tray.emit()

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason in (QSystemTrayIcon.ActivationReason.Trigger, QSystemTrayIcon.ActivationReason.DoubleClick):
            self.clicked.emit()

    def _fill(self) -> None:
        fill_menu(self.menu, self._actions, self.headline, self.detail, self._texts)
