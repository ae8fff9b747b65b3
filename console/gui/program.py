"""The console's window without its process: connection, sign-in and pages brought together."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from PySide6.QtCore import QObject, QSettings, Qt, QTimer
from PySide6.QtWidgets import QMenu

from agent.look.loop import Job, stop_all
from agent.threads import finish_in_thread
from console import calls
from console.access import access_of
from console.api.admin import types as wire
from console.errors import ClientError, ServiceRefused
from console.gui.bridge import EXPIRED, Bridge
from console.gui.connecting import Connecting, Entry
from console.gui.feed import Feed
from console.gui.kept import KeptTokens
from console.gui.page import Desk, Page
from console.gui.places import PlaceFile, default_settings_folder
from console.gui.programs import Programs
from console.gui.signing_in import SignInDialog
from console.gui.times import age_text
from console.gui.window import Window

STATUS_EVERY_S, AGENTS_EVERY_S, LIBRARIES_EVERY_S = 2.0, 5.0, 10.0
TICK_MS = 1000


class ConsoleProgram(QObject):
    """GUI thread. `start`, then the application runs; `stop` before it ends."""

    def __init__(
        self,
        folder: Path,
        settings: QSettings,
        pages: Sequence[type[Page]],
        *,
        settings_folder: Path | None = None,
        kept: KeptTokens | None = None,
        programs: Programs | None = None,
    ) -> None:
        super().__init__()
        self._page_types = pages
        self._settings_folder = settings_folder or default_settings_folder()
        self._places = PlaceFile(self._settings_folder)
        self._kept = kept or KeptTokens()
        self._programs = programs or Programs(folder)
        self._entry: Entry | None = None
        self._trouble = self._signed_out = ""
        self.desk: Desk | None = None
        self.dialog: SignInDialog | None = None
        self.window = Window(settings)
        self.window.wants_service.connect(self._show_menu)
        self._connecting = Connecting(folder, self._kept, self)
        self._connecting.came.connect(self._enter)
        self._connecting.failed.connect(self._stay_out)
        self._ticking = QTimer(self)
        self._ticking.setInterval(TICK_MS)
        self._ticking.timeout.connect(self._show_trouble)

    def start(self) -> None:
        """Show the window, and connect with the service it was connected with last."""
        self.window.show()
        place = self._places.read()
        if not place.url:
            self.window.show_outside("Connecting with the service on this PC…", "")
            self._connecting.here()
        elif place.stay:
            self.window.show_outside(f"Connecting with {place.url}…", "")
            self._connecting.again(place)
        else:
            self.window.show_outside("Not connected", "")
            self.ask()

    def stop(self) -> None:
        """Let go of the service."""
        self._ticking.stop()
        if self.dialog is not None:
            self.dialog.reject()
        self._connecting.stop()
        self._leave()
        stop_all()
        self.window.close()

    def ask(self, again: str = "", *, nobody_here: bool = False) -> None:
        """Open the dialog, over whatever is shown; what is shown stays."""
        if self.dialog is None:
            place = self._entry.place if self._entry else self._places.read()
            self.dialog = SignInDialog(self._programs, self._kept, place, again, self.window, nobody_here=nobody_here)
            self.dialog.entered.connect(self._enter)
            self.dialog.finished.connect(self._forget_dialog)
        self.dialog.open()

    def log_out(self) -> None:
        """End the session, and forget its token."""
        if self.desk is None or self._entry is None:
            return
        self.desk.bridge.ask(calls.log_out(), lambda _: self._left(), self._not_logged_out)

    def _enter(self, entry: Entry) -> None:
        """Go in, or on where a sign-in had ended."""
        former, self._entry = self._entry, entry
        self._signed_out = ""
        desk = self.desk
        if desk is not None and former is not None and _is_same(former, entry):
            desk.bridge.use(entry.access)
            desk.me = entry.me
            if former.me.scopes != entry.me.scopes:
                self._show_pages(desk)
            self._found()
        else:
            self._leave()
            self._open(entry)
        self._remember(entry)
        if entry.not_kept:
            self.window.say(f"You are signed in until you close the window: {entry.not_kept}.", True)

    def _open(self, entry: Entry) -> None:
        bridge = Bridge(entry.access, self)
        bridge.lost.connect(self._lose)
        bridge.found.connect(self._found)
        bridge.expired.connect(self._expire)
        self.desk = Desk(
            bridge,
            Feed(bridge, calls.status(), STATUS_EVERY_S, bridge),
            Feed(bridge, calls.agents(), AGENTS_EVERY_S, bridge),
            Feed(bridge, calls.libraries(), LIBRARIES_EVERY_S, bridge),
            entry.me,
            self._settings_folder,
            None if entry.place.url else self._programs,
        )
        bridge.start()
        self._show_pages(self.desk)
        self._show_service(None)
        # Watched whatever is in sight: whether the service answers, and what waits for somebody.
        self.desk.status.came.connect(self._show_service)
        self.desk.status.watch()
        self.desk.agents.watch()

    def _show_pages(self, desk: Desk) -> None:
        self.window.show_pages([kind(desk) for kind in self._page_types if desk.may(kind.scope)])

    def _leave(self) -> None:
        """Show no page any more, and let go of the service."""
        desk, self.desk = self.desk, None
        self._trouble = self._signed_out = ""
        self._ticking.stop()
        if desk is not None:
            self.window.show_outside("Not connected", "")
            self.window.show_trouble("")
            self.window.show_service("", reachable=False)
            desk.bridge.stop_soon()

    def _not_logged_out(self, error: ClientError) -> None:
        if isinstance(error, ServiceRefused) and error.status == EXPIRED:
            self._left()  # that session was over already
        else:
            self._left(f"{error} The sign-in is forgotten here, but lasts at the service until it ends by itself.")

    def _left(self, but: str = "") -> None:
        """Forget the token, then the service; `but` is said then."""
        entry, self._entry = self._entry, None
        desk = self.desk
        if desk is None or entry is None:
            return

        def leave() -> None:
            self._leave()
            if but:
                self.window.show_outside("Not connected", but)

        async def forget(job: Job) -> None:
            await self._kept.forget(entry.place.url)
            desk.bridge.post(job.guard(leave))

        desk.bridge.begin(forget)

    def _stay_out(self, why: str, unreachable: bool) -> None:
        if self.desk is None:
            self.window.show_outside("Not connected", why)
            self.ask(why, nobody_here=unreachable)

    def _expire(self, why: str) -> None:
        if self._entry is not None and not self._entry.place.url:
            if not self._connecting.is_busy:
                self._connecting.here()  # the service may have made itself a new key; whoever may read it is in again
        elif self._entry is not None and not self._signed_out:
            # Once: every question of the pages is refused now, and who closes the dialog wants to see what is there.
            self._signed_out = why
            self._show_trouble()
            self._ticking.start()
            self.ask(f"{why} What the window shows stays.")

    def _lose(self, why: str) -> None:
        self._trouble = why
        self._show_trouble()
        self._ticking.start()

    def _found(self) -> None:
        self._trouble = ""
        if not self._signed_out:
            self._ticking.stop()
        self._show_trouble()

    def _show_trouble(self) -> None:
        desk = self.desk
        if desk is None:
            return
        age_s = desk.status.age_s
        goes_on = "; it goes on by itself" if self._trouble and not self._signed_out else ""
        shown = f" What you see is {age_text(age_s)} old{goes_on}." if age_s is not None else ""
        trouble = self._trouble or self._signed_out
        self.window.show_trouble(f"{trouble}{shown}" if trouble else "")
        self._show_service(desk.status.latest)
        if self._trouble and self._entry is not None and not self._entry.place.url:
            self._look_for_new_address(self._entry)

    def _look_for_new_address(self, entry: Entry) -> None:
        """A service on this PC that was started again may have other ports and another key."""
        if self._connecting.is_busy:
            return
        with contextlib.suppress(ClientError):
            if access_of(self._programs.folder) != entry.access:
                self._connecting.here()

    def _show_service(self, status: wire.Status | None) -> None:
        desk = self.desk
        if desk is None:
            return
        who = desk.me.user or ("administrator of this PC" if not _url(self._entry) else "API key")
        version = f", version {status.version}" if status is not None else ""
        where = urlsplit(desk.bridge.access.url).netloc
        self.window.show_service(f"{where}{version} · {who}", reachable=not self._trouble and status is not None)

    def _show_menu(self) -> None:
        if self.desk is None:
            self.ask()
            return
        menu = QMenu(self.window)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("&Connect with another service…", self.ask)
        if self.desk.me.user:
            menu.addAction("&Log out", self.log_out)
        button = self.window.service
        menu.popup(button.mapToGlobal(button.rect().topLeft()))

    def _remember(self, entry: Entry) -> None:
        if self.desk is not None:

            async def write(_: Job) -> None:
                await finish_in_thread(lambda: self._places.write(entry.place))

            self.desk.bridge.begin(write)

    def _forget_dialog(self) -> None:
        if self.dialog is not None:
            self.dialog.deleteLater()
            self.dialog = None


def _url(entry: Entry | None) -> str:
    return entry.place.url if entry is not None else ""


def _is_same(former: Entry, entry: Entry) -> bool:
    """Whether both are ways to the same service."""
    return (former.place.url, former.place.authority) == (entry.place.url, entry.place.authority)
