"""The subcommand `fallow-console deploy`: serve a model as the planner says, or as a plan made by hand says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import msgspec

from agent.stage.types import CacheChoice, EngineChoice
from console.api.admin import types as wire
from console.api.admin.types import StandbyKind
from console.cli_plan import RULES, add_rules, rules_from
from console.cli_tools import Commands, client_of, command
from console.errors import ClientError, UsageWrong
from console.following import DeployView
from console.plan_files import read_plan
from console.tables import printer

ASKED = {
    "stages": "stages", "replicas": "replicas", "engine": "engine", "numerics": "numerics", "context": "context",
    "streams": "streams", "cache": "cache", "cache_mb": "cache_mb", "device": "devices", "draft": "draft",
    "standbys": "standbys", "standby": "standby", "recover": "recover_s",
}  # fmt: skip
"""What options ask for, by the names of a DeployRequest. Without an option its default holds."""


def add_deploy(commands: Commands) -> None:
    """Add the subcommand."""
    deploy = command(commands, "deploy", "serve a model on the fleet", _deploy)
    deploy.add_argument("model", metavar="MODEL", nargs="?", help="the model's id; see: fallow-console models")
    deploy.add_argument(
        "--plan", type=Path, metavar="FILE", help="a plan made by hand, which says the model and all the rest as well"
    )
    # Without defaults: what is not said is not there, so that a plan made by hand is never asked for something else.
    asked = deploy.add_argument_group("how it is served", argument_default=argparse.SUPPRESS)
    asked.add_argument("--stages", type=int, metavar="N", help="how many PCs share it (default: the planner chooses)")
    asked.add_argument("--replicas", type=int, metavar="N", help="how many times, each on PCs of its own (default: 1)")
    asked.add_argument("--engine", choices=get_args(EngineChoice))
    asked.add_argument("--numerics", choices=("fast", "exact"))
    asked.add_argument("--context", type=int, metavar="TOKENS", help="the longest conversation (default: 2048)")
    asked.add_argument("--streams", type=int, metavar="N", help="how many answers at once (default: 8)")
    asked.add_argument("--cache", choices=get_args(CacheChoice), help="how keys and values are kept")
    asked.add_argument("--cache-mb", type=int, metavar="MB", help="memory for them on each PC")
    asked.add_argument("--device", action="append", metavar="ID", help="use only these PCs; repeat it")
    asked.add_argument(
        "--draft",
        metavar="LIBRARY|lookup|none",
        help="what guesses the next tokens: a draft model, the text so far (the default), or nothing",
    )
    asked.add_argument("--standbys", type=int, metavar="N", help="PCs in reserve for the one that leaves")
    asked.add_argument(
        "--standby",
        choices=get_args(StandbyKind),
        help="whether they have a stage loaded or on disk (default: on disk)",
    )
    asked.add_argument(
        "--recover", type=float, metavar="S", help="how long answers wait for other PCs after a loss (default: 60)"
    )
    add_rules(deploy)


def request_from(options: argparse.Namespace) -> wire.DeployRequest:
    """Return what parsed options ask for. Raises ConsoleError."""
    if (options.model is None) == (options.plan is None):
        raise UsageWrong("Name a model to deploy, or a plan made by hand with --plan FILE.")
    if options.plan is None:
        asked = {field: getattr(options, name) for name, field in ASKED.items() if hasattr(options, name)}
        return wire.DeployRequest(model=options.model, rules=rules_from(options), **asked)
    others = [f"--{name.replace('_', '-')}" for name in (*ASKED, *RULES) if hasattr(options, name)]
    if others:
        raise UsageWrong(
            f"The FILE of --plan says all that itself: change it there, and leave {', '.join(others)} out."
        )
    return read_plan(options.plan)


def _deploy(options: argparse.Namespace) -> int:
    request = request_from(options)
    broken: wire.Broken | None = None
    with client_of(options) as console, DeployView(printer()) as view:
        for event in console.deploy(request):
            if options.json:
                print(msgspec.json.encode(event).decode(), flush=True)
            else:
                view.show(event)
            broken = event if isinstance(event, wire.Broken) else None
    if broken is not None:
        raise ClientError(broken.message)
    return 0
