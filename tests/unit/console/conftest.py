"""A fleet of played PCs, a registry and a small library."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from console.registry.registry import Registry
from tests.support.fleet import Fleet, running_fleet
from tests.support.played import make_chat_library


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry.open(tmp_path / "registry.sqlite") as registry:
        yield registry


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with running_fleet(tmp_path / "fleet") as fleet:
        yield fleet


@pytest.fixture
async def library(tmp_path: Path, registry: Registry, fleet: Fleet) -> Path:
    folder = tmp_path / "library"
    manifest = make_chat_library(folder)
    registry.libraries.add(fleet.distribution.register(folder), manifest.model_id, str(folder))
    return folder
