"""console.gui.overview.tour and its view: three steps, what is done of them, and an end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.gui.overview.page import OverviewPage
from console.gui.overview.tour import CHAT, tour
from console.gui.overview.tour_view import TourView
from console.gui.page import Desk, Page
from tests.support.shown_fleet import make_fleet, make_pipeline, make_status

LIBRARY = wire.Library("a" * 64, "small", "/srv/small", 1.0)
ANSWERED = msgspec.structs.replace(make_pipeline("small"), endings={"stop": 1})
EMPTY = make_status([])


def done(status: wire.Status, agents: list[wire.Agent], libraries: list[wire.Library]) -> list[bool]:
    return [step.done for step in tour(status, agents, libraries)]


def test_each_step_is_done_once_it_was_seen_to_work() -> None:
    waiting = [msgspec.structs.replace(agent, state="pending") for agent in make_fleet(1)]
    active = [msgspec.structs.replace(agent, state="active") for agent in make_fleet(1)]
    served = make_status([msgspec.structs.replace(make_pipeline("small"), endings={})])
    assert done(EMPTY, [], []) == [False, False, False]
    assert done(EMPTY, waiting, []) == [False, False, False]
    assert done(EMPTY, active, [LIBRARY]) == [True, False, False]
    assert done(served, active, [LIBRARY]) == [True, True, False]
    assert done(make_status([ANSWERED]), active, [LIBRARY]) == [True, True, True]


def test_a_library_that_is_there_is_deployed_instead_of_built() -> None:
    assert tour(EMPTY, [], [])[1][3:] == ("Build a model", "models", "")
    assert tour(EMPTY, [], [LIBRARY])[1][3:] == ("Deploy a model", "models", "small")


def test_the_steps_lead_on_and_are_gone_when_all_are_done_or_they_are_hidden(tmp_path: Path, qtbot: QtBot) -> None:
    view = TourView(tmp_path / "settings")
    qtbot.addWidget(view)
    wanted: list[tuple[str, str]] = []
    view.wants.connect(lambda *what: wanted.append(what))
    view.show_steps(tour(EMPTY, [], [LIBRARY]))
    assert view.isVisible()
    for button in view.buttons:
        button.click()
    assert wanted == [("invites", ""), ("models", "small"), (CHAT, "")]
    assert view.texts[0].accessibleName().startswith("Invite PCs: to do")
    view.show_steps(tour(make_status([ANSWERED]), make_fleet(8), [LIBRARY]))
    assert not view.isVisible()
    view.show_steps(tour(EMPTY, [], []))
    view.hide_button.click()
    assert not view.isVisible()
    again = TourView(tmp_path / "settings")
    qtbot.addWidget(again)
    again.show_steps(tour(EMPTY, [], []))
    assert not again.is_wanted


def test_while_the_steps_are_shown_no_hint_repeats_them(
    quiet_desk: Desk, shown: Callable[[Page], Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bool] = []

    def open_chat() -> bool:
        opened.append(True)
        return True

    monkeypatch.setattr("console.gui.handing.open_chat", open_chat)
    page = OverviewPage(quiet_desk)
    monkeypatch.setattr(page.performance, "now", lambda: None)
    shown(page)
    quiet_desk.agents._take([])
    quiet_desk.libraries._take([])
    quiet_desk.status._take(EMPTY)
    assert page.tour.isVisible()
    assert not [line for line in page.alerts.lines if line.isVisibleTo(page)]
    page.tour.buttons[2].click()
    assert opened
    page.tour.hide_button.click()
    quiet_desk.status._take(make_status([]))
    assert [line.button.text() for line in page.alerts.lines if line.isVisibleTo(page)] == [
        "Invite PCs",
        "Build a model",
    ]
