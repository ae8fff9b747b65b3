from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installer.postgresql import INSTALL, programs, provide

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the package is Debian's")


def call(found: Path | None = None, *, root: bool = True, apt: bool = True, code: int = 0) -> tuple[str, list[str]]:
    ran: list[str] = []

    def run(command: list[str], _: Path) -> tuple[int, str]:
        ran.append(" ".join(command))
        return (code if "install" in command else 0), ""

    return provide(Path(), found=found, root_user=root, has_apt=apt, run=run), ran


def test_a_server_that_is_there_is_left_alone() -> None:
    assert call(Path("/usr/lib/postgresql/15/bin")) == ("", [])


def test_root_gets_debians() -> None:
    said, ran = call()
    assert said == ""
    assert " ".join(INSTALL) in ran[-1]


@pytest.mark.parametrize(("root", "apt"), [(False, True), (True, False)])
def test_others_are_told_what_is_skipped_and_how_to_change_that(root: bool, apt: bool) -> None:
    said, ran = call(root=root, apt=apt)
    assert "skipped" in said
    assert "postgresql" in said
    assert ran == []


def test_an_install_that_fails_is_no_failure_of_the_checks() -> None:
    assert "could not be installed" in call(code=100)[0]


def test_the_newest_version_is_taken(tmp_path: Path) -> None:
    for version in ("9.6", "15", "17", "common"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "initdb").touch()
    assert programs(tmp_path) == tmp_path / "17" / "bin"
