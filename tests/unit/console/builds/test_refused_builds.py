"""Why a build is refused, and what it waits for instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.builds.book import Book
from console.builds.exporter import INSTALL, Exporter
from console.builds.jobs import BuildJobs
from console.builds.places import Places
from console.builds.records import Records
from console.errors import BuildRefused
from console.libraries import LibraryShelf
from console.registry.errors import NotFound
from console.registry.registry import Registry
from tests.support.builds import ADA, Stage, asked, make_played_checkpoint, only
from tests.support.patience import until


async def test_what_cannot_be_built_is_refused_with_what_to_do(jobs: BuildJobs, root: Path, tmp_path: Path) -> None:
    make_played_checkpoint(root / "odd", family="mamba")
    (root / "taken").mkdir()
    (root / "taken" / "letter.txt").write_text("mine")
    for fields, why in (
        ({"source": str(root / "nowhere")}, "neither a folder with a model nor a .gguf file"),
        ({"source": str(root)}, "holds no config.json"),
        ({"source": str(root / "odd")}, "family mamba cannot be built: its layers keep no keys"),
        ({"out": str(root / "taken")}, "is no layer library, so it is not touched"),
        ({"out": str(tmp_path / "elsewhere")}, "is not below"),
        ({"source": "toy"}, "is not below"),
        ({"out": str(root / "toy")}, "cannot be the library's folder"),
        ({"out": str(root)}, "cannot be the library's folder"),
        ({"draft_for": "nobody"}, "no layer library of 'nobody'"),
    ):
        with pytest.raises(BuildRefused, match=why):
            await jobs.begin(asked(root, **fields), ADA)
    await jobs.begin(asked(root), ADA)
    with pytest.raises(BuildRefused, match="being built already"):
        await jobs.begin(asked(root), ADA)
    with pytest.raises(NotFound):
        await jobs.detail("0" * 12)


async def test_too_little_memory_or_disk_is_refused(
    jobs: BuildJobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shard_export.library.estimates.MEMORY_BYTES_PER_WEIGHT", 1e15)
    with pytest.raises(BuildRefused, match=r"GB of memory and .* are free; close other programs"):
        await jobs.begin(asked(root), ADA)
    monkeypatch.undo()
    monkeypatch.setattr("shard_export.library.estimates.OVERHEAD_BYTES", 1 << 60)
    estimate = await jobs.estimate(asked(root))
    assert "on the disk and" in estimate.problems[0]


async def test_a_build_may_wait_for_the_memory_that_another_one_uses(
    jobs: BuildJobs, stage: Stage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await jobs.begin(asked(root, out=str(root / "one")), ADA)
    monkeypatch.setattr("shard_export.library.estimates.MEMORY_BYTES_PER_WEIGHT", 1e15)
    estimate = await jobs.estimate(asked(root))
    assert estimate.problems == []
    assert "free beside the build that goes on now; it waits until that one has ended." in estimate.notes[0]
    assert (await jobs.begin(asked(root), ADA)).state == "queued"
    stage.let()
    await until(lambda: all(build.state == "built" for build in jobs.views().builds))


async def test_a_pc_without_the_exporter_is_told_what_to_install(
    registry: Registry, shelf: LibraryShelf, root: Path, tmp_path: Path
) -> None:
    exporter = Exporter(needed=["a_package_nobody_has"])
    jobs = BuildJobs(registry, shelf, Book(Records(tmp_path / "builds")), Places(root), exporter)
    await jobs.restore()
    assert jobs.views().missing == INSTALL
    with pytest.raises(BuildRefused, match="pip install"):
        await jobs.begin(asked(root), ADA)


async def test_an_exporter_that_cannot_be_started_fails_the_build(
    registry: Registry, shelf: LibraryShelf, root: Path, tmp_path: Path
) -> None:
    exporter = Exporter([str(tmp_path / "nothing")], needed=())
    jobs = BuildJobs(registry, shelf, Book(Records(tmp_path / "builds")), Places(root), exporter)
    await jobs.restore()
    await jobs.begin(asked(root), ADA)
    await until(lambda: only(jobs).state == "failed")
    assert "cannot be started (No such file" in only(jobs).message
