"""How the command line shows what the service lists: one table for each kind of thing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from agent.volunteer.clauses import told
from agent.volunteer.wishes import PlainValue
from console.api.admin import types as wire
from console.api.admin.build_types import Build, BuildEstimate
from console.registry.records import ApiKey, AuditEntry, InviteRecord, User
from console.visible import visible
from shard_export.library.counts import counted

PROSE = frozenset({"note", "problem", "folder"})
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
            agent.reason or told(agent.held_because) or agent.volunteering,
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
        f"{estimate.model_id}: {counted(estimate.layer_count, 'layer')}, about "
        f"{gigabytes(estimate.library_bytes)} on the disk "
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
