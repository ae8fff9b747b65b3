from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from console.api.admin.types import Key
from console.chat_link import read_link
from console.cli import build_parser, main, warn_of_password
from console.data import default_data_folder
from console.fleet.hub import HEARTBEAT_S
from console.registry.records import ApiKey
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--database", "postgresql://fallow:canary@db/fallow"],
        ["serve", "--database=postgresql://fallow:canary@db/fallow"],
    ],
)
def test_a_password_in_the_command_line_is_warned_of_and_not_repeated(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_password(arguments)
    said = capsys.readouterr().err
    assert "PGPASSWORD" in said
    assert "canary" not in said


def test_addresses_without_one_are_fine(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_password(["serve", "--database", "postgresql://fallow@db/fallow", "--advertise", "wss://console:8461"])
    assert capsys.readouterr().err == ""


def test_a_heartbeat_is_a_sensible_number_of_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_parser().parse_args(["serve"]).heartbeat == HEARTBEAT_S
    assert build_parser().parse_args(["serve", "--heartbeat", "5"]).heartbeat == 5.0
    for text in ("0", "-1", "nan", "3600", "soon"):
        with pytest.raises(SystemExit):
            build_parser().parse_args(["serve", f"--heartbeat={text}"])
        assert text in capsys.readouterr().err


def test_web_pages_are_let_in_by_origins_that_browsers_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_parser().parse_args(["serve"]).cors_origin == []
    origins = ["https://chat.example.org", "http://localhost:3000"]
    asked = [f"--cors-origin={origin}" for origin in origins]
    assert build_parser().parse_args(["serve", *asked]).cors_origin == origins
    with pytest.raises(SystemExit):
        build_parser().parse_args(["serve", "--cors-origin", "https://chat.example.org/"])
    assert "https://host" in capsys.readouterr().err


@pytest.mark.parametrize(("url", "said"), [("http://127.0.0.1:1", True), ("http://console.example:1", False)])
def test_a_chat_link_that_works_on_this_pc_only_says_so_beside_it(
    url: str, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Key(ApiKey("k", "vera", ["chat"], 0.0, None, None), "sk-secret")
    console = SimpleNamespace(url=url, create_key=lambda *_, **__: key)
    monkeypatch.setattr("console.cli_access.client_of", lambda _: contextlib.nullcontext(console))
    assert main(["key", "create", "vera", "--link"]) == 0
    shown = capsys.readouterr()
    assert read_link(shown.out.strip()).url == url
    assert ("works on this PC only" in shown.err) is said


def test_without_the_windows_packages_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "console.gui.app", raising=False)
    for name in ("PySide6", "PySide6.QtCore"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([]) == 1
    assert "pip install 'fallow[gui]'" in capsys.readouterr().err


def test_without_a_library_that_the_windows_need_a_sentence_names_it(tmp_path: Path) -> None:
    package = tmp_path / "PySide6"
    package.mkdir()
    (package / "__init__.py").write_bytes(b"")
    (package / f"QtCore{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")  # as one whose own libraries are missing
    path = os.pathsep.join([str(tmp_path), *sys.path])
    run = subprocess.run(
        [sys.executable, "-m", "console", "--data", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert run.stderr.startswith("fallow-console: The window needs a library that cannot be loaded here: ")
    assert str(package) in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_a_failed_import_that_is_no_matter_of_installing_is_not_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "console.gui.app", ModuleType("console.gui.app"))
    with pytest.raises(ImportError, match="cannot import name 'run'"):
        main([])


def test_the_data_folder_may_stand_before_or_behind_the_subcommand() -> None:
    for arguments in (["--data", "x", "serve"], ["serve", "--data", "x"]):
        assert build_parser().parse_args(arguments).data == Path("x")
    assert build_parser().parse_args(["serve"]).data == default_data_folder()
