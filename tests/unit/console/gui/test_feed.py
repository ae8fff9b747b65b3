"""console.gui.feed: what is asked while an answer is on its way, without a service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from console import calls
from console.errors import ClientError
from console.gui.feed import Feed
from tests.support.asked import AskedBridge


@pytest.fixture
def bridge(qtbot: QtBot) -> Iterator[AskedBridge]:
    made = AskedBridge()
    yield made
    made.stop()


def test_an_answer_on_its_way_at_a_change_is_not_the_last_word(bridge: AskedBridge) -> None:
    feed = Feed(bridge, calls.status(), 3600.0)
    heard: list[object] = []
    feed.came.connect(heard.append)
    feed.watch()
    feed.now()
    feed.now()
    assert len(bridge.asked) == 1
    bridge.asked[0].on_answer("older than the change")
    assert len(bridge.asked) == 2
    bridge.asked[1].on_answer("newer")
    assert heard == ["older than the change", "newer"]
    assert len(bridge.asked) == 2


def test_a_failure_on_its_way_at_a_change_is_not_the_last_word(bridge: AskedBridge) -> None:
    feed = Feed(bridge, calls.status(), 3600.0)
    feed.now()
    feed.now()
    bridge.asked[0].on_failed(ClientError("no"))
    assert len(bridge.asked) == 2
    bridge.asked[1].on_answer("yes")
    assert (feed.latest, feed.error) == ("yes", None)


def test_who_begins_to_look_takes_the_answer_that_is_on_its_way(bridge: AskedBridge) -> None:
    feed = Feed(bridge, calls.status(), 3600.0)
    feed.watch()
    feed.watch()
    bridge.asked[0].on_answer("for both")
    assert len(bridge.asked) == 1


def test_a_feed_that_went_with_its_owner_hears_nothing(bridge: AskedBridge, qtbot: QtBot) -> None:
    owner = QObject()
    feed = Feed(bridge, calls.status(), 3600.0, owner)
    feed.now()
    gone: list[object] = []
    feed.destroyed.connect(lambda: gone.append(True))
    owner.deleteLater()
    qtbot.waitUntil(lambda: bool(gone))
    bridge.asked[0].on_answer("late")
    bridge.asked[0].on_failed(ClientError("late"))
    assert feed.latest is None
