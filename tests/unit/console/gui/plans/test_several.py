"""Several models and several pipelines on the page for plans, and what is chosen there."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.gui.plans.model import Place
from tests.support.planned_desk import toy_service
from tests.unit.console.gui.plans.conftest import Opening, applied, checked, choose


def test_a_pipeline_that_waits_for_pcs_is_not_ended_by_applying_a_plan(opening: Opening, qtbot: QtBot) -> None:
    service = toy_service(900, 700, 600, 900)
    service.run([(0, 0, 4), (1, 4, 12)], [])
    shown = opening(service)
    checked(shown, qtbot)
    assert shown.lanes() == ["0:4 1:8"]
    assert "1 pipeline waits for PCs" in shown.page.verdict.faults.text()
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    checked(shown, qtbot)
    assert not shown.page.applying.apply.isEnabled()
    choose(shown, "id-3")
    shown.page.commands.add.trigger()
    checked(shown, qtbot)
    assert not shown.page.verdict.faults.isVisible()
    applied(shown, qtbot, wire.Ready("toy", 30.0))
    assert len(shown.service.asked[-1][1].plan) == 2
    back = shown.page.applying.back
    qtbot.waitUntil(back.isVisible)
    back.click()
    again = shown.service.asked[-1][1]
    assert (again.replicas, again.plan) == (2, []), "going back does not end it, either"
    qtbot.waitUntil(lambda: not shown.page.applying.is_running)


def test_a_model_whose_pipelines_all_wait_is_not_said_to_be_undeployed(opening: Opening, qtbot: QtBot) -> None:
    service = toy_service(900, 700)
    service.run([])
    shown = opening(service)
    assert shown.page.empty.text().startswith("toy waits for PCs.")
    shown.page.commands.plan.trigger()
    qtbot.waitUntil(lambda: bool(shown.lanes()))
    checked(shown, qtbot)
    assert shown.page.applying.apply.isEnabled()
    assert "Nothing of it runs now." in shown.page.verdict.difference.text()


def test_another_model_takes_nothing_away_that_was_changed(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.service.models = ["toy", "other"]
    shown.tell()
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    shown.page.select("other")
    assert shown.lanes() == []
    assert not shown.page.commands.undo.isEnabled(), "what was done to another model"
    choose(shown, "id-2")
    qtbot.waitUntil(shown.page.commands.add.isEnabled)
    shown.page.commands.add.trigger()
    shown.page.select("toy")
    assert shown.lanes() == ["0:7 1:5"]
    checked(shown, qtbot)
    assert shown.page.applying.apply.isEnabled()
    shown.page.commands.undo.trigger()
    assert shown.lanes() == ["0:4 1:8"]
    shown.page.commands.redo.trigger()
    shown.page.select("other")
    assert shown.lanes() == ["2:12"]
    shown.page.commands.undo.trigger()
    assert shown.lanes() == []


def test_the_wheel_does_not_bring_another_model(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.service.models = ["toy", "other"]
    shown.tell()
    middle = QPointF(shown.page.model.rect().center())
    wheel = QWheelEvent(
        middle, shown.page.model.mapToGlobal(middle), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(shown.page.model, wheel)
    assert shown.page.model.currentText() == "toy"


def test_while_a_plan_is_applied_the_model_stays(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.service.models = ["toy", "other"]
    shown.tell()
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    checked(shown, qtbot)
    shown.service.held = []
    shown.page.applying.apply.click()
    assert not shown.page.model.isEnabled()
    shown.page.select("other")
    assert shown.page.model.currentText() == "toy"
    shown.service.events = [wire.Ready("toy", 30.0)]
    shown.service.held.pop()()
    assert shown.page.model.isEnabled()
    assert shown.page.model.currentText() == "other", "what somebody wanted to see meanwhile"


def test_a_number_that_is_half_typed_stays_while_the_service_answers(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    field = shown.page.context.lineEdit()
    field.setText("20")
    shown.page.refresh()
    checked(shown, qtbot)
    shown.tell()
    assert field.text() == "20"


def test_the_pcs_that_were_chosen_last_are_pinned_whoever_has_the_focus(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    commands, plan = shown.page.commands, shown.page.editor
    shown.page.lanes.select(Place(0, 0))
    choose(shown, "id-2")
    shown.page.finder.setFocus()
    assert not shown.page.table.hasFocus()
    commands.pin.trigger()
    assert plan.plan.pinned == {"id-2"}  # type: ignore[union-attr]  # opened
    shown.page.lanes.select(Place(0, 1))
    shown.page.table.setFocus()
    commands.leave_out.trigger()
    assert plan.plan.excluded == {"id-1"}  # type: ignore[union-attr]  # opened


def test_a_whole_pipeline_that_goes_or_comes_is_in_the_difference(opening: Opening, qtbot: QtBot) -> None:
    service = toy_service(900, 700, 900)
    service.run([(0, 0, 4), (1, 4, 12)], [(2, 0, 12)])
    shown = opening(service)
    shown.page.lanes.select(Place(0, 0))
    shown.page.commands.remove.trigger()
    checked(shown, qtbot)
    assert shown.lanes() == ["2:12"]
    assert shown.page.verdict.difference.text().splitlines()[0].startswith("No layer moves.")
    assert "Leaves: pc-0, pc-1." in shown.page.verdict.difference.text()
    choose(shown, "id-0")
    shown.page.commands.add.trigger()
    checked(shown, qtbot)
    assert "8 layers move" in shown.page.verdict.difference.text()
    assert "Leaves: pc-1." in shown.page.verdict.difference.text()
