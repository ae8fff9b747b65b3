"""The tray program without its process: icon, window, dialogs and bridge brought together."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QSettings, Qt, QTimer
from PySide6.QtWidgets import QApplication, QDialog, QMessageBox

from agent.control.status import Status
from agent.look.icons import app_icon
from agent.tray.actions import Actions
from agent.tray.bridge import Bridge
from agent.tray.commands import Commands
from agent.tray.icon import TrayIcon
from agent.tray.launch import Launch
from agent.tray.notices import Notices
from agent.tray.texts import Texts
from agent.tray.view import must_ask_consent, screen_is_taken, show, ticks

if TYPE_CHECKING:
    from agent.tray.enrol import EnrolDialog
    from agent.tray.pages.doctor import DoctorPage
    from agent.tray.window import Window

SHOWN_WITHOUT_TRAY = "shown_without_tray"
START_LOOK_MS, START_LOOKS = 500, 60
"""How often, and how many times, a service that was started is looked for."""
IN_SIGHT_MS = 1000
IN_TRAY_MS = 15_000
"""How often a countdown moves on, in the window and in the tooltip."""


class TrayProgram(QObject):
    """GUI thread. Brings icon, window and bridge together. `stop` before the end of the application."""

    def __init__(self, folder: Path, texts: Texts, settings: QSettings, *, bridge: Bridge | None = None,
                 launch: Launch | None = None, parent: QObject | None = None) -> None:  # fmt: skip
        super().__init__(parent)
        self._texts, self._settings = texts, settings
        self.bridge = bridge or Bridge(folder, parent=self)
        self.launch = launch or Launch(folder)
        self.commands = Commands(self.bridge, texts, self)
        self.actions = Actions(self.commands, texts, self)
        self.icon = TrayIcon(self.actions, texts, parent=self)
        self.window: Window | None = None
        self.status: Status | None = None
        self._trouble = ""
        self._chat_here = bool(self.launch.chat_program())
        self._notices = Notices()
        self._asked_consent = False
        self._ends = False
        self._dialogs: dict[str, QDialog] = {}
        self._enrol: EnrolDialog | None = None
        self._doctor: DoctorPage | None = None
        self._ticking = QTimer(self)
        self._ticking.timeout.connect(self._refresh)
        self._starting = QTimer(self)
        self._starting.timeout.connect(self._follow_start)
        self._start_looks = 0
        self._connect()
        self._refresh()

    def start(self) -> None:
        """Show the icon, and look for the service."""
        self.icon.start()
        self.bridge.start()

    def stop(self) -> None:
        """Close what is open and let go of the service."""
        self._ticking.stop()
        self._starting.stop()
        self.launch.forget_words()
        self._ends = True
        for dialog in (*self._dialogs.values(), self._enrol):
            if dialog is not None:
                dialog.close()
        if self._doctor is not None:
            self._doctor.close_child()
        if self.window is not None:
            self.window.close()
        self.icon.stop()
        self.bridge.stop()

    def open_window(self, page: str = "") -> Window:
        """Show the window; it is made when it is first wanted, because most days nobody opens it."""
        self._chat_here = bool(self.launch.chat_program())  # it may have been installed since
        if self.window is None:
            self.window = self._make_window()
        self.window.bring_up(page)
        self._refresh()
        return self.window

    def _show_where_it_is(self) -> None:
        """Open the window once for an owner whose desktop has no tray; at later logins they know where to find it."""
        taken = self.status is not None and screen_is_taken(self.status)
        if not taken and not self._settings.value(SHOWN_WITHOUT_TRAY, False, bool):
            self._settings.setValue(SHOWN_WITHOUT_TRAY, True)
            self.open_window()

    def enrol(self) -> EnrolDialog:
        """Show the dialog for joining a fleet: the one that waits for its answer, or a new one."""
        if self._enrol is not None and not self._enrol.isVisible():
            self._close_enrol()  # it was answered out of sight
        if self._enrol is None:
            from agent.tray.enrol import EnrolDialog

            self._enrol = EnrolDialog(self.bridge, self._texts, self.window)
            self._enrol.setWindowIcon(app_icon())
            self._enrol.finished.connect(self._close_enrol)
            if self.status is not None:
                self._enrol.follow(self.status)
        self._enrol.open()
        self._enrol.raise_()
        self._enrol.activateWindow()
        return self._enrol

    def do(self, wish: str) -> None:
        """Carry out what an action of the windows, or a second start, wants."""
        if wish in ("open", "show"):
            self.open_window()
        elif wish == "code":
            self.open_window("membership")
        elif wish == "help":
            self.open_window("help")
        elif wish == "enrol":
            self.enrol()
        elif wish == "start":
            self._start_service()
        elif wish == "chat":
            self.launch.chat(self.status.chat_url if self.status else "")
        elif wish == "quit":
            self._ask_quit()

    def _connect(self) -> None:
        self.bridge.status_came.connect(self._take)
        self.bridge.lost.connect(self._lose)
        self.bridge.wished.connect(self.do)
        self.commands.said.connect(self._say)
        self.actions.wants.connect(self.do)
        self.icon.clicked.connect(self.open_window)
        self.icon.without_tray.connect(self._show_where_it_is)

    def _make_window(self) -> Window:
        # Imported when somebody opens it: on most days nobody does, and it is 3 MB of a small budget.
        from agent.tray.pages.company import CompanyPage
        from agent.tray.pages.doctor import DoctorPage
        from agent.tray.pages.help import HelpPage
        from agent.tray.pages.history import HistoryPage
        from agent.tray.pages.membership import MembershipPage
        from agent.tray.pages.now import NowPage
        from agent.tray.pages.settings import SettingsPage
        from agent.tray.window import Window

        texts, actions, bridge = self._texts, self.actions, self.bridge
        self._doctor = DoctorPage(texts, bridge, self.launch)
        pages = [
            NowPage(texts, actions, self.commands),
            HistoryPage(texts, bridge),
            SettingsPage(texts, self.commands),
            CompanyPage(texts),
            MembershipPage(texts, actions, self.commands),
            self._doctor,
            HelpPage(texts),
        ]
        keyed = [actions[name] for name in ("resume", "release", "help", "quit")]
        return Window(pages, keyed, texts, self._settings)

    def _take(self, status: Status) -> None:
        self.status, self._trouble = status, ""
        self._follow_devices()
        if self._enrol is not None:
            self._enrol.follow(status)
        for kind in self._notices.due(status, time.monotonic()):
            self.icon.notify(self._texts(f"notice.{kind}"), self._texts(f"notice.{kind}_more"))
        self._refresh()
        if status.pause_until_s is not None:
            self._asked_consent = False
        elif self._must_ask(status):
            self._asked_consent = True
            self._ask_consent(status)

    def _must_ask(self, status: Status) -> bool:
        asked = self._asked_consent or "consent" in self._dialogs
        return must_ask_consent(status) and not asked and not screen_is_taken(status)

    def _lose(self, why: str) -> None:
        self.status, self._trouble = None, why
        if self.window is not None and not self._starting.isActive():
            self.window.unsay()  # whatever it was, it was said by an agent that is gone
        self._asked_consent = False
        self._follow_devices()
        self._refresh()

    def _follow_devices(self) -> None:
        self.actions.follow_devices(self.status.devices if self.status else None)

    def _refresh(self) -> None:
        now_s = time.time()
        shown = show(self.status, now_s, self._texts, trouble=self._trouble, chat_here=self._chat_here)
        self.actions.follow(self.status, shown)
        self.icon.follow(shown)
        in_sight = self.window is not None and self.window.isVisible()
        if self.window is not None:
            self.window.follow(self.status, shown)
        if ticks(self.status):
            self._ticking.start(IN_SIGHT_MS if in_sight else IN_TRAY_MS)
        else:
            self._ticking.stop()

    def _say(self, text: str, failed: bool) -> None:
        if failed:
            # A switch moves when it is clicked; what was refused has to move it back, in the menu and on the page.
            self._follow_devices()
            self._refresh()
        if self.window is not None and self.window.isVisible():
            self.window.say(text, failed)
        elif failed:
            self.icon.notify("Fallow", text, warning=True)

    def _start_service(self) -> None:
        if not self.launch.service():
            self._say(self._texts("said.start_failed"), failed=True)
            return
        self._say(self._texts("said.started"), failed=False)
        self._start_looks = START_LOOKS
        self._starting.start(START_LOOK_MS)

    def _follow_start(self) -> None:
        """Look whether the service that was started is there, or has said why it is not going to be."""
        self._start_looks -= 1
        why = "" if self.status is not None else self.launch.why_ended()
        if self.status is None and not why and self._start_looks > 0:
            self.bridge.look_now()
            return
        self._starting.stop()
        self.launch.forget_words()
        if self.status is not None:
            if self.window is not None:
                self.window.unsay()
        elif not why:
            self._say(self._texts("said.start_silent"), failed=True)
        else:
            self._trouble = why
            self._refresh()
            in_sight = self.window is not None and self.window.isVisible()
            self._say(self._texts("said.start_ended") if in_sight else why, failed=True)

    def _ask_consent(self, status: Status) -> None:
        from agent.tray.consent import ConsentDialog

        dialog = ConsentDialog(status, self._texts, self.window)
        dialog.answered.connect(lambda agreed: self.commands.consent(agreed=agreed))
        dialog.rejected.connect(self._put_off_consent)
        self._open_dialog("consent", dialog)

    def _put_off_consent(self) -> None:
        """Let nothing begin that the owner was asked about and did not answer."""
        # A pause that began meanwhile stays as it is: when it ends the question comes again.
        if not self._ends and self.status is not None and self.status.pause_until_s is None:
            self.commands.pause_until_tomorrow()

    def _ask_quit(self) -> None:
        if self.status is None:
            QApplication.quit()
            return
        if "quit" in self._dialogs:
            self._dialogs["quit"].raise_()
            return
        box = QMessageBox(self.window)
        box.setWindowTitle(self._texts("quit.title"))
        box.setText(self._texts("quit.ask"))
        end = box.addButton(self._texts("quit.yes"), QMessageBox.ButtonRole.AcceptRole)
        only = box.addButton(self._texts("quit.only_tray"), QMessageBox.ButtonRole.DestructiveRole)
        cancel = box.addButton(self._texts("button.cancel"), QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(cancel)
        end.clicked.connect(lambda: self.commands.quit_service(QApplication.quit))
        only.clicked.connect(QApplication.quit)
        self._open_dialog("quit", box)

    def _close_enrol(self) -> None:
        """Forget the dialog, unless its answer is still to come: then it is shown again as it was."""
        if self._enrol is not None and not self._enrol.waiting:
            self._enrol.deleteLater()
            self._enrol = None

    def _open_dialog(self, name: str, dialog: QDialog) -> None:
        self._dialogs[name] = dialog
        dialog.finished.connect(lambda _: self._dialogs.pop(name, None))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowIcon(app_icon())
        dialog.open()
