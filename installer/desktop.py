"""A desktop without a screen for the tests: an X server, a window manager, a tray, a bus, and somebody who types."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from installer import optional_packages

if TYPE_CHECKING:
    from pathlib import Path

# program -> Debian package
PROGRAMS = {
    "Xvfb": "xvfb",
    "dbus-daemon": "dbus-daemon",
    "openbox": "openbox",
    "tint2": "tint2",
    "xdotool": "xdotool",
}


def missing_programs() -> list[str]:
    """List the programs that are not in the path."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def ensure(folder: Path) -> str:
    """Make a desktop available to the tests if this user may install one; returns a sentence if there is none."""
    return optional_packages.ensure(
        "A desktop without a screen", [PROGRAMS[name] for name in missing_programs()], folder
    )
