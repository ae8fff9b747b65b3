"""`fallow-console`: run the service, ask the running one to do something, or, without a subcommand, open the window.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no service answers, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from agent.cli_log import add_log_file, add_log_options
from console.api.admin import types as wire
from console.cli_access import add_access
from console.cli_bench import add_bench
from console.cli_builds import add_builds
from console.cli_deploy import add_deploy
from console.cli_devices import add_devices
from console.cli_members import add_members
from console.cli_operations import add_operations
from console.cli_plan import add_plan
from console.cli_policy import add_policy
from console.cli_releases import add_releases
from console.cli_slow import add_slow
from console.cli_tools import Commands, client_of, command, show
from console.data import default_data_folder
from console.errors import ClientError, ConsoleError
from console.fleet.delivery import DeliveryEnded, DeliveryEvent
from console.following import delivery_line, delivery_text
from console.status_tables import status_tables
from console.tables import libraries_table
from shard_export.library.counts import counted

DEFAULT_AGENTS_PORT = 8461
DEFAULT_API_PORT = 8460
SHORTEST_HEARTBEAT_S, LONGEST_HEARTBEAT_S = 0.5, 60.0
_PASSWORD = re.compile(r"://[^/@:]*:[^/@]+@")
WINDOW_PACKAGES = ("PySide6", "pyqtgraph", "segno")
REFUSED, INTERRUPTED = 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    handler: Callable[[argparse.Namespace], int] = options.handler
    try:
        return handler(options)
    except ConsoleError as error:
        print(f"fallow-console: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    parser = argparse.ArgumentParser(prog="fallow-console", description="The admin's side of Fallow.")
    parser.add_argument("--data", type=Path, default=default_data_folder(), metavar="DIR", help="the data folder")
    parser.add_argument(
        "--colours", choices=("system", "light", "dark", "contrast"), default="system", help="of the window"
    )
    parser.add_argument("--settings", type=Path, metavar="DIR", help="where the window keeps which service it was at")
    parser.set_defaults(handler=_window)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", help="without one the window opens")
    _add_serve(commands)
    add_members(commands)
    _add_models(commands)
    add_builds(commands)
    add_plan(commands)
    add_access(commands)
    add_policy(commands)
    add_releases(commands)
    add_devices(commands)
    add_bench(commands)
    add_operations(commands)
    command(commands, "doctor", "find out what is wrong, and what to do", _doctor)
    return parser


def _window(options: argparse.Namespace) -> int:
    try:
        from console.gui.app import run
    except ImportError as error:
        why = _no_window(error)
        if not why:
            raise
        raise ClientError(why) from None
    return run(options.data, options.colours, options.settings)


def _no_window(error: ImportError) -> str:
    """Say what is missing on this PC for the windows; empty: it is not that."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in WINDOW_PACKAGES:
        return "The window needs the extra `gui`; install it with: pip install 'fallow[gui]', or see --help."
    if (error.path or "").endswith(tuple(EXTENSION_SUFFIXES)):
        # The package is there, but not what it needs of the system, like libEGL.so.1 on a PC without a desktop.
        return f"The window needs a library that cannot be loaded here: {error}. Install it, or see --help."
    return ""


def _add_serve(commands: Commands) -> None:
    serve = command(commands, "serve", "run the console until it is interrupted", _serve)
    serve.add_argument("--agents-port", type=int, default=DEFAULT_AGENTS_PORT, metavar="N", help="0: any free port")
    serve.add_argument("--api-port", type=int, default=DEFAULT_API_PORT, metavar="N", help="0: any free port")
    serve.add_argument("--host", default="127.0.0.1", metavar="H", help="the API's address; TLS when not loopback")
    serve.add_argument("--agents-host", default="0.0.0.0", metavar="H", help="the address agents dial into")  # noqa: S104 - PCs must reach it; only enrolled ones get past TLS
    serve.add_argument(
        "--advertise", action="append", default=[], metavar="URL", help="wss:// address for invites; may be repeated"
    )
    serve.add_argument(
        "--database",
        default=os.environ.get("FALLOW_DATABASE", ""),
        metavar="URL",
        help="postgresql://user@host/name instead of SQLite in --data (default: FALLOW_DATABASE)",
    )
    serve.add_argument(
        "--direct-links",
        choices=("on", "off"),
        default="off",
        help="let PCs that share a model talk to each other directly; their firewalls must allow it (default: off)",
    )
    serve.add_argument(
        "--heartbeat",
        type=_seconds,
        default=2.0,
        metavar="S",
        help="how often PCs say that they are alive; lost after three missed (default: 2; 5 for a thousand PCs)",
    )
    serve.add_argument(
        "--models",
        type=Path,
        metavar="FOLDER",
        help="only below it models are read and libraries are built (default: the home folder)",
    )
    serve.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        type=_origin,
        metavar="ORIGIN",
        help="let web pages from there use the API with a key (https://host, or * for all); may be repeated",
    )
    serve.add_argument(
        "--otlp-endpoint",
        default="",
        metavar="URL",
        help="send traces of answers to this OpenTelemetry collector, by HTTP (needs the extra telemetry)",
    )
    add_log_options(serve)
    add_log_file(serve, "service.log")


def _origin(text: str) -> str:
    from console.api.cors import is_origin

    if not is_origin(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no origin; write it as https://host or https://host:port")
    return text


def _add_models(commands: Commands) -> None:
    models = command(commands, "models", "list the layer libraries, add one, or forget one", _models)
    change = models.add_mutually_exclusive_group()
    change.add_argument("--add", type=Path, metavar="FOLDER", help="register a library folder")
    change.add_argument("--remove", metavar="DIGEST", help="forget a library (see --json); its files stay")
    add_deploy(commands)
    deliver = command(commands, "deliver", "bring a model's layers to PCs: a few first, then half, then all", _deliver)
    deliver.add_argument("model", metavar="MODEL", nargs="?", help="without it: list what is being delivered")
    deliver.add_argument("--stop", action="store_true", help="end the delivery of this model")
    deliver.add_argument("--first", type=int, default=0, metavar="N", help="the first layer")
    deliver.add_argument("--last", type=int, metavar="N", help="the layer after the last one (default: all)")
    deliver.add_argument("--device", action="append", default=[], metavar="ID", help="only to these PCs; repeat it")
    undeploy = command(commands, "undeploy", "stop serving a model", _undeploy)
    undeploy.add_argument("model", metavar="MODEL")
    command(commands, "status", "show what runs where and how fast", _status)
    add_slow(commands)


def _seconds(text: str) -> float:
    """Read a heartbeat's interval; argparse turns the ValueError into a sentence."""
    seconds = float(text)
    if not SHORTEST_HEARTBEAT_S <= seconds <= LONGEST_HEARTBEAT_S:
        raise argparse.ArgumentTypeError(
            f"{text} is not between {SHORTEST_HEARTBEAT_S:g} and {LONGEST_HEARTBEAT_S:g} seconds"
        )
    return seconds


def warn_of_password(arguments: Sequence[str]) -> None:
    """Say so if a password stands in the command line: `ps` shows it to everybody on this PC."""
    if any(_PASSWORD.search(argument) for argument in arguments):
        print(
            "fallow-console: everybody on this PC can read the password in --database; put the address into "
            "FALLOW_DATABASE, or the password into PGPASSWORD or a .pgpass file.",
            file=sys.stderr,
        )


def _serve(options: argparse.Namespace) -> int:
    warn_of_password(sys.argv[1:])
    # The service pulls in the database and the HTTP server, which the other commands do not need.
    from console.service import ServiceSettings
    from console.serving import serve

    settings = ServiceSettings(
        folder=options.data,
        api_host=options.host,
        api_port=options.api_port,
        agents_host=options.agents_host,
        agents_port=options.agents_port,
        advertise=options.advertise,
        database=options.database,
        direct_links=options.direct_links == "on",
        heartbeat_s=options.heartbeat,
        models_folder=options.models,
        cors_origins=options.cors_origin,
        otlp_endpoint=options.otlp_endpoint,
    )
    return serve(
        settings,
        log_level=options.log_level or "INFO",
        log_file=options.log_file,
        log_format=options.log_format,
        json_output=options.json,
    )


def _models(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        if options.add is not None:
            added = console.add_library(options.add)
            return show(options, added, f"{added.model_id} can be deployed: {counted(added.layer_count, 'layer')}.")
        if options.remove is not None:
            console.remove_library(options.remove)
            return show(options, wire.Done(), "The library is forgotten; its files are where they were.")
        libraries = console.libraries()
    return show(options, libraries, libraries_table(libraries))


def _deliver(options: argparse.Namespace) -> int:
    if options.model is None:
        with client_of(options) as console:
            running = console.deliveries()
        lines = [delivery_text(one) for one in running] or ["Nothing is being delivered."]
        return show(options, wire.Deliveries(running), *lines)
    if options.stop:
        with client_of(options) as console:
            console.stop_delivery(options.model)
        return show(options, wire.Done(), f"{options.model} is not delivered to any more PCs.")
    request = wire.DeliveryRequest(options.model, options.first, options.last, options.device)
    ended: DeliveryEvent | None = None
    with client_of(options) as console:
        for ended in console.deliver(request):
            show(options, ended, delivery_line(ended))
    if not isinstance(ended, DeliveryEnded) or ended.stopped or ended.failed:
        raise ClientError(getattr(ended, "stopped", "") or "Not every PC has the model; see the lines above.")
    return 0


def _undeploy(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        console.undeploy(options.model)
    return show(options, wire.Done(), f"{options.model} is not served any more.")


def _doctor(options: argparse.Namespace) -> int:
    # It looks at models' files and at this PC, which the other commands do not need.
    from agent.doctor.findings import as_lines, exit_code
    from console.doctor import examine_console

    findings = asyncio.run(examine_console(options.data))
    show(options, {"findings": findings}, *as_lines(findings))
    return exit_code(findings)


def _status(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        status = console.status()
    return show(options, status, *status_tables(status))
