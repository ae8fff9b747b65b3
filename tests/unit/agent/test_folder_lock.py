"""A folder is held by one process, and whatever else goes wrong is not taken for another one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent.folder_lock import FolderBusy, FolderLock


def test_a_folder_that_is_held_is_busy_until_it_is_released(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "lock"), FolderLock(tmp_path / "lock")
    first.acquire()
    with pytest.raises(FolderBusy, match="stop it first"):
        second.acquire()
    first.release()
    with second:
        second.acquire()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_folder_that_cannot_be_locked_is_not_said_to_be_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(_: object) -> None:
        raise OSError(code, "No locks available")

    monkeypatch.setattr("agent.folder_lock._lock", fail)
    with pytest.raises(OSError, match="No locks available") as failed:
        FolderLock(tmp_path / "lock").acquire()
    assert failed.value.filename == str(tmp_path / "lock")
