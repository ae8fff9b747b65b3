"""The admin's window with its process left out, and a service whose people sign in: for tests of both together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from PySide6.QtCore import QSettings

from console.access import Access
from console.gui.kept import KeptTokens
from console.gui.page import Desk, Page
from console.gui.program import ConsoleProgram
from console.gui.programs import Programs
from console.registry.audit import CONSOLE
from console.registry.records import Role
from console.service import ConsoleService
from tests.support.console_thread import ConsoleThread, console_thread

PASSWORD = "a long enough password"


class PlainPage(Page):
    """A page with a field somebody types in."""

    name = "plain"
    heading = "Plain"
    icon = "overview"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, desk.status)
        self.found = 0

    def search(self) -> None:
        self.found += 1


class OwnersPage(Page):
    name = "owners"
    heading = "For owners"
    icon = "people"
    scope = "admin"

    def select(self, what: str) -> None:
        self.selected = what


@contextlib.contextmanager
def peopled_console(folder: Path) -> Iterator[ConsoleThread]:
    """Run a service that has an owner, an operator and a user."""
    with console_thread(folder) as running:
        roles: dict[str, Role] = {"olga": "owner", "otto": "operator", "uma": "user"}
        for name, role in roles.items():
            running.service._registry.users.create(name, role, PASSWORD)
        yield running


@contextlib.contextmanager
def program_on(
    folder: Path,
    settings_folder: Path,
    *,
    programs: Programs | None = None,
    pages: Sequence[type[Page]] = (PlainPage, OwnersPage),
    kept: KeptTokens | None = None,
) -> Iterator[ConsoleProgram]:
    settings = QSettings(str(settings_folder / "geometry.ini"), QSettings.Format.IniFormat)
    program = ConsoleProgram(
        folder,
        settings,
        pages,
        settings_folder=settings_folder,
        kept=kept or KeptTokens(lambda: None),
        programs=programs,
    )
    program.start()
    try:
        yield program
    finally:
        program.stop()
        program.window.deleteLater()
        program.deleteLater()


def sign_in(program: ConsoleProgram, access: Access, name: str, secret: str, *, key: bool = False) -> None:
    dialog = program.dialog
    assert dialog is not None
    dialog.there.setChecked(True)
    dialog.address.setText(access.url)
    dialog.authority.setText(str(access.authority or ""))
    dialog.sign_in.setCurrentIndex(dialog.sign_in.findData("key" if key else "password"))
    dialog.user.setText(name)
    dialog.secret.setText(secret)
    dialog.connect_button.click()


def session_of(console: ConsoleThread, name: str) -> str:
    """Log somebody in without the route, which counts attempts."""

    async def open_session(service: ConsoleService) -> str:
        opened = await asyncio.to_thread(service._registry.sessions.open, name, PASSWORD)
        assert opened is not None
        return opened[1]

    return console.call(open_session)


def end_session(console: ConsoleThread, token: str) -> None:
    """End somebody's session from elsewhere."""

    async def end(service: ConsoleService) -> None:
        principal = service._registry.authenticate(token)
        assert principal is not None
        service._registry.sessions.close(principal.session_id, CONSOLE)

    console.call(end)
