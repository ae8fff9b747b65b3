"""agent.look.widgets: labels are as large as what is around them."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from agent.look.widgets import TITLE_SCALE, label, rescale, title


def test_a_label_follows_the_size_around_it_and_keeps_what_is_its_own(qtbot: QtBot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    plain, bold, large, small = label("a"), label("b", bold=True), title("c"), label("d", quiet=True, scale=0.5)
    rows = QVBoxLayout(page)
    for each in (plain, bold, large, small):
        rows.addWidget(each)
    before = page.font().pointSizeF()
    assert large.font().pointSizeF() == pytest.approx(before * TITLE_SCALE)
    font = page.font()
    font.setPointSizeF(2 * before)
    page.setFont(font)
    rescale(page)
    sizes = [each.font().pointSizeF() for each in (plain, bold, large, small)]
    assert sizes == pytest.approx([2 * before, 2 * before, 2 * before * TITLE_SCALE, before])
    assert [each.font().bold() for each in (plain, bold, large, small)] == [False, True, True, False]
