"""Signing in and out, and staying in touch: the account, the page for it, and the models there are. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QStackedWidget

from console.access import Access
from console.chat.client import Model
from console.chat.errors import ChatError
from console.chat.window.answers import Answers
from console.chat.window.chatpage import ChatPage
from console.chat.window.desk import Desk
from console.chat.window.signin import SignInPage
from console.chat_link import ChatLink

MODELS_MS = 60_000
AWAY_MS = 5_000
"""How often it is asked which models there are, while the server answers and while it does not."""


class Signing(QObject):
    """Goes between the pages of `stack`: first the chats, then the one to sign in on. `stop` before the desk does."""

    said = Signal(str)
    trouble = Signal(str)

    def __init__(self, desk: Desk, answers: Answers, chats: ChatPage, form: SignInPage, stack: QStackedWidget) -> None:
        super().__init__(stack)
        self._desk, self._answers, self._chats, self._form, self._stack = desk, answers, chats, form, stack
        self._has_account = self._tries_now = self._reads_on = False
        self._asking = QTimer(self)
        self._asking.setSingleShot(True)
        self._asking.timeout.connect(desk.ask_models)
        desk.connection_changed.connect(self._connection)
        chats.wants_sign_in.connect(self.sign_in)
        form.signs_in.connect(self._tries)
        form.gives_up.connect(self._gives_up)

    def start(self, link: ChatLink | None) -> None:
        """Look for the account, or sign in with a link."""
        if link is None:
            self._desk.bridge.load_account(self._loaded)
        else:
            self._tries(link)

    def stop(self) -> None:
        """Ask for no models any more."""
        self._asking.stop()

    def sign_in(self, why: str = "") -> None:
        """Show the page to sign in on, and why it is shown."""
        self._reads_on = False
        self._form.set_busy(self._tries_now)
        self._form.say(why)
        self._stack.setCurrentWidget(self._form)
        self._form.link.setFocus()

    def sign_out(self) -> None:
        """Forget the account."""
        self._has_account = False
        self._answers.stop_all()
        self._asking.stop()
        self._desk.bridge.sign_out(self._signed_out)

    def _show_chats(self) -> None:
        self._stack.setCurrentIndex(0)

    def _loaded(self, access: Access | None, problem: ChatError | None) -> None:
        if access is None:
            self.sign_in(str(problem) if problem is not None else "")
        else:
            self._has_account = True
            self._desk.ask_models()

    def _tries(self, link: ChatLink) -> None:
        self._tries_now = True
        self._form.set_busy(True)
        self._desk.bridge.sign_in(link, self._signed_in, self._not_signed_in)

    def _signed_in(self, access: Access, models: list[Model], not_kept: str) -> None:
        self._has_account, self._tries_now = True, False
        self._form.set_busy(False)
        self._form.clear()
        self._show_chats()
        self._desk.take_models(models)
        self._chats.composer.field.setFocus()
        for_now = f" until this program ends: {not_kept}" if not_kept else ""
        self.said.emit(f"You are signed in at {access.url}{for_now}.")

    def _not_signed_in(self, error: ChatError) -> None:
        self._tries_now = False
        if self._reads_on:
            self._form.set_busy(False)
            self.trouble.emit(str(error))
        else:
            self.sign_in(str(error))

    def _gives_up(self) -> None:
        self._reads_on = True
        self._show_chats()
        if not self._has_account:
            self._chats.banner.show_signed_out()

    def _signed_out(self, stays: str) -> None:
        but = f", but {stays}" if stays else ""
        self.sign_in(f"You are signed out{but}. Your chats are still on this PC.")

    def _connection(self) -> None:
        problem = self._desk.problem
        if problem is not None and problem.kind == "key":
            self.sign_in(str(problem))
            return
        self._asking.start(MODELS_MS if problem is None else AWAY_MS)
