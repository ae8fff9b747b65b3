"""The PostgreSQL server that the tests start privately: where its programs are, and how to get them on Debian."""

from __future__ import annotations

import shutil
from pathlib import Path

from installer import optional_packages

# Debian keeps the server's programs out of the path, one folder per major version.
DEBIAN_FOLDER = Path("/usr/lib/postgresql")


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


def ensure(folder: Path) -> str:
    """Make a server available to the tests if this user may install one; returns a sentence if there is none."""
    return optional_packages.ensure("PostgreSQL", [] if programs() else ["postgresql"], folder)
