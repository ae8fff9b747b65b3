"""The last lines of what this agent did for others, for an administrator who asks why it does not.

What it knows of its owner is never among them: loggers are let in by name, and paths below the owner's folder lose it.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from pathlib import Path

from agent.logs.handlers import HIDER

KEPT = 500
LONGEST = 300
"""Characters of a line that are kept."""
TOLD = (
    "agent.devices", "agent.children", "agent.link", "agent.live", "agent.loading", "agent.measured", "agent.measuring",
    "agent.membership", "agent.seeding", "agent.service", "agent.session", "agent.stage", "agent.stages",
)  # fmt: skip
"""Whoever logs about links, stages, deliveries and measurements. The volunteer is not here: it logs about a person."""
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


class LogTail(logging.Handler):
    """Keeps the last lines. Any thread."""

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(logging.INFO)
        self._times = logging.Formatter()
        self._home = str(home or Path.home())
        self._lines: deque[str] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, if it is about the work."""
        if not any(record.name == name or record.name.startswith(f"{name}.") for name in TOLD):
            return
        text = f"{self._times.formatTime(record)} {record.levelname} {record.name}: "
        try:
            text += HIDER.hide(record.getMessage())
        except (TypeError, ValueError):
            return  # the other handlers say so
        if record.exc_info and record.exc_info[0] is not None:
            text += f" ({record.exc_info[0].__name__})"
        self._lines.append(_UNSEEN.sub(" ", text.replace(self._home, "~"))[:LONGEST])

    def last(self, lines: int) -> list[str]:
        """Return the last `lines`, the oldest first."""
        self.acquire()
        try:
            return list(self._lines)[-lines:] if lines > 0 else []
        finally:
            self.release()
