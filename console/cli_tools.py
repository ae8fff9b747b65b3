"""What every subcommand of `fallow-console` shares: its options, the client, how answers and secrets are shown."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
from rich.table import Table

from console import tables
from console.api.admin import types as wire
from console.client import AdminClient
from console.data import write_whole
from console.errors import ClientError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
Handler = Callable[[argparse.Namespace], int]
MAX_PASSWORD_BYTES = 1024


def command(commands: Commands, name: str, summary: str, handler: Handler) -> argparse.ArgumentParser:
    """Add a subcommand that works on a data folder."""
    parser = commands.add_parser(name, help=summary, description=summary)
    # Without a default: it would win over a --data before the subcommand, which has the default.
    parser.add_argument("--data", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="the data folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=handler)
    return parser


def group(commands: Commands, name: str, summary: str) -> Commands:
    """Add a subcommand that only has subcommands of its own."""
    parser = commands.add_parser(name, help=summary, description=summary)
    return parser.add_subparsers(dest="action", required=True, metavar="ACTION")


def client_of(options: argparse.Namespace) -> AdminClient:
    """Return a client of the service that runs on the data folder. Raises ServiceUnreachable."""
    return AdminClient.for_data_folder(options.data)


def show(options: argparse.Namespace, value: object, *shown: Table | str) -> int:
    """Print an answer, as JSON if that was asked for."""
    if options.json:
        print(msgspec.json.encode(value).decode())
        return 0
    console = tables.printer()
    for item in shown:
        console.print(item, markup=not isinstance(item, str), highlight=False)
    return 0


def hand_over_secret(options: argparse.Namespace, answer: msgspec.Struct, secret: str, what: str) -> int:
    """Print a secret once, or write it to a file only its owner can read."""
    if options.out is None:
        print(msgspec.json.encode(answer).decode() if options.json else secret)
        return 0
    write_whole(options.out, f"{secret}\n".encode(), mode=0o600)
    return show(options, wire.Done(detail={"file": str(options.out)}), f"{what} is in {options.out}.")


def read_password(what: str) -> str:
    """Ask for a new password twice, or read one line of standard input: never an argument, which `ps` would show."""
    if not sys.stdin.isatty():
        data = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 2)
        return data.decode("utf-8", "replace").rstrip("\r\n")
    password = getpass.getpass(f"{what}: ")
    if getpass.getpass("Once more: ") != password:
        raise ClientError("The two passwords are not the same; try again.")
    return password
