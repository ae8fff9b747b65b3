from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from agent.cli import main
from agent.volunteer.probes.base import FactName
from agent.volunteer.probes.board import ProbeBoard
from agent.volunteer.probes.thispc import open_board


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.cli_probes.FIRST_LOOK_S", 0.3)


def facts_of(board: ProbeBoard) -> set[str]:
    return {fact for worker in board._workers for fact in worker.probe.tells}


def test_this_pc_is_asked_for_every_fact_that_its_system_tells(tmp_path: Path) -> None:
    board = open_board(tmp_path)
    assert facts_of(board) >= {"idle_s", "locked", "memory", "power", "other_cpu_percent", "exclusive"}
    assert facts_of(board) <= set(get_args(FactName))


def test_the_command_prints_what_each_probe_sees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probes", "--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    memory = next(line for line in lines if line.startswith("memory"))
    assert "total_bytes" in memory
    assert any(line.startswith("disk_free_bytes") for line in lines)


def test_the_command_prints_json_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probes", "--json", "--data", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["facts"]["memory"][0]["total_bytes"] > 0
    told = [row for row in printed["probes"] if row["fact"] == "memory"]
    assert told[0]["problem"] == ""


def test_on_a_terminal_the_command_goes_on_until_it_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("agent.cli_probes.time.sleep", sleep)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["probes", "--data", str(tmp_path)]) == 0
    assert "first sign" in capsys.readouterr().out
