"""Plans against a real service with played PCs: made, checked, deployed, changed, and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from console import calls
from console.api.admin import types as wire
from console.gui.bridge import Bridge
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from console.gui.plans.model import Place
from console.gui.plans.page import PlansPage
from console.gui.plans.topology_page import TopologyPage
from tests.support.console_thread import ConsoleThread
from tests.support.played import PlayedPC
from tests.support.played_console import played_console

P = TypeVar("P", bound=Page)
Running = tuple[ConsoleThread, dict[str, PlayedPC]]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with played_console(tmp_path, "a", "b") as (console, pcs):
        yield console, pcs


@pytest.fixture
def desk(running: Running, qtbot: QtBot) -> Iterator[Desk]:
    bridge = Bridge(running[0].access())
    bridge.start()
    heard: list[wire.Me] = []
    bridge.ask(calls.who_am_i(), heard.append)
    qtbot.waitUntil(lambda: bool(heard))
    status, agents, libraries = (
        Feed(bridge, call, 0.1, bridge) for call in (calls.status(), calls.agents(), calls.libraries())
    )
    yield Desk(bridge, status, agents, libraries, heard[0])
    bridge.stop()
    bridge.deleteLater()  # with the feeds, whose timers must end in this thread


@contextmanager
def opened(page: P, qapp: QApplication) -> Iterator[P]:
    page.resize(1200, 800)
    page.show()
    yield page
    page.hide()
    page.deleteLater()
    qapp.processEvents()


def lanes(page: PlansPage) -> list[str]:
    plan = page.editor.plan
    return (
        []
        if plan is None
        else [
            " ".join(f"{page.editor.name_of(one.device_id)}{one.last - one.first}" for one in lane)
            for lane in plan.lanes
        ]
    )


def ended(page: PlansPage, how: type[wire.Ready | wire.Broken]) -> bool:
    rollout = page.applying.rollout
    return rollout is not None and isinstance(rollout.end, how)


def ready_to_plan(page: PlansPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: "is not deployed" in page.empty.text())
    qtbot.waitUntil(lambda: [row.texts[1] for row in page.pcs.items] == ["free", "free"])


def test_a_plan_is_made_by_hand_deployed_changed_and_taken_back(
    desk: Desk, running: Running, qtbot: QtBot, qapp: QApplication
) -> None:
    with opened(PlansPage(desk), qapp) as page:
        ready_to_plan(page, qtbot)
        page.context.setValue(256)
        page.commands.plan.trigger()
        qtbot.waitUntil(lambda: bool(lanes(page)))
        page.lanes.select(Place(0, 0))
        first = page.editor.plan.lanes[0][0].device_id  # type: ignore[union-attr]  # it was planned
        other = next(row.device_id for row in page.pcs.items if row.device_id != first)
        page.table.choose(other)
        page.commands.split.trigger()
        qtbot.waitUntil(page.applying.apply.isEnabled)
        made = lanes(page)
        page.applying.apply.click()
        qtbot.waitUntil(lambda: ended(page, wire.Ready), timeout=60_000)
        qtbot.waitUntil(lambda: page.editor.live == page.editor.plan)
        assert lanes(page) == made
        page.lanes.select(Place(0, 0))
        page.lanes.nudge(1)
        qtbot.waitUntil(page.applying.apply.isEnabled)
        assert "1 layer moves" in page.verdict.difference.text()
        page.applying.apply.click()
        qtbot.waitUntil(page.applying.back.isVisible, timeout=60_000)
        qtbot.waitUntil(lambda: not page.editor.is_changed)
        assert lanes(page) != made
        page.applying.back.click()
        qtbot.waitUntil(lambda: page.applying.is_running)
        qtbot.waitUntil(lambda: ended(page, wire.Ready), timeout=60_000)
        loads = [(load.first, load.last) for pc in running[1].values() for load in pc.loads]
        assert loads.count((0, 2)) == 2
        assert loads.count((0, 3)) == 1
    with opened(TopologyPage(desk), qapp) as drawn:
        qtbot.waitUntil(lambda: drawn.links.rowCount() == 3)
        assert drawn.links.model().index(0, 0).data() == "Console"


def test_a_pc_that_cannot_load_leaves_what_is_served_and_the_plan_to_be_changed(
    desk: Desk, running: Running, qtbot: QtBot, qapp: QApplication
) -> None:
    pcs = running[1]
    with opened(PlansPage(desk), qapp) as page:
        ready_to_plan(page, qtbot)
        page.table.choose(pcs["a"].agent.device_id)
        page.context.setValue(256)
        page.commands.add.trigger()
        qtbot.waitUntil(page.applying.apply.isEnabled)
        page.applying.apply.click()
        qtbot.waitUntil(lambda: ended(page, wire.Ready), timeout=60_000)
        qtbot.waitUntil(lambda: page.editor.live == page.editor.plan)
        before = lanes(page)
        for pc in pcs.values():
            pc.fails = "memory"
        try:
            page.lanes.select(Place(0, 0))
            page.table.choose(pcs["b"].agent.device_id)
            page.commands.split.trigger()
            qtbot.waitUntil(page.applying.apply.isEnabled)
            page.applying.apply.click()
            qtbot.waitUntil(lambda: ended(page, wire.Broken), timeout=60_000)
        finally:
            for pc in pcs.values():
                pc.fails = ""
        assert "has not enough memory" in page.applying.text.text()
        assert lanes(page) != before
        assert page.editor.is_changed
