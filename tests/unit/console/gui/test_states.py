"""console.gui.states: what was there stays while an error passes, and gives way to one that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from console.errors import ClientError, ServiceRefused, ServiceUnreachable
from console.gui.page import Desk
from console.gui.states import States

PASSES = [
    ServiceUnreachable("away"),
    ServiceRefused("sign in", status=401),
    ServiceRefused("broken", status=500),
    ServiceRefused("busy", status=503),
]
STAYS = [ServiceRefused("not yours", status=403), ServiceRefused("gone", status=404), ClientError("not understood")]


@pytest.fixture
def states(qtbot: QtBot) -> Iterator[States]:
    made = States(QLabel("content"))
    yield made
    made.deleteLater()


@pytest.mark.parametrize("error", PASSES, ids=str)
def test_content_that_came_outlives_an_error_that_passes(states: States, error: ClientError) -> None:
    states.show_error(error, lambda: None)
    assert states.text.text() == str(error)
    states.show_content()
    states.show_error(error, lambda: None)
    assert states.is_content


@pytest.mark.parametrize("error", STAYS, ids=str)
def test_an_error_that_does_not_pass_is_shown_in_the_place_of_what_came(states: States, error: ClientError) -> None:
    states.show_content()
    asked: list[bool] = []
    states.show_error(error, lambda: asked.append(True))
    assert states.text.text() == str(error)
    states.button.click()
    assert asked


def test_a_view_that_is_gone_is_told_nothing_by_a_feed_that_lives_on(quiet_desk: Desk, qtbot: QtBot) -> None:
    made = States(QLabel("content"))
    made.follow(quiet_desk.status)
    gone: list[object] = []
    made.destroyed.connect(lambda: gone.append(True))
    made.deleteLater()
    qtbot.waitUntil(lambda: bool(gone))
    quiet_desk.status._fail(ServiceUnreachable("away"))
