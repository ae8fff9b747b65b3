"""console.logs: where the service logs, and that a database's password is in no line."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from console.data import log_path
from console.errors import DataFolderUnusable
from console.logs import logging_to

PASSWORD = "canary+1%2Fx"


def test_it_goes_to_standard_error_and_the_data_folder_or_to_a_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("console.test")
    folder, file = tmp_path / "console", tmp_path / "other.log"
    with logging_to(folder, None, "INFO"):
        log.info("both")
    with logging_to(folder, file, "INFO"):
        log.info("alone")
    assert "both" in log_path(folder).read_text()
    assert "alone" not in log_path(folder).read_text()
    assert "alone" in file.read_text()
    assert "both" in (said := capsys.readouterr().err)
    assert "alone" not in said


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(DataFolderUnusable, match=r"nowhere.service\.log cannot be written"),
        logging_to(tmp_path, tmp_path / "nowhere" / "service.log", "INFO"),
    ):
        pass


def test_the_password_of_the_database_is_in_no_line_in_either_spelling(tmp_path: Path) -> None:
    with logging_to(tmp_path, None, "INFO", database=f"postgresql://u:{PASSWORD}@host/x"):
        logging.getLogger("console.test").info("It says %s and %s.", PASSWORD, "canary+1/x")
    assert "canary" not in log_path(tmp_path).read_text()
