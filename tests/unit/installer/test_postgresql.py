"""Where the server's programs are."""

from __future__ import annotations

from pathlib import Path

from installer.postgresql import programs


def test_the_newest_version_is_taken(tmp_path: Path) -> None:
    for version in ("9.6", "15", "17", "common"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "initdb").touch()
    assert programs(tmp_path) == tmp_path / "17" / "bin"
