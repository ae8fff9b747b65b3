"""The commands of `fallow-agent` that talk to the running agent, such as status, pause, policy and history."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.control.client import ControlClient
from agent.control.errors import NotRunning
from agent.control.protocol import (
    Answer,
    CancelEnrolment,
    ChangeSetting,
    ContributeNow,
    Done,
    Enrol,
    History,
    Leave,
    Order,
    Pause,
    QueryHistory,
    Release,
    Resume,
    SwitchDevice,
    Told,
)
from agent.control.status import PolicyRow, PolicyValue, Status
from agent.durations import parse_duration_s
from agent.settings import SettingsError
from agent.volunteer.errors import WishRefused
from agent.volunteer.wishes import from_text, to_plain
from shard_export.library.counts import counted

DAY_S = 86_400


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    """Add what is asked of the running agent."""
    pausing = commands.add_parser("pause", parents=[common], help="serve nothing for a while")
    pausing.add_argument("until", nargs="?", default="resumed", help="15min, 1h, tomorrow, or nothing: until `resume`")
    pausing.set_defaults(command=lambda options: _give(options, lambda id_: _pause(id_, options.until)))
    for name, order, words in (
        ("resume", Resume, "end the pause"),
        ("release", Release, "give the memory back now"),
        ("contribute", ContributeNow, "start as soon as this PC rests, without the usual wait"),
    ):
        simple = commands.add_parser(name, parents=[common], help=words)
        simple.set_defaults(command=lambda options, order=order: _give(options, order))
    leaving = commands.add_parser("leave", parents=[common], help="leave the fleet and delete this PC's identity")
    leaving.add_argument("--yes", action="store_true", help="do it: only a new invite brings this PC back")
    leaving.set_defaults(command=_leave)

    ruling = commands.add_parser("policy", parents=[common], help="show what holds and who set it, or change a row")
    ruling.add_argument("change", nargs="*", metavar="ROW=VALUE", help="such as idle_start_s=10min; =default: no wish")
    ruling.add_argument("--json", action="store_true", help="print one JSON object")
    ruling.set_defaults(command=_policy)

    switching = commands.add_parser("device", parents=[common], help="use a device, or not")
    switching.add_argument("device", help="such as GPU.0")
    switching.add_argument("on", choices=["on", "off"])
    switching.set_defaults(
        command=lambda options: _give(options, lambda id_: SwitchDevice(id_, options.device, options.on == "on"))
    )

    looking = commands.add_parser("history", parents=[common], help="show what this PC contributed")
    looking.add_argument("--days", type=int, default=7, metavar="N", help="how far back (default: 7)")
    looking.add_argument("--hours", action="store_true", help="by the hour instead of by the day")
    looking.add_argument("--json", action="store_true", help="print one JSON object")
    looking.set_defaults(command=_history)


def ask_status(folder: Path) -> Status | None:
    """Return how the running agent is; None if none runs. Raises ControlError."""

    async def ask() -> Status:
        async with ControlClient.open(folder, "cli") as client:
            return await client.status()

    try:
        return asyncio.run(ask())
    except NotRunning:
        return None


def enrol_running(folder: Path, invite: str, name: str, on_told: Callable[[Told], None]) -> str:
    """Let the running agent enrol this PC; returns its sentence. Raises ControlError."""
    answer = give_order(folder, lambda id_: Enrol(id_, invite, name), on_told)
    return answer.said if isinstance(answer, Done) else ""


def cancel_running(folder: Path) -> str:
    """Let the running agent stop waiting for approval; returns its sentence. Raises ControlError."""
    answer = give_order(folder, CancelEnrolment)
    return answer.said if isinstance(answer, Done) else ""


def status_lines(status: Status) -> list[str]:
    """Describe the agent for people."""
    lines = [status.headline]
    lines += [f"  - {reason.text}" for reason in status.reasons]
    where = f"device {status.device_id} of {status.fleet_name}" if status.device_id else "in no fleet"
    lines.append(f"Link: {status.link} ({status.console_url or 'no console'}), {where}. {status.link_message}".rstrip())
    if status.device_code:
        lines.append(f"Code of this PC for the administrator: {status.device_code}")
    for stage in status.stages:
        how_far = "" if stage.done >= 1 else f", {round(100 * stage.done)} % loaded"
        lines.append(
            f"  pipeline {stage.pipeline}, stage {stage.stage}: layers {stage.first} to {stage.last - 1}, "
            f"{stage.engine} on {stage.device}{how_far}"
        )
    for device in status.devices:
        lines.append(f"  {device.name}: {device.full_name}, {'used' if device.on else f'off ({device.set_by})'}")
    if status.update:
        lines.append(f"Update: {status.update}")
    gave = status.contribution
    lines.append(f"Today: {gave.today_h:.1f} h, {counted(gave.today_tokens, 'token')}, about {gave.today_wh:.0f} Wh.")
    return lines


def _give(options: argparse.Namespace, make: Callable[[int], Order]) -> int:
    answer = give_order(options.data, make)
    print(answer.said if isinstance(answer, Done) else "")
    return 0


def give_order(
    folder: Path, make: Callable[[int], Order], on_told: Callable[[Told], None] = lambda told: None
) -> Answer:
    """Give the running agent an order and return its answer. Raises ControlError."""

    async def ask() -> Answer:
        async with ControlClient.open(folder, "cli") as client:
            return await client.order(make(client.next_id()), on_told)

    return asyncio.run(ask())


def _pause(id_: int, until: str) -> Pause:
    if until in ("tomorrow", "resumed"):
        return Pause(id_, "tomorrow" if until == "tomorrow" else "resumed")
    return Pause(id_, "time", duration_s(until))


def duration_s(text: str) -> float:
    """Read `90s`, `15min`, `1h`, `2d`. Raises SettingsError."""
    try:
        return parse_duration_s(text)
    except ValueError:
        raise SettingsError(f"{text[:40]!r} is no duration; write 15min, 1h or tomorrow.") from None


def _leave(options: argparse.Namespace) -> int:
    if not options.yes:
        raise SettingsError("Leaving deletes this PC's identity, and only a new invite brings it back; add --yes.")
    return _give(options, Leave)


def _policy(options: argparse.Namespace) -> int:
    for change in options.change:
        name, sign, text = change.partition("=")
        if not sign:
            raise SettingsError(f"{change[:40]!r} is no change; write ROW=VALUE.")
        try:
            value: PolicyValue = to_plain(name, from_text(name, text))
        except WishRefused as error:
            raise SettingsError(str(error)) from None
        _give(options, lambda id_, name=name, value=value: ChangeSetting(id_, name, value))  # type: ignore[misc]
    if options.change:
        return 0
    status = ask_status(options.data)
    if status is None:
        raise NotRunning
    if options.json:
        print(json.dumps({"revision": status.policy_revision, "policy": msgspec.to_builtins(status.policy)}))
        return 0
    print(f"The administrator's revision: {status.policy_revision or 'none'}")
    for row in status.policy:
        print(_row_line(row))
    return 0


def _row_line(row: PolicyRow) -> str:
    asked = ", ".join(f"{who} wants {value}" for who, value in row.asked.items() if value is not None)
    return f"{row.field:26} {_shown(row.value):24} {row.set_by:9} {asked}".rstrip()


def _shown(value: PolicyValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _history(options: argparse.Namespace) -> int:
    to_s = time.time() + 1
    by = "hour" if options.hours else "day"
    answer = give_order(options.data, lambda id_: QueryHistory(id_, to_s - options.days * DAY_S, to_s, by))  # type: ignore[arg-type]
    rows = answer.rows if isinstance(answer, History) else []
    if options.json:
        fields = ("start_s", "served_s", "tokens", "energy_wh")
        print(json.dumps({"rows": [{name: getattr(row, name) for name in fields} for row in rows]}))
        return 0
    for row in rows:
        start = dt.datetime.fromtimestamp(row.start_s).astimezone()
        print(
            f"{start:%a %d %b %H:%M}  {row.served_s / 3600:6.1f} h  "
            f"{counted(row.tokens, 'token', shown=f'{row.tokens:10}')}  "
            f"about {row.energy_wh:.0f} Wh"
        )
    if not rows:
        print("Nothing was contributed in that time.")
    return 0
