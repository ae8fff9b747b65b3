"""Every page of the window: what it asked for may come when it is gone, as after signing in as somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from console import calls
from console.api.admin import types as wire
from console.errors import ClientError
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from console.gui.pages import PAGES
from tests.support.asked import AskedBridge
from tests.support.shown_fleet import make_agent, make_fleet, make_status


@pytest.fixture
def bridge(qtbot: QtBot) -> Iterator[AskedBridge]:
    made = AskedBridge()
    yield made
    made.stop()


@pytest.mark.parametrize("kind", PAGES, ids=lambda kind: kind.name)
def test_a_page_that_is_gone_is_told_nothing_and_leaves_nothing_behind(
    kind: type[Page], bridge: AskedBridge, tmp_path: Path, qtbot: QtBot
) -> None:
    feeds = [Feed(bridge, call, 3600.0, bridge) for call in (calls.status(), calls.agents(), calls.libraries())]
    desk = Desk(bridge, feeds[0], feeds[1], feeds[2], wire.Me("", "olga", ["admin"]), tmp_path)
    for feed, answer in zip(feeds, (make_status(), make_fleet(8), []), strict=True):
        feed._take(answer)
    page = kind(desk)
    page.show()
    page.select(make_agent(1).device_id)
    page.refresh()
    page.hide()
    gone: list[object] = []
    page.destroyed.connect(lambda: gone.append(True))
    page.deleteLater()
    qtbot.waitUntil(lambda: bool(gone))
    assert bridge.asked
    for feed, answer in zip(feeds, (make_status(), make_fleet(9), []), strict=True):
        feed._take(answer)
        feed._fail(ClientError("late"))
    for one in bridge.asked:
        if one.call not in {feed.call for feed in feeds}:
            one.on_answer(object())
            one.on_failed(ClientError("late"))
    assert sorted(bridge.findChildren(Feed), key=id) == sorted(feeds, key=id)
