"""agent.logs.handlers: files with a bound that only their owner reads, also where they cannot be put aside."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.logs import handlers
from agent.logs.handlers import OwnFileHandler, log_files, set_up, tear_down
from agent.logs.levels import LEVELS_HERE
from agent.logs.lines import JsonLines
from agent.logs.secrets import Hider

BOUND = 2000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(handlers, "MOST_BYTES", BOUND)
    monkeypatch.setattr(handlers, "RETRY_BYTES", 500)
    yield
    tear_down()


def opened(file: Path) -> OwnFileHandler:
    handler = OwnFileHandler(file)
    handler.setFormatter(JsonLines(Hider()))
    return handler


def fill(handler: logging.Handler, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        handler.emit(logging.LogRecord("console", logging.INFO, "", 0, "line %d", (number,), None))


def numbers(file: Path) -> list[int]:
    lines = [line for path in log_files(file) for line in path.read_text("utf-8").splitlines()]
    return [int(json.loads(line)["message"].removeprefix("line ")) for line in lines]


def test_a_log_goes_on_where_it_ended_and_has_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "service.log"
    for start in (0, 100):
        handler = opened(file)
        fill(handler, 100, start)
        handler.close()
    assert {path.name for path in tmp_path.iterdir()} == {"service.log", *(f"service.log.{n}" for n in range(1, 5))}
    assert all(path.stat().st_size <= BOUND for path in tmp_path.iterdir())
    kept = numbers(file)
    assert kept == list(range(200 - len(kept), 200))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_only_its_owner_reads_it_also_where_it_was_there_before(tmp_path: Path) -> None:
    file = tmp_path / "service.log"
    file.touch(mode=0o644)
    before = os.umask(0)
    try:
        handler = opened(file)
        fill(handler, 100)
        handler.close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_full_file_that_another_program_holds_is_written_on_and_put_aside_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "service.log"
    handler = opened(file)
    replace = Path.replace

    def held(source: Path, target: str) -> Path:
        raise PermissionError(13, "It is open in another program")

    monkeypatch.setattr(Path, "replace", held)
    fill(handler, 40)
    assert file.stat().st_size > BOUND
    assert numbers(file) == list(range(40))
    monkeypatch.setattr(Path, "replace", replace)
    fill(handler, 20, 40)
    handler.close()
    assert len(log_files(file)) > 1
    assert numbers(file) == list(range(60))


def test_a_line_that_cannot_be_made_is_told_without_what_was_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = opened(tmp_path / "service.log")
    handler.emit(logging.LogRecord("console.x", logging.INFO, "", 0, "%d", ("canary",), None))
    handler.close()
    said = capsys.readouterr().err
    assert said == "A line of console.x could not be logged (TypeError).\n"


@pytest.mark.parametrize(
    ("form", "file_is_json", "stderr_is_json"), [("auto", True, False), ("json", True, True), ("text", False, False)]
)
def test_programs_read_the_file_and_people_the_terminal_unless_told_otherwise(
    form: handlers.Format,
    *,
    file_is_json: bool,
    stderr_is_json: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "agent.log"
    set_up(form=form, file=file)
    logging.getLogger("agent.test").info("It runs.")
    logging.getLogger("websockets").info("a frame")
    logging.getLogger("agent.test").debug("detail")
    tear_down()
    for text, is_json in ((file.read_text(), file_is_json), (capsys.readouterr().err, stderr_is_json)):
        (line,) = text.splitlines()
        assert line.startswith("{") == is_json
        assert "It runs." in line


def test_what_was_set_up_again_takes_the_place_of_what_was_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger().handlers[:]
    set_up()
    set_up(level="DEBUG", file=tmp_path / "agent.log", stderr=False)
    logging.getLogger("agent.test").debug("detail")
    assert LEVELS_HERE.all()[0].level == "DEBUG"
    tear_down()
    assert capsys.readouterr().err == ""
    assert "detail" in (tmp_path / "agent.log").read_text()
    assert logging.getLogger().handlers == before
    assert logging.getLogger("agent").level == logging.NOTSET


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up()
    with pytest.raises(FileNotFoundError):
        set_up(file=tmp_path / "nowhere" / "agent.log")
    logging.getLogger("agent.test").info("still here")
    tear_down()
    assert "still here" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_loses_lines_and_not_the_end_of_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = opened(tmp_path / "service.log")
    assert handler.stream is not None
    handler.stream.close()
    handler.stream = os.fdopen(os.open("/dev/full", os.O_WRONLY), "a", encoding="utf-8")
    fill(handler, 3)
    handler.close()
    assert capsys.readouterr().err.count("could not be logged") == 3
