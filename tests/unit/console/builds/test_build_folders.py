"""Whose folder it is: what a build finished, what another one works on, and the library that is in service."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from console.builds.jobs import BuildJobs
from console.errors import BuildRefused
from console.libraries import LibraryShelf
from console.registry.records import Deployment
from console.registry.registry import Registry
from shard_export.library.store import load_manifest, work_folder_of
from tests.conftest import ExpectLogs
from tests.support.builds import ADA, Stage, asked, audited, only
from tests.support.libraries import make_library
from tests.support.patience import PATIENCE_S, until


@pytest.mark.parametrize("discard", [False, True])
async def test_cancelling_keeps_or_removes_what_is_finished(
    jobs: BuildJobs, stage: Stage, root: Path, discard: bool
) -> None:
    stage.let(3)
    build_id = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).layer == 3)
    await jobs.cancel(build_id, ADA, discard=discard)
    await until(lambda: only(jobs).state == "cancelled")
    assert work_folder_of(root / "library").exists() != discard
    assert ("nothing of it is kept" in only(jobs).message) == discard
    with pytest.raises(BuildRefused, match="cancelled, so it cannot be resumed"):
        await jobs.resume(build_id, ADA)
    stage.let()
    await jobs.begin(asked(root), ADA)
    await until(lambda: jobs.views().builds[0].state == "built")
    assert jobs.views().builds[0].kept_layers == (0 if discard else 3)


async def test_layers_that_another_build_works_on_are_not_removed(jobs: BuildJobs, stage: Stage, root: Path) -> None:
    stage.let(2)
    paused = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).layer == 2)
    await jobs.pause(paused, ADA)
    await until(lambda: only(jobs).state == "paused")
    other = (await jobs.begin(asked(root), ADA)).build_id
    for _ in ("in its turn", "at work"):
        with pytest.raises(BuildRefused, match="needs these layers; cancel this one and keep them"):
            await jobs.cancel(paused, ADA, discard=True)
        await until(lambda: jobs.views().builds[0].phase == "preparing")
    assert work_folder_of(root / "library").exists()
    assert (await jobs.cancel(paused, ADA, discard=False)).state == "cancelled"
    stage.let()
    await until(lambda: jobs.views().builds[0].state == "built")
    assert jobs.views().builds[0].build_id == other
    assert jobs.views().builds[0].kept_layers == 2


async def test_what_is_being_removed_is_worked_on_by_nobody(
    jobs: BuildJobs, stage: Stage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, may_remove = threading.Event(), threading.Event()

    def slowly(_: Path) -> None:
        removing.set()
        assert may_remove.wait(PATIENCE_S)

    monkeypatch.setattr("console.builds.jobs.remove_tree", slowly)
    first, second = asked(root, out=str(root / "one")), asked(root, out=str(root / "two"))
    await jobs.begin(first, ADA)
    waiting = await jobs.begin(second, ADA)
    cancelling = asyncio.create_task(jobs.cancel(waiting.build_id, ADA, discard=True))
    await until(removing.is_set)
    stage.let()
    await until(lambda: jobs.views().builds[1].state == "built")
    assert jobs.views().builds[0].state == "cancelled"
    for ask in (jobs.begin(second, ADA), jobs.cancel(waiting.build_id, ADA, discard=False)):
        with pytest.raises(BuildRefused, match=r"are being removed; ask again in a moment|nothing to cancel"):
            await ask
    may_remove.set()
    assert (await cancelling).state == "cancelled"
    assert [run[2] for run in stage.runs if run[0] == "build"] == [first.out]
    await jobs.begin(second, ADA)
    await until(lambda: jobs.views().builds[0].state == "built")


async def test_a_library_in_service_is_not_replaced(
    jobs: BuildJobs, stage: Stage, root: Path, shelf: LibraryShelf, registry: Registry
) -> None:
    make_library(root / "library", layers=2, model_id="toy")
    (root / "link").symlink_to(root / "library")
    former = (await shelf.add(root / "link", ADA)).digest
    registry.deployments.save(Deployment("toy", former, {}))
    with pytest.raises(BuildRefused, match="cannot be replaced: the deployment toy uses it"):
        await jobs.begin(asked(root, replace=True), ADA)
    registry.deployments.remove("toy")
    used = ["another is being deployed from it"]
    shelf.ask_before_removing(lambda digest: used[0] if digest == former else "")
    assert "another is being deployed from it" in (await jobs.estimate(asked(root, replace=True))).problems[0]
    used[0] = ""
    assert (await jobs.estimate(asked(root, replace=True))).problems == []


async def test_a_library_that_came_into_service_while_its_build_waited_is_not_replaced(
    jobs: BuildJobs, stage: Stage, root: Path, shelf: LibraryShelf, registry: Registry
) -> None:
    manifest, _ = make_library(root / "library", layers=2, model_id="toy")
    former = (await shelf.add(root / "library", ADA)).digest
    await jobs.begin(asked(root, out=str(root / "one"), publish=False), ADA)
    await jobs.begin(asked(root, replace=True), ADA)
    registry.deployments.save(Deployment("toy", former, {}))
    stage.let()
    await until(lambda: jobs.views().builds[0].state == "failed")
    assert "cannot be replaced: the deployment toy uses it" in jobs.views().builds[0].message
    assert load_manifest(root / "library") == manifest


async def test_the_library_that_was_replaced_is_forgotten(
    jobs: BuildJobs, stage: Stage, root: Path, shelf: LibraryShelf, registry: Registry
) -> None:
    make_library(root / "library", layers=2, model_id="toy")
    make_library(root / "beside", layers=3, model_id="toy")
    former = (await shelf.add(root / "library", ADA)).digest
    beside = (await shelf.add(root / "beside", ADA)).digest
    stage.let()
    await jobs.begin(asked(root, replace=True), ADA)
    await until(lambda: only(jobs).published)
    assert {library.digest for library in await shelf.list()} == {only(jobs).digest, beside}
    assert shelf._distribution.find(former) is None
    assert shelf.of_model("toy").digest == only(jobs).digest
    assert audited(registry, former) == ["library.remove", "library.add"]


async def test_a_library_that_was_replaced_in_service_stays_on_the_list(
    root: Path, shelf: LibraryShelf, registry: Registry, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.libraries", "the one before is not forgotten: .* used by the deployment toy")
    make_library(root / "library", layers=2, model_id="toy")
    former = (await shelf.add(root / "library", ADA)).digest
    registry.deployments.save(Deployment("toy", former, {}))
    make_library(root / "library", layers=3, model_id="toy")  # as a build outside the console would
    latest = (await shelf.add(root / "library", ADA)).digest
    assert {library.digest for library in await shelf.list()} == {latest, former}
