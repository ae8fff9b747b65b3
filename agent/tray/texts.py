"""What the tray says, in the owner's language: `assets/translations/<language>.json`.

A file maps keys to texts with `{named}` places; a text that depends on a number `n` is an object with `one` and
`other`. What a language lacks is said in English. No Qt here.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping

from agent.look.assets import asset

LANGUAGES = ("en", "es", "de")
"""The first is what the others fall back to."""

Entry = str | dict[str, str]


class Texts:
    """The words of one language. Immutable; any thread."""

    def __init__(self, language: str, entries: Mapping[str, Entry]) -> None:
        self.language = language
        self._entries = entries

    def __call__(self, key: str, /, **values: object) -> str:
        """Return a text with its places filled. Raises KeyError for an unknown key or a missing value."""
        entry = self._entries[key]
        if isinstance(entry, dict):
            entry = entry["one" if values["n"] == 1 else "other"]
        return entry.format_map(values)

    def named(self, group: str, name: str, otherwise: str = "") -> str:
        """Return the text of `group.name`, or `otherwise` (else the bare name) where nobody has written one."""
        key = f"{group}.{name}"
        return self(key) if key in self._entries else (otherwise or name)

    def duration(self, seconds: float) -> str:
        """Say a duration, rounded up: seconds below a minute, minutes below an hour, then hours and minutes."""
        if not math.isfinite(seconds):
            return self("duration.unknown")
        whole = max(0, math.ceil(seconds))
        if whole < 60:
            return self("duration.seconds", seconds=whole)
        minutes = math.ceil(whole / 60)
        if minutes < 60:
            return self("duration.minutes", minutes=minutes)
        hours, minutes = divmod(minutes, 60)
        return self("duration.hours_minutes" if minutes else "duration.hours", hours=hours, minutes=minutes)

    def moment(self, at_s: float, now_s: float) -> str:
        """Say when something happens, Unix times in, local time out: `14:30`, `tomorrow at 04:00`, `2026-12-03`."""
        at, now = time.localtime(at_s), time.localtime(now_s)
        clock = time.strftime("%H:%M", at)
        if at[:3] == now[:3]:
            return clock
        # Noon of today plus a day is tomorrow also where a day has 23 or 25 hours.
        noon = time.mktime((*now[:3], 12, 0, 0, 0, 0, -1))
        if at[:3] == time.localtime(noon + 86400)[:3]:
            return self("moment.tomorrow", clock=clock)
        return self("moment.date", date=time.strftime("%Y-%m-%d", at), clock=clock)


def read_entries(language: str) -> dict[str, Entry]:
    """Read one language's file. Raises AssetsMissing, or ValueError for a damaged file."""
    entries: dict[str, Entry] = json.loads(asset("translations", f"{language}.json").read_text("utf-8"))
    return entries


def load_texts(wanted: str) -> Texts:
    """Return the texts for a locale like `de_AT` or a language like `de`; English where there are none."""
    language = wanted.replace("-", "_").partition("_")[0].lower()
    english = read_entries(LANGUAGES[0])
    if language not in LANGUAGES[1:]:
        return Texts(LANGUAGES[0], english)
    return Texts(language, english | read_entries(language))
