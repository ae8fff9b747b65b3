"""All views on one sheet, for people: `python -m tests.gui.contact_sheet FOLDER assets/windows.png`.

FOLDER has the pictures of a run of tests/gui, which show more colours than the kept ones.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter

COLUMNS, WIDTH, HEIGHT, GAP = 3, 520, 340, 14
WORDS = 22
"""Room for the name below a picture."""
DARK = {"console-overview", "chat-sign-in", "tray-held", "console-topology"}
"""Those that are shown in the dark, for an impression of it."""


def sheet(folder: Path) -> QImage:
    """Draw every view once."""
    names = sorted({path.name.rsplit("-", 1)[0] for path in folder.glob("*@2x.png")})
    rows = -(-len(names) // COLUMNS)
    whole = QImage(GAP + COLUMNS * (WIDTH + GAP), GAP + rows * (HEIGHT + WORDS + GAP), QImage.Format.Format_RGB32)
    whole.fill(QColor("#d9dcd5"))
    painter = QPainter(whole)
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    painter.setPen(QColor("#1b1f1a"))
    for place, name in enumerate(names):
        picture = QImage(str(folder / f"{name}-{'dark' if name in DARK else 'light'}@2x.png"))
        left = GAP + place % COLUMNS * (WIDTH + GAP)
        top = GAP + place // COLUMNS * (HEIGHT + WORDS + GAP)
        picture.setDevicePixelRatio(1)  # its name made it two
        small = picture.scaled(
            WIDTH, HEIGHT, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
        )
        painter.drawImage(left + (WIDTH - small.width()) // 2, top, small)
        painter.drawText(QRect(left, top + HEIGHT, WIDTH, WORDS), int(Qt.AlignmentFlag.AlignCenter), name)
    painter.end()
    return whole


def main() -> int:
    """Write the sheet."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QGuiApplication(sys.argv[:1])
    written = sheet(Path(sys.argv[1])).save(sys.argv[2], quality=0)
    del app
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
