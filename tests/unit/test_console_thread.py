"""tests.support.console_thread: a service that does not start fails the test with its reason, and is over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from console.errors import DataFolderUnusable
from tests.support.console_thread import console_thread


def test_a_service_that_does_not_start_says_why_and_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    before = set(threading.enumerate())
    with pytest.raises(DataFolderUnusable, match="cannot be made"), console_thread(tmp_path / "file"):
        pass
    assert set(threading.enumerate()) == before
