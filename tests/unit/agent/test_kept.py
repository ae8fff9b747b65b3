"""What an agent remembers is read as it was written, and whatever goes wrong with the file costs only the memory."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from agent.kept import MAX_FILE_BYTES, read_kept, replace_file, write_kept

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


def test_a_full_disk_leaves_the_former_content_and_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.json"
    replace_file(path, b"before")

    def run_full(fresh: Path, data: bytes) -> int:
        with fresh.open("wb") as file:
            file.write(data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", run_full)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            replace_file(path, b"after")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"kept.json": b"before"}


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "kept.new").write_bytes(b"ha")
    replace_file(tmp_path / "kept.json", b"whole")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"kept.json": b"whole"}
