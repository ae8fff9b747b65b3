"""The icon of each state for the tray. The six states differ by shape; colour only repeats it."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Literal

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap

from agent.look.icons import drawn, renderer

IconName = Literal["idle", "contributing", "paused", "waiting", "attention", "offline"]
STATE_ICONS: tuple[IconName, ...] = ("idle", "contributing", "paused", "waiting", "attention", "offline")

TRAY_SIZES = (16, 20, 24, 32, 48, 64)
TRAY_COLOURS: dict[IconName, str] = {
    "idle": "#ffffff",
    "contributing": "#7fd46b",
    "paused": "#ffffff",
    "waiting": "#ffffff",
    "attention": "#ffb02e",
    "offline": "#c8c8c8",
}
HALO = "#202020"
"""Drawn around the shape, because nobody tells a program whether the panel behind it is light or dark."""


def tray_icon(name: IconName) -> QIcon:
    """Return a state's icon for the tray, legible on light and dark panels, in all sizes that trays ask for."""
    return _tray_icon(name)


@lru_cache(maxsize=len(STATE_ICONS))
def _tray_icon(name: IconName) -> QIcon:
    icon = QIcon()
    if sys.platform == "darwin":
        for size in TRAY_SIZES:
            icon.addPixmap(drawn(name, size))
        icon.setIsMask(True)  # the menu bar colours it
        return icon
    for size in TRAY_SIZES:
        icon.addPixmap(_with_halo(name, size))
    return icon


def _with_halo(name: IconName, size: int) -> QPixmap:
    width = max(1.0, size / 20)
    inner = size - 2 * width
    pixmap = QPixmap(size, size)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    halo = renderer(name, HALO)
    for right in (-width, 0, width):
        for down in (-width, 0, width):
            halo.render(painter, QRectF(width + right, width + down, inner, inner))
    shape = renderer(name, TRAY_COLOURS[name])
    shape.render(painter, QRectF(width, width, inner, inner))
    painter.end()
    return pixmap
