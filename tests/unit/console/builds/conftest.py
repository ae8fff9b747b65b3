"""Builds with an exporter that plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console.builds.book import Book
from console.builds.jobs import BuildJobs
from console.builds.places import Places
from console.builds.records import Records
from console.fleet.distribution import Distribution
from console.libraries import LibraryShelf
from console.registry.registry import Registry
from tests.support.builds import Make, Stage, make_played_checkpoint


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_played_checkpoint(tmp_path / "models" / "toy")
    return tmp_path / "models"


@pytest.fixture
def shelf(registry: Registry) -> LibraryShelf:
    return LibraryShelf(registry, Distribution())


@pytest.fixture
async def make(
    tmp_path: Path, registry: Registry, shelf: LibraryShelf, stage: Stage, root: Path
) -> AsyncIterator[Make]:
    made: list[BuildJobs] = []

    def make_jobs() -> BuildJobs:
        made.append(BuildJobs(registry, shelf, Book(Records(tmp_path / "builds")), Places(root), stage.exporter))
        return made[-1]

    yield make_jobs
    for jobs in made:
        await jobs.close()


@pytest.fixture
async def jobs(make: Make) -> BuildJobs:
    jobs = make()
    await jobs.restore()
    return jobs
