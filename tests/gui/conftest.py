"""Windows without a screen, drawn only where letters look as in the kept pictures."""

from __future__ import annotations

import pytest

from tests.support.pictures import skip_elsewhere
from tests.support.windows import qapp, qtbot

__all__ = ["qapp", "qtbot"]


@pytest.fixture(autouse=True)
def drawn_alike(qapp: object) -> None:
    skip_elsewhere()
