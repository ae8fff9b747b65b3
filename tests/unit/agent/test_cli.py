from __future__ import annotations

import errno
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.settings import AgentState, LoadedStage, write_state


@pytest.fixture(autouse=True)
def keep_the_test_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "set_up", lambda **_: None)


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def make_state(**fields: object) -> AgentState:
    values: dict[str, object] = {
        "link": "connected", "process_id": os.getpid(), "updated_s": time.time(), "device_id": "d1",
        "console_url": "wss://console:8443", "stages": [LoadedStage(1, 0, 0, 15, "paged", "CPU")],
    }  # fmt: skip
    return AgentState(**(values | fields))  # type: ignore[arg-type]  # a factory's fields


def test_a_pc_that_is_not_enrolled_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--data", str(tmp_path)]) == 11
    assert capsys.readouterr().err == ("fallow-agent: This PC is not enrolled; ask your administrator for an invite.\n")


@pytest.mark.parametrize(
    "data", [b"", b"not an invite", b"\xff\xfe\x00", b"fallow1.AAAA.aaaaaaaa", b"x" * 70_000], ids=range(5)
)
def test_what_is_no_invite_is_refused_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    feed(monkeypatch, data)
    assert cli.main(["enrol", "--data", str(tmp_path)]) == 10
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("fallow-agent: ")


def test_a_missing_invite_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "invite.txt"
    assert cli.main(["enrol", "--data", str(tmp_path), "--invite-file", str(path)]) == 10
    assert str(path) in capsys.readouterr().err


def test_an_invite_that_others_may_not_read_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opens = Path.open

    def refuse(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name == "invite.txt":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opens(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    assert cli.main(["enrol", "--data", str(tmp_path), "--invite-file", "invite.txt"]) == 10
    assert capsys.readouterr().err.startswith("fallow-agent: You may not read invite.txt; ask ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("agent.cli.load_settings", fail)
    assert cli.main(["run", "--data", str(tmp_path)]) == cli.EXIT_DISK
    assert capsys.readouterr().err == "fallow-agent: The disk is full; free some space and try again.\n"


def test_an_invite_is_never_taken_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as usage:
        cli.main(["enrol", "fallow1.AAAA.aaaaaaaa"])
    assert usage.value.code == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "toml", "code"),
    [
        (["--cores", "0,9999"], "", 15),
        (["--memory-mb", "-1"], "", 15),
        ([], "threads = 'many'", 15),
        ([], "colour = 1", 15),
        ([], "= nonsense", 15),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], toml: str, code: int
) -> None:
    (tmp_path / "agent.toml").write_text(toml)
    assert cli.main(["run", "--data", str(tmp_path), *options]) == code
    assert "agent.toml" in capsys.readouterr().err


def test_cores_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "--cores", "zero"])
    assert "0,1" in capsys.readouterr().err


def test_a_data_folder_that_is_a_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").write_text("")
    assert cli.main(["run", "--data", str(tmp_path / "data")]) == 16
    assert "permissions" in capsys.readouterr().err


def test_status_shows_the_stages_of_a_running_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_state(tmp_path, make_state())
    assert cli.main(["status", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "connected (wss://console:8443) as device d1" in out
    assert "layers 0 to 14, paged on CPU" in out
    assert cli.main(["status", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"]["stages"][0]["engine"] == "paged"


@pytest.mark.parametrize(
    "state",
    [
        make_state(link="stopped", message="It was stopped."),
        make_state(process_id=2**22 + 5),
        make_state(updated_s=1.0),
    ],
    ids=["stopped", "no such process", "the id belongs to a younger process"],
)
def test_status_knows_an_agent_that_is_not_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: AgentState
) -> None:
    write_state(tmp_path, state)
    assert cli.main(["status", "--data", str(tmp_path)]) == 3
    assert capsys.readouterr().out.startswith("The agent is not running.")


def test_status_before_the_first_run_and_with_a_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "--data", str(tmp_path)]) == 3
    assert "fallow-agent run" in capsys.readouterr().out
    (tmp_path / "state.json").write_text("{")
    assert cli.main(["status", "--data", str(tmp_path)]) == 15
    assert "state.json" in capsys.readouterr().err


def test_doctor_logs_errors_only() -> None:
    parser = cli.build_parser()
    assert parser.parse_args(["doctor"]).log_default == "ERROR"
    assert parser.parse_args(["status"]).log_default == "INFO"
