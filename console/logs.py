"""Where the service's log goes: standard error, or a file that does not grow without end."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from console.errors import DataFolderUnusable

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MOST_BYTES = 8 << 20
"""Of the file; one that is full is kept beside it, with `.1` behind its name, until the next is."""


def log_to(file: Path | None, level: str) -> None:
    """Log from now on, to a file or (None) to standard error. Raises DataFolderUnusable."""
    handler = logging.StreamHandler(sys.stderr) if file is None else file_handler(file)
    logging.basicConfig(level=level, format=LOG_FORMAT, handlers=[handler])


def file_handler(file: Path) -> logging.Handler:
    """Open a log that goes on where the last one ended. Raises DataFolderUnusable."""
    try:
        return RotatingFileHandler(file, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        message = f"The log {file} cannot be written ({error.strerror}); choose another with --log-file."
        raise DataFolderUnusable(message) from None
