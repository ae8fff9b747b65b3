from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from agent.cli import main
from agent.volunteer.probes.base import FactName
from agent.volunteer.probes.board import ProbeBoard
from agent.volunteer.probes.thispc import open_board
from tests.support.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command look when the probe these tests are about has answered, instead of after a while."""
    boards, pause = list[ProbeBoard](), threading.Event()

    def open_and_note(*arguments: Any, **options: Any) -> ProbeBoard:
        boards.append(open_board(*arguments, **options))
        return boards[-1]

    def wait(_: float) -> None:
        ends_s = time.monotonic() + PATIENCE_S
        while boards[-1].snapshot().memory.value is None:
            assert time.monotonic() < ends_s
            pause.wait(0.01)

    monkeypatch.setattr("agent.cli_probes.open_board", open_and_note)
    monkeypatch.setattr("agent.cli_probes.time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))


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
