"""Man pages say all that --help says, the same on every machine, in what man(1) reads without complaint."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from installer.man_pages import escaped, main, man_page, write_man_pages
from installer.programs import PROGRAMS, Program, all_commands, program_named

EACH = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.name))


@EACH
def test_every_command_and_option_is_on_the_page(program: Program) -> None:
    page = man_page(program)
    for command in all_commands(program):
        assert not command.runs or f".B {escaped(' '.join(command.words))}\n" in page
        assert all(escaped(option) in page for option in command.options - {"--help"})


@EACH
def test_nothing_of_this_machine_is_on_the_page(program: Program) -> None:
    page = man_page(program)
    assert str(Path.home()) not in page
    assert socket.gethostname() not in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@EACH
def test_groff_shows_it_without_a_complaint(program: Program) -> None:
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-wmac", "-wsyntax", "-wescape", "-P-cbou"],
        input=man_page(program), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert not shown.stderr
    assert "SEE ALSO" in shown.stdout


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a-b", "a\\-b"),
        (".start", "\\&.start"),
        ("'x'", "\\&'x'"),
        ("a\\b", "a\\eb"),
        ('"q"', "\\(dqq\\(dq"),
        ("a\nb", "a b"),
    ],
)
def test_no_text_is_taken_for_a_request(text: str, written: str) -> None:
    assert escaped(text) == written


def test_the_agents_page_tells_its_exit_codes() -> None:
    assert ".SH EXIT STATUS\n.TP\n.B 0\nFine.\n" in man_page(program_named("fallow-agent"))
    assert "EXIT STATUS" not in man_page(program_named("fallow-export"))


def test_chosen_pages_are_written_into_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "man"), "fallow-chat"]) == 0
    assert [path.name for path in (tmp_path / "man").iterdir()] == ["fallow-chat.1"]
    assert capsys.readouterr().out.strip() == str(tmp_path / "man" / "fallow-chat.1")
    assert len(write_man_pages(tmp_path / "all")) == len(PROGRAMS)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 1
    assert "check that the folder can be written" in capsys.readouterr().err
