"""The subcommands `fallow-console log-level` and `support-bundle`: how the running service is."""

from __future__ import annotations

import argparse

from agent.cli_log import add_log_level, asked_level, level_lines
from agent.cli_support import add_support_options, said_to_stderr
from agent.support.bundle import SupportError, after_lines, before_lines, check_new, collect, write_bundle
from agent.support.cleaning import Cleaner
from console.api.admin.log_levels import LogLevelChange
from console.calls_operations import log_levels
from console.cli_tools import Commands, client_of, command, show
from console.errors import ClientError, UsageWrong


def add_operations(commands: Commands) -> None:
    """Add the subcommands."""
    level = command(commands, "log-level", "show what the running service logs, or change it while it runs", _log_level)
    add_log_level(level)
    bundle = command(commands, "support-bundle", "write how all is into a file for support, without secrets", _bundle)
    add_support_options(bundle)


def _log_level(options: argparse.Namespace) -> int:
    try:
        logger, level = asked_level(options)
    except ValueError as error:
        raise UsageWrong(str(error)) from None
    change = LogLevelChange(logger, level, options.for_s) if logger else None
    with client_of(options) as console:
        levels = console.ask(log_levels(change))
    return show(options, levels, *level_lines(levels))


def _bundle(options: argparse.Namespace) -> int:
    from console.support import console_parts, console_secrets  # the doctor takes a moment to import

    parts = console_parts(options.data, doctor=not options.no_doctor)
    try:
        check_new(options.out)
        if not options.json:
            show(options, None, *before_lines(parts))
        cleaner = Cleaner(console_secrets(options.data))
        manifest, files = collect("fallow-console", parts, cleaner, said_to_stderr(parts))
        write_bundle(options.out, files)
    except SupportError as error:
        raise ClientError(str(error)) from None
    return show(options, manifest, *after_lines(options.out, manifest))
