"""agent.tray.icons: six states, told apart by shape."""

from __future__ import annotations

import itertools
import sys

import pytest
from PySide6.QtGui import QColor, QImage, QPainter, QPixmap
from PySide6.QtWidgets import QApplication

from agent.look.icons import app_icon, drawn
from agent.tray.icons import STATE_ICONS, TRAY_SIZES, IconName, tray_icon


def mask(name: str, size: int) -> list[bool]:
    """Which pixels are drawn, whatever their colour."""
    image = drawn(name, size).toImage()
    return [image.pixelColor(x, y).alpha() > 127 for y in range(size) for x in range(size)]


@pytest.mark.parametrize("size", TRAY_SIZES)
def test_no_two_states_share_a_shape(qapp: QApplication, size: int) -> None:
    masks = {name: mask(name, size) for name in STATE_ICONS}
    for one, other in itertools.combinations(STATE_ICONS, 2):
        differing = sum(a != b for a, b in zip(masks[one], masks[other], strict=True))
        assert differing > 0.15 * size * size, (one, other)


@pytest.mark.skipif(sys.platform == "darwin", reason="the menu bar colours the icons")
@pytest.mark.parametrize("panel", ["#000000", "#ffffff", "#808080"])
@pytest.mark.parametrize("name", STATE_ICONS)
def test_a_state_is_seen_on_any_panel(qapp: QApplication, name: IconName, panel: str) -> None:
    ground = QPixmap(16, 16)
    ground.fill(QColor(panel))
    painter = QPainter(ground)
    painter.drawPixmap(0, 0, tray_icon(name).pixmap(16, 16))
    painter.end()
    image: QImage = ground.toImage()
    grey = QColor(panel).lightness()
    clear = [abs(image.pixelColor(x, y).lightness() - grey) > 70 for x in range(16) for y in range(16)]
    assert sum(clear) > 20


def test_an_icon_has_every_size_a_tray_asks_for(qapp: QApplication) -> None:
    assert {size.width() for size in tray_icon("idle").availableSizes()} == set(TRAY_SIZES)
    assert not app_icon().isNull()


def test_twice_the_pixels_on_a_fine_screen(qapp: QApplication) -> None:
    pixmap = drawn("waiting", 24, "#ff0000", ratio=2.0)
    assert (pixmap.width(), pixmap.deviceIndependentSize().width()) == (48, 24)
    assert "#ff0000" in {pixmap.toImage().pixelColor(x, 24).name() for x in range(48)}
