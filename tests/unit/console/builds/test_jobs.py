"""console.builds.jobs with an exporter that plays: the real processes, records, registry and shelf."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from console.api.admin.build_types import BuildRequest
from console.builds import exporter as exporter_module
from console.builds.exporter import Exporter
from console.builds.jobs import BuildJobs
from console.builds.records import Records
from console.libraries import LibraryShelf
from console.registry.registry import Registry
from tests.support.builds import ADA, LAYERS, Make, Stage, asked, audited, only
from tests.support.patience import until


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
    (library,) = await shelf.list()
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


@pytest.mark.parametrize("end", ["pause", "cancel"])
async def test_a_service_that_ends_meanwhile_does_not_change_what_was_asked_of_a_build(
    jobs: BuildJobs, make: Make, root: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(exporter_module.Child, "_signal", lambda *_: None)  # it does not end by itself
    build_id = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).phase == "preparing")
    await (jobs.pause(build_id, ADA) if end == "pause" else jobs.cancel(build_id, ADA, discard=False))
    assert only(jobs).state == "stopping"
    await jobs.close()
    again = make()
    await again.restore()
    assert only(again).state == {"pause": "paused", "cancel": "cancelled"}[end]


async def test_an_exporter_that_fails_after_its_last_word_has_built_nothing(
    jobs: BuildJobs, stage: Stage, root: Path, shelf: LibraryShelf
) -> None:
    stage.let()
    stage.end_with(3)
    await jobs.begin(asked(root, evaluate=True), ADA)
    await until(lambda: only(jobs).state == "failed")
    await until(lambda: jobs._worker is not None and jobs._worker.done())
    assert only(jobs).state == "failed"
    assert "(exit code 3)" in only(jobs).message
    assert await shelf.list() == []
    assert [run[0] for run in stage.runs if run[0] == "evaluate"] == []


async def test_the_disk_is_never_waited_for_on_the_event_loop(
    jobs: BuildJobs, stage: Stage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[threading.Thread] = []
    note = Records.note

    def seen(records: Records, build_id: str, lines: Sequence[str]) -> None:
        writers.append(threading.current_thread())
        note(records, build_id, lines)

    monkeypatch.setattr(Records, "note", seen)
    stage.let()
    build_id = (await jobs.begin(asked(root), ADA)).build_id
    await until(lambda: only(jobs).published)
    assert writers
    assert threading.main_thread() not in writers
    log = (await jobs.detail(build_id)).log
    assert [line.split(" ", 1)[1] for line in log if "layer" in line][-1].startswith("layer 4 of 4")
    assert "The library is complete" in log[-1]


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
    again.go_on()
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
    assert await shelf.list() == []
    assert (await jobs.publish(build_id, ADA)).published
    assert [library.model_id for library in await shelf.list()] == ["toy"]
    estimate = await jobs.estimate(asked(root))
    assert "already holds a library; choose another folder, or let this one be replaced" in estimate.problems[0]
    assert (await jobs.estimate(asked(root, replace=True))).problems == []
