"""The lanes by mouse and by keys."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QDropEvent, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from console.gui.plans.drawing import StageItem
from console.gui.plans.lanes import PC_MIME, STAGE_MIME, mime_of
from console.gui.plans.model import Place
from tests.support.planned_desk import toy_service
from tests.unit.console.gui.plans.conftest import Opening, Shown

CTRL = Qt.KeyboardModifier.ControlModifier
NONE = Qt.KeyboardModifier.NoModifier


def middle(shown: Shown, place: Place) -> QPoint:
    layout = shown.page.lanes.layout_
    assert layout is not None
    box = layout.lanes[place.pipeline].stages[place.stage]
    return shown.page.lanes.mapFromScene(box.x + box.width / 2, box.y + box.height / 2)


def border(shown: Shown, layer: int, lane: int = 0) -> QPoint:
    layout = shown.page.lanes.layout_
    assert layout is not None
    box = layout.lanes[lane].stages[0]
    return shown.page.lanes.mapFromScene(layout.left + layer * layout.layer_width, box.y + box.height / 2)


def mouse(shown: Shown, kind: QEvent.Type, at: QPoint, held: bool = True) -> None:
    lanes = shown.page.lanes
    button = Qt.MouseButton.LeftButton
    buttons = button if held else Qt.MouseButton.NoButton
    event = QMouseEvent(kind, QPointF(at), QPointF(lanes.mapToGlobal(at)), button, buttons, NONE)
    handlers = {
        QEvent.Type.MouseButtonPress: lanes.mousePressEvent,
        QEvent.Type.MouseMove: lanes.mouseMoveEvent,
        QEvent.Type.MouseButtonRelease: lanes.mouseReleaseEvent,
    }
    handlers[kind](event)


def drop(shown: Shown, kind: str, device_id: str, place: Place) -> None:
    data = mime_of(kind, device_id)
    at = QPointF(middle(shown, place))
    event = QDropEvent(at, Qt.DropAction.MoveAction, data, Qt.MouseButton.LeftButton, NONE)
    shown.page.lanes.dropEvent(event)


def test_a_border_is_dragged_and_undone_as_one_step(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    mouse(shown, QEvent.Type.MouseButtonPress, border(shown, 4))
    for layer in (5, 6, 7):
        mouse(shown, QEvent.Type.MouseMove, border(shown, layer))
    assert shown.lanes() == ["0:7 1:5"]
    mouse(shown, QEvent.Type.MouseButtonRelease, border(shown, 7), held=False)
    mouse(shown, QEvent.Type.MouseMove, border(shown, 9), held=False)
    assert shown.lanes() == ["0:7 1:5"]
    shown.page.commands.undo.trigger()
    assert shown.lanes() == ["0:4 1:8"]
    shown.page.commands.redo.trigger()
    assert shown.lanes() == ["0:7 1:5"]


def test_a_stage_dropped_on_another_changes_places_with_it_and_a_pc_takes_a_stage(
    opening: Opening, qtbot: QtBot
) -> None:
    shown = opening()
    drop(shown, STAGE_MIME, "id-0", Place(0, 1))
    assert shown.lanes() == ["1:4 0:8"]
    drop(shown, PC_MIME, "id-3", Place(0, 0))
    assert shown.lanes() == ["3:4 0:8"]
    drop(shown, "text/plain", "id-2", Place(0, 0))
    assert shown.lanes() == ["3:4 0:8"]


def test_a_stage_dropped_on_a_row_of_the_table_goes_to_that_pc(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    row = next(place for place, row in enumerate(shown.page.pcs.items) if row.device_id == "id-2")
    data = mime_of(STAGE_MIME, "id-1")
    assert shown.page.pcs.canDropMimeData(data, Qt.DropAction.MoveAction, -1, -1, shown.page.pcs.index(row, 0))
    shown.page.pcs.dropMimeData(data, Qt.DropAction.MoveAction, -1, -1, shown.page.pcs.index(row, 0))
    assert shown.lanes() == ["0:4 2:8"]
    dragged = shown.page.pcs.mimeData([shown.page.pcs.index(row, 1)])
    assert bytes(dragged.data(PC_MIME).data()) == b"id-2"


def test_keys_select_stages_and_move_borders(opening: Opening, qtbot: QtBot) -> None:
    service = toy_service(900, 700, 600, 500)
    service.run([(0, 0, 4), (1, 4, 12)], [(2, 0, 12)])
    shown = opening(service)
    lanes = shown.page.lanes
    shown.page.activateWindow()
    lanes.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(lanes.hasFocus)
    lanes.select(Place(0, 0))
    QTest.keyClick(lanes, Qt.Key.Key_Right)
    assert lanes.selected == Place(0, 1)
    QTest.keyClick(lanes, Qt.Key.Key_Down)
    assert lanes.selected == Place(1, 0)
    QTest.keyClick(lanes, Qt.Key.Key_Up)
    QTest.keyClick(lanes, Qt.Key.Key_Right, CTRL)
    QTest.keyClick(lanes, Qt.Key.Key_Right, CTRL)
    assert shown.lanes()[0] == "0:6 1:6"
    lanes.select(Place(0, 1))
    QTest.keyClick(lanes, Qt.Key.Key_Left, CTRL)
    assert shown.lanes()[0] == "0:5 1:7", "the last stage moves the border it begins at"
    QTest.keyClick(lanes, Qt.Key.Key_Delete)
    assert shown.lanes()[0] == "1:12"
    assert lanes.selected == Place(0, 0)
    for lane in ("0:5 1:7", "0:4 1:8"):
        QTest.keyClick(lanes, Qt.Key.Key_Z, CTRL)
        assert shown.lanes()[0] == lane
    QTest.keyClick(lanes, Qt.Key.Key_Y, CTRL)
    assert shown.lanes()[0] == "0:5 1:7"


def test_tab_goes_from_stage_to_stage_and_then_on(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    lanes = shown.page.lanes
    lanes.select(Place(0, 0))
    assert lanes.focusNextPrevChild(True)
    assert lanes.selected == Place(0, 1)
    lanes.focusNextPrevChild(True)
    assert lanes.selected == Place(0, 1), "after the last one the next field has its turn"
    assert lanes.focusNextPrevChild(False)
    assert lanes.selected == Place(0, 0)


def test_a_screen_reader_hears_everything_of_the_selected_stage(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    qtbot.waitUntil(lambda: shown.page.editor.is_checked)
    shown.page.lanes.select(Place(0, 1))
    interface = QAccessible.queryAccessibleInterface(shown.page.lanes)
    assert interface.text(QAccessible.Text.Name) == "Stages of the plan"
    said = interface.text(QAccessible.Text.Description)
    assert said.startswith("pc-1, pipeline 1, stage 2: layers 4\N{EN DASH}11, ")
    assert "of 700 MB" in said


def test_wide_layers_are_scrolled_to_and_never_narrower_than_the_room(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    lanes = shown.page.lanes
    width = lanes.sceneRect().width()
    shown.page.commands.narrower.trigger()
    assert lanes.sceneRect().width() == width
    shown.page.commands.wider.trigger()
    assert lanes.sceneRect().width() > width


def test_the_menu_of_a_stage_offers_free_pcs_the_largest_first(opening: Opening, qtbot: QtBot) -> None:
    shown = opening()
    qtbot.waitUntil(lambda: shown.page.editor.is_checked)
    shown.page.lanes.select(Place(0, 0))
    shown.page.commands.open_menu(Place(0, 0), QPoint(0, 0))
    menu = shown.page.commands.menu
    assert menu is not None
    give, split = (action.menu() for action in menu.actions()[:2])
    assert isinstance(give, QMenu)
    assert isinstance(split, QMenu)
    assert [action.text().split(" (")[0] for action in give.actions()] == ["pc-2", "pc-3"]
    split.actions()[1].trigger()
    assert shown.lanes() == ["0:2 3:2 1:8"]
    menu.close()


def test_a_selected_stage_that_is_gone_is_selected_no_more_and_each_stage_is_drawn_once(
    opening: Opening, qtbot: QtBot
) -> None:
    shown = opening()
    lanes, picked = shown.page.lanes, list[object]()
    lanes.picked.connect(picked.append)
    lanes.select(Place(0, 1))
    shown.page.table.choose("id-2")
    shown.page.commands.split.trigger()
    lanes.select(Place(0, 2))
    shown.page.commands.undo.trigger()
    assert lanes.selected is None
    assert picked == [Place(0, 1), Place(0, 2), None]
    assert sum(isinstance(item, StageItem) for item in lanes.scene().items()) == 2
