"""Running the tools of other systems that packages are made with; what they print goes where ours does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from installer.packaging.errors import BuildFailed

ROOT = Path(__file__).resolve().parent.parent.parent
Run = Callable[[Sequence[str]], None]


def run_tool(command: Sequence[str]) -> None:
    """Run one command, its output ours. Raises BuildFailed."""
    try:
        code = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise BuildFailed(
            f"{command[0]} is not installed, or not on the PATH; see the README of installer/packaging."
        ) from None
    if code:
        raise BuildFailed(f"{command[0]} ended with code {code}; what it printed says why.")
