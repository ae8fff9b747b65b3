"""System libraries for Qt: installed as root, else the exact command."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installer import qt_libraries
from installer.environment import LibrariesMissing
from installer.packaging import trimming
from installer.packaging.debian import needs_of
from installer.qt_libraries import install_command, loadable, provide

MISSING = ["libxcb-cursor.so.0", "libEGL.so.1"]
OF_EVERY_LINUX = {
    "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libgthread-2.0.so.0", "libm.so.6",
    "libpthread.so.0", "librt.so.1", "libstdc++.so.6", "libz.so.1", "libzstd.so.1",
}  # fmt: skip
"""Of the system, of Python, or of a package that is named for another of its libraries."""
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


@pytest.mark.parametrize("packages", [qt_libraries.PACKAGES, qt_libraries.FOR_BUNDLES])
def test_packages_are_named_once(packages: dict[str, str]) -> None:
    command = install_command(packages)
    assert len(command) == len(set(command))


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("objdump") is None, reason="Linux with binutils")
def test_all_that_the_windows_of_bundles_link_to_is_known() -> None:
    qt = Path(importlib.import_module("PySide6").__file__ or "").parent / "Qt"
    binaries = [path for path in qt.rglob("*.so*") if path.is_file() and trimming.keeps(place(qt, path))]
    needs = {place(qt, path): needed(path) for path in binaries}
    unused = trimming.orphans(needs)
    wanted = {name for where, names in needs.items() if where not in unused for name in names}
    system = {name for name in wanted if not name.startswith(("libQt6", "libicu"))}
    assert system - set(qt_libraries.FOR_BUNDLES) <= OF_EVERY_LINUX


def place(qt: Path, path: Path) -> str:
    return f"PySide6/Qt/{path.relative_to(qt).as_posix()}"


def needed(path: Path) -> list[str]:
    said = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
    return list(needs_of(said).libraries)


@pytest.mark.skipif(sys.platform != "linux", reason="sonames of Linux")
def test_loading_is_the_test() -> None:
    assert loadable("libc.so.6")
    assert not loadable("libnowhere.so.9")
