"""The audit log's chain: each entry's hash covers the entry and the hash before it. Pure.

A changed, removed, added or moved entry breaks the chain from there on. Whoever may write the whole database can forge
a whole new chain; so keep the last hash of a check, or an export, where that person cannot write, and give it to the
next check.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from console.registry.errors import AuditBroken
from console.registry.records import AuditEntry

FIRST_HASH = "0" * 64
"""The hash before the first entry."""
MAX_WORD_BYTES = 64
_MAX_WORDS = 200
_PARTS = re.compile(r"\w+")


class Checked(msgspec.Struct, frozen=True):
    """A chain that holds: how many entries, and the last one's number and hash."""

    entries: int
    last_sequence: int
    last_hash: str


def entry_hash(previous_hash: str, entry: AuditEntry) -> str:
    """Return the hash of an entry that follows one with `previous_hash` (hex). `entry.hash` is not looked at."""
    content = [
        previous_hash, entry.sequence, entry.at_s, entry.actor, entry.action, entry.target, entry.source, entry.detail
    ]  # fmt: skip
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check(entries: Iterable[AuditEntry], known: Iterable[tuple[int, str]] = ()) -> Checked:
    """Check a whole log, oldest entry first. `known` are (sequence, hash) pairs noted before. Raises AuditBroken."""
    wanted = dict(known)
    sequence, last_hash = 0, FIRST_HASH
    for entry in entries:
        sequence += 1
        if entry.sequence != sequence:
            raise AuditBroken(f"The audit log's entry {sequence} is missing; somebody removed it.", sequence)
        if entry.hash != entry_hash(last_hash, entry):
            raise AuditBroken(
                f"The audit log's entry {sequence} was changed after it was written; compare with an earlier export.",
                sequence,
            )
        last_hash = entry.hash
        if wanted.pop(sequence, last_hash) != last_hash:
            raise AuditBroken(f"The audit log was rewritten: entry {sequence} is not the one noted before.", sequence)
    if wanted:
        missing = min(wanted)
        raise AuditBroken(f"The audit log ends at {sequence}, but had an entry {missing}; it was cut off.", missing)
    return Checked(sequence, sequence, last_hash)


def storable(value: Any) -> Any:
    """Return JSON every database keeps as it is: no NUL, no halves of characters, only plain types."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value if isinstance(value, bool | int | float | None) else storable(str(value))


def words_of(entry: AuditEntry) -> set[bytes]:
    """Return the words an entry can be found by: what stands between spaces, whole and in its parts."""
    texts = [entry.actor, entry.action, entry.target, entry.source, *_texts(entry.detail)]
    found: dict[bytes, None] = {}
    for text in texts:
        for token in text.split():
            for word in (token, *_PARTS.findall(token)):
                found.setdefault(word_key(word))
    return set(list(found)[:_MAX_WORDS])


def word_key(word: str) -> bytes:
    """Return the form in which a word is indexed and looked for."""
    return word.casefold().encode("utf-8", "replace")[:MAX_WORD_BYTES]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)
