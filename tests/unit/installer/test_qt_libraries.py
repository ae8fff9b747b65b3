"""System libraries for Qt: installed as root, else the exact command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installer import qt_libraries
from installer.environment import LibrariesMissing
from installer.qt_libraries import install_command, loadable, provide

MISSING = ["libxcb-cursor.so.0", "libEGL.so.1"]
COMMAND = "apt-get install -y --no-install-recommends libegl1 libxcb-cursor0"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run; installs fail in a folder named so."""
    ran: list[str] = []

    def run(command: list[str], folder: Path) -> tuple[int, str]:
        ran.append(" ".join(command))
        return (1 if "fails" in folder.name and "install" in command else 0), ""

    monkeypatch.setattr(qt_libraries, "run_captured", run)
    return ran


def test_root_updates_the_list_then_installs(commands: list[str], tmp_path: Path) -> None:
    provide(MISSING, tmp_path, root_user=True, has_apt=True)
    assert commands == ["apt-get update -qq", f"env DEBIAN_FRONTEND=noninteractive {COMMAND} -qq"]


def test_others_are_given_the_exact_command(commands: list[str], tmp_path: Path) -> None:
    with pytest.raises(LibrariesMissing, match=f"sudo {COMMAND}"):
        provide(MISSING, tmp_path, root_user=False, has_apt=True)
    assert commands == []


def test_without_apt_the_libraries_are_named(commands: list[str], tmp_path: Path) -> None:
    with pytest.raises(LibrariesMissing, match=r"libxcb-cursor\.so\.0, libEGL\.so\.1"):
        provide(MISSING, tmp_path, root_user=True, has_apt=False)
    assert commands == []


def test_nothing_missing_runs_nothing(commands: list[str], tmp_path: Path) -> None:
    provide([], tmp_path, root_user=False, has_apt=False)
    assert commands == []


def test_a_failed_install_says_how_to_see_why(commands: list[str], tmp_path: Path) -> None:
    with pytest.raises(LibrariesMissing, match=f"run '{COMMAND}'"):
        provide(MISSING, tmp_path / "fails", root_user=True, has_apt=True)
    assert len(commands) == 2


def test_packages_are_named_once() -> None:
    command = install_command(qt_libraries.PACKAGES)
    assert len(command) == len(set(command))


@pytest.mark.skipif(sys.platform != "linux", reason="sonames of Linux")
def test_loading_is_the_test() -> None:
    assert loadable("libc.so.6")
    assert not loadable("libnowhere.so.9")
