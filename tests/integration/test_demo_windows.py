"""The demo with its windows on a real screen: somebody asks in the chat, looks at the console, and closes both.

With FALLOW_PICTURES=FOLDER the pictures of the screen are kept there, for people to look at.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.support.desktop import Desktop, desktop, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="Xvfb, openbox and tint2"),
]

LONG_S = 240.0


@pytest.fixture
def screen() -> Iterator[Desktop]:
    with tempfile.TemporaryDirectory(prefix="fallow-") as folder, desktop(Path(folder)) as made:
        yield made


def keep(screen: Desktop, name: str) -> None:
    if folder := os.environ.get("FALLOW_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        assert screen.picture().save(str(Path(folder) / f"demo-{name}.png"))


def answers(folder: Path) -> list[str]:
    """Read what the assistant said in every chat of a folder."""
    files = list(folder.glob("fallow-demo-*/chat/chats.sqlite"))
    if not files:
        return []
    with closing(sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True)) as connection:
        found = connection.execute("SELECT text FROM messages WHERE role = 'assistant' AND text != ''")
        return [row[0] for row in found]


def bring_up(screen: Desktop, title: str) -> str:
    """Bring a window to the front; returns it."""
    wait_for(lambda: screen.windows(title), f"the window {title}", timeout_s=LONG_S)
    window = screen.windows(title)[0]
    screen.xdotool("windowactivate", "--sync", window)
    return window


def test_somebody_asks_in_the_chat_and_closes_the_windows(screen: Desktop, smollm2_library: Path) -> None:
    screen.start_tray()
    demo = screen.start(
        sys.executable, "-m", "installer.demo", "--windows", "--library", str(smollm2_library),
        TMPDIR=str(screen.folder),
    )  # fmt: skip
    bring_up(screen, "Fallow console")
    bring_up(screen, "Fallow chat")
    screen.xdotool("type", "--delay", "30", "What is the capital of France?")
    screen.xdotool("key", "Return")
    wait_for(lambda: answers(screen.folder), "an answer", timeout_s=LONG_S)
    keep(screen, "chat")
    bring_up(screen, "Fallow console")
    keep(screen, "console")
    family = psutil.Process(demo.pid).children(recursive=True)
    assert len(family) >= 8, "a console, two agents, two stages, three windows"
    for title in ("Fallow chat", "Fallow console"):
        bring_up(screen, title)
        screen.xdotool("key", "ctrl+q")
    assert demo.wait(LONG_S) == 0
    assert not psutil.wait_procs(family, timeout=10)[1]
