"""Small files of what an agent remembers for its next start, and could find out again. Any thread; the caller locks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

import msgspec

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20
T = TypeVar("T")


def read_kept(path: Path, kind: type[T], *, lost: str) -> T | None:
    """Read what `write_kept` wrote; None, and a line in the log saying `lost`, where that is not to be had."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            log.info("%s is too large; %s.", path, lost)
            return None
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.info("%s cannot be read (%s); %s.", path, type(error).__name__, lost)
        return None


def write_kept(path: Path, content: object, *, lost: str) -> None:
    """Put it in the place of what was there, whole or not at all; a failure is only logged, with `lost`."""
    fresh = path.with_suffix(".new")
    try:
        fresh.write_bytes(msgspec.json.encode(content))
        fresh.replace(path)
    except OSError as error:
        log.info("%s cannot be written (%s); %s.", path, error.strerror, lost)
