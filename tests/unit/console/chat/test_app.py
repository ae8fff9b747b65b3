"""console.chat.app: the process and its options."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.folder_lock import FolderLock
from console.chat.app import main
from console.chat_link import ChatLink


@pytest.mark.parametrize("words", ["", "hello\n", "https://console.example/#pin=12&key=secret-of-mine\n"])
def test_what_is_no_link_is_refused_and_not_repeated(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(words))
    assert main(["--link-from-stdin", "--data", str(tmp_path / "chat")]) == 2
    said = capsys.readouterr().err
    assert "This is no chat link" in said
    assert "secret-of-mine" not in said
    assert not (tmp_path / "chat").exists()


def run(code: str, folder: Path, *options: str, words: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, after some code that changes it."""
    return subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nfrom console.chat.app import main\nsys.exit(main(sys.argv[1:]))",
         "--data", str(folder), *options],
        input=words, capture_output=True, text=True, check=False, env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )  # fmt: skip


def test_a_link_for_a_chat_that_is_open_already_is_refused_and_said(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "chat.lock")
    lock.acquire()
    try:
        ended = run("", tmp_path, "--link-from-stdin", words=ChatLink("http://127.0.0.1:1", "secret-of-mine").text())
    finally:
        lock.release()
    assert ended.returncode == 4
    assert "open already" in ended.stderr
    assert "secret-of-mine" not in ended.stderr


CLOSED_AT_ONCE = """
import gc
from PySide6.QtCore import QTimer
from console.chat import app
from console.chat.window.desk import Desk

class Watched(Desk):
    def __init__(self, *values):
        print(gc.isenabled())
        super().__init__(*values)
    def start(self):
        super().start()
        QTimer.singleShot(0, app.QApplication.quit)
    def stop(self):
        super().stop()
        print(gc.isenabled())

app.Desk = Watched
"""


def test_garbage_is_collected_by_no_thread_of_the_desk_and_the_size_is_kept_where_it_is_said(tmp_path: Path) -> None:
    ended = run(CLOSED_AT_ONCE, tmp_path / "chat", "--settings", str(tmp_path / "settings"))
    assert (ended.returncode, ended.stdout.split()) == (0, ["False", "False"])
    assert "geometry" in (tmp_path / "settings" / "chat.ini").read_text()
