"""The icons: SVG files of ours, drawn in any colour and size."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from agent.look.assets import asset

APP_SIZES = (16, 24, 32, 48, 64, 128)


def drawn(name: str, size: int, colour: str = "#000000", ratio: float = 1.0) -> QPixmap:
    """Draw an icon `size` logical pixels wide; `ratio` is the screen's device pixel ratio."""
    pixels = round(size * ratio)
    pixmap = QPixmap(pixels, pixels)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    renderer(name, colour).render(painter, QRectF(0, 0, pixels, pixels))
    painter.end()
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


def renderer(name: str, colour: str) -> QSvgRenderer:
    """Return what draws an icon in one colour."""
    return QSvgRenderer(QByteArray(_source(name).replace("currentColor", QColor(colour).name()).encode()))


def app_icon() -> QIcon:
    """Return the program's icon."""
    icon = QIcon()
    for size in APP_SIZES:
        icon.addPixmap(drawn("fallow", size))
    return icon


@lru_cache(maxsize=256)
def _source(name: str) -> str:
    return asset("icons", f"{name}.svg").read_text("utf-8")
