"""agent.tray.single: one tray for each user and data folder."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.control.endpoint import UnixSocket
from agent.tray import single as single_module
from agent.tray.single import SingleInstance, Start, endpoint_of_tray, hand_over, listen

OTHER = """
import sys, time
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from agent.tray.bridge import Bridge
from agent.tray.single import SingleInstance
app = QCoreApplication([])
folder = Path(sys.argv[1])
first = SingleInstance(folder)
print(first.begin().value, flush=True)
bridge = Bridge(folder)
bridge.wished.connect(lambda wish: print(wish, flush=True))
bridge.start()
if sys.argv[2] == "hang":
    time.sleep(600)
app.exec()
"""


@pytest.fixture
def start_other(folder: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start another program that is the first."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str = "answer") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OTHER, str(folder), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def instance(folder: Path) -> Iterator[SingleInstance]:
    made = SingleInstance(folder)
    yield made
    made.end()


def test_the_second_hands_its_wish_to_the_first(
    instance: SingleInstance, start_other: Callable[[str], subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_module, "ANSWER_WAIT_S", 30)
    other = start_other("answer")
    assert instance.begin("enrol") is Start.HANDED_OVER
    assert other.stdout is not None
    assert other.stdout.readline() == "enrol\n"


def test_the_place_of_a_killed_one_is_free(
    instance: SingleInstance, start_other: Callable[[str], subprocess.Popen[str]]
) -> None:
    other = start_other("answer")
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert instance.begin() is Start.FIRST


def test_one_that_hangs_is_found_out_and_can_be_ended(
    instance: SingleInstance, start_other: Callable[[str], subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_module, "ANSWER_WAIT_S", 0.5)
    other = start_other("hang")
    assert instance.begin() is Start.OTHER_HANGS
    assert instance.end_other()
    assert other.poll() is not None
    assert instance.begin() is Start.FIRST


def test_a_process_that_only_got_the_number_of_the_old_one_is_left_alone(
    instance: SingleInstance, folder: Path
) -> None:
    (folder / "tray.pid").write_text(str(os.getpid()))
    os.utime(folder / "tray.pid", (1.0, 1.0))
    assert instance.end_other()


def test_without_a_note_of_the_other_nobody_is_ended(
    instance: SingleInstance, expected_logs: Callable[[str, str], None]
) -> None:
    expected_logs("agent.tray.single", "cannot be ended")
    assert not instance.end_other()


async def test_what_is_no_wish_is_not_carried_out(folder: Path) -> None:
    wishes: list[str] = []

    async def on_wish(wish: str) -> None:
        wishes.append(wish)

    close = await listen(folder, on_wish)
    for nonsense in (b"format the disk\n", b"x" * 300_000, b"\xff\xfe\n", b""):
        reader, writer = await endpoint_of_tray(folder).connect()
        writer.write(nonsense)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert await hand_over(folder, "show")
    await close()
    assert wishes == ["show"]


async def test_windows_that_do_not_hear_it_are_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_module, "ANSWER_WAIT_S", 0.1)

    async def never(_: str) -> None:
        await asyncio.Event().wait()

    close = await listen(folder, never)
    assert not await hand_over(folder, "show", wait_s=5)
    await close()


def test_a_folder_that_cannot_be_written_is_no_reason_to_show_nothing(
    tmp_path: Path, expected_logs: Callable[[str, str], None]
) -> None:
    expected_logs("agent.tray.single", "cannot be written")
    (tmp_path / "file").touch()
    assert SingleInstance(tmp_path / "file" / "data").begin() is Start.FIRST


def test_the_socket_lies_in_the_users_own_folder(folder: Path) -> None:
    endpoint = endpoint_of_tray(folder)
    assert isinstance(endpoint, UnixSocket)
    assert endpoint.path.parent == Path(os.environ["XDG_RUNTIME_DIR"])
    other = endpoint_of_tray(folder.parent)
    assert isinstance(other, UnixSocket)
    assert other.path != endpoint.path
