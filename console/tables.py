"""How the command line shows what the service says: rich tables and one deployment's progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn
from rich.table import Table

from agent.volunteer.wishes import PlainValue
from console.api.admin import types as wire
from console.api.admin.build_types import Build, BuildEstimate
from console.fleet.delivery import Delivered, DeliveryEvent, RingStarted
from console.fleet.direct import StageLink
from console.pipeline.types import SpeculationStatus
from console.registry.records import ApiKey, AuditEntry, InviteRecord, User
from console.visible import visible

PROSE = frozenset({"note", "problem", "folder"})
QUEUE_SHOWN = 10
"""Waiting requests listed for each model; the number of all of them is in the line above."""

PIPED_COLUMNS = 200
"""How wide a table may be when no terminal limits it: a script or a log should get whole cells."""


def printer() -> Console:
    """Return the printer for stdout: as wide as the terminal, wide when there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_COLUMNS)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Build a plain table; every cell is text as it is, never markup."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        # Ids and codes are there to be copied and compared, so only prose is broken.
        shown.add_column(column, overflow="fold", no_wrap=column not in PROSE)
    for row in rows:
        shown.add_row(*(_plain(cell) for cell in row))
    return shown


def _plain(value: object) -> str:
    # Host names come from other machines: neither brackets nor what moves a terminal's cursor is ours to interpret.
    text = "" if value is None else visible(" ".join(str(value).splitlines()))
    return text.replace("[", "\\[")


def gigabytes(size_bytes: int) -> str:
    """Say a size in GB or MB (powers of ten)."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


def moment(at_s: float | None) -> str:
    """Say a Unix time as local time."""
    return "never" if at_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


def agents_table(agents: Sequence[wire.Agent]) -> Table:
    """Return the fleet, one PC per row; the code is what the employee compares before approval."""
    rows = [
        (
            agent.device_id,
            agent.name,
            agent.state,
            agent.device_code,
            agent.link if agent.link == "connected" else f"offline since {moment(agent.seen_s)}",
            gigabytes(agent.memory_bytes) if agent.memory_bytes else "",
            ", ".join(agent.devices),
            agent.version_text,
            "" if agent.rests_percent is None else f"{agent.rests_percent} %",
            agent.reason or ", ".join(agent.held_because) or agent.volunteering,
        )
        for agent in agents
    ]
    return table(("id", "name", "state", "code", "link", "memory", "devices", "version", "rests", "note"), rows)


def invites_table(invites: Sequence[InviteRecord]) -> Table:
    """Return the invites; how a PC is let in, by whom and from where is in the last columns."""
    rows = []
    for invite in invites:
        rule = [*invite.rule.networks, *invite.rule.names, *(["keyring"] if invite.rule.keyring else [])]
        state = "revoked" if invite.revoked_s is not None else f"until {moment(invite.expires_s)}"
        uses = f"{invite.uses} of {invite.max_uses}"
        rows.append(
            (invite.token_id, state, uses, invite.approve, ", ".join(rule), ", ".join(invite.tags), invite.hint)
        )
    return table(("id", "state", "used", "approval", "conditions", "tags", "hint"), rows)


def authority_table(view: wire.AuthorityView) -> Table:
    """Return the fleet's authority; the fingerprint is the pin of new invites."""
    rows = [(view.fleet_id, view.fleet_name, view.phase, moment(view.next_step_s), len(view.roots), view.pin[:16])]
    return table(("fleet", "name", "phase", "next step", "roots", "fingerprint"), rows)


def policy_table(view: wire.PolicyView) -> Table:
    """Return the rows the administrator set, for whom, what holds without them, and the PCs that refuse."""
    rows: list[tuple[object, ...]] = [
        (name, scope.tag or "all PCs", _policy_value(value), _policy_value(view.built_in.get(name)), "")
        for scope in view.scopes
        for name, value in scope.values.items()
    ]
    rows += [("", refusal.name or refusal.device_id, "", "", refusal.message) for refusal in view.refusals]
    return table(("row", "for", "value", "built-in", "problem"), rows)


def _policy_value(value: PlainValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        ", ".join(value) or "none"
        if isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def libraries_table(libraries: Sequence[wire.Library]) -> Table:
    """Return the registered libraries."""
    rows = [
        (
            item.model_id,
            item.role,
            item.layer_count,
            gigabytes(item.size_bytes),
            item.context_tokens,
            item.folder,
            item.problem,
        )
        for item in libraries
    ]
    return table(("model", "role", "layers", "size", "context", "folder", "problem"), rows)


def builds_table(builds: Sequence[Build]) -> Table:
    """Return the builds."""
    rows = [
        (
            build.build_id,
            build.model_id,
            "published" if build.published else build.state,
            f"{build.layer} of {build.layer_count}",
            "" if build.left_s is None else f"{build.left_s / 60:.0f} min",
            gigabytes(build.memory_peak_bytes) if build.memory_peak_bytes else "",
            build.request.out,
            "It has not said anything for long." if build.stalled else build.message,
        )
        for build in builds
    ]
    return table(("id", "model", "state", "layers", "left", "memory", "folder", "note"), rows)


def estimate_lines(estimate: BuildEstimate) -> Iterator[str]:
    """Yield what a build would need, and what is against it."""
    yield (
        f"{estimate.model_id}: {estimate.layer_count} layers, about {gigabytes(estimate.library_bytes)} on the disk "
        f"({gigabytes(estimate.disk_free_bytes)} free), {gigabytes(estimate.memory_bytes)} of memory "
        f"({gigabytes(estimate.memory_free_bytes)} free), {max(1, round(estimate.seconds / 60))} min"
    )
    yield from estimate.notes
    yield from estimate.problems


def keys_table(keys: Sequence[ApiKey]) -> Table:
    """Return the API keys, without secrets."""
    rows = [
        (
            key.key_id,
            key.name,
            key.user,
            ", ".join(key.scopes),
            moment(key.created_s),
            "" if key.expires_s is None else moment(key.expires_s),
            "no" if key.revoked_s is None else moment(key.revoked_s),
            _limit(key.quota.streams),
            f"{key.tokens_today} of {_limit(key.quota.tokens_per_day)}",
            ", ".join(key.quota.models) or "all",
        )
        for key in keys
    ]
    columns = ("id", "name", "user", "scopes", "created", "expires", "revoked", "streams", "tokens today", "models")
    return table(columns, rows)


def _limit(value: int | None) -> str:
    return "any" if value is None else str(value)


def users_table(users: Sequence[User]) -> Table:
    """Return the users."""
    rows = [
        (
            user.name,
            user.role,
            "yes" if user.has_password else "no",
            moment(user.created_s),
            "no" if user.disabled_s is None else moment(user.disabled_s),
        )
        for user in users
    ]
    return table(("name", "role", "password", "created", "disabled"), rows)


def audit_table(entries: Sequence[AuditEntry]) -> Table:
    """Return entries of the audit log, in the order given."""
    rows = [
        (
            entry.sequence,
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at_s)),
            entry.actor,
            entry.source,
            entry.action,
            entry.target,
            " ".join(f"{name}={value}" for name, value in entry.detail.items() if value not in ("", None, [])),
        )
        for entry in entries
    ]
    return table(("number", "time", "who", "from", "what", "to what", "note"), rows)


def status_tables(status: wire.Status) -> Iterator[Table | str]:
    """Yield the service's state, then every pipeline with its stages."""
    yield f"Fallow console {status.version}, API {status.api_url}, agents {', '.join(status.agents_urls)}"
    yield f"{status.agents_connected} of {status.agents_known} PCs connected"
    for view in status.pipelines:
        age = "" if view.probe.age_s is None else f", probed {view.probe.age_s:.0f} s ago"
        which = f" (pipeline {view.number + 1} of {view.request.replicas})" if view.request.replicas > 1 else ""
        yield f"{view.model}{which}: {view.state}{age}. {view.message}"
        rows = [
            (
                f"{stage.first}-{stage.last - 1}",
                stage.device_name,
                stage.engine,
                "yes" if stage.fused else "no",
                f"{stage.ms_per_token:.2f}",
                f"{stage.ms_per_step:.2f}",
                link_text(link),
            )
            for stage, link in zip(view.stages, view.links, strict=False)
        ]
        if rows:
            yield table(("layers", "PC", "engine", "fused", "ms/token", "ms/step", "reached"), rows)
        yield from (f"Layers {stage.first}-{stage.last - 1}: {stage.note}" for stage in view.stages if stage.note)
        yield (
            f"{view.tokens_per_second:.1f} tokens/s, {view.overhead_ms:.2f} ms overhead per step, "
            f"{view.running} running, {view.queued} queued, {view.kept} kept for their beginning"
        )
        if view.queue:
            shown = view.queue[:QUEUE_SHOWN]
            yield table(
                ("ahead", "key", "waits"), [(str(each.ahead), each.key_id, f"{each.waited_s:.0f} s") for each in shown]
            )
        if view.endings:
            yield "Answers by how they ended: " + ", ".join(f"{count} {name}" for name, count in view.endings.items())
        yield from (
            f"In reserve ({one.kind}): {one.device_name}, layers {one.first}-{one.last - 1}" for one in view.standbys
        )
        if view.pace:
            yield view.pace
        yield _drafts(view.speculation)


def _drafts(status: SpeculationStatus) -> str:
    """Say how guessing goes, in one line."""
    if status.reason:
        return f"Hardly any drafts ({status.source}): {status.reason}"
    return (
        f"Drafts ({status.source}): {status.drafts_per_round:.1f} a round, {status.acceptance:.0%} of them right, "
        f"{status.tokens_per_round:.2f} tokens a round"
    )


def link_text(link: StageLink) -> str:
    """Say how steps reach a stage, and why not directly."""
    if link.way == "direct":
        return f"directly ({link.round_trip_ms:.1f} ms probe)"
    return f"by {link.way}" + (f": {link.reason}" if link.reason else "")


def delivery_text(view: wire.DeliveryView) -> str:
    """Say how far a delivery is."""
    layers = f"layers {view.first} to {view.last - 1}"
    return f"{view.model}, {layers}: {view.delivered} of {view.total} PCs have it, {view.failed} failed"


def delivery_line(event: DeliveryEvent) -> str:
    """Say one event of a delivery."""
    if isinstance(event, RingStarted):
        return f"Ring {event.ring}: {event.devices} of {event.total} PCs"
    if isinstance(event, Delivered):
        return f"  {event.device_id}: {event.problem or 'has it'}"
    return f"{event.delivered} PCs have it, {event.failed} do not. {event.stopped}".rstrip()


class DeployView:
    """Shows a deployment as it happens: a bar per stage on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), console=console
        )
        self._bars: dict[int, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def show(self, event: wire.DeployEvent) -> None:
        """Show one event; Broken is left to the caller, whose error it becomes."""
        if isinstance(event, wire.Planned):
            for stage in event.stages:
                self._say(f"Stage {stage.stage}: layers {stage.first}-{stage.last - 1} on {stage.device_name}")
            for reason in event.reasons:
                self._say(f"  {reason}")
        elif isinstance(event, wire.Loading) and self._console.is_terminal:
            self._bar(event)
        elif isinstance(event, wire.StageUp):
            fused = "fused" if event.fused else "NOT fused"
            self._say(
                f"Stage {event.stage} is up on {event.device_name}: {event.engine}, {fused}, {event.load_ms:.0f} ms"
                + (f" ({event.note})" if event.note else "")
            )
        elif isinstance(event, wire.Note):
            self._say(event.message)
        elif isinstance(event, wire.Ready):
            self._say(f"{event.model} is ready: one token through all stages took {event.probe_ms:.0f} ms")

    def _bar(self, event: wire.Loading) -> None:
        if event.stage not in self._bars:
            self._bars[event.stage] = self._progress.add_task(event.device_name)
        self._progress.update(
            self._bars[event.stage],
            description=f"{event.device_name}: {event.phase}",
            total=event.total,
            completed=event.done,
        )

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
