"""The AppDir of the agent: it starts what it says, and nothing but a runtime is put before it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installer.packaging import appimage
from installer.packaging.errors import BuildFailed

ROOT = Path(__file__).resolve().parents[4]
RUNTIME = b"\x7fELF\x02\x01\x01\x00AI\x02" + bytes(5)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="AppImages are for Linux")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for name in ("fallow-agent", "fallow-tray"):
        # It starts as a program does, and says its name.
        shutil.copy("/bin/echo", bundle / name)
    return appimage.lay_out(bundle, ROOT, tmp_path / "AppDir")


@pytest.mark.parametrize(
    ("words", "said"),
    [(["fallow-agent", "status"], "status"), (["fallow-tray", "--show"], "--show"), (["--show"], "--show")],
)
def test_its_entry_starts_the_program_that_is_meant(folder: Path, words: list[str], said: str) -> None:
    done = subprocess.run([folder / "AppRun", *words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said


def test_a_link_of_a_programs_name_starts_that_program(folder: Path, tmp_path: Path) -> None:
    (folder / "usr/lib/fallow-agent/fallow-tray").unlink()
    link = tmp_path / "fallow-agent"
    link.symlink_to(folder / "AppRun")
    assert subprocess.run([link, "x"], capture_output=True, text=True, check=True).stdout == "x\n"


@pytest.mark.parametrize("lost", ["fallow-tray.svg", "fallow-tray.desktop", "usr/lib/fallow-agent/fallow-tray"])
def test_a_folder_that_would_not_start_is_refused(folder: Path, lost: str) -> None:
    (folder / lost).unlink()
    with pytest.raises(BuildFailed):
        appimage.check(folder)


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", RUNTIME.replace(b"AI\x02", b"AI\x01")])
def test_what_is_no_runtime_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runtime").write_bytes(content)
    with pytest.raises(BuildFailed, match="type 2"):
        appimage.check_runtime(tmp_path / "runtime")


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools is not installed")
def test_the_file_is_the_runtime_with_the_folder_behind_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runtime").write_bytes(RUNTIME)
    made = appimage.pack(folder, tmp_path / "runtime", tmp_path / "a.AppImage", lambda _: None)
    assert made.stat().st_mode & 0o111
    content = made.read_bytes()
    assert content.startswith(RUNTIME)
    (tmp_path / "image").write_bytes(content[len(RUNTIME) :])
    listed = subprocess.run(["unsquashfs", "-l", tmp_path / "image"], capture_output=True, text=True, check=True).stdout
    assert "squashfs-root/AppRun" in listed
    assert not list(tmp_path.glob("*.squashfs"))
