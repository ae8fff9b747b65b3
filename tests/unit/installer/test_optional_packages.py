"""Packages that only tests use: installed for root, else what they are for is skipped, and why is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installer import desktop
from installer.optional_packages import provide

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the packages are Debian's")

COMMAND = "apt-get install -y --no-install-recommends xvfb tint2"


def call(*packages: str, root: bool = True, apt: bool = True, code: int = 0) -> tuple[str, list[str]]:
    ran: list[str] = []

    def run(command: list[str], _: Path) -> tuple[int, str]:
        ran.append(" ".join(command))
        return (code if "install" in command else 0), ""

    return provide("A desktop", packages, Path(), root_user=root, has_apt=apt, run=run), ran


def test_nothing_missing_runs_nothing() -> None:
    assert call() == ("", [])


def test_root_gets_debians() -> None:
    said, ran = call("xvfb", "tint2")
    assert said == ""
    assert ran == ["apt-get update -qq", f"env DEBIAN_FRONTEND=noninteractive {COMMAND} -qq"]


@pytest.mark.parametrize(("root", "apt"), [(False, True), (True, False)])
def test_others_are_told_what_is_skipped_and_how_to_change_that(root: bool, apt: bool) -> None:
    said, ran = call("xvfb", "tint2", root=root, apt=apt)
    assert said == f"A desktop is not installed, its tests are skipped: to run them, '{COMMAND}' as root."
    assert ran == []


def test_an_install_that_fails_is_no_failure_of_the_checks() -> None:
    assert "A desktop could not be installed" in call("xvfb", code=100)[0]


def test_a_desktop_lacks_what_is_not_in_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("Xvfb", "dbus-daemon", "xdotool"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert desktop.missing_programs() == ["openbox", "tint2"]
