"""The subcommand `fallow-console build`: layer libraries built by the service."""

from __future__ import annotations

import argparse
from typing import get_args

from console import tables
from console.api.admin.build_types import Build, BuildRequest, EndMode, LayerMode
from console.cli_tools import Commands, client_of, command, group, show
from console.errors import ClientError


def add_builds(commands: Commands) -> None:
    """Add the subcommand."""
    actions = group(commands, "build", "turn models into layer libraries on the console's PC, one at a time")
    start = command(actions, "start", "begin a build, or let it wait for its turn; it goes on by itself", _start)
    start.add_argument("source", metavar="SRC", help="Hugging Face folder or .gguf file, absolute, on the console's PC")
    start.add_argument("out", metavar="OUT", help="folder of the new library, absolute, on the console's PC")
    start.add_argument("--layers", choices=get_args(LayerMode), default="auto", help="how layers are stored")
    start.add_argument("--ends", choices=get_args(EndMode), default="auto", help="how embedding and head are stored")
    start.add_argument("--group-size", type=int, metavar="N", help="input columns per scale (default: chosen)")
    start.add_argument("--int8-ratio", type=float, default=0.0, metavar="R", help="share of weights in eight bits")
    start.add_argument("--context", type=int, default=0, metavar="N", help="shorten the context to N tokens")
    start.add_argument("--draft-for", default="", metavar="MODEL", help="it guesses ahead for this model")
    start.add_argument("--replace", action="store_true", help="replace a library that is already at OUT")
    start.add_argument("--evaluate", action="store_true", help="measure it against its source at the end")
    start.add_argument("--no-publish", action="store_true", help="do not add it to the models that can be deployed")
    start.add_argument("--estimate", action="store_true", help="only say what it would need")
    command(actions, "list", "list the builds", _list)
    for name, summary, handler in (
        ("show", "show a build and the end of its log", _show),
        ("pause", "stop after the layer it is at; once more: at once", _pause),
        ("resume", "go on after the last finished layer", _resume),
        ("cancel", "end a build for good; what it finished is kept", _cancel),
        ("publish", "add a finished library to the models that can be deployed", _publish),
    ):
        parser = command(actions, name, summary, handler)
        parser.add_argument("build_id", metavar="ID", help="see: fallow-console build list")
        if name == "cancel":
            parser.add_argument("--discard", action="store_true", help="remove the finished layers, too")


def _start(options: argparse.Namespace) -> int:
    request = BuildRequest(
        source=options.source,
        out=options.out,
        layers=options.layers,
        ends=options.ends,
        group_size=options.group_size,
        int8_ratio=options.int8_ratio,
        context=options.context,
        draft_for=options.draft_for,
        replace=options.replace,
        evaluate=options.evaluate,
        publish=not options.no_publish,
    )
    with client_of(options) as console:
        if not options.estimate:
            begun = console.begin_build(request)
            return show(options, begun, f"The build {begun.build_id} of {begun.model_id} is {begun.state}.")
        estimate = console.estimate_build(request)
    show(options, estimate, *tables.estimate_lines(estimate))
    if estimate.problems:
        raise ClientError(estimate.problems[0])
    return 0


def _list(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        found = console.builds()
    return show(options, found, *([found.missing] if found.missing else []), tables.builds_table(found.builds))


def _show(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        found = console.build(options.build_id)
    return show(options, found, tables.builds_table([found.build]), *found.log[-20:])


def _pause(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        return _said(options, console.pause_build(options.build_id))


def _resume(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        return _said(options, console.resume_build(options.build_id))


def _cancel(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        return _said(options, console.cancel_build(options.build_id, discard=options.discard))


def _publish(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        return _said(options, console.publish_build(options.build_id))


def _said(options: argparse.Namespace, build: Build) -> int:
    return show(options, build, f"{build.model_id} is {build.state}. {build.message}".rstrip())
