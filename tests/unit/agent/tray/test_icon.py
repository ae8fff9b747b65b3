"""agent.tray.icon: with a tray, without one, and with one that comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from PySide6.QtWidgets import QSystemTrayIcon

from agent.tray import icon as icon_module
from agent.tray.actions import Actions
from agent.tray.bridge import Bridge
from agent.tray.commands import Commands
from agent.tray.icon import TrayIcon
from agent.tray.texts import Texts
from agent.tray.view import Shown

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot


@pytest.fixture
def make_icon(bridge: Bridge, texts: Texts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TrayIcon]]:
    """Make an icon that looks often; `available` says whether there is a tray."""
    monkeypatch.setattr(icon_module, "LATER_MS", 1)
    made: list[TrayIcon] = []

    def make(available: Callable[[], bool]) -> TrayIcon:
        icon = TrayIcon(Actions(Commands(bridge, texts), texts), texts, available=available, look_ms=1)
        icon.follow(Shown("waiting", "Waiting", "You are using this PC.", "Starts in 5 min."))
        made.append(icon)
        return icon

    yield make
    for icon in made:
        icon.stop()


def test_without_a_tray_it_gives_up_after_a_minute_and_says_so_once(
    make_icon: Callable[..., TrayIcon], qtbot: QtBot
) -> None:
    looks: list[bool] = []
    said: list[bool] = []

    def no_tray() -> bool:
        looks.append(True)
        return False

    icon = make_icon(no_tray)
    icon.without_tray.connect(lambda: said.append(True))
    icon.start()
    qtbot.waitUntil(lambda: len(looks) > icon_module.LOOKS + 5)
    assert said == [True]
    assert icon_module.LOOKS * icon_module.LOOK_MS == 60_000


def test_a_tray_that_comes_late_gets_the_icon(make_icon: Callable[..., TrayIcon], qtbot: QtBot) -> None:
    answers = iter([False] * 5)
    icon = make_icon(lambda: next(answers, True))
    icon.start()
    assert not icon.shown
    qtbot.waitUntil(lambda: icon.shown)
    assert icon.icon.isVisible()


def test_a_tray_that_was_restarted_gets_it_again(make_icon: Callable[..., TrayIcon], qtbot: QtBot) -> None:
    there = [True]
    icon = make_icon(lambda: there[0])
    icon.start()
    there[0] = False
    qtbot.waitUntil(lambda: not icon.shown)
    there[0] = True
    qtbot.waitUntil(lambda: icon.shown)


def test_the_menu_begins_with_the_reason_and_when_it_ends(make_icon: Callable[..., TrayIcon]) -> None:
    icon = make_icon(lambda: False)
    said = [action.text() for action in icon.menu.actions()[:2]]
    assert said == ["You are using this PC.", "Starts in 5 min."]
    assert icon.icon.toolTip() == "Fallow: You are using this PC. Starts in 5 min."


@pytest.mark.parametrize(
    ("reason", "opens"),
    [
        (QSystemTrayIcon.ActivationReason.Trigger, True),
        (QSystemTrayIcon.ActivationReason.DoubleClick, True),
        (QSystemTrayIcon.ActivationReason.Context, False),
        (QSystemTrayIcon.ActivationReason.MiddleClick, False),
    ],
)
def test_a_click_opens_the_window_and_a_right_click_the_menu(
    make_icon: Callable[..., TrayIcon], reason: QSystemTrayIcon.ActivationReason, opens: bool
) -> None:
    icon = make_icon(lambda: True)
    clicks: list[bool] = []
    icon.clicked.connect(lambda: clicks.append(True))
    icon.icon.activated.emit(reason)
    assert bool(clicks) is opens
