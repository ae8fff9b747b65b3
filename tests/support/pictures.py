"""Pictures of windows: drawn without a screen, compared with those that people have looked at and kept.

FALLOW_KEEP_PICTURES=1 keeps what is drawn now instead; FALLOW_PICTURES=FOLDER has every picture of a run put there.
Letters differ from system to system, so pictures are compared where they are drawn as the kept ones were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PySide6.QtCore import QPoint, QSize, Qt, qVersion
from PySide6.QtGui import QFontInfo, QFontMetrics, QImage, QPalette
from PySide6.QtWidgets import QApplication, QWidget

from agent.look import palettes
from agent.look.palettes import Scheme

KEPT = Path(__file__).parents[1] / "gui" / "pictures"
DRAWN_WITH = KEPT / "drawn_with.json"
DRAWN_SCHEMES: tuple[Scheme, ...] = ("light", "dark")
RATIOS = (1, 2)
SAMPLE = "The quick brown fox 0123456789"
NOTICED = 48
"""A pixel differs when one of its colours, softened over its neighbours, differs by more than this of 255."""
MOST_DIFFERENT = 0.004
"""The share of pixels that may differ."""

Pixels = npt.NDArray[np.float32]


def draws_alike() -> bool:
    """Whether letters are drawn here as in the kept pictures."""
    return DRAWN_WITH.exists() and json.loads(DRAWN_WITH.read_text("utf-8")) == _drawn_with()


def check(name: str, widget: QWidget, size: QSize | None = None) -> None:
    """Compare a window or page with its kept pictures: light and dark, at one and two pixels for each point."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    if size is not None:
        widget.resize(size)
    widget.ensurePolished()
    problems = []
    for picture, image in _drawn(name, widget, app):
        _hand_out(picture, image)
        if os.environ.get("FALLOW_KEEP_PICTURES"):
            _keep(picture, image)
        elif not (KEPT / picture).exists():
            problems.append(f"{picture} is not kept yet")
        elif (share := different(QImage(str(KEPT / picture)), image)) > MOST_DIFFERENT:
            problems.append(f"{share:.2%} of {picture} differs")
    assert not problems, f"{'; '.join(problems)}. Look at what is drawn now with FALLOW_PICTURES=FOLDER."


def different(kept: QImage, drawn: QImage) -> float:
    """Return the share of pixels that look different; 1.0 for another size."""
    if kept.size() != drawn.size():
        return 1.0
    apart: npt.NDArray[np.bool_] = np.abs(_softened(kept) - _softened(drawn)).max(axis=2) > NOTICED
    return float(apart.mean())


def skip_elsewhere() -> None:
    """Skip where letters are drawn differently, unless pictures are to be kept."""
    if not draws_alike() and not os.environ.get("FALLOW_KEEP_PICTURES"):
        pytest.skip(f"letters are drawn differently here ({_drawn_with()['font']}): see tests/gui/README.md")


def _drawn(name: str, widget: QWidget, app: QApplication) -> Iterator[tuple[str, QImage]]:
    before = palettes.scheme_of(app.palette())
    try:
        for scheme in DRAWN_SCHEMES:
            palettes.apply(app, scheme)
            app.processEvents()
            for ratio in RATIOS:
                yield f"{name}-{scheme}@{ratio}x.png", draw(widget, ratio)
    finally:
        palettes.apply(app, before)


def draw(widget: QWidget, ratio: float = 1) -> QImage:
    """Draw a widget as a screen of that many pixels for each point would show it."""
    image = QImage(widget.size() * ratio, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(ratio)
    image.fill(widget.palette().color(QPalette.ColorRole.Window))
    widget.render(image, QPoint())
    return image


def _softened(image: QImage) -> Pixels:
    whole = image.convertToFormat(QImage.Format.Format_RGB32)
    size = (whole.height(), whole.bytesPerLine() // 4, 4)
    pixels = np.frombuffer(whole.constBits(), np.uint8).reshape(size)[:, : whole.width(), :3].astype(np.float32)
    return (pixels[:-1, :-1] + pixels[1:, :-1] + pixels[:-1, 1:] + pixels[1:, 1:]) / np.float32(4)


def _hand_out(picture: str, image: QImage) -> None:
    if folder := os.environ.get("FALLOW_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        assert image.save(str(Path(folder) / picture))


def _keep(picture: str, image: QImage) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    DRAWN_WITH.write_text(json.dumps(_drawn_with(), indent=1) + "\n", "utf-8")
    # 256 colours are enough for what we draw, and a quarter of the size; dithered ones would be twice as large.
    few = image.convertToFormat(QImage.Format.Format_Indexed8, Qt.ImageConversionFlag.ThresholdDither)
    assert few.save(str(KEPT / picture), quality=0)  # packed as well as PNG can


def _drawn_with() -> dict[str, Any]:
    font = QApplication.font()
    metrics = QFontMetrics(font)
    return {
        "qt": qVersion(),
        "font": QFontInfo(font).family(),
        "width": metrics.horizontalAdvance(SAMPLE),
        "height": metrics.height(),
    }
