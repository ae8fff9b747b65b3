"""A real hub that agents of a test dial, and what it may ask them to load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.link.stage_messages import LoadStage
from tests.support.fleet import Fleet, make_load, running_fleet
from tests.support.libraries import make_library


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A real hub on loopback."""
    async with running_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def request_of(fleet: Fleet) -> Callable[..., LoadStage]:
    """Make LoadStage messages for a small registered library."""
    folder = fleet.folder / "library"
    _, digest = make_library(folder)
    fleet.distribution.register(folder)
    return lambda **fields: make_load(**({"library_digest": digest} | fields))
