"""README.md begins with the two commands that everything else rests on, names every program, and counts right."""

from __future__ import annotations

import math
import re

import pytest

from agent.volunteer.policy import BUILT_IN, GIB, memory_cap_bytes, memory_floor_bytes
from installer.programs import PROGRAMS
from tests.support.documents import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_two_commands_are_the_demo_and_the_tests() -> None:
    first, second = re.findall(r"^python .*$", README, re.MULTILINE)[:2]
    assert first == "python installer/bootstrap.py demo"
    assert second == "python installer/bootstrap.py test"


def test_every_program_is_named() -> None:
    assert {program.name for program in PROGRAMS} <= set(re.findall(r"[\n`](fallow-[a-z]+)", README))


def test_what_a_pc_gives_is_what_the_policy_lets_it() -> None:
    (sizes, shares) = re.search(r"a PC with (.+) GiB gives at most (.+)\. With", README).groups()  # type: ignore[union-attr]
    numbers = [[int(number) for number in re.findall(r"\d+", words)] for words in (sizes, shares)]
    assert numbers[1] == [given_bytes(size) // GIB for size in numbers[0]]


@pytest.mark.parametrize(
    "row", re.findall(r"^\| (\d+) \| ([\d.]+) GB \| (\d+) \| (\d+) \| (\d+) \|$", README, re.MULTILINE)
)
def test_the_table_of_sizes_follows_from_what_was_measured(row: tuple[str, ...]) -> None:
    bits = float(re.search(r"layers take ([\d.]+) bits", README)[1])  # type: ignore[index]
    weights = float(row[0]) * 1e9 * bits / 8
    assert row[1] == f"{weights / 1e9:.1f}"
    assert [int(number) for number in row[2:]] == [math.ceil(weights / given_bytes(size)) for size in (8, 16, 32)]


def test_the_bits_are_those_of_the_exporters_table() -> None:
    bits = re.search(r"layers take ([\d.]+) bits", README)[1]  # type: ignore[index]
    exporter = (ROOT / "shard_export" / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"`int4_gptq` \(what `auto` takes\) \| {re.escape(bits)} \|", exporter)


def given_bytes(size_gib: int) -> int:
    """What stages may take on a PC of this size by the built-in policy, if nobody else needed anything."""
    total = size_gib * GIB
    return min(memory_cap_bytes(BUILT_IN, total), total - memory_floor_bytes(BUILT_IN, total))
