"""Man pages made from the arguments of the programs: `python -m installer.man_pages FOLDER [PROGRAM ...]`.

One page a program, with all its subcommands; `man 1 fallow-console` shows it once it is installed. What is made depends
on the sources alone: no date, no path, nothing of the machine it is made on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from installer.programs import PROGRAMS, Command, Program, actions_of, all_commands, main_programs

SECTION = 1
WIDE = 10_000
"""Columns for argparse, so that it breaks no line: that is done by whoever shows the page."""


def man_page(program: Program) -> str:
    """Write the page of one program in the macros of man(7)."""
    whole, *below = all_commands(program)
    name, said = program.name, whole.summary.rstrip(".")
    lines = [
        f'.TH {escaped(name.upper())} {SECTION} "" "Fallow {escaped(version("fallow"))}" "Fallow"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(said[:1].lower() + said[1:])}",
        ".SH SYNOPSIS",
        *_synopsis(whole),
        ".SH DESCRIPTION",
        escaped(whole.summary),
        *_arguments(whole),
    ]
    ends = [command for command in below if command.runs]
    if ends:
        lines.append(".SH COMMANDS")
    for command in ends:
        lines += [f'.SS "{escaped(" ".join(command.words[1:]))}"', *_synopsis(command), ".PP"]
        lines += [escaped(_sentence(command.summary)), *_arguments(command)]
    lines += _exit_status(program)
    others = [other.name for other in PROGRAMS if other is not program]
    lines += [
        ".SH SEE ALSO",
        ",\n".join(f".BR {escaped(other)} ({SECTION})" for other in others).replace(",\n", " ,\n"),
    ]
    return "\n".join(lines) + "\n"


def write_man_pages(folder: Path, programs: Sequence[Program] = PROGRAMS) -> list[Path]:
    """Write `NAME.1` for each program into a folder, which is made; returns the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for program in programs:
        file = folder / f"{program.name}.{SECTION}"
        file.write_text(man_page(program), encoding="utf-8", newline="\n")
        files.append(file)
    return files


def escaped(text: str) -> str:
    """Write a text so that it is shown as it is: a hyphen as one, no request at the beginning of a line."""
    shown = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{shown}" if shown[:1] in (".", "'") else shown


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _synopsis(command: Command) -> list[str]:
    formatter = argparse.HelpFormatter(command.parser.prog, width=WIDE)
    formatter.add_usage(None, actions_of(command.parser), [], prefix="")
    words = " ".join(formatter.format_help().split()).removeprefix(command.parser.prog)
    return [f".B {escaped(' '.join(command.words))}", escaped(words)] if words else [f".B {' '.join(command.words)}"]


def _arguments(command: Command) -> Iterator[str]:
    """Give each argument with its help; subcommands have paragraphs of their own, and `--help` explains itself."""
    formatter = argparse.HelpFormatter(command.parser.prog, width=WIDE)
    for action in actions_of(command.parser):
        if isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):  # noqa: SLF001 - no public names
            continue
        if action.help is argparse.SUPPRESS:
            continue
        yield ".TP"
        yield f".B {escaped(formatter._format_action_invocation(action))}"  # noqa: SLF001 - as --help writes it
        yield escaped(_help(action, command.parser.prog)) or "\\&"


def _help(action: argparse.Action, prog: str) -> str:
    text = (action.help or "") % {**vars(action), "prog": prog}
    choices = "" if action.choices is None or not action.metavar else ", ".join(map(str, action.choices))
    return f"{text} (one of {choices})" if choices else text


def _exit_status(program: Program) -> Iterator[str]:
    codes = program.exit_codes()
    if codes:
        yield ".SH EXIT STATUS"
    for code, meaning in codes:
        yield ".TP"
        yield f".B {code}"
        yield escaped(_sentence(meaning))


def main(arguments: Sequence[str]) -> int:
    """Write the pages; returns the exit code."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        files = write_man_pages(options.folder, main_programs(options.programs))
    except OSError as error:
        print(f"man_pages: {error}: check that the folder can be written.", file=sys.stderr)
        return 1
    print("\n".join(map(str, files)))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="python -m installer.man_pages", description="Write the man pages.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where they are written")
    parser.add_argument("programs", metavar="PROGRAM", nargs="*", help="only of these (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
