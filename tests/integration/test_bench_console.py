"""`fallow-console bench` against a running console whose PCs play their stages."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from console import calls
from console.api.admin import types as wire
from console.cli import main
from console.client import AdminClient
from tests.support.console_thread import ConsoleThread
from tests.support.patience import PATIENCE_S
from tests.support.played import PlayedPC
from tests.support.played_console import played_console


class Scene(NamedTuple):
    console: ConsoleThread
    pcs: dict[str, PlayedPC]
    data: Path

    def bench(self, *words: str) -> int:
        return main(["bench", *words, "--data", str(self.data)])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConsoleThread, dict[str, PlayedPC]]]:
    with played_console(tmp_path_factory.mktemp("bench"), "ash", "elm") as (console, pcs):
        for pc in pcs.values():
            pc.text = "A long answer that goes on. " * 20
        access = console.access()
        with AdminClient(access.url, access.token) as client:
            request = wire.DeployRequest("small", stages=2, context=512, streams=2, draft="none")
            assert isinstance(list(client.follow(calls.deploy(request)))[-1], wire.Ready)
        yield console, pcs


@pytest.fixture
def scene(running: tuple[ConsoleThread, dict[str, PlayedPC]]) -> Scene:
    console, pcs = running
    return Scene(console, pcs, console.folder)


def load(*words: str) -> list[str]:
    return ["small", "--max-tokens", "8", "--mix", "short", *words]


def test_users_are_measured_alone_and_together_and_the_run_is_kept_and_compared(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.bench(*load("--requests", "2", "--users", "3", "--name", "first", "--json")) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    alone, together = run["levels"]
    assert (alone["users"], alone["answered"], alone["answer_tokens"]) == (1, 2, 16)
    assert (together["users"], together["answered"], together["answer_tokens"]) == (3, 6, 48)
    assert together["errors"] == {}
    assert together["first_token_ms"]["count"] == 6
    assert together["tokens_per_s"] > 0
    assert together["cached_tokens"] < together["prompt_tokens"] / 2
    assert {"queue_ms", "first_token_ms", "total_ms"} <= set(together["timings_ms"])
    assert len(run["served"]) == 1
    assert "0-1 on " in run["served"][0]
    kept = scene.data / "bench" / "first.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    assert scene.bench(*load("--duration", "0.5", "--users", "2", "--name", "second", "--compare", "last")) == 0
    said = capsys.readouterr()
    assert "Against first" in said.out
    assert "Seconds of each level: 30.0 before, 0.5 now." in said.out
    assert "tokens/s of all" in said.out
    assert "2 users: measuring" in said.err

    assert scene.bench("list", "--json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["first", "second"]
    assert scene.bench("show", "first", "--compare", "second") == 0
    assert "Against second" in capsys.readouterr().out


STEPS = 40


def test_ctrl_c_ends_it_and_gives_what_was_measured(scene: Scene) -> None:
    async def some_answers(_: object) -> None:
        """Wait until some answers of eight tokens must have come."""
        for _ in range(STEPS):
            scene.pcs["elm"].stepped.clear()
            await scene.pcs["elm"].stepped.wait()

    words = ("--duration", "600", "--users", "2", "--no-baseline", "--warm-up", "0", "--name", "cut", "--json")
    command = [sys.executable, "-m", "console", "bench", *load(*words), "--data", str(scene.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            scene.console.call(some_answers)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    run = json.loads(output)["run"]
    assert run["interrupted"]
    (level,) = run["levels"]
    assert level["answered"] >= 1
    assert level["tokens_per_s"] > 0
    assert level["window_s"] < 600
    assert (scene.data / "bench" / "cut.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tall"], 1, "not served here; those that are: small"),
        (["small", "--mix", "tall"], 2, "no part of a mix"),
        (["small", "--name", "../x"], 2, "no name of a load test"),
        (["small", "--compare", "never"], 1, "no load test never"),
        (["small", "--url", "http://127.0.0.1:1"], 2, "--key-file"),
        (["small", "--prompts", "/nowhere.jsonl"], 1, "cannot be read"),
        (["small", "tall"], 2, "one word too many"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(
    scene: Scene, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.bench(*words) == code
    assert said in capsys.readouterr().err


def test_a_key_of_its_own_is_used_and_its_limits_are_counted_by_their_codes(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.bench.load.MOST_PAUSE_S", 0.05)
    access = scene.console.access()
    with AdminClient(access.url, access.token) as client:
        made = client.ask(calls.create_key("load", limits=wire.Limits(streams=1)))
    key, prompts = tmp_path / "key", tmp_path / "prompts.jsonl"
    key.write_text(f"{made.secret}\n")
    prompts.write_text('"Hello?"\n{"prompt": "Who?", "max_tokens": 3}\n')
    words: list[Any] = ["--key-file", key, "--url", access.url, "--prompts", prompts, "--users", "2", "--requests", "2"]
    code = scene.bench("small", *map(str, words), "--max-tokens", "8", "--no-baseline", "--no-save", "--json")
    run = json.loads(capsys.readouterr().out)["run"]
    (level,) = run["levels"]
    assert level["answered"] + sum(level["errors"].values()) == 4
    assert set(level["errors"]) <= {"too_many_streams"}
    assert code == (1 if level["errors"] else 0)
    assert run["served"] == []  # this key may not look
    assert made.secret not in json.dumps(run)
    assert not (tmp_path / "bench").exists()


def test_a_refusal_of_every_request_is_told_with_what_the_server_says(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps("far too long " * 100))
    assert scene.bench("small", "--prompts", str(prompts), "--users", "1") == 1
    assert "No request was answered." in capsys.readouterr().err
