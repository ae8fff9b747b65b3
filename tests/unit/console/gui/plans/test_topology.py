"""Who talks to whom: decided without Qt, drawn, and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.fleet.direct import StageLink
from console.gui.page import Desk
from console.gui.plans.topology import CONSOLE, Map, map_of, placed
from console.gui.plans.topology_page import TopologyPage, link_rows
from tests.support.planned_desk import ToyService, tell_all, toy_desk, toy_service

LINKS = [StageLink(0, "console"), StageLink(1, "direct", "", 0.8), StageLink(2, "relay", "no route there")]


def served() -> ToyService:
    """Three PCs serve, one stands by, one is idle, one is away."""
    service = toy_service(900, 700, 600, 500, 400, 300)
    service.run([(0, 0, 4), (1, 4, 8), (2, 8, 12)])
    standby = wire.StandbyView("id-3", "pc-3", "hot", 0, 4)
    service.running = [msgspec.structs.replace(service.running[0], links=LINKS, standbys=[standby])]
    service.away = {"id-5"}
    return service


def drawn(service: ToyService, **fields: Any) -> Map:
    return map_of(service.status(), [msgspec.structs.replace(agent, **fields) for agent in service.agents()])


def test_steps_go_from_the_console_through_the_stages_and_back() -> None:
    found = drawn(served(), round_trip_ms=2.0, down_bytes_per_s=1e8)
    assert [(one.source, one.target, one.way) for one in found.strands] == [
        (CONSOLE, "0:0", "console"),
        ("0:0", "0:1", "direct"),
        ("0:1", "0:2", "relay"),
        ("0:2", CONSOLE, "console"),
        (CONSOLE, "0:standby 0", "reserve"),
    ]
    assert [one.label for one in found.strands] == ["2.0 ms", "direct, 0.8 ms", "relayed", "", "2.0 ms"]
    assert found.strands[2].note == "no route there"
    assert found.rows == ("toy: ready",)


def test_pcs_say_what_they_are_in_words() -> None:
    nodes = {node.device_id: node for node in drawn(served(), round_trip_ms=2.0, down_bytes_per_s=1e8).nodes}
    assert {device_id: node.role for device_id, node in nodes.items() if device_id} == {
        "id-0": "stage", "id-1": "stage", "id-2": "stage", "id-3": "hot", "id-4": "idle", "id-5": "away",
    }  # fmt: skip
    assert nodes["id-0"].words == "pc-0: serving. Layers 0\N{EN DASH}3. 1.0 ms a step. Link 2.0 ms, 100 MB/s."
    assert nodes["id-3"].words.startswith("pc-3: hot standby. for layers 0\N{EN DASH}3")
    assert nodes["id-5"].words == "pc-5: away."
    held = drawn(served(), held_because=["user_input"])
    assert next(node for node in held.nodes if node.device_id == "id-4").lines == ("Held: somebody is using it",)


def test_a_pipeline_of_one_pc_and_unknown_links_are_shown_as_far_as_they_are_known() -> None:
    service = toy_service(900, 700)
    service.run([(0, 0, 12)], [(1, 0, 12)])
    service.running = [msgspec.structs.replace(one, links=[]) for one in service.running]
    found = drawn(service)
    assert [(one.source, one.way, one.label) for one in found.strands] == [(CONSOLE, "console", "")] * 2
    assert found.rows == ("toy, pipeline 1: ready", "toy, pipeline 2: ready")


def test_of_many_idle_pcs_some_are_drawn_and_the_others_counted() -> None:
    found = drawn(toy_service(*[500] * 40))
    assert len(found.nodes) == 1 + 24
    assert found.more == 16


@pytest.mark.parametrize("width", [300.0, 1400.0])
def test_nothing_is_drawn_over_something_else(width: float) -> None:
    for service in (served(), toy_service(*[500] * 30)):
        found = drawn(service)
        where = placed(found, width, 16.0)
        assert set(where.boxes) == {node.key for node in found.nodes}
        boxes = list(where.boxes.values())
        for place, one in enumerate(boxes):
            assert one.x >= 0
            assert one.y >= 0
            assert one.x + one.width <= where.width
            assert one.y + one.height <= where.height
            for other in boxes[place + 1 :]:
                apart = one.x + one.width <= other.x or other.x + other.width <= one.x
                assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y


@pytest.fixture
def shown(qtbot: QtBot, qapp: QApplication) -> Iterator[tuple[TopologyPage, Desk, ToyService]]:
    service = served()
    with toy_desk(service) as desk:
        page = TopologyPage(desk)
        page.resize(1000, 700)
        page.show()
        tell_all(desk, service)
        yield page, desk, service
    page.hide()
    page.deleteLater()
    qapp.processEvents()


def test_what_changes_out_of_sight_is_drawn_when_it_comes_into_sight(
    shown: tuple[TopologyPage, Desk, ToyService],
) -> None:
    page, desk, service = shown
    rows = page.links.rowCount()
    page.hide()
    service.running = []
    tell_all(desk, service)
    assert page.links.rowCount() == rows
    page.show()
    assert page.links.rowCount() < rows


def test_a_click_on_a_pc_shows_it_and_keys_do_the_same(shown: tuple[TopologyPage, Desk, ToyService]) -> None:
    page, _, _ = shown
    wanted: list[tuple[str, str]] = []
    page.wants.connect(lambda name, what: wanted.append((name, what)))
    where = page.map.placed
    assert where is not None
    box = where.boxes["0:1"]
    middle = page.map.mapFromScene(box.x + box.width / 2, box.y + box.height / 2)
    QTest.mouseClick(page.map.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, middle)
    assert wanted == [("devices", "id-1")]
    QTest.keyClick(page.map, Qt.Key.Key_Right)
    assert page.map.selected == "0:2"
    QTest.keyClick(page.map, Qt.Key.Key_Return)
    assert wanted[-1] == ("devices", "id-2")
    QTest.keyClick(page.map, Qt.Key.Key_Left)
    QTest.keyClick(page.map, Qt.Key.Key_Left)
    QTest.keyClick(page.map, Qt.Key.Key_Left)
    assert page.map.selected == CONSOLE


def test_a_screen_reader_hears_the_chosen_pc_and_the_links_are_a_table(
    shown: tuple[TopologyPage, Desk, ToyService],
) -> None:
    page, _, _ = shown
    page.select("id-0")
    interface = QAccessible.queryAccessibleInterface(page.map)
    assert interface.text(QAccessible.Text.Description).startswith("pc-0: serving.")
    assert page.links.rowCount() == 5
    cells = page.links.model()
    assert cells.index(1, 3).data() == "direct"
    assert cells.index(2, 6).data() == "no route there"


def test_the_map_follows_what_happens_and_keeps_what_is_chosen(shown: tuple[TopologyPage, Desk, ToyService]) -> None:
    page, desk, service = shown
    page.select("id-1")
    first = page.map.drawn
    tell_all(desk, service)
    assert page.map.drawn is first, "nothing changed, so nothing is drawn again"
    service.away.add("id-1")
    tell_all(desk, service)
    assert page.map.selected == "0:1"
    assert page.map.accessibleDescription().startswith("pc-1: away.")


def test_a_fleet_without_pcs_says_how_to_get_some(shown: tuple[TopologyPage, Desk, ToyService]) -> None:
    page, desk, service = shown
    service.fleet, service.running = [], []
    wanted: list[str] = []
    page.wants.connect(lambda name, _what: wanted.append(name))
    tell_all(desk, service)
    assert not page.states.is_content
    page.states.button.click()
    assert wanted == ["invites"]


def test_rows_of_links_say_everything() -> None:
    assert link_rows(drawn(served(), down_bytes_per_s=1e8))[0] == (
        "Console", "pc-0", "tokens", "link with the console", "", "100 MB/s", "",
    )  # fmt: skip
