"""README.md begins with the two commands that everything else rests on, and names every program."""

from __future__ import annotations

import re

from installer.programs import PROGRAMS
from tests.support.documents import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_two_commands_are_the_demo_and_the_tests() -> None:
    first, second = re.findall(r"^python .*$", README, re.MULTILINE)[:2]
    assert first == "python installer/bootstrap.py demo"
    assert second == "python installer/bootstrap.py test"


def test_every_program_is_named() -> None:
    assert {program.name for program in PROGRAMS} <= set(re.findall(r"[\n`](fallow-[a-z]+)", README))
