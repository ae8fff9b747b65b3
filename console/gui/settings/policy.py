"""What is wanted of volunteering PCs, row by row: who said what, and what holds. Pure; no Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.volunteer.policy import ROWS, Wishes, combine_wishes, merge
from agent.volunteer.wishes import PlainValue, from_plain, to_plain
from console.api.admin import types as wire
from console.gui.times import age_text, size_text

NO_LIMIT_BYTES = 1 << 48


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
        return "no limit" if value >= NO_LIMIT_BYTES else size_text(value) if value else "0 MB"
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
