"""The Prometheus that tests of metrics, dashboard and alerts start privately: which of its programs are missing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from installer import optional_packages

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = ("prometheus", "promtool")
"""Debian has both in one package."""


def missing_programs() -> list[str]:
    """List the programs that are not in the path."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def ensure(folder: Path) -> str:
    """Make Prometheus available to the tests if this user may install it; returns a sentence if there is none."""
    return optional_packages.ensure("Prometheus", ["prometheus"] if missing_programs() else [], folder)
