"""A build that ends early goes on where it was, to the same bytes; two builds never share a work folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from shard_export.build.job import build_library
from shard_export.build.options import BuildOptions
from shard_export.build.workspace import Workspace
from shard_export.library import errors
from shard_export.library.events import BuildEvent, BuildStarted, LayerDone
from shard_export.library.manifest import Manifest, library_digest
from shard_export.library.store import verify_library, work_folder_of
from tests.support.checkpoints import edit_config, make_checkpoint

LAYERS = 4
QUICK_KILLS, SLOW_KILLS = 6, 20


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny-llama", num_hidden_layers=LAYERS)


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return build_library(source, tmp_path_factory.mktemp("undisturbed") / "out")


def stop_after(layers: int, cancel: threading.Event, events: list[BuildEvent]) -> Any:
    def on_event(event: BuildEvent) -> None:
        events.append(event)
        if isinstance(event, LayerDone) and event.index == layers - 1:
            cancel.set()

    return on_event


def stopped_build(source: Path, out: Path, layers: int = 2, options: BuildOptions = BuildOptions()) -> str:  # noqa: B008 - frozen
    """Stop a build after some layers and return what it says."""
    cancel = threading.Event()
    with pytest.raises(errors.BuildCancelled) as caught:
        build_library(source, out, options, stop_after(layers, cancel, []), cancel)
    return str(caught.value)


def started(source: Path, out: Path, options: BuildOptions = BuildOptions()) -> tuple[BuildStarted, Manifest]:  # noqa: B008 - frozen
    events: list[BuildEvent] = []
    manifest = build_library(source, out, options, events.append)
    assert isinstance(events[0], BuildStarted)
    return events[0], manifest


def test_a_stopped_build_says_what_it_keeps_and_goes_on_to_the_same_bytes(
    source: Path, undisturbed: Manifest, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    said = stopped_build(source, out)
    assert "2 finished layers are kept" in said
    assert not out.exists()
    start, manifest = started(source, out)
    assert (start.finished_layers, start.restarted_because) == (2, "")
    assert library_digest(manifest) == library_digest(undisturbed)
    assert verify_library(out) == manifest
    assert not work_folder_of(out).exists()


def test_other_options_start_over_and_say_so(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped_build(source, out)
    start, manifest = started(source, out, BuildOptions(layers="int8_asym"))
    assert (start.finished_layers, start.restarted_because) == (0, "the options changed")
    assert {unit.compression.mode for unit in manifest.units if unit.kind == "layer"} == {"int8_asym"}


def test_another_source_starts_over_and_says_so(source: Path, tmp_path: Path) -> None:
    out, changed = tmp_path / "out", Path(shutil.copytree(source, tmp_path / "changed"))
    stopped_build(changed, out)
    edit_config(changed, rms_norm_eps=1e-3)
    start, _ = started(changed, out)
    assert (start.finished_layers, start.restarted_because) == (0, "the model's files changed")


@pytest.mark.parametrize("torn", ["unit", "chains", "journal"])
def test_a_torn_file_costs_a_step_and_not_the_library(
    torn: str, source: Path, undisturbed: Manifest, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stopped_build(source, out, 3)
    work = work_folder_of(out)
    path = {
        "unit": work / "library" / "units" / "002.bin",
        "chains": work / "journal" / "chains-002.npz",
        "journal": work / "journal" / "journal.jsonl",
    }[torn]
    path.write_bytes(path.read_bytes()[:-20])
    start, manifest = started(source, out)
    assert start.finished_layers == 2
    assert library_digest(manifest) == library_digest(undisturbed)


def test_a_source_that_is_away_for_a_moment_costs_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped_build(source, out)
    with pytest.raises(errors.CheckpointTorn):
        build_library(tmp_path / "nothing", out)
    assert started(source, out)[0].finished_layers == 2


def test_two_builds_of_one_library_exclude_each_other(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Workspace(out), pytest.raises(errors.LibraryBusy, match="Another build"):
        build_library(source, out)
    build_library(source, out)


def kill_randomly(source: Path, out: Path, kills: int, longest_s: float) -> None:
    """Kill builds after random times, each going on after the last; what is there is never called good unless whole."""
    chance = random.Random(20)
    command = [sys.executable, "-m", "shard_export", "build", str(source), str(out), "--json-events"]
    for _ in range(kills):
        if out.exists():
            shutil.rmtree(out)  # it was quicker than the kill: begin anew
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.readline()  # imports are no time to be killed at: nothing happens there
            try:
                process.wait(chance.uniform(0, longest_s))
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
            process.wait(60)
        try:
            verify_library(out)
        except errors.LibraryIncomplete:
            assert not out.exists()


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_kills_at_random_moments_change_no_byte(source: Path, undisturbed: Manifest, tmp_path: Path) -> None:
    kill_randomly(source, tmp_path / "out", QUICK_KILLS, 1.5)
    if not (tmp_path / "out").exists():
        build_library(source, tmp_path / "out")
    assert library_digest(verify_library(tmp_path / "out")) == library_digest(undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_kills_of_a_build_of_the_real_model_change_no_byte(
    smollm2_source: Any, smollm2_library: Path, tmp_path: Path
) -> None:
    source = smollm2_source.folder / smollm2_source.file_name
    kill_randomly(source, tmp_path / "out", SLOW_KILLS, 6.0)
    if not (tmp_path / "out").exists():
        build_library(source, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes()) == json.loads(
        (smollm2_library / "manifest.json").read_bytes()
    )
