"""The chat window for tests: a scripted model served by a thread, and a window that is signed in there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from keyring.backend import KeyringBackend
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot
from starlette.types import ASGIApp

from console.chat.account import Account
from console.chat.window.desk import Desk
from console.chat.window.message import MessageView
from console.chat.window.window import ChatWindow
from console.chat_link import ChatLink
from tests.support.api import CHAT_KEY, ScriptedModel, Step, serving
from tests.support.patience import PATIENCE_S


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of a library without types
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class ServerThread:
    """Serves an application until `end`; events that a script waits for are set with `call`."""

    def __init__(self, app: ASGIApp) -> None:
        self.url = ""
        self.loop = asyncio.new_event_loop()
        self._app = app
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="server of a test")

    def begin(self) -> None:
        self._thread.start()
        assert self._started.wait(PATIENCE_S)

    def end(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(PATIENCE_S)

    def set(self, event: asyncio.Event) -> None:
        self.loop.call_soon_threadsafe(event.set)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with serving(self._app) as self.url:
            self._started.set()
            await self._stopping.wait()


@contextlib.contextmanager
def served(app: ASGIApp) -> Iterator[ServerThread]:
    """Serve an application in a thread."""
    server = ServerThread(app)
    server.begin()
    try:
        yield server
    finally:
        server.end()


@contextlib.contextmanager
def chat_window(folder: Path, ring: Ring | None = None) -> Iterator[ChatWindow]:
    """Show a chat window on a folder; it is closed and everything is kept at the end."""
    keyring = ring or Ring()
    desk = Desk(folder, Account(folder, lambda: keyring))
    window = ChatWindow(desk, QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat))
    window.resize(1000, 700)
    window.start()
    window.bring_up()
    try:
        yield window
    finally:
        window.close()
        desk.stop()
        window.deleteLater()


def sign_in(window: ChatWindow, qtbot: QtBot, url: str, key: str = CHAT_KEY) -> None:
    """Sign in as people do, and wait for the models."""
    qtbot.waitUntil(lambda: window.stack.currentWidget() is window.signin)
    window.signin.link.setText(ChatLink(url, key).text())
    window.signin.go.click()
    qtbot.waitUntil(lambda: bool(window.desk.models) and window.desk.is_loaded)


def send(window: ChatWindow, text: str) -> None:
    """Type and send."""
    window.page.composer.field.setPlainText(text)
    window.page.composer.send()


def ended(window: ChatWindow, qtbot: QtBot) -> None:
    """Wait until no answer comes any more."""
    qtbot.waitUntil(lambda: not window.answers.running)


class Talk:
    """A served model and the window that is signed in there."""

    def __init__(self, model: ScriptedModel, server: ServerThread, window: ChatWindow, qtbot: QtBot) -> None:
        self.model, self.server, self.window, self.qtbot = model, server, window, qtbot

    def ask(self, text: str = "Hi", script: Sequence[Step] | None = None) -> None:
        if script is not None:
            self.model.script = list(script)
        send(self.window, text)
        ended(self.window, self.qtbot)

    def texts(self) -> list[str]:
        return [message.text for message in self.window.desk.branch]

    def view(self, place: int) -> MessageView:
        message = self.window.desk.branch[place]
        self.window.page.thread_.focus_message(message.id)
        view = self.window.page.thread_.view_of(message.id)
        assert view is not None
        return view
