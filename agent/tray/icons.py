"""The icons: SVG files drawn in any colour and size. The six states differ by shape; colour only repeats it."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Literal

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from agent.tray.assets import asset

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


def drawn(name: str, size: int, colour: str = "#000000", ratio: float = 1.0) -> QPixmap:
    """Draw an icon `size` logical pixels wide; `ratio` is the screen's device pixel ratio."""
    pixels = round(size * ratio)
    pixmap = QPixmap(pixels, pixels)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    QSvgRenderer(QByteArray(_source(name, colour))).render(painter, QRectF(0, 0, pixels, pixels))
    painter.end()
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


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


def app_icon() -> QIcon:
    """Return the program's icon."""
    icon = QIcon()
    for size in (16, 24, 32, 48, 64, 128):
        icon.addPixmap(drawn("fallow", size))
    return icon


def _with_halo(name: IconName, size: int) -> QPixmap:
    width = max(1.0, size / 20)
    inner = size - 2 * width
    pixmap = QPixmap(size, size)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    halo = QSvgRenderer(QByteArray(_source(name, HALO)))
    for right in (-width, 0, width):
        for down in (-width, 0, width):
            halo.render(painter, QRectF(width + right, width + down, inner, inner))
    shape = QSvgRenderer(QByteArray(_source(name, TRAY_COLOURS[name])))
    shape.render(painter, QRectF(width, width, inner, inner))
    painter.end()
    return pixmap


def _source(name: str, colour: str) -> bytes:
    text = asset("icons", f"{name}.svg").read_text("utf-8")
    return text.replace("currentColor", QColor(colour).name()).encode()
