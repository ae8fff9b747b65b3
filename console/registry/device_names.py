"""What an administrator types for a device: its id, a beginning of it, or its device code."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice, takewhile

from sqlalchemy import select
from sqlalchemy.orm import Session

from agent.link.identity import DeviceId
from console.registry.errors import NotFound
from console.registry.models import DeviceRow
from shard_export.library.counts import counted

MIN_PREFIX = 4
"""Letters of an id that are enough to mean it, if they mean one device only."""


class DeviceNames:
    """What administrators may call devices: their ids and codes."""

    def __init__(self, codes: Iterable[tuple[str, str]]) -> None:
        self._by_code: defaultdict[str, set[str]] = defaultdict(set)
        self._ids: list[str] = []
        for device_id, code in codes:
            self._ids.append(device_id)
            self._by_code[code.replace("-", "")].add(device_id)
        self._ids.sort()

    def find(self, text: str) -> DeviceId:
        """Return the one device with this id, beginning of an id, or code. Raises NotFound."""
        wanted = text.strip()
        found = set(self._by_code.get(wanted.upper().replace("-", ""), ()))
        if len(wanted) >= MIN_PREFIX:
            start = wanted.lower()
            later = islice(self._ids, bisect_left(self._ids, start), None)
            found.update(takewhile(lambda device_id: device_id.startswith(start), later))
        if len(found) != 1:
            problem = "No device has" if not found else counted(len(found), "device has", "devices have")
            raise NotFound(f"{problem} the id or code {wanted!r}; see `fallow-console agents`.")
        return DeviceId(found.pop())


def device_names(session: Session) -> DeviceNames:
    """Read what every device may be called."""
    rows = session.execute(select(DeviceRow.device_id, DeviceRow.device_code))
    return DeviceNames((device_id, code) for device_id, code in rows)
