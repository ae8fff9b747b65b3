from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.registry.registry import Registry
from tests.support.enrolment import Clock
from tests.support.postgres import Server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def empty_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry nothing was written to: copying it is ten times as fast as the migrations that make it."""
    path = tmp_path_factory.mktemp("registry") / "empty.sqlite3"
    Registry.open(path).close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path, empty_registry: Path) -> str:
    """The address of an empty registry: what takes it runs on both databases."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.registry()
    return str(shutil.copy(empty_registry, tmp_path / "registry.sqlite3"))


@pytest.fixture
def registry(where: str, clock: Clock) -> Iterator[Registry]:
    with Registry.open(where, now=clock) as opened:
        yield opened


@pytest.fixture
def sqlite_registry(tmp_path: Path, clock: Clock, empty_registry: Path) -> Iterator[Registry]:
    """A registry in a file, for tests that look into it."""
    with Registry.open(shutil.copy(empty_registry, tmp_path / "registry.sqlite3"), now=clock) as opened:
        yield opened
