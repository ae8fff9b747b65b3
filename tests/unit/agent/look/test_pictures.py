"""tests.support.pictures: what is noticed, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from agent.look import palettes
from tests.support import pictures
from tests.support.pictures import MOST_DIFFERENT, check, different, draw


def blank(colour: str = "#ffffff") -> QImage:
    image = QImage(200, 100, QImage.Format.Format_RGB32)
    image.fill(QColor(colour))
    return image


def test_a_word_that_changes_is_noticed_and_a_shade_is_not() -> None:
    assert different(blank(), blank("#f4f4f4")) == 0.0
    changed = blank()
    painter = QPainter(changed)
    painter.fillRect(10, 10, 30, 12, QColor("#202020"))
    painter.end()
    assert different(blank(), changed) > MOST_DIFFERENT
    assert different(blank(), blank("#000000")) == 1.0


def test_another_size_is_another_picture() -> None:
    assert different(blank(), QImage(100, 100, QImage.Format.Format_RGB32)) == 1.0


def test_pictures_are_kept_then_compared(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(pictures, "DRAWN_WITH", tmp_path / "kept" / "drawn_with.json")
    label = QLabel("As it was")
    qtbot.addWidget(label)
    size = QSize(160, 60)
    with pytest.raises(AssertionError, match="not kept yet"):
        check("label", label, size)
    assert not pictures.draws_alike()
    monkeypatch.setenv("FALLOW_KEEP_PICTURES", "1")
    check("label", label, size)
    monkeypatch.delenv("FALLOW_KEEP_PICTURES")
    assert pictures.draws_alike()
    assert len(list((tmp_path / "kept").glob("*.png"))) == 4
    scheme = palettes.scheme_of(qapp.palette())
    monkeypatch.setenv("FALLOW_PICTURES", str(tmp_path / "seen"))
    check("label", label, size)
    assert palettes.scheme_of(qapp.palette()) == scheme
    label.setText("Another sentence")
    with pytest.raises(AssertionError, match=r"% of label-light@1x.png differs"):
        check("label", label, size)
    assert len(list((tmp_path / "seen").glob("*.png"))) == 4


def test_two_pixels_for_each_point_are_twice_as_many(qtbot: QtBot) -> None:
    label = QLabel("A label")
    qtbot.addWidget(label)
    label.resize(80, 20)
    assert draw(label, 2).size() == draw(label).size() * 2
