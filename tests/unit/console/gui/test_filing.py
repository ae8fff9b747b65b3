"""console.gui.filing: files are written beside the GUI thread, and whoever asked hears how it ended."""

from __future__ import annotations

import threading
from pathlib import Path

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from console.data import write_whole
from console.gui.filing import write_beside
from tests.conftest import ExpectLogs


def test_the_gui_thread_goes_on_while_a_disk_is_slow(qtbot: QtBot, tmp_path: Path) -> None:
    owner, heard, may_end = QObject(), list[str](), threading.Event()

    def write() -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert may_end.wait(30)
        write_whole(tmp_path / "file", b"content")

    write_beside(owner, write, heard.append)
    assert not heard
    may_end.set()
    qtbot.waitUntil(lambda: heard == [""])
    assert (tmp_path / "file").read_bytes() == b"content"


def test_what_went_wrong_is_heard_and_the_unexpected_is_logged(
    qtbot: QtBot, tmp_path: Path, expected_logs: ExpectLogs
) -> None:
    owner, heard = QObject(), list[str]()
    write_beside(owner, lambda: write_whole(tmp_path / "nowhere" / "file", b""), heard.append)
    qtbot.waitUntil(lambda: len(heard) == 1)
    assert "cannot be written" in heard[0]
    expected_logs("console.gui.filing", "was not written")
    write_beside(owner, lambda: write_whole(tmp_path / "\0", b""), heard.append)
    qtbot.waitUntil(lambda: len(heard) == 2)
    assert "the log says why" in heard[1]


def test_a_file_is_written_also_for_who_is_gone_meanwhile(qtbot: QtBot, tmp_path: Path) -> None:
    owner, heard, may_end = QObject(), list[str](), threading.Event()

    def write() -> None:
        assert may_end.wait(30)
        write_whole(tmp_path / "file", b"content")

    write_beside(owner, write, heard.append)
    owner.deleteLater()
    qtbot.waitUntil(lambda: not isValid(owner))
    may_end.set()
    qtbot.waitUntil(lambda: (tmp_path / "file").exists() and "writes a file" not in names_of_threads())
    other = QObject()
    write_beside(other, lambda: None, heard.append)
    qtbot.waitUntil(lambda: bool(heard))
    assert heard == [""]


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}
