"""What the agent's child processes have in common: no window of their own, and their last words in the log."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Final

if sys.platform == "win32":
    NO_WINDOW = subprocess.CREATE_NO_WINDOW
else:
    NO_WINDOW = 0
"""`creationflags` of every child: an agent without a window would otherwise open a black one for each."""

MAX_LINES: Final = 20
MAX_LETTERS: Final = 500


def log_words(log: logging.Logger, child: str, stderr: bytes | None) -> str:
    """Log what a child wrote on stderr, its last lines only, and return the very last; empty if it wrote nothing."""
    text = (stderr or b"")[-MAX_LINES * MAX_LETTERS :].decode(errors="replace")
    lines = [line.strip()[:MAX_LETTERS] for line in text.splitlines() if line.strip()][-MAX_LINES:]
    for line in lines:
        log.info("%s: %s", child, line)
    return lines[-1] if lines else ""
