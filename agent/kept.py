"""Small files of what an agent remembers for its next start, and could find out again. Any thread; the caller locks."""

from __future__ import annotations

import contextlib
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
    try:
        replace_file(path, msgspec.json.encode(content))
    except OSError as error:
        log.info("%s cannot be written (%s); %s.", path, error.strerror, lost)


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of what was there, whole or not at all. Raises OSError, and leaves nothing half then.

    One writer at a time. It does not wait for the disk: a power cut may bring the former content back, or none.
    """
    # The same name each time: what a writer that was killed left behind is written over by the next one.
    fresh = path.with_suffix(".new")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
