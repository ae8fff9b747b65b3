"""The script of a frozen program: which module it runs, and what it refuses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.update import layout
from installer.packaging import entry

Run = Callable[..., list[tuple[str, list[str]]]]


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    known = {"programs": {"fallow-agent": "agent"}, "children": ["agent.devices"]}
    (tmp_path / "programs.json").write_text(json.dumps(known), "utf-8")
    for name in ("LD_LIBRARY_PATH", "LD_LIBRARY_PATH_ORIG", "PYINSTALLER_RESET_ENVIRONMENT"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    ran: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("runpy.run_module", lambda module, **_: ran.append((module, sys.argv)))

    def run(program: str, *arguments: str) -> list[tuple[str, list[str]]]:
        monkeypatch.setattr(sys, "executable", str(tmp_path / program))
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        entry.main()
        return ran

    return run


def test_a_program_runs_the_module_it_is_named_after(frozen: Run) -> None:
    assert frozen("fallow-agent", "status", "--json") == [("agent", ["fallow-agent", "status", "--json"])]


def test_a_program_of_windows_is_known_without_its_ending(frozen: Run) -> None:
    assert frozen("fallow-agent.exe") == [("agent", ["fallow-agent"])]


def test_a_module_of_the_bundle_runs_as_python_would_run_it(frozen: Run) -> None:
    assert frozen("fallow-agent", "-m", "agent.devices", "x") == [("agent.devices", ["fallow-agent", "x"])]


@pytest.mark.parametrize("before", ["", "/opt/lib"])
def test_other_programs_do_not_inherit_our_libraries(frozen: Run, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/bundle/_internal")
    monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", before)
    frozen("fallow-agent")
    assert os.environ.get("LD_LIBRARY_PATH", "") == before
    assert "LD_LIBRARY_PATH_ORIG" not in os.environ
    assert os.environ["PYINSTALLER_RESET_ENVIRONMENT"] == "1"


@pytest.mark.parametrize("arguments", [("-m", "http.server"), ("-m",)])
def test_other_modules_are_refused(frozen: Run, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refused:
        frozen("fallow-agent", *arguments)
    assert refused.value.code == entry.EXIT_USAGE
    assert "cannot be run with -m" in capsys.readouterr().err


def test_a_renamed_program_says_what_it_should_be_called(frozen: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        frozen("my-agent")
    assert "fallow-agent" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="Linux")
def test_modules_are_read_from_the_file_a_program_began_with(
    frozen: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "fallow-agent"
    program.write_text("old")
    archive = SimpleNamespace(_filename=str(program))
    monkeypatch.setitem(sys.modules, "pyimod02_importers", SimpleNamespace(pyz_archive=archive))
    frozen("fallow-agent")
    try:
        (tmp_path / "newer").write_text("new")
        (tmp_path / "newer").rename(program)
        assert Path(archive._filename).read_text() == "old"
        program.unlink()
        assert Path(archive._filename).read_text() == "old"
    finally:
        os.close(int(Path(archive._filename).name))


LACKING = "libglib-2.0.so.0: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(("managed", "advice"), [(True, "dpkg -s "), (False, "of this system")])
def test_a_library_that_the_system_lacks_is_one_sentence(
    frozen: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    *, managed: bool, advice: str,
) -> None:  # fmt: skip
    def load(module: str, **_: object) -> None:
        raise ImportError(LACKING)

    monkeypatch.setattr("runpy.run_module", load)
    if managed:
        (tmp_path / entry.MANAGED).write_text("deb\n")
    with pytest.raises(SystemExit) as refused:
        frozen("fallow-agent")
    assert refused.value.code == entry.EXIT_USAGE
    said = capsys.readouterr().err
    assert "fallow-agent: libglib-2.0.so.0 is missing here" in said
    assert advice in said


def test_any_other_failed_import_is_a_fault_of_ours(frozen: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(module: str, **_: object) -> None:
        raise ImportError("No module named 'agent.nothing'")

    monkeypatch.setattr("runpy.run_module", load)
    with pytest.raises(ImportError, match=r"agent\.nothing"):
        frozen("fallow-agent")


def test_what_says_that_a_package_was_installed_is_called_the_same_everywhere() -> None:
    assert entry.MANAGED == layout.MANAGED
