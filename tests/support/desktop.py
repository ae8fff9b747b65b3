"""A desktop on a screen that nobody sees: X server, window manager and tray, and pictures of all of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QImage

from tests.support.patience import PATIENCE_S
from tests.support.screens import XServer, x_server

WIDTH, HEIGHT = 1280, 960
PANEL_HEIGHT = 40
TINT2 = f"""
panel_items = S
panel_size = 100% {PANEL_HEIGHT}
panel_position = bottom center horizontal
panel_background_id = 1
systray_padding = 4 4 4
systray_icon_size = 32
rounded = 0
background_color = #303030 100
"""


class Desktop:
    """Programs on one display. `environment` is that of a program on it: no session bus, so the tray is X's own."""

    def __init__(self, server: XServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.environment = {
            **os.environ, **server.environment, "QT_QPA_PLATFORM": "xcb", "XDG_RUNTIME_DIR": str(folder),
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent", "XDG_CONFIG_HOME": str(folder), "HOME": str(folder),
            "LANG": "C.UTF-8",
        }  # fmt: skip
        self._running: list[subprocess.Popen[bytes]] = []
        self.tray: subprocess.Popen[bytes] | None = None

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program, ended with the desktop."""
        with (self.folder / f"{Path(command[0]).name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env={**self.environment, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._running.append(process)
        return process

    def start_tray(self) -> None:
        self.tray = self.start("tint2", "-c", str(self.folder / "tint2rc"))

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        for process in reversed(self._running):
            self.end(process)

    def xdotool(self, *arguments: str) -> str:
        """Do as a person does; gives what xdotool says, nothing if it failed."""
        done = subprocess.run(
            ["xdotool", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout.strip()

    def windows(self, name: str) -> list[str]:
        """The windows in sight whose title holds `name`."""
        return self.xdotool("search", "--onlyvisible", "--name", name).split()

    def picture(self) -> QImage:
        """The whole screen, read from the X server's own memory."""
        data = (self.folder / "Xvfb_screen0").read_bytes()
        header = struct.unpack(">25I", data[:100])
        size, width, height, bytes_per_line, colours = header[0], header[4], header[5], header[12], header[19]
        start = size + colours * 12
        pixels = data[start : start + bytes_per_line * height]
        return QImage(pixels, width, height, bytes_per_line, QImage.Format.Format_RGB32).copy()

    def still_picture(self) -> QImage:
        """The whole screen once nothing on it moves."""
        pictures = [self.picture()]

        def is_still() -> bool:
            time.sleep(0.2)
            pictures.append(self.picture())
            return pictures[-1] == pictures[-2]

        wait_for(is_still, "a screen on which nothing moves")
        return pictures[-1]

    def panel_pixels(self, colour: str, *, tolerance: int = 40) -> list[tuple[int, int]]:
        """Where in the tray's panel there is a colour."""
        wanted, image = QColor(colour), self.picture()
        return [
            (x, y)
            for y in range(HEIGHT - PANEL_HEIGHT, HEIGHT)
            for x in range(WIDTH)
            if _distance(image.pixelColor(x, y), wanted) <= tolerance
        ]


def _distance(one: QColor, other: QColor) -> int:
    return abs(one.red() - other.red()) + abs(one.green() - other.green()) + abs(one.blue() - other.blue())


def wait_for(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until something is so; a process of its own tells nobody when."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)


@contextlib.contextmanager
def desktop(folder: Path) -> Iterator[Desktop]:
    """Give a desktop without a tray yet; skips by name where a program is missing."""
    missing = [name for name in ("openbox", "tint2") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} are not installed (Debian: apt-get install openbox tint2)")
    (folder / "tint2rc").write_text(TINT2)
    with x_server(size=f"{WIDTH}x{HEIGHT}", memory_folder=folder) as server:
        made = Desktop(server, folder)
        try:
            made.start("openbox")
            yield made
        finally:
            made.close()
