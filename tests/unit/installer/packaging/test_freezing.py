"""How a bundle is made: what PyInstaller is told, when a venv is made anew, and what ends a build."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from installer import build, qt_libraries
from installer.environment import LibrariesMissing
from installer.packaging import debbuild, freezing
from installer.packaging.errors import BuildFailed, PackagingError
from installer.packaging.roles import AGENT, CONSOLE, ROLES, Role
from installer.programs import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[4]
PROJECT = """
[project]
version = "1.2"
dependencies = ["a"]
[project.optional-dependencies]
gui = ["b"]
dev = ["c"]
"""


@pytest.fixture
def places(tmp_path: Path) -> freezing.Places:
    made = freezing.Places(ROOT, tmp_path / "work", tmp_path / "dist" / "fallow-agent")
    made.work.mkdir()
    return made


@pytest.mark.parametrize("role", ROLES.values(), ids=list(ROLES))
def test_pyinstaller_is_told_files_that_are_there(role: Role, places: freezing.Places) -> None:
    wheel = places.work / "fallow.whl"
    wheel.touch()
    told = json.loads(json.dumps(freezing.told_of(role, places, wheel)))
    assert Path(told["entry"]).is_file()
    assert Path(told["trimming"]).is_file()
    assert all(Path(source).exists() for source, _ in told["data"])
    assert (str(wheel) in dict(told["data"])) == role.brings_wheel
    known = json.loads(places.work.joinpath("programs.json").read_text("utf-8"))
    assert set(known["programs"]) == {program.name for program in role.programs}
    assert known["children"] == list(role.children)


def test_nothing_of_this_tree_is_taken_in_place_of_what_is_installed(places: freezing.Places) -> None:
    told = freezing.told_of(AGENT, places, places.work / "fallow.whl")
    assert not Path(str(told["entry"])).is_relative_to(ROOT / "installer")


@pytest.mark.skipif(sys.platform != "linux", reason="libraries of Linux")
def test_a_bundle_without_the_libraries_of_its_windows_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(folder: Path, packages: dict[str, str]) -> None:
        asked.extend(packages)
        raise LibrariesMissing("run 'sudo apt-get install libwayland-cursor0' and this command again.")

    monkeypatch.setattr(qt_libraries, "ensure", refuse)
    with pytest.raises(BuildFailed, match="sudo apt-get install"):
        freezing.provide_libraries(AGENT, ROOT)
    assert "libwayland-cursor.so.0" in asked
    freezing.provide_libraries(replace(AGENT, extras=()), ROOT)


def test_a_venv_is_made_anew_only_for_other_requirements() -> None:
    first = freezing.fingerprint(PROJECT, ["gui"])
    assert freezing.fingerprint(PROJECT.replace('"c"', '"d"').replace("1.2", "1.3"), ["gui"]) == first
    assert freezing.fingerprint(PROJECT.replace('"b"', '"b>=2"'), ["gui"]) != first
    assert freezing.fingerprint(PROJECT.replace('"a"', '"a>=2"'), ["gui"]) != first


def test_a_bundle_that_is_too_large_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2_000_000))
    (tmp_path / "link").symlink_to("file")
    said: list[str] = []
    freezing.check_size(replace(AGENT, limit_mb=2), tmp_path, said.append)
    assert "2 MB" in said[0]
    with pytest.raises(BuildFailed, match="more than 1"):
        freezing.check_size(replace(AGENT, limit_mb=1), tmp_path, said.append)
    freezing.check_size(replace(CONSOLE, limit_mb=0), tmp_path, said.append)


def test_a_step_that_fails_ends_the_build_with_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BuildFailed, match=r"Trying failed \(no luck\)"):
        freezing.run([sys.executable, "-c", "import sys; sys.exit('no luck')"], tmp_path, "Trying")
    assert "no luck" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="programs of POSIX")
def test_a_bundle_whose_programs_do_not_start_fails_the_build(tmp_path: Path) -> None:
    for program in AGENT.programs:
        (tmp_path / program.name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / program.name).chmod(0o755)
    freezing.check_starts(tmp_path, AGENT)
    (tmp_path / AGENT.programs[1].name).write_text("#!/bin/sh\necho no Qt here >&2\nexit 1\n")
    with pytest.raises(BuildFailed, match="no Qt here"):
        freezing.check_starts(tmp_path, AGENT)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_program_can_show_its_help(program: Program) -> None:
    assert program.name in program.parser().format_help()


@pytest.mark.parametrize("arguments", [["nonsense"], ["--as", "appimage", "console"], ["--as", "rpm"]])
def test_what_cannot_be_made_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build.main(arguments)
    assert ended.value.code == 2
    assert "build.py: error" in capsys.readouterr().err


def test_expected_failures_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Path:
        raise PackagingError("It cannot be.")

    monkeypatch.setattr(freezing, "freeze", fail)
    assert build.main(["agent"]) == 1
    assert capsys.readouterr().err == "error: It cannot be.\n"


def test_a_package_needs_debians_tools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(debbuild, "TOOLS", {"a-tool-nobody-has": "binutils"})
    assert build.main(["--as", "deb", "agent"]) == 1
    assert "apt-get install binutils" in capsys.readouterr().err


def test_all_is_made_when_nothing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(build, "make", lambda role, _: Path(role.name))
    assert build.main([]) == 0
    assert capsys.readouterr().out.split() == ["agent", "console", "chat"]
