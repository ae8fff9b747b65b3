"""The subcommand `fallow-console log-level`: how much the running service logs."""

from __future__ import annotations

import argparse

import msgspec

from agent.cli_log import add_log_level, asked_level, level_lines
from agent.logs.types import LoggerLevel
from console.api.admin.guard import PREFIX
from console.api.admin.log_levels import LogLevelChange, LogLevelsView
from console.call import Call
from console.cli_tools import Commands, client_of, command, show
from console.errors import UsageWrong


def add_operations(commands: Commands) -> None:
    """Add the subcommand."""
    level = command(commands, "log-level", "show what the running service logs, or change it while it runs", _log_level)
    add_log_level(level)


def log_levels(change: LogLevelChange | None = None) -> Call[list[LoggerLevel]]:
    """Ask for the levels that are set, or change one."""
    return Call(
        "GET" if change is None else "POST",
        f"{PREFIX}/log-levels",
        lambda raw: msgspec.json.decode(raw, type=LogLevelsView).levels,
        None if change is None else msgspec.json.encode(change),
    )


def _log_level(options: argparse.Namespace) -> int:
    try:
        logger, level = asked_level(options)
    except ValueError as error:
        raise UsageWrong(str(error)) from None
    change = LogLevelChange(logger, level, options.for_s) if logger else None
    with client_of(options) as console:
        levels = console.ask(log_levels(change))
    return show(options, levels, *level_lines(levels))
