"""A page of plans on a desk without a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from PySide6.QtCore import QItemSelectionModel
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.gui.page import Desk
from console.gui.plans.model import Edited
from console.gui.plans.page import PlansPage
from console.registry.records import Scope
from tests.support.planned_desk import ToyService, tell_all, toy_desk, toy_service


@dataclass
class Shown:
    """A page in sight that has heard everything."""

    page: PlansPage
    desk: Desk
    service: ToyService

    def lanes(self) -> list[str]:
        """Return the plan like "0:4 1:8": PCs by their place in the fleet, with so many layers."""
        plan = self.page.editor.plan
        assert plan is not None
        return lanes_of(plan)

    def tell(self) -> None:
        tell_all(self.desk, self.service)


def lanes_of(plan: Edited) -> list[str]:
    return [
        " ".join(f"{one.device_id.removeprefix('id-')}:{one.last - one.first}" for one in lane) for lane in plan.lanes
    ]


def checked(shown: Shown, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: shown.page.editor.is_checked)


def choose(shown: Shown, *device_ids: str) -> None:
    table = shown.page.table
    table.clearSelection()
    for device_id in device_ids:
        row = shown.page.pcs.row_of(device_id)
        assert row is not None
        flags = QItemSelectionModel.SelectionFlag
        table.selectionModel().setCurrentIndex(shown.page.pcs.index(row, 0), flags.Select | flags.Rows)


def cell(shown: Shown, device_id: str, column: int) -> str:
    return next(row for row in shown.page.pcs.items if row.device_id == device_id).texts[column]


def applied(shown: Shown, qtbot: QtBot, last: wire.DeployEvent) -> list[tuple[str, bool]]:
    said: list[tuple[str, bool]] = []
    shown.page.said.connect(lambda text, failed: said.append((text, failed)))
    stages = [wire.PlannedStage(0, "id-0", "pc-0", 0, 12)]
    shown.service.events = [wire.Planned(stages, [], 2), wire.Loading(0, "pc-0", "fetch", 1, 2), last]
    shown.page.applying.apply.click()
    assert not shown.page.applying.apply.isEnabled()
    qtbot.waitUntil(lambda: bool(said))
    return said


Opening = Callable[..., Shown]


@pytest.fixture
def opening(qtbot: QtBot, qapp: QApplication) -> Iterator[Opening]:
    """Open a page: the toy service, and the scopes of who looks."""
    opened: list[PlansPage] = []

    def begin(service: ToyService | None = None, scopes: tuple[Scope, ...] = ("admin",)) -> Shown:
        if service is None:
            service = toy_service(900, 700, 600, 500)
            service.run([(0, 0, 4), (1, 4, 12)])
        with toy_desk(service, scopes) as desk:
            page = PlansPage(desk)
            opened.append(page)
            page.resize(1200, 800)
            page.show()
            shown = Shown(page, desk, service)
            shown.tell()
            return shown

    yield begin
    for page in opened:
        page.hide()
        page.deleteLater()
    qapp.processEvents()
