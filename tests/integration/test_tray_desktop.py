"""The tray program for real: its own process, an X server, a window manager, a tray, mouse and keyboard.

With FALLOW_PICTURES=FOLDER the pictures of the screen are kept there, for people to look at.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from agent.control.endpoint import UnixSocket
from agent.control.protocol import Order, Pause
from agent.tray.icons import TRAY_COLOURS
from agent.tray.single import endpoint_of_tray
from tests.support.desktop import Desktop, desktop, wait_for
from tests.support.fake_service import FakeService, fake_service, make_busy_status, make_held_status
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="Xvfb, openbox and tint2")]

GREEN = TRAY_COLOURS["contributing"]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desktop]:
    """A desktop, and the runtime folder of its user."""
    with tempfile.TemporaryDirectory(prefix="fallow-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        with desktop(Path(folder)) as made:
            yield made


@pytest.fixture
def service(screen: Desktop) -> Iterator[FakeService]:
    data = screen.folder / "data"
    data.mkdir()
    with fake_service(data, make_busy_status()) as running:
        yield running


def start_program(screen: Desktop, *options: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agent.tray.app", "--data", str(screen.folder / "data"), "--language", "en"]
    return screen.start(*command, *options, **environment)


def keep(screen: Desktop, name: str) -> None:
    """Keep a picture of the screen, if somebody wants to look at it."""
    folder = os.environ.get("FALLOW_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        assert screen.still_picture().save(str(Path(folder) / f"{name}.png"))


def icon_place(screen: Desktop) -> tuple[int, int]:
    """Where the contributing icon is in the panel."""
    wait_for(lambda: len(screen.panel_pixels(GREEN)) > 20, "the icon in the tray")
    pixels = screen.panel_pixels(GREEN)
    return pixels[len(pixels) // 2]


def click(screen: Desktop, place: tuple[int, int], button: int = 1) -> None:
    screen.xdotool("mousemove", str(place[0]), str(place[1]), "click", str(button))


def orders_of(service: FakeService, kind: type[Order]) -> list[Order]:
    return [order for order in service.orders if type(order) is kind]


def test_the_icon_follows_the_service_and_survives_the_tray(screen: Desktop, service: FakeService) -> None:
    start_program(screen)
    screen.start_tray()  # after the program: a desktop that is still starting
    icon_place(screen)
    keep(screen, "tray-contributing")
    service.say(make_held_status())
    wait_for(lambda: not screen.panel_pixels(GREEN), "another icon")
    wait_for(lambda: len(screen.panel_pixels("#ffffff")) > 20, "the icon of waiting")
    keep(screen, "tray-waiting")
    service.say(make_busy_status())
    icon_place(screen)
    assert screen.tray is not None
    screen.end(screen.tray)
    screen.start_tray()
    icon_place(screen)


def test_mouse_and_keys_work_the_menu_and_the_window(screen: Desktop, service: FakeService) -> None:
    screen.start_tray()
    start_program(screen)
    place = icon_place(screen)
    click(screen, place)
    wait_for(lambda: screen.windows("Fallow"), "the window")
    keep(screen, "window")
    window = screen.windows("Fallow")[0]
    screen.xdotool("windowactivate", "--sync", window, "key", "--window", window, "Escape")
    screen.xdotool("key", "Escape")
    wait_for(lambda: not screen.windows("Fallow"), "the window closed by Escape")
    before = screen.still_picture()
    click(screen, place, button=3)
    wait_for(lambda: screen.picture() != before, "the menu")
    keep(screen, "menu")
    wait_for(lambda: _paused(screen, service), "a pause chosen with the keyboard")
    pause = orders_of(service, Pause)[0]
    assert isinstance(pause, Pause)
    assert (pause.until, pause.for_s) == ("time", 900.0)


def _paused(screen: Desktop, service: FakeService) -> bool:
    screen.xdotool("key", "--delay", "100", "p", "m")
    return bool(orders_of(service, Pause))


def test_without_a_tray_a_second_start_opens_the_window(screen: Desktop, service: FakeService) -> None:
    first = start_program(screen)
    hears = endpoint_of_tray(screen.folder / "data")
    assert isinstance(hears, UnixSocket)
    wait_for(hears.path.exists, "the first program")
    second = start_program(screen)
    assert second.wait(PATIENCE_S) == 0
    wait_for(lambda: screen.windows("Fallow"), "the window")
    assert first.poll() is None


@pytest.mark.parametrize(
    ("colours", "scale"), [("light", "1"), ("dark", "1"), ("light", "2"), ("dark", "2"), ("contrast", "2")]
)
def test_every_page_is_drawn_at_both_ends_of_the_scale(
    screen: Desktop, service: FakeService, colours: str, scale: str
) -> None:
    service.say(make_held_status())
    start_program(screen, "--show", "--colours", colours, QT_SCALE_FACTOR=scale)
    wait_for(lambda: screen.windows("Fallow"), "the window")
    window = screen.windows("Fallow")[0]
    screen.xdotool("windowactivate", "--sync", window)
    seen: list[QImage] = []
    for number, page in enumerate(("now", "history", "settings", "company", "membership", "doctor", "help"), start=1):
        screen.xdotool("key", f"ctrl+{number}")
        wait_for(lambda: screen.still_picture() not in seen, f"the page {page}")
        seen.append(screen.still_picture())
        keep(screen, f"{page}-{colours}-{scale}x")
