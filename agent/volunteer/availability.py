"""When this PC tends to rest: how likely it is at each hour of the week. Pure; local time; kept on this PC.

Each of the 168 cells counts hours watched and hours at rest, and both fade: what was four weeks ago counts half. A cell
with little in it leans on the same hour of the other days, and that on all hours, so that the first week is no lottery.
A PC that is off or asleep does not rest, it is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agent.volunteer.schedule import minute_of_week

CELLS, DAY_CELLS = 168, 24
HALF_LIFE_S = 28 * 86_400.0
WEEK_S = 7 * 86_400.0
HOUR_S = 3600.0
BLOCK_HOURS = 3
BLOCKS = CELLS // BLOCK_HOURS
COARSE_PERCENT = 10
"""What is told to the console: three hours at a time, in steps of ten percent."""
LEAN_H = 1.0
"""How many hours of watching the broader average counts as."""
KNOWN_H = 24.0
"""Before so much has been watched nothing is worth telling."""


class Rest(msgspec.Struct, frozen=True):
    """Hours watched and hours at rest, by hour of the week from Monday 00:00, as of `until_unix_s` (0: never)."""

    watched_h: tuple[float, ...] = (0.0,) * CELLS
    resting_h: tuple[float, ...] = (0.0,) * CELLS
    until_unix_s: float = 0.0


def watch(rest: Rest, unix_s: float, utc_offset_s: float, *, resting: bool, longest_s: float) -> Rest:
    """Count the time since the last look. More than `longest_s` means that nobody looked: the PC was not there.

    A clock that went back, or forward by more than a week, counts for nothing.
    """
    since_s = unix_s - rest.until_unix_s
    if rest.until_unix_s <= 0 or not 0 <= since_s <= WEEK_S:
        return msgspec.structs.replace(rest, until_unix_s=unix_s)
    fade = 0.5 ** (since_s / HALF_LIFE_S)
    watched_h, resting_h = [fade * hours for hours in rest.watched_h], [fade * hours for hours in rest.resting_h]
    counts = resting and since_s <= longest_s
    for cell, part_s in _parts(rest.until_unix_s, unix_s, utc_offset_s):
        watched_h[cell] += part_s / HOUR_S
        resting_h[cell] += part_s / HOUR_S if counts else 0.0
    return Rest(tuple(watched_h), tuple(resting_h), unix_s)


def _parts(from_unix_s: float, to_unix_s: float, utc_offset_s: float) -> Iterator[tuple[int, float]]:
    """Cut a time at the hours: (cell, seconds)."""
    now_s = from_unix_s
    while now_s < to_unix_s:
        minute = minute_of_week(now_s, utc_offset_s)
        # Rounding could leave a part of no length, for ever.
        until_s = min(to_unix_s, now_s + max((60 - minute % 60) * 60, 1e-3))
        yield int(minute // 60) % CELLS, until_s - now_s
        now_s = until_s


def likelihoods(rest: Rest) -> list[float]:
    """Return for each hour of the week how likely this PC rests, 0 to 1."""
    overall = _lean(sum(rest.resting_h), sum(rest.watched_h), 0.5)
    of_day = [
        _lean(sum(rest.resting_h[hour::DAY_CELLS]), sum(rest.watched_h[hour::DAY_CELLS]), overall)
        for hour in range(DAY_CELLS)
    ]
    return [_lean(rest.resting_h[cell], rest.watched_h[cell], of_day[cell % DAY_CELLS]) for cell in range(CELLS)]


def coarse(rest: Rest) -> list[int]:
    """Return what the console may know: percent for each three hours of the week; empty while too little is known."""
    if sum(rest.watched_h) < KNOWN_H:
        return []
    fine = likelihoods(rest)
    means = [sum(fine[block * BLOCK_HOURS : (block + 1) * BLOCK_HOURS]) / BLOCK_HOURS for block in range(BLOCKS)]
    return [COARSE_PERCENT * round(100 * mean / COARSE_PERCENT) for mean in means]


def is_coarse(blocks: Sequence[int]) -> bool:
    """Say whether a list is what `coarse` returns."""
    return len(blocks) in (0, BLOCKS) and all(0 <= percent <= 100 for percent in blocks)


def likely(blocks: Sequence[int], unix_s: float, utc_offset_s: float, for_s: float) -> float | None:
    """Return how likely a PC with these blocks rests from now on for a while: the mean, 0 to 1; None: not known."""
    if not blocks:
        return None
    parts = [
        (blocks[cell // BLOCK_HOURS], part_s) for cell, part_s in _parts(unix_s, unix_s + max(for_s, 1.0), utc_offset_s)
    ]
    return sum(percent * part_s for percent, part_s in parts) / sum(part_s for _, part_s in parts) / 100


def _lean(resting_h: float, watched_h: float, otherwise: float) -> float:
    return (resting_h + LEAN_H * otherwise) / (watched_h + LEAN_H)
