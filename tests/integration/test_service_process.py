"""`fallow-console` as people run it: processes, exit codes, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from console.cli import main
from console.client import AdminClient
from tests.support.patience import PATIENCE_S
from tests.support.played import make_chat_library

PROGRAM = [sys.executable, "-m", "console"]


class Done(NamedTuple):
    """What a command printed and how it ended."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a client command in this process: starting an interpreter for each would take most of the time."""

    def run(*arguments: str | Path) -> Done:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as usage:
            code = int(usage.code or 0)
        return Done(code, *capsys.readouterr())

    return run


def start(folder: Path) -> subprocess.Popen[str]:
    ports = ["--agents-port", "0", "--api-port", "0", "--agents-host", "127.0.0.1"]
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--data", str(folder), *ports, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, problem = process.communicate(timeout=PATIENCE_S)
        pytest.fail(problem)
    assert json.loads(line)["pipelines"] == []
    return process


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(number)
    _, log = process.communicate(timeout=PATIENCE_S)
    return process.returncode, log


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("console")
    process = start(folder)
    yield folder
    code, _ = stop(process)
    assert code == 0


def test_the_command_line_from_invite_to_status(running: Path, tmp_path: Path, run: Run) -> None:
    make_chat_library(tmp_path / "library")
    invite = run("invite", "--data", running, "--uses", "2")
    assert invite.stdout.startswith("fallow1.")
    assert invite.stdout.count("\n") == 1
    out = tmp_path / "invite.txt"
    assert run("invite", "--data", running, "--out", out).returncode == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.read_text().startswith("fallow1.")
    assert (
        run("models", "--data", running, "--add", tmp_path / "library").stdout == "small can be deployed: 4 layers.\n"
    )
    assert "small" in run("models", "--data", running).stdout
    assert json.loads(run("agents", "--data", running, "--json").stdout) == []
    assert json.loads(run("status", "--data", running, "--json").stdout)["agents_connected"] == 0
    key = json.loads(run("key", "create", "someone", "--data", running, "--json").stdout)
    assert key["key"]["name"] == "someone"
    assert key["secret"] not in run("key", "list", "--data", running).stdout
    assert run("key", "revoke", key["key"]["key_id"], "--data", running).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["deploy", "nothing"], 1, "There is no layer library of 'nothing'"),
        (["undeploy", "nothing"], 1, "is not deployed"),
        (["approve", "ffffffff"], 1, "No device has"),
        (["revoke", "ffffffff"], 1, "No device has"),
        (["key", "revoke", "nothing"], 1, "There is no API key"),
        (["models", "--add", "/nowhere"], 1, "no finished layer library"),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_code_1(
    running: Path, run: Run, arguments: list[str], code: int, sentence: str
) -> None:
    done = run(*arguments, "--data", running)
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_without_a_service_the_exit_code_is_3(tmp_path: Path, run: Run) -> None:
    done = run("status", "--data", tmp_path)
    assert done.returncode == 3
    assert "fallow-console serve" in done.stderr


@pytest.mark.parametrize("arguments", [["fly"], ["deploy"], ["key"], ["invite", "--uses", "many"]])
def test_wrong_usage_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).returncode == 2


def test_an_interrupt_ends_the_service_well(tmp_path: Path) -> None:
    process = start(tmp_path)
    code, log = stop(process, signal.SIGINT)
    assert code == 0
    assert "Traceback" not in log


def test_a_killed_service_leaves_no_lock_and_its_client_says_so(tmp_path: Path, run: Run) -> None:
    process = start(tmp_path)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    done = run("agents", "--data", tmp_path)
    assert done.returncode == 3
    process = start(tmp_path)
    with AdminClient.for_data_folder(tmp_path) as console:
        assert console.agents() == []
    assert stop(process)[0] == 0
