"""`fallow-agent support-bundle`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.cli_control import ask_status
from agent.link.keystore import Keystore
from agent.support.agent_parts import agent_parts, agent_secrets
from agent.support.bundle import Part, after_lines, before_lines, check_new, collect, progress_line, write_bundle
from agent.support.cleaning import Cleaner


def add_support_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a `support-bundle` command."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the zip to write; never over another")
    parser.add_argument("--no-doctor", action="store_true", help="leave the doctor out, who may take minutes")


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    """Add the command."""
    bundling = commands.add_parser(
        "support-bundle", parents=[common], help="write how this agent is into a file for support, without secrets"
    )
    add_support_options(bundling)
    bundling.set_defaults(command=_support_bundle, log_default="ERROR")


def said_to_stderr(parts: Sequence[Part]) -> Callable[[int, Part], object]:
    """Return what tells, on standard error, which part is being made: some take minutes."""
    return lambda number, part: print(progress_line(number, len(parts), part.name), file=sys.stderr, flush=True)


def _support_bundle(options: argparse.Namespace) -> int:
    check_new(options.out)
    parts = agent_parts(
        options.data, lambda: ask_status(options.data), None if options.no_doctor else lambda: _examine(options.data)
    )
    print("\n".join(before_lines(parts)), flush=True)
    manifest, files = collect("fallow-agent", parts, Cleaner(agent_secrets(options.data)), said_to_stderr(parts))
    write_bundle(options.out, files)
    print("\n".join(after_lines(options.out, manifest)))
    return 0


async def _examine(folder: Path) -> object:
    # OpenVINO takes a moment to import; the other commands do without.
    from agent.doctor.examination import examine_agent

    return await examine_agent(folder, Keystore("agent"))
