"""Durations as people write them."""

from __future__ import annotations

import re

_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|min|h|d)")


def parse_duration_s(text: str) -> float:
    """Read `90s`, `15min`, `1h`, `2d`. Raises ValueError with a sentence."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text[:40]!r} is no duration; write 90s, 15min, 1h or 2d.")
    return float(found[1]) * _UNITS_S[found[2]]
