"""Where icons and translations lie: beside the source, in a frozen program, or where a wheel puts its data."""

from __future__ import annotations

import sys
from pathlib import Path


class AssetsMissing(Exception):
    """The installation lacks its icons and translations."""


def asset(*parts: str) -> Path:
    """Return the path of one asset, like `asset("icons", "idle.svg")`. Raises AssetsMissing."""
    found = next((path for folder in _folders() if (path := folder.joinpath(*parts)).exists()), None)
    if found is None:
        raise AssetsMissing(f"This installation lacks {'/'.join(parts)}; install Fallow again.")
    return found


def _folders() -> list[Path]:
    frozen = getattr(sys, "_MEIPASS", "")
    tree = Path(__file__).resolve().parents[2] / "assets"
    return [*([Path(frozen) / "assets"] if frozen else []), tree, Path(sys.prefix) / "share" / "fallow"]
