"""The programs that are installed, and what they take: for man pages and for the checks of the documents.

Needs the environment of the windows, because two of the programs are windows.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_EXIT_CODES = re.compile(r"Exit codes: (.+?)\.(?:\s|$)", re.DOTALL)


@dataclass(frozen=True)
class Program:
    """A program: its name, the module it starts in, and what makes its parser there."""

    name: str
    module: str
    factory: str = "build_parser"

    def parser(self) -> argparse.ArgumentParser:
        """Make the parser of all its arguments."""
        made: argparse.ArgumentParser = getattr(importlib.import_module(self.module), self.factory)()
        return made

    def exit_codes(self) -> list[tuple[str, str]]:
        """Return codes and their meanings, as the module or its `main` tells them; empty if neither does."""
        module = importlib.import_module(self.module)
        found = _EXIT_CODES.search(f"{module.__doc__}\n{module.main.__doc__}")
        if found is None:
            return []
        return re.findall(r"(\d+) ([^,]+)", " ".join(found[1].split()))


PROGRAMS = (
    Program("fallow-agent", "agent.cli"),
    Program("fallow-chat", "console.chat.app"),
    Program("fallow-console", "console.cli"),
    Program("fallow-export", "shard_export.cli", "_parser"),
    Program("fallow-tray", "agent.tray.app"),
)


@dataclass(frozen=True)
class Command:
    """One command line: the program's name and the subcommands, what it is for, and the parser of the rest."""

    words: tuple[str, ...]
    summary: str
    parser: argparse.ArgumentParser

    @property
    def subcommands(self) -> dict[str, tuple[str, argparse.ArgumentParser]]:
        """Return what may come next, each with what it is for; empty at the end of a command."""
        for action in actions_of(self.parser):
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no public name
                summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - the only place
                return {name: (summaries.get(name, ""), parser) for name, parser in action.choices.items()}
        return {}

    @property
    def options(self) -> frozenset[str]:
        """Return all spellings of the options that this very parser takes."""
        return frozenset(text for action in actions_of(self.parser) for text in action.option_strings)

    @property
    def runs(self) -> bool:
        """Whether it does something without a further word."""
        return not self.subcommands or self.parser.get_default("handler") is not None


def actions_of(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """Return what a parser takes, in order. argparse tells nobody; this is the one place that looks."""
    return parser._actions  # noqa: SLF001 - there is no public way


def walk(command: Command) -> Iterator[Command]:
    """Give a command and everything below it, in the order of the help texts."""
    yield command
    for name, (summary, parser) in command.subcommands.items():
        yield from walk(Command((*command.words, name), summary, parser))


def all_commands(program: Program) -> list[Command]:
    """Return the program itself and all its subcommands."""
    parser = program.parser()
    return list(walk(Command((program.name,), parser.description or "", parser)))


def program_named(name: str) -> Program:
    """Find a program. Raises KeyError."""
    return {program.name: program for program in PROGRAMS}[name]


def main_programs(names: Sequence[str]) -> tuple[Program, ...]:
    """Return the named programs, or all; ends the process with a sentence if there is none of that name."""
    try:
        return tuple(program_named(name) for name in names) or PROGRAMS
    except KeyError as unknown:
        known = ", ".join(program.name for program in PROGRAMS)
        sys.exit(f"There is no program {unknown}; there are {known}.")
