"""`fallow-console build` against a running console: with an exporter that plays, and, slowly, with the real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.api.admin.build_types import BuildRequest
from console.api.server import ApiServer
from console.cli import main
from console.errors import PortUnavailable
from console.registry.audit import Actor
from console.service import ConsoleService, ServiceSettings
from shard_export.library.store import verify_library
from tests.support.builds import Stage, make_played_checkpoint
from tests.support.patience import PATIENCE_S, until

Run = Callable[..., Any]
REAL_BUILD_S = 600.0


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in a thread; returns its JSON, or what it said when it fails."""

    async def call(*words: str, fails: int = 0) -> Any:
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*words, "--data", str(tmp_path / "console"), "--json"])
        said = capsys.readouterr()
        assert code == fails, said.err
        return json.loads(said.out) if code == 0 else said.err

    return call


@pytest.fixture
def settings(tmp_path: Path) -> ServiceSettings:
    return ServiceSettings(folder=tmp_path / "console", keyring=False, models_folder=tmp_path / "models")


async def reached(run: Run, build_id: str, what: str, is_there: Callable[[dict[str, Any]], bool], wait_s: float) -> Any:
    """Ask until a build is so far."""
    build: dict[str, Any] = {}
    try:
        async with asyncio.timeout(wait_s):
            while not is_there(build := (await run("build", "show", build_id))["build"]):
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"it is not {what}: {build}")
    return build


async def test_builds_are_found_before_anybody_can_ask_and_go_on_only_where_the_api_can_be_served(
    tmp_path: Path, settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path / "stage")
    monkeypatch.setattr("console.builds.jobs.Exporter", lambda: stage.exporter)
    source = str(make_played_checkpoint(tmp_path / "models" / "toy"))
    async with ConsoleService(settings) as service:
        for name in ("one", "two"):
            await service._builds.begin(BuildRequest(source, str(tmp_path / "models" / name)), Actor("user:ada"))
        await until(lambda: service._builds.views().builds[1].phase == "preparing")
    seen: list[list[str]] = []

    async def taken(_: ApiServer) -> None:
        seen.append([build.state for build in service._builds.views().builds])
        raise PortUnavailable("It is taken.")

    with monkeypatch.context() as patched:
        patched.setattr(ApiServer, "start", taken)
        service = ConsoleService(settings)
        with pytest.raises(PortUnavailable):
            await service.start()
    assert seen == [["queued", "interrupted"]]
    stage.let()
    async with ConsoleService(settings) as service:
        await until(lambda: service._builds.views().builds[0].published)


async def test_a_build_from_first_to_last(
    tmp_path: Path, run: Run, settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path / "stage")
    monkeypatch.setattr("console.builds.jobs.Exporter", lambda: stage.exporter)
    source, out = str(make_played_checkpoint(tmp_path / "models" / "toy")), str(tmp_path / "models" / "library")
    async with ConsoleService(settings):
        estimate = await run("build", "start", source, out, "--estimate")
        assert (estimate["model_id"], estimate["layer_count"], estimate["problems"]) == ("toy", 4, [])
        assert "is not below" in await run("build", "start", source, "/elsewhere", "--estimate", fails=1)
        stage.let(1)
        begun = await run("build", "start", source, out, "--layers", "int8_asym", "--no-publish")
        build_id = begun["build_id"]
        await reached(run, build_id, "at layer 1", lambda build: build["layer"] == 1, PATIENCE_S)
        await run("build", "pause", build_id)
        await reached(run, build_id, "paused", lambda build: build["state"] == "paused", PATIENCE_S)
        stage.let()
        await run("build", "resume", build_id)
        await reached(run, build_id, "built", lambda build: build["state"] == "built", PATIENCE_S)
        assert "nothing to cancel" in await run("build", "cancel", build_id, fails=1)
        assert (await run("build", "publish", build_id))["published"]
        assert [build["build_id"] for build in (await run("build", "list"))["builds"]] == [build_id]
        (library,) = await run("models")
        assert library["model_id"] == "toy"
        await run("models", "--remove", library["digest"])
        assert await run("models") == []
        assert "There is no library" in await run("models", "--remove", library["digest"], fails=1)
    assert stage.runs[1][4:6] == ["--layers", "int8_asym"]


@pytest.mark.slow
async def test_a_real_model_is_built_paused_resumed_evaluated_and_published(
    tmp_path: Path, run: Run, settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a machine that runs other tests, too, it would hardly get a turn at the lowest priority.
    monkeypatch.setattr("console.builds.exporter._lower", lambda _: None)
    from tests.support.checkpoints import make_checkpoint

    make_checkpoint(tmp_path / "models" / "tiny", num_hidden_layers=6)
    source, out = str(tmp_path / "models" / "tiny"), str(tmp_path / "models" / "library")
    async with ConsoleService(settings):
        begun = await run("build", "start", source, out, "--layers", "int8_asym", "--evaluate")
        build_id = begun["build_id"]
        await reached(run, build_id, "at layer 1", lambda build: build["layer"] >= 1, REAL_BUILD_S)
        await run("build", "pause", build_id)
        stopped = await reached(run, build_id, "ended", lambda build: build["state"] != "stopping", REAL_BUILD_S)
        if stopped["state"] == "paused":
            await run("build", "resume", build_id)
        build = await reached(run, build_id, "published", lambda build: build["published"], REAL_BUILD_S)
        estimate = build["estimated_memory_bytes"]
        assert 0 < build["memory_peak_bytes"] < 2 * estimate
        assert build["gate"]["top1_agreement"] > 0.5
        if stopped["state"] == "paused":
            assert build["kept_layers"] >= 1
            assert build["evaluation"]["positions"] > 100, build["evaluation_problem"]
        (library,) = await run("models")
        assert library["digest"] == build["digest"]
        assert library["layer_count"] == 6
    assert verify_library(Path(out)).layer_count == 6
