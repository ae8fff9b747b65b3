"""The pages of the admin's window."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import QSize
from pytestqt.qtbot import QtBot

from console.gui.devices.model import DeviceModel
from console.gui.page import Page
from console.gui.pages import PAGES
from tests.support.pictured_fleet import NOW_S, shown_desk
from tests.support.pictures import check

SIZE = QSize(1280, 760)


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is always the same time, in the same place."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    monkeypatch.setattr(DeviceModel.__init__, "__defaults__", (None, time.time))


@pytest.mark.parametrize("kind", PAGES, ids=[kind.name for kind in PAGES])
def test_page(kind: type[Page], tmp_path: Path, qtbot: QtBot) -> None:
    desk = shown_desk(tmp_path)
    page = kind(desk)
    qtbot.addWidget(page)
    page.resize(SIZE)
    page.show()
    for feed in page.feeds:
        feed.now()
    qtbot.wait(500)  # until what is asked a moment after the last change is there, too
    check(f"console-{kind.name}", page, SIZE)
    page.hide()
    desk.bridge.stop()
