"""The PostgreSQL server that the tests start privately: where its programs are, and how to get them on Debian."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from installer.children import run_captured

if TYPE_CHECKING:
    from collections.abc import Callable

# Debian keeps the server's programs out of the path, one folder per major version.
DEBIAN_FOLDER = Path("/usr/lib/postgresql")
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]


def programs(debian: Path = DEBIAN_FOLDER) -> Path | None:
    """Return the folder with `initdb` and `pg_ctl`, the newest version's; None where there is no server."""

    def version(folder: Path) -> float:
        try:
            return float(folder.name)
        except ValueError:
            return 0.0

    for folder in sorted(debian.glob("*"), key=version, reverse=True):
        if (folder / "bin" / "initdb").exists():
            return folder / "bin"
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def provide(
    folder: Path,
    *,
    found: Path | None,
    root_user: bool,
    has_apt: bool,
    run: Callable[[list[str], Path], tuple[int, str]] = run_captured,
) -> str:
    """Install a server where that is possible; returns a sentence when the tests will have to do without."""
    if found is not None or sys.platform != "linux":
        return ""
    if not has_apt or not root_user:
        return f"PostgreSQL is not installed, its tests are skipped: to run them, '{' '.join(INSTALL)}' as root."
    run(["apt-get", "update", "-qq"], folder)  # should it fail, the list that is there may do
    code, _ = run(["env", "DEBIAN_FRONTEND=noninteractive", *INSTALL, "-qq"], folder)
    return f"PostgreSQL could not be installed, its tests are skipped: see '{' '.join(INSTALL)}'." if code else ""


def ensure(folder: Path) -> str:
    """Make a server available to the tests if this user may install one; returns a sentence if there is none."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return provide(folder, found=programs(), root_user=is_root, has_apt=shutil.which("apt-get") is not None)
