"""Entries of the audit log as a table, and the question that finds some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.gui.rows import Heading, KeyedModel
from console.gui.times import moment_text
from console.registry.records import AuditEntry

MOST_WORDS = 900


@dataclass(frozen=True, slots=True)
class Sought:
    """What is looked for: words, and the whole text of three fields (empty: any)."""

    words: str = ""
    actor: str = ""
    action: str = ""
    target: str = ""

    def search(self) -> str:
        """Return the words the service looks for; it finds them in any field, so `fits` looks again."""
        return " ".join(filter(None, (self.words, self.actor, self.action, self.target)))[:MOST_WORDS]

    def fits(self, entry: AuditEntry) -> bool:
        """Whether the three fields are what is asked for."""
        fields = ((self.actor, entry.actor), (self.action, entry.action), (self.target, entry.target))
        return all(not wanted or wanted == said for wanted, said in fields)


class AuditModel(KeyedModel[AuditEntry]):
    """Entries; they never change."""

    headings = (
        Heading("Number", 13, number=True), Heading("When", 25), Heading("Who", 28), Heading("What", 22),
        Heading("Target", 36), Heading("From", 18), Heading("Detail", 60),
    )  # fmt: skip

    def key_of(self, item: AuditEntry) -> str:
        return str(item.sequence)

    def text(self, item: AuditEntry, column: int) -> str:
        texts = (
            str(item.sequence), moment_text(item.at_s), item.actor, item.action, item.target, item.source,
            detail_text(item),
        )  # fmt: skip
        return texts[column]

    def sort_key(self, item: AuditEntry, column: int) -> Any:
        return item.sequence if column == 0 else self.text(item, column)


def detail_text(entry: AuditEntry) -> str:
    """Word the details of an entry on one line."""
    return ", ".join(f"{name}: {value}" for name, value in entry.detail.items())


def values_of(entries: Sequence[AuditEntry], field: str, limit: int = 200) -> list[str]:
    """List what a field holds in the entries, in order."""
    return sorted({str(getattr(entry, field)) for entry in entries} - {""})[:limit]
