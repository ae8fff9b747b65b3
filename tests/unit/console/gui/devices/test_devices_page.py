"""console.gui.devices: the table follows a fleet without moving, and what is ordered reaches a real service."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QTableWidget, QWidget
from pytestqt.qtbot import QtBot
from sqlalchemy import update

from agent.link.identity import DeviceId
from console.api.admin import types as wire
from console.gui.asking import Question
from console.gui.devices.fleet import COLUMNS, NAME_COLUMN, Filter, parts_of
from console.gui.devices.model import DeviceModel
from console.gui.devices.page import DevicesPage
from console.gui.page import Desk, Page
from console.gui.rows import KEY_ROLE
from console.registry.devices import DeviceRequest
from console.registry.models import DeviceRow
from console.service import ConsoleService
from tests.support.console_thread import ConsoleThread
from tests.support.shown_fleet import device_id, make_agent, make_fleet, make_pipeline, make_status

Show = Callable[[Page], Page]


def change(agent: wire.Agent, **fields: Any) -> wire.Agent:
    return msgspec.structs.replace(agent, **fields)


@pytest.fixture
def model(qtbot: QtBot) -> DeviceModel:
    made = DeviceModel(now_s=lambda: 0.0)
    made.sort(NAME_COLUMN)
    made.take(make_fleet(16))
    return made


def test_the_model_is_one_that_views_can_trust(model: DeviceModel) -> None:
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    fleet = make_fleet(24)
    model.take(fleet)
    model.show_only(Filter("held"))
    assert model.rowCount() == 3
    model.take([change(agent, held_because=["user_input"]) for agent in fleet[3:20:2]])
    model.take_parts(parts_of([make_pipeline()]))
    model.show_only(Filter())
    model.sort(6)
    assert model.rowCount() == len([agent for agent in fleet[3:20:2] if agent.state != "evicted"])
    tester.deleteLater()


def test_a_selected_row_stays_selected_when_it_is_sorted_elsewhere(model: DeviceModel) -> None:
    place = QPersistentModelIndex(model.index(3, 1))
    model.sort(NAME_COLUMN, Qt.SortOrder.DescendingOrder)
    assert place.data() == "pc-0003"
    assert place.row() == model.rowCount() - 1 - 3
    names = [model.index(row, 1).data() for row in range(model.rowCount())]
    assert names == sorted(names, reverse=True)


def test_only_what_differs_is_touched_and_nothing_is_reset(model: DeviceModel) -> None:
    touched: list[tuple[int, int]] = []
    resets: list[bool] = []
    model.dataChanged.connect(lambda first, last, _: touched.append((first.row(), last.row())))
    model.modelReset.connect(lambda: resets.append(True))
    fleet = make_fleet(16)
    fleet[3], fleet[4], fleet[9] = (change(fleet[row], memory_free_bytes=1) for row in (3, 4, 9))
    seen = [change(new, seen_s=old.seen_s) for new, old in zip(fleet, model.items, strict=True)]
    model.take(seen)
    assert touched == [(3, 4), (8, 8)]  # one above is not shown
    model.take(seen)
    assert len(touched) == 2
    model.take_parts(parts_of([make_pipeline(devices=2)]))
    assert touched[2:] == [(0, 1)]
    assert not resets


def test_many_changes_that_lie_apart_are_told_at_once(qtbot: QtBot) -> None:
    model = DeviceModel()
    fleet = make_fleet(200)
    model.take(fleet)
    touched: list[tuple[int, int]] = []
    model.dataChanged.connect(lambda first, last, _: touched.append((first.row(), last.row())))
    model.take([change(agent, memory_free_bytes=row % 2) for row, agent in enumerate(fleet)])
    assert len(touched) < 40


def test_a_screen_reader_hears_the_heading_with_each_cell(model: DeviceModel) -> None:
    said = [model.index(3, column).data(Qt.ItemDataRole.AccessibleTextRole) for column in range(len(COLUMNS))]
    assert said[:3] == ["Status: Held", "Name: pc-0003", "Reason: somebody is using it"]
    assert all(text.startswith(f"{column.heading}: ") for text, column in zip(said, COLUMNS, strict=True))


def text_of(table: QTableWidget, row: int, column: int) -> str:
    item = table.item(row, column)
    return item.text() if item is not None else ""


def page_of(show: Show, desk: Desk) -> DevicesPage:
    page = show(DevicesPage(desk))
    assert isinstance(page, DevicesPage)
    return page


def test_rows_stay_where_they_are_with_selection_and_scroll_while_the_fleet_changes(
    quiet_desk: Desk, shown: Show, qtbot: QtBot
) -> None:
    page = page_of(shown, quiet_desk)
    quiet_desk.agents._take(make_fleet(400))
    quiet_desk.status._take(make_status())
    table = page.table
    qtbot.waitUntil(lambda: table.verticalScrollBar().maximum() > 0)
    table.selectRow(200)
    chosen = page.table.chosen()
    table.verticalScrollBar().setValue(190)
    order = [page.model.index(row, 0).data(KEY_ROLE) for row in range(page.model.rowCount())]
    for turn in range(3):
        quiet_desk.agents._take(
            [change(agent, memory_free_bytes=turn + row, name=agent.name) for row, agent in enumerate(make_fleet(400))]
        )
    assert page.table.chosen() == chosen
    assert table.verticalScrollBar().value() == 190
    assert [page.model.index(row, 0).data(KEY_ROLE) for row in range(page.model.rowCount())] == order


def test_status_chips_count_and_filter(quiet_desk: Desk, shown: Show) -> None:
    page = page_of(shown, quiet_desk)
    badges: list[str] = []
    page.badge.connect(badges.append)
    quiet_desk.agents._take(make_fleet(32))
    quiet_desk.status._take(make_status())
    assert page.chips["held"].text() == "Held 4"
    assert page.chips["serving"].text() == "Serving 3"
    assert page.chips[None].text() == "All 28"
    page.chips["held"].click()
    assert page.model.rowCount() == 4
    page.chips[None].click()
    assert page.model.rowCount() == 28
    assert badges == ["4"]
    quiet_desk.agents._take([])
    assert badges == ["4", ""]
    assert "No PC is in the fleet yet" in page.states.text.text()


def test_the_search_finds_and_a_saved_filter_brings_it_back(quiet_desk: Desk, shown: Show, qtbot: QtBot) -> None:
    page = page_of(shown, quiet_desk)
    quiet_desk.agents._take(make_fleet(32))
    page.chips["held"].click()
    page.words.setText("pc-0003")
    qtbot.waitUntil(lambda: page.model.rowCount() == 1)
    page.save_filter("the one")
    page.chips[None].click()
    page.words.clear()
    qtbot.waitUntil(lambda: page.model.rowCount() == 28)
    page.filters.setCurrentText("the one")
    page.filters.activated.emit(page.filters.currentIndex())
    assert page.model.rowCount() == 1
    page.forget.click()
    assert page.filters.isHidden()


def test_an_offline_pc_keeps_its_row_with_what_it_said_last(quiet_desk: Desk, shown: Show) -> None:
    page = page_of(shown, quiet_desk)
    agent = make_agent(1)
    quiet_desk.agents._take([agent])
    quiet_desk.agents._take([change(agent, link="offline", seen_s=1.0)])
    cells = [page.model.index(0, column).data() for column in range(len(COLUMNS))]
    assert cells[:2] == ["Offline", "pc-0001"]
    assert "17.2 GB" in cells[3]
    assert cells[12].endswith("days ago")


def test_a_pc_in_detail_links_to_its_model(quiet_desk: Desk, shown: Show, qtbot: QtBot) -> None:
    page = page_of(shown, quiet_desk)
    quiet_desk.agents._take(make_fleet(8))
    quiet_desk.status._take(make_status([make_pipeline("small")]))
    wanted: list[tuple[str, str]] = []
    page.wants.connect(lambda *what: wanted.append(what))
    page.select(device_id(1))
    assert page.detail.isVisible()
    assert page.detail.facts["Status"].text() == "Serving"
    assert text_of(page.detail.stages, 0, 1) == "12-23"
    page.detail.open_model.click()
    assert wanted == [("models", "small")]
    page.select("held")
    assert page.chips["held"].isChecked()


def test_names_are_shown_as_they_are_and_never_as_markup(quiet_desk: Desk, shown: Show) -> None:
    page = page_of(shown, quiet_desk)
    quiet_desk.agents._take([make_agent(1, name="<b>bold</b>", reason="<img src='http://x'>")])
    page.select(device_id(1))
    assert all(one.textFormat() == Qt.TextFormat.PlainText for one in page.detail.findChildren(QLabel) if one.text())
    assert page.detail.name.text() == "<b>bold</b>"


def test_the_record_in_use_takes_over_and_both_are_shown_before(quiet_desk: Desk, shown: Show) -> None:
    page = page_of(shown, quiet_desk)
    old = make_agent(1, link="offline", seen_s=1_000_000.0, same_machine=[device_id(2)])
    quiet_desk.agents._take([old, make_agent(2, same_machine=[device_id(1)])])
    page.select(device_id(1))
    assert "1 other record may be of the same machine: pc-0002 (K7QF-0002)." in page.detail.same.text()
    assert page.detail.merge.isHidden()
    page.select(device_id(2))
    page.detail.merge.click()
    lines = asked_about(page.detail)
    assert lines[0].startswith("goes on   K7QF-0002   last seen now   pc-0002")
    assert re.fullmatch(r"ends      K7QF-0001   last seen \d+ days ago   pc-0001", lines[1])


def test_a_name_makes_no_line_of_its_own_in_a_question(quiet_desk: Desk, shown: Show) -> None:
    page = page_of(shown, quiet_desk)
    forged = "lab\nZZZZ-ZZZZ   ff   a trusted PC\u2028\u202e\x1b[2K" + " x" * 100
    quiet_desk.agents._take([make_agent(1, state="pending", link="offline", name=forged)])
    page.table.selectAll()
    for button in ("approve", "deny", "tags", "revoke"):
        page.bulk.buttons[button].click()
        (question,) = (one for one in page.bulk.findChildren(Question) if one.isVisible())
        about = question.findChild(QPlainTextEdit)
        assert about is not None
        assert about.document().lineCount() == 1
        assert about.toPlainText().isprintable()
        question.reject()


def asked_about(widget: QWidget) -> list[str]:
    """Return the lines of the question that is open."""
    question = widget.findChild(Question)
    assert question is not None
    about = question.findChild(QPlainTextEdit)
    assert about is not None
    return about.toPlainText().split("\n")


def test_filters_that_cannot_be_kept_are_told(desk: Desk, shown: Show, qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    desk.settings_folder = tmp_path / "file"
    page = page_of(shown, desk)
    said: list[tuple[str, bool]] = []
    page.said.connect(lambda *what: said.append(what))
    page.save_filter("mine")
    qtbot.waitUntil(lambda: bool(said))
    assert "The filters are not kept on this PC" in said[0][0]
    assert said[0][1]
    desk.settings_folder = tmp_path
    other = page_of(shown, desk)
    other.save_filter("mine")
    qtbot.waitUntil((tmp_path / "filters.json").exists)


async def add_pending(service: ConsoleService, name: str, machine: str = "") -> DeviceId:
    registry = service._registry
    token = registry.invites.create().token_id.hex()
    request = DeviceRequest(
        name.encode().hex().zfill(64), b"", "ABCD-EFGH-K", name, {}, "file", token, machine_sha256=machine
    )
    return registry.devices.add_pending(request).device_id


def agree(widget: QWidget, text: str = "", *, tick: bool = False) -> Question:
    """Say yes to the question that is open."""
    question = widget.findChild(Question)
    assert question is not None
    question.field.setText(text)
    question.tick.setChecked(tick)
    question.yes.click()
    return question


def test_several_pcs_are_approved_tagged_suspended_and_removed_at_once(
    console: ConsoleThread, desk: Desk, shown: Show, qtbot: QtBot
) -> None:
    ids = {console.call(lambda service, name=name: add_pending(service, name)) for name in ("one", "two")}  # type: ignore[misc]
    page = page_of(shown, desk)
    said: list[str] = []
    page.said.connect(lambda text, _: said.append(text))

    def states() -> set[str]:
        return {agent.state for agent in page.model.items if agent.device_id in ids}

    def order(button: str, *answer: Any, **more: Any) -> None:
        qtbot.waitUntil(page.bulk.buttons[button].isEnabled)
        page.bulk.buttons[button].click()
        agree(page.bulk, *answer, **more)

    qtbot.waitUntil(lambda: page.model.rowCount() == 2)
    page.table.selectAll()
    page.bulk.buttons["approve"].click()
    question = page.bulk.findChild(Question)
    assert question is not None
    about = question.findChild(QPlainTextEdit)
    assert about is not None
    assert about.toPlainText().count("ABCD-EFGH-K") == 2
    agree(page.bulk)
    qtbot.waitUntil(lambda: states() == {"active"})
    qtbot.waitUntil(lambda: "2 PCs are approved." in said)
    order("tags", "site:oslo, lab")
    qtbot.waitUntil(lambda: all(agent.tags == ["lab", "site:oslo"] for agent in page.model.items))
    order("suspend", "too hot")
    qtbot.waitUntil(lambda: states() == {"suspended"})
    assert {agent.reason for agent in page.model.items} == {"too hot"}
    qtbot.waitUntil(page.bulk.buttons["resume"].isEnabled)
    page.bulk.buttons["resume"].click()
    qtbot.waitUntil(lambda: states() == {"active"})
    order("revoke", "sold", tick=True)
    qtbot.waitUntil(lambda: states() == {"banned"})
    assert page.model.rowCount() == 0
    page.chips["gone"].click()
    assert page.model.rowCount() == 2


def test_a_denied_pc_is_not_removed_from_sight_and_its_history_tells_who_did_it(
    console: ConsoleThread, desk: Desk, shown: Show, qtbot: QtBot
) -> None:
    device = console.call(lambda service: add_pending(service, "three"))
    page = page_of(shown, desk)
    qtbot.waitUntil(lambda: page.model.find(device) is not None)
    page.select(device)
    qtbot.waitUntil(page.bulk.buttons["deny"].isEnabled)
    page.bulk.buttons["deny"].click()
    agree(page.bulk, "unknown to us")
    qtbot.waitUntil(lambda: page.chips["gone"].text().startswith("Removed") and page.model.rowCount() == 0)
    page.select("gone")
    page.words.setText("unknown to us")
    qtbot.waitUntil(lambda: page.model.rowCount() == 1)
    page.table.selectRow(0)
    qtbot.waitUntil(lambda: page.detail.history.rowCount() >= 2)
    actions = {text_of(page.detail.history, row, 2) for row in range(page.detail.history.rowCount())}
    assert {"device.request", "device.deny"} <= actions


def test_who_may_only_look_is_offered_nothing_else(quiet_desk: Desk, shown: Show) -> None:
    quiet_desk.me = wire.Me("", "vera", ["view"])
    page = page_of(shown, quiet_desk)
    quiet_desk.agents._take(make_fleet(8))
    page.table.selectAll()
    assert not any(button.isEnabled() for button in page.bulk.buttons.values())
    assert page.model.index(0, 0) != QModelIndex()


async def two_records(service: ConsoleService) -> tuple[DeviceId, DeviceId]:
    ids = [await add_pending(service, name, "the same") for name in ("former", "anew")]
    for device, seen_s in zip(ids, (1.0, 2.0), strict=True):
        service._registry.devices.approve(device)
        with service._registry._database.writing() as session:
            session.execute(update(DeviceRow).where(DeviceRow.device_id == device).values(seen_s=seen_s))
    return ids[0], ids[1]


def test_a_merge_retires_the_former_record_whichever_is_listed_first(
    console: ConsoleThread, desk: Desk, shown: Show, qtbot: QtBot
) -> None:
    former, anew = console.call(two_records)
    page = page_of(shown, desk)
    qtbot.waitUntil(lambda: page.model.find(anew) is not None)
    page.select(anew)
    page.detail.merge.click()
    agree(page.detail)
    qtbot.waitUntil(lambda: (one := page.model.find(former)) is not None and one.state == "retired")
    assert (one := page.model.find(anew)) is not None
    assert one.state == "active"
