"""What an agent remembers is read as it was written, and whatever goes wrong with the file costs only the memory."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.kept import MAX_FILE_BYTES, read_kept, write_kept

LOST = "all is found out again"


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    assert read_kept(path, list[int], lost=LOST) is None
    write_kept(path, [1, 2], lost=LOST)
    assert read_kept(path, list[int], lost=LOST) == [1, 2]
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b'["a"]', b" " * MAX_FILE_BYTES + b"[1]"])
def test_a_file_that_is_not_ours_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(content)
    with caplog.at_level(logging.INFO):
        assert read_kept(path, list[int], lost=LOST) is None
    assert caplog.messages[-1].endswith(f"; {LOST}.")
    write_kept(path, [1], lost=LOST)
    assert read_kept(path, list[int], lost=LOST) == [1]


def test_a_file_that_cannot_be_written_is_only_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "kept.json"
    path.mkdir()
    with caplog.at_level(logging.INFO):
        write_kept(path, [1], lost=LOST)
        assert read_kept(path, list[int], lost=LOST) is None
    assert [message.endswith(f"; {LOST}.") for message in caplog.messages] == [True, True]
