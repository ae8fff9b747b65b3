"""console.logs: a log that has a bound, and says where it cannot be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from console import logs
from console.errors import DataFolderUnusable


def test_a_log_goes_on_where_it_ended_and_never_takes_more_than_twice_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 2000)
    for start in range(2):
        handler = logs.file_handler(tmp_path / "service.log")
        for number in range(200):
            handler.emit(logging.LogRecord("console", logging.INFO, "", 0, "line %d of %d", (number, start), None))
        handler.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2 * 2000
    assert {file.name for file in tmp_path.iterdir()} == {"service.log", "service.log.1"}
    assert (tmp_path / "service.log").read_text("utf-8").endswith("line 199 of 1\n")


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFolderUnusable, match=r"nowhere.service\.log cannot be written"):
        logs.file_handler(tmp_path / "nowhere" / "service.log")
