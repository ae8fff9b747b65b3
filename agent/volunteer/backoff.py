"""Waits that grow with each repetition and are forgotten an hour after the last one is over. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

CALM_S = 3600.0


class Backoff(msgspec.Struct, frozen=True):
    """`times_s` are the last events, the newest last; `until_s` is when the wait they cost is over."""

    times_s: tuple[float, ...] = ()
    level: int = 0
    until_s: float = 0.0


def after_event(
    backoff: Backoff, now_s: float, waits_s: Sequence[float], *, allowed: int = 0, window_s: float = CALM_S
) -> Backoff:
    """Count one event. The first `allowed` in any `window_s` cost nothing; each further one the next of `waits_s`.

    The wait also lasts until no window that begins with a counted event could hold more than `allowed` + 1.
    """
    # While it waits nothing can happen: an hour that counted from the event would be over with a wait of an hour.
    calm = not backoff.times_s or now_s - max(backoff.times_s[-1], backoff.until_s) >= CALM_S
    level = 0 if calm else backoff.level
    times_s = (*(time_s for time_s in backoff.times_s if now_s - time_s < window_s), now_s)[-(allowed + 1) :]
    if len(times_s) <= allowed:
        return Backoff(times_s, level, backoff.until_s)
    wait_s = waits_s[min(level, len(waits_s) - 1)]
    until_s = max(now_s + wait_s, times_s[0] + window_s if allowed else 0.0)
    return Backoff(times_s, level + 1, until_s)
