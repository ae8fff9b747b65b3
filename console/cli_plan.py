"""The subcommand `fallow-console plan`: what would be deployed, and what could be at another time."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from agent.stage.types import EngineChoice
from agent.volunteer.schedule import DAYS
from console import plan_tables
from console.api.admin import types as wire
from console.api.admin.plan_types import PlanRequest, Question
from console.cli_tools import Commands, client_of, command, show
from console.errors import ClientError, UsageWrong
from console.plan_files import read_plan, request_with, write_plan
from console.planner.types import Crossing

WHAT_IF = "what-if"
CHECK = "check"
_OF_A_PLAN = (
    *("write", "stages", "engine", "numerics", "device", "pipelines", "standbys", "hot"),
    *("exclude", "pin", "limit", "cross", "least_stay", "rate"),
)
_OF_ANOTHER_TIME = ("at", "hours", "certainty", "unknown")
_OF_BOTH = ("context", "streams")
_MOMENT = re.compile(r"(?:(?P<day>[A-Za-z]+)\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})")
_PIN = re.compile(r"(?P<device>[^:=]+)(?::(?P<first>\d+)-(?P<last>\d+))?")
_LIMIT = re.compile(r"(?P<device>[^:=]+)=(?P<number>\d+)(?P<unit>MB|GB|layers)")


def add_plan(commands: Commands) -> None:
    """Add the subcommand."""
    plan = command(commands, "plan", "show how a model would be deployed, or what could run at another time", _plan)
    plan.add_argument(
        "model", metavar=f"MODEL|{CHECK}|{WHAT_IF}",
        help=f"a model's id, {CHECK} to look at a plan in a file, or {WHAT_IF} to ask about another time",
    )  # fmt: skip
    plan.add_argument("file", type=Path, nargs="?", metavar="FILE", help=f"only with {CHECK}: a plan made by hand")
    plan.add_argument("--write", type=Path, metavar="FILE", help="write the plan to a file, to be changed by hand")
    plan.add_argument("--stages", type=int, metavar="N", help="how many PCs share it (default: the planner chooses)")
    plan.add_argument("--engine", choices=get_args(EngineChoice), default="auto")
    plan.add_argument("--numerics", choices=("fast", "exact"), default="fast")
    plan.add_argument("--context", type=int, default=2048, metavar="TOKENS", help="the longest conversation")
    plan.add_argument("--streams", type=int, default=8, metavar="N", help="how many answers at once")
    plan.add_argument("--device", action="append", default=[], metavar="ID", help="use only these PCs; repeat it")
    plan.add_argument("--pipelines", type=int, default=1, metavar="N", help="how many times (default: 1)")
    plan.add_argument("--standbys", type=int, default=0, metavar="N", help="how many PCs stand by for each of them")
    plan.add_argument("--hot", action="store_true", help="with their stage loaded, not only on the disk")
    add_rules(plan)
    asked = plan.add_argument_group(f"only with {WHAT_IF}")
    asked.add_argument("--at", default="", metavar="WHEN", help="like 'Tue 09:00', local time (default: now)")
    asked.add_argument("--hours", type=float, default=1.0, metavar="H", help="for how long (default: 1)")
    asked.add_argument("--certainty", type=float, default=95.0, metavar="PERCENT", help="how surely (default: 95)")
    asked.add_argument(
        "--unknown", type=float, default=0.0, metavar="PERCENT",
        help="how likely a PC rests that does not tell when it does (default: 0)",
    )  # fmt: skip
    plan.set_defaults(default_of=plan.get_default)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what a plan has to obey."""
    rules = parser.add_argument_group(
        "what the plan has to obey (PCs by id, beginning of an id, or device code)", argument_default=argparse.SUPPRESS
    )
    rules.add_argument("--exclude", action="append", metavar="ID", help="leave this PC out; repeat it")
    rules.add_argument(
        "--pin", action="append", metavar="ID[:FIRST-LAST]",
        help="this PC takes part, with exactly these layers if they are named; repeat it",
    )  # fmt: skip
    rules.add_argument(
        "--limit", action="append", metavar="ID=4GB|ID=12layers",
        help="the most this PC gives to the model; repeat it",
    )  # fmt: skip
    rules.add_argument(
        "--cross", choices=get_args(Crossing),
        help="what one pipeline may span beyond one network of one site (default: none)",
    )  # fmt: skip
    rules.add_argument(
        "--least-stay", type=int, metavar="PERCENT",
        help="use PCs less likely to rest for the next hour only where nothing else fits (default: 50)",
    )  # fmt: skip
    rules.add_argument("--rate", type=float, metavar="TOKENS", help="tokens a second over all answers that are enough")


def rules_from(options: argparse.Namespace) -> wire.PlanRules:
    """Return the rules of parsed options. Raises ClientError."""
    given = {field: read(getattr(options, name)) for name, (field, read) in RULES.items() if hasattr(options, name)}
    return wire.PlanRules(**given)


def moment_of(text: str, now: datetime) -> datetime:
    """Return the next time the clock shows what is asked for: '09:00' or 'Tue 09:00'. Raises ClientError."""
    found = _MOMENT.fullmatch(text.strip())
    day = (found["day"] or "")[:3].capitalize() if found else ""
    if found is None or (day and day not in DAYS) or int(found["hour"]) > 23 or int(found["minute"]) > 59:
        raise ClientError(f"Write {text[:60]!r} like 'Tue 09:00' or '09:00'.")
    at = now.replace(hour=int(found["hour"]), minute=int(found["minute"]), second=0, microsecond=0)
    days = (DAYS.index(day) - now.weekday()) % 7 if day else 0
    at += timedelta(days=days)
    return at if at >= now else at + timedelta(days=7 if day else 1)


def _plan(options: argparse.Namespace) -> int:
    if (options.model == CHECK) != (options.file is not None):
        raise UsageWrong(f"A file belongs to {CHECK}, and to it alone: fallow-console plan {CHECK} FILE")
    if options.model == WHAT_IF:
        _refuse(options, _OF_A_PLAN, "when it is asked about another time")
        return _what_if(options)
    if options.model == CHECK:
        _refuse(options, (*_OF_A_PLAN, *_OF_ANOTHER_TIME, *_OF_BOTH), "beside a file, which says it all")
        return _check(options)
    _refuse(options, _OF_ANOTHER_TIME, f"without {WHAT_IF}")
    standby: wire.StandbyKind = "hot" if options.hot else "warm"
    request = wire.DeployRequest(
        options.model,
        options.stages,
        options.numerics,
        options.engine,
        options.context,
        options.streams,
        options.device,
        standbys=options.standbys,
        standby=standby,
        rules=rules_from(options),
    )
    asked = PlanRequest(request, options.pipelines, options.standbys, standby)
    with client_of(options) as console:
        plans = console.plan(asked)
    show(options, plans, *plan_tables.plans(plans))
    if plans.missing and not plans.pipelines:
        raise ClientError(plans.missing)
    if options.write is not None:
        write_plan(options.write, request_with(request, plans))
    return 0


def _refuse(options: argparse.Namespace, names: Sequence[str], when: str) -> None:
    """Raise UsageWrong for an option that would silently do nothing."""
    for name in names:
        default = options.default_of(name)
        if getattr(options, name, default) != default:
            raise UsageWrong(f"--{name.replace('_', '-')} means nothing {when}; leave it out.")


def _check(options: argparse.Namespace) -> int:
    request = read_plan(options.file)
    with client_of(options) as console:
        found = console.check_plan(request)
    show(options, found, *plan_tables.checked(found))
    return 1 if found.faults else 0


def _what_if(options: argparse.Namespace) -> int:
    now = datetime.now().astimezone()
    at_s = moment_of(options.at, now).timestamp() if options.at else time.time()
    question = Question(
        at_s=at_s,
        for_s=options.hours * 3600,
        certainty_percent=options.certainty,
        unknown_percent=options.unknown,
        context=options.context,
        streams=options.streams,
    )
    with client_of(options) as console:
        answers = console.what_if(question)
    return show(options, answers, *plan_tables.answers(answers, question))


def _pin(text: str) -> wire.PinnedPc:
    found = _PIN.fullmatch(text)
    if found is None or (found["first"] and int(found["first"]) >= int(found["last"])):
        raise ClientError(f"Write {text[:60]!r} as ID or ID:FIRST-LAST; LAST is the layer after the last one.")
    if not found["first"]:
        return wire.PinnedPc(found["device"])
    return wire.PinnedPc(found["device"], int(found["first"]), int(found["last"]))


def _limit(text: str) -> wire.LimitedPc:
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise ClientError(f"Write {text[:60]!r} like ID=4GB, ID=600MB or ID=12layers.")
    number = int(found["number"])
    if found["unit"] == "layers":
        return wire.LimitedPc(found["device"], layers=number)
    return wire.LimitedPc(found["device"], memory_mb=number * (1000 if found["unit"] == "GB" else 1))


RULES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "exclude": ("exclude", list),
    "pin": ("pins", lambda texts: [_pin(text) for text in texts]),
    "limit": ("limits", lambda texts: [_limit(text) for text in texts]),
    "cross": ("crossing", str),
    "least_stay": ("least_stay_percent", int),
    "rate": ("tokens_per_second", float),
}
"""What options ask for, by the names of PlanRules, and how they are read. Without an option its default holds."""
