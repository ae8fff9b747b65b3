"""What is wanted of volunteering PCs, row by row: who said what, and what holds. Pure; no Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.volunteer.policy import ROWS, Wishes, combine_wishes, merge
from agent.volunteer.wishes import PlainValue, from_plain, to_plain
from console.api.admin import types as wire
from console.gui.times import ZERO, age_text, size_text

NO_LIMIT_BYTES = 1 << 48
ROW_TEXTS = {
    "consent_needed": "The owner must agree first",
    "contribute_now": "“Contribute now” in the owner's menu",
    "cpu_busy_percent": "Processor use of other programs at most",
    "devices": "Kinds of devices that may be used",
    "devices_off": "Devices that are switched off",
    "disk_reserve_bytes": "Disk space that stays free",
    "drain": "Hand over and stay away",
    "enabled": "The PC may contribute",
    "exclusive_programs": "Give everything back while these programs run",
    "fullscreen": "While a program fills the screen",
    "gpu_busy_percent": "Graphics use of other programs at most",
    "heat_limit_celsius": "Stop above this temperature",
    "idle_locked_s": "Start after this time with the screen locked or off",
    "idle_resume_s": "Go on after this time, following a short stop",
    "idle_start_s": "Start after this time without the owner",
    "inhibited": "While a program keeps the PC awake",
    "learn_availability": "Learn when the PC is usually free",
    "memory_floor_bytes": "Memory that stays free for the owner",
    "memory_floor_percent": "Share of memory that stays free for the owner",
    "memory_max_bytes": "Most memory to use",
    "memory_max_percent": "Largest share of memory to use",
    "metered": "On a network that costs by volume",
    "on_battery_above_percent": "On battery only above (100 %: never)",
    "paused": "Paused",
    "power_saver": "While the PC saves power",
    "quit_allowed": "The owner can quit the agent",
    "release_after_s": "Give the memory back this long after a stop",
    "remote_session": "While somebody is logged in from elsewhere",
    "schedule": "Hours in which the PC may contribute",
    "self_update": "The agent may update itself",
    "settle_s": "Stay quiet for this long before starting",
    "share_availability": "Share when the PC is usually free",
    "startup_delay_s": "Wait after start and wake-up",
    "unattended": "Nobody works at the PC: do not wait for an owner",
}
"""What an administrator reads for each row. The owner reads the tray's words, which speak to whoever sits there."""


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A row: what is built in, what all PCs and those with the tag are told (None: nothing), what holds, and whose."""

    name: str
    built_in: PlainValue
    for_all: PlainValue
    for_tag: PlainValue
    effective: PlainValue
    set_by: str


def lines_of(view: wire.PolicyView, tag: str) -> list[PolicyLine]:
    """List all rows for the PCs with a tag (empty: those without one). The tightest wins, as on the PCs."""
    said = {scope.tag: scope.values for scope in view.scopes}
    for_all, for_tag = said.get("", {}), said.get(tag, {}) if tag else {}
    merged = merge(combine_wishes(_wishes(for_all), _wishes(for_tag)), Wishes())
    return [
        PolicyLine(
            name,
            view.built_in.get(name),
            for_all.get(name),
            for_tag.get(name),
            effective := to_plain(name, getattr(merged.policy, name)),
            _origin(name, effective, for_all, for_tag, tag),
        )
        for name in ROWS
    ]


def _wishes(values: dict[str, PlainValue]) -> Wishes:
    return Wishes(**{name: from_plain(name, value) for name, value in values.items() if name in ROWS})


def _origin(
    name: str, effective: PlainValue, for_all: dict[str, PlainValue], for_tag: dict[str, PlainValue], tag: str
) -> str:
    """Say whose value holds; where two are combined to a third one, both have a part in it."""
    parties = [who for who, values in (("all PCs", for_all), (f"tag {tag}", for_tag)) if values.get(name) == effective]
    if not parties:
        parties = [who for who, values in (("all PCs", for_all), (f"tag {tag}", for_tag)) if name in values]
    return " and ".join(parties) or "built in"


def value_text(name: str, value: PlainValue) -> str:
    """Word a value; None is an empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, str):
        return value
    kind = ROWS[name].kind
    if kind == "seconds":
        return age_text(value)
    if kind == "bytes":
        return "no limit" if value >= NO_LIMIT_BYTES else size_text(value, ZERO)
    return f"{value:g} %" if kind == "percent" else f"{value:g}"


def typed_text(name: str, value: PlainValue) -> str:
    """Return a value as somebody would type it, so that it can be read back."""
    if value is None:
        return ""
    if isinstance(value, bool | list):
        return value_text(name, value) if value != [] else ""
    kind = ROWS[name].kind
    if kind == "bytes" and isinstance(value, int | float):
        return f"{value / (1 << 20):.0f}MiB"
    return value if isinstance(value, str) else f"{value:g}{'%' if kind == 'percent' else ''}"


def tags_of(view: wire.PolicyView, agents: Sequence[wire.Agent]) -> list[str]:
    """List the tags there are, of the policy and of the PCs."""
    return sorted({scope.tag for scope in view.scopes if scope.tag} | {tag for agent in agents for tag in agent.tags})
