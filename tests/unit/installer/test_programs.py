"""The programs are those that are installed, and walking through one finds every command of it."""

from __future__ import annotations

import argparse
import tomllib

import pytest

from installer.programs import PROGRAMS, Command, all_commands, main_programs, program_named, walk
from tests.support.documents import ROOT


def test_they_are_the_scripts_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    scripts = {**project["scripts"], **project["gui-scripts"]}
    assert {program.name: f"{program.module}:main" for program in PROGRAMS} == scripts


def test_a_walk_finds_commands_below_commands_with_their_summaries() -> None:
    parser = argparse.ArgumentParser(prog="tool")
    parser.add_argument("--deep", action="store_true")
    below = parser.add_subparsers()
    leaf = below.add_parser("one", help="the first")
    leaf.add_argument("--more", "-m")
    below.add_parser("two", help="others").add_subparsers().add_parser("three", help="below it")
    found = {command.words: command for command in walk(Command(("tool",), "", parser))}
    assert list(found) == [("tool",), ("tool", "one"), ("tool", "two"), ("tool", "two", "three")]
    assert found["tool", "one"].summary == "the first"
    assert found["tool", "one"].options == {"-h", "--help", "--more", "-m"}
    assert [words for words, command in found.items() if command.runs] == [("tool", "one"), ("tool", "two", "three")]


def test_the_console_alone_does_something_too() -> None:
    console = all_commands(program_named("fallow-console"))
    assert console[0].runs
    assert ("fallow-console", "build", "start") in {command.words for command in console}
    assert not next(command for command in console if command.words == ("fallow-console", "build")).runs


def test_exit_codes_are_read_where_they_are_told() -> None:
    agent = dict(program_named("fallow-agent").exit_codes())
    assert agent["3"] == "not running"
    assert agent["10"] == "invite"
    assert dict(program_named("fallow-chat").exit_codes())["4"] == "a link was given and the chat is open already"
    assert program_named("fallow-export").exit_codes() == []


def test_an_unknown_program_ends_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"no program 'fallow-x'; there are fallow-agent"):
        main_programs(["fallow-x"])
    assert main_programs([]) == PROGRAMS
