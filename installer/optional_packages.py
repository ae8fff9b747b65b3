"""Debian packages that some tests use: installed for root, else those tests are skipped and a sentence says so."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from installer.children import run_captured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def install_command(packages: Sequence[str]) -> list[str]:
    """Give the command that installs them."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def provide(
    what: str,
    packages: Sequence[str],
    folder: Path,
    *,
    root_user: bool,
    has_apt: bool,
    run: Callable[[list[str], Path], tuple[int, str]] = run_captured,
) -> str:
    """Install what is missing where that is possible; returns a sentence when the tests will have to do without.

    `what` is what the packages are for, as the beginning of that sentence.
    """
    if not packages or sys.platform != "linux":
        return ""
    command = install_command(packages)
    if not has_apt or not root_user:
        return f"{what} is not installed, its tests are skipped: to run them, '{' '.join(command)}' as root."
    run(["apt-get", "update", "-qq"], folder)  # should it fail, the list that is there may do
    code, _ = run(["env", "DEBIAN_FRONTEND=noninteractive", *command, "-qq"], folder)
    return f"{what} could not be installed, its tests are skipped: see '{' '.join(command)}'." if code else ""


def ensure(what: str, packages: Sequence[str], folder: Path) -> str:
    """Install what is missing if this user may; returns a sentence if there is something to do without."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return provide(what, packages, folder, root_user=is_root, has_apt=shutil.which("apt-get") is not None)
