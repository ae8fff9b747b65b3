"""Whether a window can be shown: asked before Qt ends the process where none can."""

from __future__ import annotations

import importlib
import socket
import sys
from pathlib import Path

import pytest

from agent.look.screen import EXIT_NO_SCREEN, why_no_screen
from tests.support.screens import x_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="X and Wayland")
PROGRAMS = {"fallow-tray": "agent.tray.app", "fallow-chat": "console.chat.app"}


def test_who_chose_how_qt_draws_needs_no_screen() -> None:
    assert why_no_screen({"QT_QPA_PLATFORM": "offscreen"}) == ""


def test_nowhere_is_told(tmp_path: Path) -> None:
    assert "no screen here" in why_no_screen({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_screen_that_does_not_answer_is_named(tmp_path: Path) -> None:
    assert "screen :4711 cannot" in why_no_screen({"DISPLAY": ":4711", "XDG_RUNTIME_DIR": str(tmp_path)})
    assert "wayland-7" in why_no_screen({"WAYLAND_DISPLAY": "wayland-7", "XDG_RUNTIME_DIR": str(tmp_path)})


def test_an_x_server_is_a_screen(tmp_path: Path) -> None:
    with x_server() as server:
        assert why_no_screen({**server.environment, "XDG_RUNTIME_DIR": str(tmp_path)}) == ""


def test_a_compositor_is_a_screen(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listens:
        listens.bind(str(tmp_path / "wayland-0"))
        listens.listen()
        assert why_no_screen({"XDG_RUNTIME_DIR": str(tmp_path)}) == ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_without_a_screen_says_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(f"{PROGRAMS[name]}.why_no_screen", lambda: "There is none.")
    assert importlib.import_module(PROGRAMS[name]).main(["--data", str(tmp_path / "data")]) == EXIT_NO_SCREEN
    assert capsys.readouterr().err == f"{name}: There is none.\n"
    assert not (tmp_path / "data").exists()


def test_the_window_of_the_console_without_a_screen_says_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = importlib.import_module("console.gui.app")
    monkeypatch.setattr(app, "why_no_screen", lambda: "There is none.")
    assert app.run(tmp_path / "data") == EXIT_NO_SCREEN
    assert capsys.readouterr().err == "fallow-console: There is none.\n"
