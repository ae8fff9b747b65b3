"""installer.demo_windows: what is opened is closed, whatever interrupts it, and keeps its settings apart."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from installer import demo_windows


class Opened:
    """A window's process."""

    def __init__(self, command: list[str], log: list[Opened], *, dies: bool) -> None:
        self.command, self.ended = command, False
        self.stdin = SimpleNamespace(write=self._write, close=lambda: None)
        self.words, self._dies = b"", dies
        log.append(self)

    def _write(self, words: bytes) -> None:
        if self._dies:
            raise KeyboardInterrupt
        self.words += words

    def poll(self) -> int | None:
        return 0 if self.ended else None

    def terminate(self) -> None:
        self.ended = True

    def wait(self, timeout_s: float) -> int:
        assert self.ended
        return 0


def fleet(folder: Path) -> Any:
    return SimpleNamespace(
        api_url="http://127.0.0.1:1", chat_key="the-key", console_folder=folder, agent_folder=lambda name: folder / name
    )


def interrupted(_: str) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", ["the first", "the last", "when it is said", "while they are open"])
def test_what_was_opened_is_closed_whenever_it_is_interrupted(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Opened] = []

    def opens(command: list[str], **_: object) -> Opened:
        return Opened(command, opened, dies=(len(opened), at) in ((0, "the first"), (2, "the last")))

    monkeypatch.setattr(subprocess, "Popen", opens)
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo_windows.show_windows(
            fleet(tmp_path), tmp_path, "pc-1", interrupted if at == "when it is said" else lambda _: None
        )
    assert len(opened) == (1 if at == "the first" else 3)
    assert all(window.ended for window in opened)


def test_the_demo_keeps_nothing_among_the_settings_of_who_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Opened] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: Opened(command, opened, dies=False))
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo_windows.show_windows(fleet(tmp_path), tmp_path, "pc-1", lambda _: None)
    for window in opened[:2]:
        assert window.command[:2] == [sys.executable, "-m"]
        assert window.command[window.command.index("--settings") + 1] == str(tmp_path / "settings")
    assert b"key=the-key" in opened[1].words
    assert not any("the-key" in part for window in opened for part in window.command)
