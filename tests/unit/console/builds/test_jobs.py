"""console.builds.jobs with an exporter that plays: the real processes, records, registry and shelf."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from console.api.admin.build_types import Build, BuildRequest
from console.builds import exporter as exporter_module
from console.builds.book import Book
from console.builds.exporter import INSTALL, Exporter
from console.builds.jobs import BuildJobs
from console.builds.places import Places
from console.builds.records import Records
from console.errors import BuildRefused
from console.fleet.distribution import Distribution
from console.libraries import LibraryShelf
from console.registry.audit import Actor
from console.registry.errors import NotFound
from console.registry.registry import Registry
from shard_export.library.store import work_folder_of
from tests.support.builds import LAYERS, Stage, make_played_checkpoint
from tests.support.patience import until

ADA = Actor("user:ada", "10.0.0.9")
Make = Callable[[], BuildJobs]


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


def asked(root: Path, **fields: object) -> BuildRequest:
    values: dict[str, object] = {"source": str(root / "toy"), "out": str(root / "library")}
    return BuildRequest(**(values | fields))  # type: ignore[arg-type]  # the fields of a request


def only(jobs: BuildJobs) -> Build:
    (build,) = jobs.views().builds
    return build


def audited(registry: Registry, search: str) -> list[str]:
    return [entry.action for entry in registry.audit.list(search=search)]


async def test_a_build_runs_is_evaluated_and_can_be_deployed(
    jobs: BuildJobs, stage: Stage, root: Path, shelf: LibraryShelf, registry: Registry
) -> None:
    stage.let(2)
    begun = await jobs.begin(asked(root, evaluate=True), ADA)
    await until(lambda: only(jobs).layer == 2)
    running = only(jobs)
    assert (running.state, running.phase, running.layer_count, running.layer_s) == ("running", "layers", LAYERS, 0.5)
    assert running.left_s is not None
    assert 0 < running.left_s <= 0.5 * 4
    await until(lambda: only(jobs).memory_peak_bytes > 0)
    stage.let()
    await until(lambda: only(jobs).published)
    build = only(jobs)
    assert (build.state, build.phase, build.layer, build.process_id) == ("built", "done", LAYERS, 0)
    assert build.gate is not None
    assert build.gate.top1_agreement == 0.831
    assert build.evaluation is not None
    assert build.evaluation.library_perplexity == 23.1
    (library,) = shelf.list()
    assert (library.model_id, library.digest, library.top1_agreement) == ("toy", build.digest, 0.831)
    assert audited(registry, build.build_id) == ["build.publish", "build.start"]
    assert audited(registry, "library.add") == ["library.add"]
    log = (await jobs.detail(begun.build_id)).log
    assert any("layer 4 of 4" in line for line in log)


async def test_a_paused_build_goes_on_after_its_last_finished_layer(
    jobs: BuildJobs, stage: Stage, root: Path, registry: Registry
) -> None:
    stage.let(2)
    build_id = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).layer == 2)
    assert (await jobs.pause(build_id, ADA)).state == "stopping"
    await until(lambda: only(jobs).state == "paused")
    assert only(jobs).message == "It was paused: 2 finished layers are kept, and resuming goes on from there."
    stage.let()
    await jobs.resume(build_id, ADA)
    await until(lambda: only(jobs).state == "built")
    assert only(jobs).kept_layers == 2
    assert audited(registry, f"{build_id}")[::-1][:3] == ["build.start", "build.pause", "build.resume"]


async def test_asking_twice_to_pause_ends_it_at_once(
    jobs: BuildJobs, stage: Stage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter_module.Child, "_signal", lambda *_: None)  # as where nobody can be asked
    build_id = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).phase == "preparing")
    await jobs.pause(build_id, ADA)
    assert only(jobs).state == "stopping"
    assert (await jobs.pause(build_id, ADA)).state == "paused"


async def test_builds_wait_for_their_turn(jobs: BuildJobs, stage: Stage, root: Path) -> None:
    first = await jobs.begin(asked(root, out=str(root / "one")), ADA)
    second = await jobs.begin(asked(root, out=str(root / "two")), ADA)
    await until(lambda: jobs.views().builds[1].state == "running")
    assert [build.state for build in jobs.views().builds] == ["queued", "running"]
    stage.let()
    await until(lambda: all(build.state == "built" for build in jobs.views().builds))
    outs = [run[2] for run in stage.runs if run[0] == "build"]
    assert outs == [first.request.out, second.request.out]


async def test_a_build_can_be_paused_and_cancelled_before_its_turn(jobs: BuildJobs, root: Path) -> None:
    await jobs.begin(asked(root, out=str(root / "one")), ADA)
    waiting = await jobs.begin(asked(root, out=str(root / "two")), ADA)
    assert (await jobs.pause(waiting.build_id, ADA)).state == "paused"
    assert (await jobs.resume(waiting.build_id, ADA)).state == "queued"
    cancelled = await jobs.cancel(waiting.build_id, ADA, discard=False)
    assert (cancelled.state, cancelled.message) == ("cancelled", "It was cancelled: nothing of it is kept.")


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


async def test_a_failed_build_says_why_and_can_be_resumed(jobs: BuildJobs, stage: Stage, root: Path) -> None:
    stage.let(1)
    build_id = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).layer == 1)
    stage.fail("The disk is full; free some space.")
    await until(lambda: only(jobs).state == "failed")
    assert (only(jobs).error, only(jobs).message) == ("DiskFull", "The disk is full; free some space.")
    assert "The disk is full" in "\n".join((await jobs.detail(build_id)).log)
    stage.fail("")
    stage.let()
    await jobs.resume(build_id, ADA)
    await until(lambda: only(jobs).state == "built")
    assert (only(jobs).message, only(jobs).error, only(jobs).kept_layers) == ("", "", 1)


async def test_an_exporter_that_the_system_ended_is_told_from_one_that_was_paused(jobs: BuildJobs, root: Path) -> None:
    await jobs.begin(asked(root), ADA)
    await until(lambda: only(jobs).phase == "preparing")
    psutil.Process(only(jobs).process_id).kill()
    await until(lambda: only(jobs).state == "failed")
    assert "memory ran out" in only(jobs).message


async def test_a_build_survives_a_restart_as_interrupted(jobs: BuildJobs, make: Make, stage: Stage, root: Path) -> None:
    stage.let(2)
    build_id = (await jobs.begin(asked(root, out=str(root / "one")), ADA)).build_id
    await jobs.begin(asked(root, out=str(root / "two")), ADA)
    await until(lambda: jobs.views().builds[1].layer == 2)
    await jobs.close()
    stage.let()
    again = make()
    await again.restore()
    interrupted = again.views().builds[1]
    assert (interrupted.state, interrupted.layer) == ("interrupted", 2)
    assert "The console's service ended while it was built: 2 finished layers are kept" in interrupted.message
    await until(lambda: again.views().builds[0].state == "built")
    await again.resume(build_id, ADA)
    await until(lambda: again.views().builds[1].state == "built")


async def test_a_child_that_outlived_its_service_is_ended_before_the_build_goes_on(
    jobs: BuildJobs, make: Make, stage: Stage, root: Path, tmp_path: Path
) -> None:
    await jobs.begin(asked(root), ADA)
    await until(lambda: only(jobs).phase == "preparing")
    await until(lambda: b'"phase": "preparing"' in next((tmp_path / "builds").glob("*.json")).read_bytes())
    child = psutil.Process(only(jobs).process_id)
    again = make()  # as if the first service had been killed
    await again.restore()
    assert only(again).state == "interrupted"
    await until(lambda: only(jobs).state == "failed")
    assert not child.is_running()


async def test_a_record_that_cannot_be_read_is_reported_and_costs_no_other(
    make: Make, root: Path, tmp_path: Path, expected_logs: Callable[..., None]
) -> None:
    expected_logs("console.builds.records", "torn.json, cannot be read")
    (tmp_path / "builds").mkdir()
    (tmp_path / "builds" / "torn.json").write_text("{")
    jobs = make()
    await jobs.restore()
    await jobs.begin(asked(root), ADA)
    assert only(jobs).goes_on


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


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="Windows has classes of priority")
async def test_everything_else_on_the_pc_goes_first() -> None:
    exporter = Exporter([sys.executable, "-c", "import time; time.sleep(60)"], needed=())
    child = await exporter.evaluate(BuildRequest(source="/s", out="/o"))
    assert os.getpriority(os.PRIO_PROCESS, child.process_id) == 19
    child.kill()
    assert await child.wait() == -9


async def test_a_library_may_be_published_later(jobs: BuildJobs, stage: Stage, root: Path, shelf: LibraryShelf) -> None:
    stage.let()
    build_id = (await jobs.begin(asked(root, publish=False), ADA)).build_id
    await until(lambda: only(jobs).state == "built")
    assert shelf.list() == []
    assert (await jobs.publish(build_id, ADA)).published
    assert [library.model_id for library in shelf.list()] == ["toy"]
    estimate = await jobs.estimate(asked(root))
    assert "already holds a library; choose another folder, or let this one be replaced" in estimate.problems[0]
    assert (await jobs.estimate(asked(root, replace=True))).problems == []
