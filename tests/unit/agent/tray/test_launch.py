"""agent.tray.launch: the programs a tray starts."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices

from agent.tray.launch import Launch, agent_command, findings_of

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """A program that does what the text says, with its arguments in `sys.argv`."""

    def write(text: str) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(text)
        return [sys.executable, str(path)]

    return write


def test_the_service_is_started_for_its_data_folder(
    script: Callable[[str], list[str]], tmp_path: Path, qtbot: QtBot
) -> None:
    record = "import sys, pathlib; pathlib.Path(sys.argv[4], 'started').write_text(' '.join(sys.argv[1:4]))"
    launch = Launch(tmp_path, script(record))
    assert launch.service()
    qtbot.waitUntil((tmp_path / "started").exists)
    qtbot.waitUntil(lambda: (tmp_path / "started").read_text() == "run --wait --data")
    launch.forget_words()


def test_what_a_service_ends_with_is_told_and_leaves_no_file(
    script: Callable[[str], list[str]], tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    words.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(words))
    complain = """import sys
print("INFO something else", file=sys.stderr)
print("fallow-agent: The disk is full; free some space.", file=sys.stderr)"""
    launch = Launch(tmp_path, script(complain))
    assert launch.why_ended() == ""
    assert launch.service()
    qtbot.waitUntil(lambda: launch.why_ended() == "The disk is full; free some space.")
    assert launch.service()
    assert len(list(words.iterdir())) == 1, "of the start before nothing is left"
    launch.forget_words()
    assert list(words.iterdir()) == []
    assert launch.why_ended() == ""


def test_a_full_disk_is_no_reason_not_to_start(
    script: Callable[[str], list[str]], tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", fail)
    started = tmp_path / "started"
    launch = Launch(tmp_path, script(f"import pathlib; pathlib.Path({str(started)!r}).touch()"))
    assert launch.service()
    qtbot.waitUntil(started.exists)
    assert launch.why_ended() == ""


def test_a_service_that_is_not_there_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "words"
    words.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(words))
    assert not Launch(tmp_path, [str(tmp_path / "nothing")]).service()
    assert list(words.iterdir()) == []


def test_the_doctor_reports_as_json(script: Callable[[str], list[str]], tmp_path: Path, qtbot: QtBot) -> None:
    parent = QObject()
    print_it = """print('{"findings": [{"check": "disk", "verdict": "ok", "said": "fine"}]}')"""
    process = Launch(tmp_path, script(print_it)).doctor(parent)
    process.start()
    qtbot.waitUntil(lambda: process.state() == process.ProcessState.NotRunning)
    found = findings_of(bytes(process.readAllStandardOutput().data()))
    assert found is not None
    assert [finding.check for finding in found] == ["disk"]


@pytest.mark.parametrize("output", [b"", b"Traceback", b"{}", b'{"findings": [{"check": 1}]}'])
def test_what_is_no_report_is_none(output: bytes) -> None:
    assert findings_of(output) is None


def test_a_frozen_program_starts_the_agent_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "fallow-tray.exe"))
    assert agent_command() == [str(tmp_path / "fallow-agent.exe")]


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "javascript:alert(1)", "chat.example"])
def test_only_web_pages_are_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    monkeypatch.setattr(Launch, "chat_program", lambda _: "")
    assert not Launch(tmp_path).chat(url)


def test_the_fleets_chat_opens_in_the_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setattr(Launch, "chat_program", lambda _: "")

    def open_url(url: QUrl) -> bool:
        opened.append(url.toString())
        return True

    monkeypatch.setattr(QDesktopServices, "openUrl", open_url)
    assert Launch(tmp_path).chat("https://chat.example/")
    assert opened == ["https://chat.example/"]


def test_a_chat_program_on_this_pc_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "fallow-chat"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Launch(tmp_path).chat_program() == str(program)
