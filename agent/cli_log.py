"""`fallow-agent log-level`, and the options of all commands about logs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from agent.cli_control import give_order
from agent.control.log_orders import LogLevels, SetLogLevel
from agent.durations import parse_duration_s
from agent.logs.handlers import Format
from agent.logs.types import ALL, LEVELS, LoggerLevel
from agent.settings import SettingsError


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add how much is logged, and how."""
    parser.add_argument(
        "--log-format", choices=get_args(Format), default="auto", help="auto: JSON in a file, text on standard error"
    )
    parser.add_argument("--log-level", choices=LEVELS, help="from which level on (default: INFO)")


def add_log_file(parser: argparse.ArgumentParser, default: str) -> None:
    """Add where a program that goes on running logs."""
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help=f"log there and not on standard error (default: both there and in {default} of the data folder)",
    )


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a `log-level` command."""
    parser.add_argument("logger", nargs="?", default="", metavar="LOGGER", help=f"such as agent.link, or {ALL}")
    parser.add_argument("level", nargs="?", default="", metavar="LEVEL", help=", ".join(LEVELS))
    parser.add_argument(
        "--for", dest="for_s", type=_duration, metavar="TIME", help="as long as 15min or 1h, then as it was before"
    )


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    """Add `log-level`."""
    setting = commands.add_parser(
        "log-level", parents=[common], help="show what the running agent logs, or change it while it runs"
    )
    add_log_level(setting)
    setting.add_argument("--json", action="store_true", help="print one JSON object")
    setting.set_defaults(command=_log_level)


def asked_level(options: argparse.Namespace) -> tuple[str, str]:
    """Return the logger and the level that are meant; both empty: only asked. Raises ValueError with a sentence."""
    logger, level = options.logger, options.level.upper()
    if logger.upper() in LEVELS and not level:
        return ALL, logger.upper()
    if logger and not level:
        raise ValueError(f"Say which level {logger[:60]} should have: {', '.join(LEVELS)}.")
    return logger, level


def level_lines(levels: Sequence[LoggerLevel]) -> list[str]:
    """Say the levels, one a line."""
    return [
        f"{one.logger}: {one.level}" + ("" if one.left_s is None else f" for {one.left_s:.0f} s more") for one in levels
    ]


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _log_level(options: argparse.Namespace) -> int:
    try:
        logger, level = asked_level(options)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    answer = give_order(options.data, lambda id_: SetLogLevel(id_, logger, level, options.for_s))
    levels = answer.levels if isinstance(answer, LogLevels) else []
    if options.json:
        print(json.dumps({"levels": msgspec.to_builtins(levels)}))
    else:
        print("\n".join(level_lines(levels)))
    return 0
