"""What README.md tells people to type exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]


def commands() -> list[tuple[str, str]]:
    """Programs with the subcommands that README.md names, in code blocks and in sentences."""
    return sorted(set(re.findall(r"[\n`](fallow-[a-z]+) ([a-z]+)", README)))


def test_the_first_two_commands_are_the_demo_and_the_tests() -> None:
    first, second = re.findall(r"^python .*$", README, re.MULTILINE)[:2]
    assert first == "python installer/bootstrap.py demo"
    assert second == "python installer/bootstrap.py test"


def test_every_program_is_named() -> None:
    assert {program for program, _ in commands()} == set(PROGRAMS)


@pytest.mark.parametrize(("program", "subcommand"), commands())
def test_every_subcommand_explains_itself(program: str, subcommand: str) -> None:
    script = Path(sys.executable).with_name(program)  # not resolved: beside the environment's own link to Python
    done = subprocess.run(
        [script, subcommand, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
