"""Marks: how a copied data folder is told from a restarted PC.

At each session a PC shows the mark it keeps and is given a new one, which it saves and confirms. A PC that restarts
shows the newest mark, or, if it was stopped before it saved that, the one before. Two PCs with copies of one folder
cannot both: once one of them has confirmed a new mark, the other still shows the old one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from agent.link.identity import DeviceId
from console.registry.audit import CONSOLE, note
from console.registry.database import Database
from console.registry.devices import device_row
from console.registry.errors import Cloned
from console.registry.models import DeviceRow

MAX_MARK_CHARS = 64


class Marks:
    """Checks, gives and confirms marks. A mark is `<number>-<random>`; it is no secret and proves no identity."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def exchange(self, device_id: DeviceId, shown: str) -> str:
        """Check the mark a PC shows (empty: it has none) and return its next one. Raises Cloned or NotFound."""
        with self._database.writing() as session:
            row = device_row(session, device_id)
            if not _fits(row, shown):
                raise Cloned(f"it shows the mark {shown[:MAX_MARK_CHARS] or 'of nobody'}, {row.mark} was expected")
            if shown and shown != row.mark:
                if shown != row.next_mark:
                    note(session, self._now(), CONSOLE, "device.mark_ahead", device_id, shown=shown, known=row.mark)
                row.mark = shown
            row.next_mark = f"{_number(row.mark) + 1}-{secrets.token_hex(8)}"
            return row.next_mark

    def confirm(self, device_id: DeviceId, mark: str) -> None:
        """Note that a PC has saved the mark it was given; any other is ignored."""
        with self._database.writing() as session:
            row = session.get(DeviceRow, device_id, with_for_update=True)
            if row is not None and mark and mark == row.next_mark:
                row.mark, row.next_mark = mark, ""


def _fits(row: DeviceRow, shown: str) -> bool:
    if not row.mark or (shown and shown in (row.mark, row.next_mark)):
        return True
    # A mark ahead of ours can only come from us: this registry was restored from a backup.
    return _number(shown) > max(_number(row.mark), _number(row.next_mark))


def _number(mark: str) -> int:
    digits = mark.partition("-")[0]
    return int(digits) if digits.isdecimal() and len(digits) <= 15 else 0
