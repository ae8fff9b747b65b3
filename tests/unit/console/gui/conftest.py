"""Windows without a screen, and a desk before a real service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from console import calls
from console.access import Access
from console.api.admin import types as wire
from console.gui.bridge import Bridge
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from tests.support.console_thread import ConsoleThread, console_thread
from tests.support.windows import qapp, qtbot

__all__ = ["qapp", "qtbot"]

EVERY_S = 0.05


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    with console_thread(tmp_path_factory.mktemp("console")) as running:
        yield running


def desk_on(access: Access, folder: Path, me: wire.Me) -> Desk:
    bridge = Bridge(access)
    bridge.start()
    feeds = [Feed(bridge, call, EVERY_S, bridge) for call in (calls.status(), calls.agents(), calls.libraries())]
    return Desk(bridge, feeds[0], feeds[1], feeds[2], me, folder)


@pytest.fixture
def desk(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> Iterator[Desk]:
    """A desk before a real service, of its administrator."""
    made = desk_on(console.access(), tmp_path, wire.Me("", "", ["admin"]))
    yield made
    made.bridge.stop()


@pytest.fixture
def quiet_desk(tmp_path: Path, qtbot: QtBot) -> Iterator[Desk]:
    """A desk whose feeds hear what a test puts into them, and nothing else."""
    bridge = Bridge(Access("https://127.0.0.1:9", "nobody's"))
    feeds = [_Silent(bridge, call, 3600.0, bridge) for call in (calls.status(), calls.agents(), calls.libraries())]
    yield Desk(bridge, feeds[0], feeds[1], feeds[2], wire.Me("", "olga", ["admin"]), tmp_path)
    bridge.stop()


class _Silent(Feed):
    def now(self) -> None:
        """Ask nobody."""


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Callable[[Page], Page]]:
    """Show a page as the window would."""
    pages: list[Page] = []

    def show(page: Page) -> Page:
        pages.append(page)
        page.resize(1200, 800)
        page.show()
        return page

    yield show
    for page in pages:
        page.close()
        page.deleteLater()
