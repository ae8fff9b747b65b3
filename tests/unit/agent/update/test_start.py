"""agent.update.start: the program that lies beside the versions where there are no links."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from agent.update import layout, start
from agent.update.layout import Installation
from agent.update.start import EXIT_BROKEN, main
from tests.support.releases import make_installation, make_tree


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Two versions, the older one current, as on Windows."""
    monkeypatch.setattr(Installation, "_links", False)
    monkeypatch.setattr(layout, "POINTER", start.POINTER)
    made = make_installation(tmp_path)
    make_tree(made.folder("1.10.0"), "1.10.0")
    return made


def version_started(installation: Installation, capfd: pytest.CaptureFixture[str]) -> str:
    assert main(installation.root / "fallow-agent", ["version"]) == 0
    return capfd.readouterr().out.strip()


def test_it_starts_the_version_that_is_current(installation: Installation, capfd: pytest.CaptureFixture[str]) -> None:
    assert version_started(installation, capfd) == "1.0.0"
    installation.switch("1.10.0")
    assert version_started(installation, capfd) == "1.10.0"


def test_exit_codes_are_passed_on(installation: Installation) -> None:
    make_tree(installation.folder("1.11.0"), "1.11.0", fault="crash")
    installation.switch("1.11.0")
    assert main(installation.root / "fallow-agent", ["run"]) == 3


@pytest.mark.parametrize("pointer", [None, b"", b"\xff\xfe", b"9.9.9", b"../1.0.0", b"1.0.0\\..\\x"])
def test_a_pointer_that_leads_nowhere_is_no_end(
    installation: Installation, pointer: bytes | None, capfd: pytest.CaptureFixture[str]
) -> None:
    file = installation.root / start.POINTER
    file.unlink()
    if pointer is not None:
        file.write_bytes(pointer)
    assert version_started(installation, capfd) == "1.10.0"


def test_without_any_version_it_says_what_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path / "fallow-agent", []) == EXIT_BROKEN
    assert "install the program again" in capfd.readouterr().err


def test_it_imports_nothing_but_python_s_own_library() -> None:
    tree = ast.parse(Path(start.__file__).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {str(name).partition(".")[0] for name in imported} <= sys.stdlib_module_names
