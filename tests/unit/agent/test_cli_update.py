"""agent.cli_update: what `run` does about updates before and after it serves, and the two commands."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import cli, cli_update
from agent.cli_update import run_with_updates
from agent.update.fitness import SelfTest
from agent.update.layout import Installation
from agent.update.permission import Means
from agent.update.proof import EXIT_AGAIN, VARIABLE
from tests.support.releases import make_installation, make_tree

BECAME, TRIED = 91, 92


class Serving:
    """Stands for the agent: notes what it was given, and says whether it is to be started again."""

    def __init__(self, again: bool = False) -> None:
        self.again = again
        self.given: list[Any] = []

    def __call__(self, means: Means, trial: object) -> bool:
        self.given.append(trial)
        return self.again


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """This process seems to be 1.0.0 of it."""
    made = make_installation(tmp_path)
    make_tree(made.folder("1.1.0"), "1.1.0")
    monkeypatch.setattr(cli_update, "find_means", lambda: Means(made, b"root"))
    monkeypatch.setattr(cli_update, "running_program", lambda: made.program("1.0.0"))
    return made


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    programs: list[Path] = []

    def become(program: Path, arguments: list[str]) -> int:
        assert arguments == ["run"]
        programs.append(program)
        return BECAME

    monkeypatch.setattr(cli_update, "become", become)
    return programs


def test_an_agent_that_does_not_lie_among_versions_just_serves() -> None:
    serving = Serving()
    assert run_with_updates(["run"], serving) == 0
    assert serving.given == [None]


def test_whoever_was_asked_to_start_again_becomes_the_current_version(
    installation: Installation, became: list[Path]
) -> None:
    assert run_with_updates(["run"], Serving()) == 0
    assert run_with_updates(["run"], Serving(again=True)) == BECAME
    assert became == [installation.program("1.0.0")]


def test_a_version_on_trial_leaves_the_next_start_to_its_parent(
    installation: Installation, became: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "proof")
    serving = Serving(again=True)
    assert run_with_updates(["run"], serving) == EXIT_AGAIN
    assert serving.given[0] is not None
    assert VARIABLE not in os.environ
    assert became == []


def test_an_older_version_s_window_starts_the_current_one(installation: Installation, became: list[Path]) -> None:
    installation.switch("1.1.0")
    serving = Serving()
    assert run_with_updates(["run"], serving) == BECAME
    assert (became, serving.given) == ([installation.program("1.1.0")], [])


def test_a_trial_s_exit_code_is_passed_on_and_else_this_version_serves(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_update, "begin", lambda *_: TRIED)
    serving = Serving()
    assert run_with_updates(["run"], serving) == TRIED
    assert serving.given == []


@pytest.mark.expected_logs("agent", "does not name a version")
def test_a_damaged_installation_still_serves(installation: Installation) -> None:
    (installation.root / "current").unlink()
    serving = Serving()
    assert run_with_updates(["run"], serving) == 0
    assert serving.given == [None]


@pytest.mark.parametrize("problems", [[], ["OpenVINO does not work, or finds no device."]])
def test_a_self_test_says_the_version_and_what_does_not_work(
    problems: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_update, "problems_here", lambda: problems)
    assert cli.main(["self-test"]) == bool(problems)
    assert msgspec.json.decode(capsys.readouterr().out, type=SelfTest) == SelfTest(version("fallow"), problems)


def test_asking_for_updates_needs_a_running_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["update", "--check", "--data", str(tmp_path)]) != 0
    assert "not running" in capsys.readouterr().err
