"""The mark: a short text the console gives this PC in each session, so that a copied data folder shows.

It is kept beside the identity and belongs to it, which is why that names its file. See `Welcome.mark`.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from agent.link.keystore import write_private

_log = logging.getLogger(__name__)
_MARK = re.compile(r"[0-9a-f-]{1,64}")


def read_mark(path: Path) -> str:
    """Return the mark kept at `path`; empty if there is none. Blocks."""
    try:
        with path.open("r", encoding="ascii") as file:
            text = file.read(65)
    except (OSError, UnicodeDecodeError):
        return ""
    return text if _MARK.fullmatch(text) else ""


def keep_mark(path: Path, mark: str) -> bool:
    """Write a mark durably; False if it is none or cannot be written. Blocks."""
    if not _MARK.fullmatch(mark):
        return False
    try:
        write_private(path, mark.encode("ascii"))
    except OSError as error:
        _log.warning("The session's mark cannot be kept in %s (%s); free space or fix its rights.", path, error)
        return False
    return True
