"""progress.json: how far an update is, for whoever goes on with it. Blocking."""

from __future__ import annotations

import logging

import msgspec

from agent.update.files import write_whole
from agent.update.layout import Installation
from agent.update.progress import Progress

log = logging.getLogger(__name__)

NAME = "progress.json"
MAX_BYTES = 256 * 1024


def read_progress(installation: Installation) -> Progress:
    """Return how far the update is; one that cannot be read has not begun."""
    path = installation.work / NAME
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES), type=Progress)
    except FileNotFoundError:
        return Progress()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("%s cannot be read (%s); the update begins again.", path, error)
        return Progress()


def write_progress(installation: Installation, progress: Progress) -> None:
    """Keep how far the update is. Raises OSError."""
    installation.prepare()
    write_whole(installation.work / NAME, msgspec.json.format(msgspec.json.encode(progress)) + b"\n")
