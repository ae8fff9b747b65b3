"""The subcommands of `fallow-console` for what volunteering PCs may do."""

from __future__ import annotations

import argparse

from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import ROWS
from agent.volunteer.wishes import PlainValue, from_text, to_plain
from console import tables
from console.cli_tools import Commands, client_of, command, group, show
from console.errors import ClientError


def add_policy(commands: Commands) -> None:
    """Add the subcommands."""
    policy = group(commands, "policy", "What volunteering PCs may do. The tightest wins: built-in, yours, the owner's.")
    command(policy, "show", "show what is wanted of which PCs, and who does not take it", _show)
    change = command(policy, "set", "set rows for all PCs, or for those with a tag", _set)
    change.add_argument(
        "rows", nargs="+", metavar="ROW=VALUE",
        help=f"like idle_start_s=10min or 'schedule=Mon-Fri 20:00-06:00'; 'default' takes a row back. "
        f"Rows: {', '.join(ROWS)}",
    )  # fmt: skip
    change.add_argument("--tag", default="", metavar="TAG", help="only PCs with this tag (default: all)")


def _show(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        view = console.policy()
    return show(options, view, tables.policy_table(view))


def _set(options: argparse.Namespace) -> int:
    values = dict(_row(text) for text in options.rows)
    with client_of(options) as console:
        view = console.change_policy(values, tag=options.tag)
    return show(options, view, tables.policy_table(view))


def _row(text: str) -> tuple[str, PlainValue]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ClientError(f"Write {text[:60]!r} as ROW=VALUE, like idle_start_s=10min.")
    try:
        return name.strip(), to_plain(name.strip(), from_text(name.strip(), value))
    except WishRefused as error:
        raise ClientError(str(error)) from None
