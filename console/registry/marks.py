"""Marks: how a copied data folder is told from a restarted PC.

At each session a PC shows the mark it keeps and is given a new one, which it saves and confirms. A PC that restarts
shows the newest mark, or, if it was stopped before it saved that, the one before. Two PCs with copies of one folder
cannot both: once one of them has confirmed a new mark, the other still shows the old one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import select, update

from agent.link.identity import DeviceId
from console.registry.audit import CONSOLE, note
from console.registry.database import Database
from console.registry.errors import Cloned, NotFound
from console.registry.models import DeviceRow

MAX_MARK_CHARS = 64

# Columns and not whole records: hundreds of PCs may come at once, and each of them waits for this.
_MARKS = select(DeviceRow.mark, DeviceRow.next_mark).with_for_update()
_CHANGE = update(DeviceRow).execution_options(synchronize_session=False)


class Marks:
    """Checks, gives and confirms marks. A mark is `<number>-<random>`; it is no secret and proves no identity."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def exchange(self, device_id: DeviceId, shown: str) -> str:
        """Check the mark a PC shows (empty: it has none) and return its next one. Raises Cloned or NotFound."""
        with self._database.writing() as session:
            known = session.execute(_MARKS.where(DeviceRow.device_id == device_id)).one_or_none()
            if known is None:
                raise NotFound(f"There is no device {device_id}; see `fallow-console agents`.")
            mark, next_mark = known
            if not _fits(mark, next_mark, shown):
                raise Cloned(f"it shows the mark {shown[:MAX_MARK_CHARS] or 'of nobody'}, {mark} was expected")
            if shown and shown not in (mark, next_mark):
                note(session, self._now(), CONSOLE, "device.mark_ahead", device_id, shown=shown, known=mark)
            mark = shown or mark
            next_mark = f"{_number(mark) + 1}-{secrets.token_hex(8)}"
            session.execute(_CHANGE.where(DeviceRow.device_id == device_id).values(mark=mark, next_mark=next_mark))
            return next_mark

    def confirm(self, device_id: DeviceId, mark: str) -> None:
        """Note that a PC has saved the mark it was given; any other is ignored."""
        if not mark:
            return
        told = DeviceRow.device_id == device_id, DeviceRow.next_mark == mark
        with self._database.writing() as session:
            session.execute(_CHANGE.where(*told).values(mark=mark, next_mark=""))


def _fits(mark: str, next_mark: str, shown: str) -> bool:
    if not mark or (shown and shown in (mark, next_mark)):
        return True
    # A mark ahead of ours can only come from us: this registry was restored from a backup.
    return _number(shown) > max(_number(mark), _number(next_mark))


def _number(mark: str) -> int:
    digits = mark.partition("-")[0]
    return int(digits) if digits.isdecimal() and len(digits) <= 15 else 0
