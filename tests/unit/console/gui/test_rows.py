"""console.gui.rows: what a program selects does not depend on the keys somebody holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from console.gui.devices.page import DevicesPage
from console.gui.page import Desk, Page
from tests.support.shown_fleet import make_agent, make_fleet

HELD = {
    Qt.Key.Key_Control: Qt.KeyboardModifier.ControlModifier,
    Qt.Key.Key_Shift: Qt.KeyboardModifier.ShiftModifier,
}


@pytest.mark.parametrize("key", HELD)
def test_a_row_is_chosen_alone_whatever_key_is_held(
    key: Qt.Key, quiet_desk: Desk, shown: Callable[[Page], Page], qtbot: QtBot
) -> None:
    page = DevicesPage(quiet_desk)
    shown(page)
    quiet_desk.agents._take(make_fleet(8))
    first, second = make_agent(1).device_id, make_agent(2).device_id
    window = page.windowHandle()
    QTest.keyPress(window, key, HELD[key])
    try:
        assert QGuiApplication.keyboardModifiers() != Qt.KeyboardModifier.NoModifier
        for device_id in (first, second):
            assert page.table.choose(device_id)
            assert page.table.chosen() == [device_id]
    finally:
        QTest.keyRelease(window, key)
