"""Windows without a screen."""

from __future__ import annotations

from tests.support.windows import qapp, qtbot

__all__ = ["qapp", "qtbot"]
