"""The page for plans: checks, the planner, applying and going back, and what is said when something is missing."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.gui.plans.model import Place
from tests.support.planned_desk import tell_all, toy_service
from tests.unit.console.gui.plans.conftest import Opening, applied, cell, checked, choose, lanes_of


def test_what_runs_is_shown_and_an_edit_is_checked_at_once(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    assert shown.lanes() == ["0:4 1:8"]
    checked(shown, qtbot)
    assert "tokens/s for one answer" in shown.page.verdict.headline.text()
    assert "stays where it runs" in shown.page.verdict.difference.text()
    assert not shown.page.applying.apply.isEnabled(), "there is nothing to apply"
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    assert not shown.page.applying.apply.isEnabled(), "nobody said yet whether it can be"
    checked(shown, qtbot)
    assert shown.page.applying.apply.isEnabled()
    assert "3 layers move" in shown.page.verdict.difference.text()
    assert cell(shown, "id-0", 1) == "pipeline 1, layers 0\N{EN DASH}6"


def test_many_edits_in_a_row_are_checked_once(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.service.asked.clear()
    shown.page.lanes.select(Place(0, 0))
    for _ in range(5):
        shown.page.lanes.nudge(1)
    checked(shown, qtbot)
    assert [what for what, _ in shown.service.asked] == ["check"]


def test_a_plan_that_nobody_looks_at_is_checked_once_when_it_is_shown_again(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.page.hide()
    shown.service.asked.clear()
    for _ in range(3):
        shown.page._fleet = ()
        shown.tell()
        QApplication.processEvents()
    assert shown.service.asked == []
    shown.page.show()
    checked(shown, qtbot)
    assert [what for what, _ in shown.service.asked] == ["check"]


def test_an_answer_about_a_former_plan_is_not_taken_for_this_one(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.service.held = []
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    qtbot.waitUntil(lambda: len(shown.service.held or []) == 1)
    shown.page.lanes.nudge(-1)
    shown.service.held[0]()
    assert not shown.page.editor.is_checked
    qtbot.waitUntil(lambda: len(shown.service.held or []) == 2)
    shown.service.held[0]()
    assert not shown.page.editor.is_checked
    shown.service.held[1]()
    assert shown.page.editor.is_checked


def test_what_does_not_fit_is_said_in_words_and_cannot_be_applied(opening: Opening, qtbot: QtBot) -> None:
    service = toy_service(900, 250, 600)
    service.run([(0, 0, 8), (1, 8, 12)])
    shown = opening(service)
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(-6)
    checked(shown, qtbot)
    assert "\N{WARNING SIGN} pc-1 needs" in shown.page.verdict.faults.text()
    assert not shown.page.applying.apply.isEnabled()
    assert "pc-1 needs" in shown.page.lanes.sentence(Place(0, 1))
    shown.page.commands.undo.trigger()
    checked(shown, qtbot)
    assert not shown.page.verdict.faults.isVisible()


def test_the_planner_plans_with_the_selected_pcs_alone_and_says_why(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    said: list[tuple[str, bool]] = []
    shown.page.said.connect(lambda text, failed: said.append((text, failed)))
    choose(shown, "id-2", "id-3")
    shown.page.commands.plan_with.trigger()
    qtbot.waitUntil(lambda: bool(said))
    assert not said[0][1]
    assert {stage.device_id for stage in shown.page.editor.plan.lanes[0]} <= {"id-2", "id-3"}  # type: ignore[union-attr]  # opened
    checked(shown, qtbot)
    assert "alone" in shown.page.verdict.notes.text() or "fewest" in shown.page.verdict.notes.text()
    shown.page.commands.undo.trigger()
    assert shown.lanes() == ["0:4 1:8"]


def test_the_planner_that_finds_nothing_says_what_is_missing_and_changes_nothing(
    opening: Opening, qtbot: QtBot
) -> None:
    shown = opening(toy_service(120, 120))
    said: list[tuple[str, bool]] = []
    shown.page.said.connect(lambda text, failed: said.append((text, failed)))
    shown.page.commands.plan.trigger()
    qtbot.waitUntil(lambda: bool(said))
    assert said[0][1]
    assert "missing" in said[0][0]
    assert shown.lanes() == []


def test_a_stage_is_given_split_merged_and_pipelines_come_and_go(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.page.lanes.select(Place(0, 1))
    choose(shown, "id-2")
    commands = shown.page.commands
    commands.split.trigger()
    assert shown.lanes() == ["0:4 1:4 2:4"]
    choose(shown, "id-3")
    commands.give.trigger()
    assert shown.lanes() == ["0:4 3:4 2:4"]
    commands.merge.trigger()
    assert shown.lanes() == ["0:4 3:8"]
    choose(shown, "id-2")
    commands.add.trigger()
    assert shown.lanes() == ["0:4 3:8", "2:12"]
    assert not commands.add.isEnabled(), "it has a stage now"
    commands.remove.trigger()
    assert shown.lanes() == ["2:12"]
    assert not commands.remove.isEnabled()


def test_pcs_are_pinned_and_left_out_and_the_check_knows(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.page.lanes.select(Place(0, 0))
    shown.page.commands.pin.trigger()
    assert cell(shown, "id-0", 1) == "pipeline 1, layers 0\N{EN DASH}3, pinned"
    assert shown.page.commands.pin.isChecked()
    shown.page.commands.leave_out.trigger()
    checked(shown, qtbot)
    assert "left out" in cell(shown, "id-0", 1)
    assert "pc-0 is left out" in shown.page.verdict.faults.text()
    shown.page.commands.leave_out.trigger()
    checked(shown, qtbot)
    assert shown.page.editor.plan == shown.page.editor.live


def test_another_promise_is_checked_and_undone(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.page.context.setValue(2000)
    shown.page.streams.setValue(4)
    checked(shown, qtbot)
    asked = shown.service.asked[-1][1]
    assert (asked.context, asked.streams) == (2000, 4)
    shown.page.commands.undo.trigger()
    assert (shown.page.context.value(), shown.page.streams.value()) == (1000, 2)


def test_a_plan_is_applied_and_the_one_before_can_be_gone_back_to(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    checked(shown, qtbot)
    (text, failed), *_ = applied(shown, qtbot, wire.Ready("toy", 30.0))
    assert not failed
    assert "30 ms" in text
    asked = shown.service.asked[-1][1]
    assert asked.plan == [[wire.GivenStage("id-0", 0, 7), wire.GivenStage("id-1", 7, 12)]]
    shown.service.run([(0, 0, 7), (1, 7, 12)])
    shown.tell()
    checked(shown, qtbot)
    assert not shown.page.editor.is_changed
    back = shown.page.applying.back
    assert back.isVisible()
    back.click()
    assert shown.service.asked[-1][1].plan == [[wire.GivenStage("id-0", 0, 4), wire.GivenStage("id-1", 4, 12)]]
    qtbot.waitUntil(lambda: not shown.page.applying.is_running)


def test_a_plan_that_fails_says_why_and_stays_to_be_changed(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    checked(shown, qtbot)
    (text, failed), *_ = applied(shown, qtbot, wire.Broken("load", "pc-1 has not enough memory.", "id-1", "pc-1"))
    assert failed
    assert "What was served before stays" in text
    assert shown.lanes() == ["0:7 1:5"]
    assert not shown.page.applying.back.isVisible()
    assert shown.page.applying.apply.isEnabled()


def test_discarding_goes_back_to_what_runs_and_can_be_undone(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    shown.page.applying.discard.click()
    assert shown.lanes() == ["0:4 1:8"]
    shown.page.commands.undo.trigger()
    assert shown.lanes() == ["0:7 1:5"]


def test_what_runs_changes_an_untouched_plan_follows_and_an_edited_one_stays(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.service.run([(0, 0, 4), (2, 4, 12)])
    shown.tell()
    assert shown.lanes() == ["0:4 2:8"]
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(1)
    shown.service.run([(0, 0, 4), (3, 4, 12)])
    shown.tell()
    assert shown.lanes() == ["0:5 2:7"]
    checked(shown, qtbot)
    assert "Leaves: pc-3" in shown.page.verdict.difference.text()
    assert lanes_of(shown.page.editor.live) == ["0:4 3:8"]  # type: ignore[arg-type]  # it runs


def test_a_pc_that_goes_away_is_noticed_without_an_edit(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.service.away.add("id-1")
    shown.tell()
    qtbot.waitUntil(lambda: "pc-1 cannot be used now" in shown.page.verdict.faults.text())
    assert cell(shown, "id-1", 1) == "pipeline 1, layers 4\N{EN DASH}11, away"


def test_a_service_that_refuses_the_check_is_quoted_and_asked_again_when_it_is_heard_of(
    opening: Opening, qtbot: QtBot
) -> None:
    shown = opening()
    checked(shown, qtbot)
    shown.service.refuses = "toy takes at most 512 tokens."
    shown.page.refresh()
    qtbot.waitUntil(lambda: "at most 512" in shown.page.verdict.headline.text())
    assert not shown.page.applying.apply.isEnabled()
    shown.service.refuses = ""
    shown.tell()
    checked(shown, qtbot)
    assert "tokens/s" in shown.page.verdict.headline.text()


def test_a_model_that_is_not_deployed_says_how_to_begin(opening: Opening, qtbot: QtBot) -> None:
    shown = opening(toy_service(900, 700))
    assert "toy is not deployed" in shown.page.empty.text()
    assert cell(shown, "id-1", 1) == "", "nobody said yet whether it can be used"
    qtbot.waitUntil(lambda: cell(shown, "id-1", 1) == "free")
    assert shown.page.verdict.headline.text() == "There is no plan yet."
    assert not shown.page.verdict.faults.isVisible()
    choose(shown, "id-1")
    qtbot.waitUntil(shown.page.commands.add.isEnabled)
    shown.page.commands.add.trigger()
    checked(shown, qtbot)
    assert shown.lanes() == ["1:12"]
    assert shown.page.applying.apply.isEnabled()
    assert "Nothing of it runs now." in shown.page.verdict.difference.text()
    shown.page.applying.discard.click()
    assert shown.lanes() == []


def test_without_any_model_the_page_says_what_to_do(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    shown.desk.libraries._take([])
    assert not shown.page.states.is_content
    assert "build or add one" in shown.page.states.text.text()


def test_who_may_only_look_cannot_apply(opening: Opening, qtbot: QtBot) -> None:
    shown = opening(scopes=("view",))
    shown.page.lanes.select(Place(0, 0))
    shown.page.lanes.nudge(3)
    checked(shown, qtbot)
    assert not shown.page.applying.apply.isEnabled()


def test_rows_of_pcs_keep_their_selection_while_they_change(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    checked(shown, qtbot)
    choose(shown, "id-2")
    shown.service.away.add("id-3")
    shown.tell()
    shown.page.finder.setText("pc-2")
    assert shown.page.table.chosen() == ["id-2"]
    assert shown.page.table.model().rowCount() == 1
    shown.page.finder.clear()
    del shown.service.fleet[3]
    tell_all(shown.desk, shown.service)
    assert shown.page.table.chosen() == ["id-2"]
    assert shown.page.table.model().rowCount() == 3


def test_a_double_click_on_a_row_shows_the_pc(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    wanted: list[tuple[str, str]] = []
    shown.page.wants.connect(lambda page, what: wanted.append((page, what)))
    shown.page.table.doubleClicked.emit(shown.page.table.model().index(1, 0))
    shown.page.lanes.opened.emit("id-0")
    assert wanted == [("devices", "id-1"), ("devices", "id-0")]
    shown.page.select("id-1")
    assert shown.page.lanes.selected == Place(0, 1)


def test_everything_that_can_be_pressed_has_a_name_and_can_be_reached_by_keys(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    for button in shown.page.findChildren(QAbstractButton):
        if button.isVisible() and button.parent() is not shown.page.table:
            assert button.text() or button.accessibleName()
    for field in (shown.page.model, shown.page.finder, shown.page.context, shown.page.streams, shown.page.table):
        assert field.accessibleName()
        assert field.focusPolicy() & Qt.FocusPolicy.TabFocus
