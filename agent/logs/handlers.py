"""Where lines go: a file with a bound that only its owner reads, and standard error."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal, TextIO

from agent.logs.levels import LEVELS_HERE
from agent.logs.lines import JsonLines, TextLines
from agent.logs.secrets import Hider
from agent.logs.types import Level

Format = Literal["auto", "json", "text"]
"""`auto`: JSON in a file, text on standard error."""
MOST_BYTES = 8 << 20
"""Of one file; a full one is kept beside it as `.1`, and so on."""
KEPT_FILES = 4
"""Beside the one that is written."""
RETRY_BYTES = 1 << 20
"""How much more is written to a full file that another program does not let go."""

HIDER = Hider()
"""Of this process: a secret it was told is in no line of any handler."""


def _lost(record: logging.LogRecord) -> None:
    """Say that a line was lost, without what was in it: logging's own way prints the arguments."""
    error = sys.exc_info()[1]
    if sys.stderr is not None:
        sys.stderr.write(f"A line of {record.name} could not be logged ({type(error).__name__}).\n")


class StderrHandler(logging.StreamHandler[TextIO]):
    """Standard error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        _lost(record)


class OwnFileHandler(RotatingFileHandler):
    """A file with a bound, readable by its owner alone. On Windows its folder's rights say who reads it.

    Where the file cannot be put aside, because another program has it open (Windows), lines go on into it, and it is
    tried again a megabyte later: nothing is lost.
    """

    def __init__(self, file: Path) -> None:
        """Goes on where the last program ended. Raises OSError."""
        self._bound = MOST_BYTES
        super().__init__(file, maxBytes=MOST_BYTES, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self.baseFilename, flags, 0o600)
        if os.name != "nt":
            os.fchmod(descriptor, 0o600)  # it may be older than this program's care
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        if self.stream is not None:
            self.stream.close()
            self.stream = None  # as logging does: it opens the file with the next line
        aside = f"{self.baseFilename}.full"
        try:
            # Before the older ones move up: they would leave one by one while this one stays.
            Path(self.baseFilename).replace(aside)
        except OSError:
            self.maxBytes += RETRY_BYTES
        else:
            self.maxBytes = self._bound
            self._move_up(Path(aside))
        self.stream = self._open()

    def _move_up(self, full: Path) -> None:
        names = [Path(f"{self.baseFilename}.{number}") for number in range(KEPT_FILES, 0, -1)]
        for target, source in itertools.pairwise([*names, full]):
            with contextlib.suppress(OSError):
                source.replace(target)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        _lost(record)

    def close(self) -> None:
        # What a full disk did not take is tried once more by this, and a program must end in order all the same.
        with contextlib.suppress(OSError):
            super().close()


_handlers: list[logging.Handler] = []


def set_up(*, level: Level = "INFO", form: Format = "auto", file: Path | None = None, stderr: bool = True) -> None:
    """Log from now on to standard error, to a file, or both, and no more to what was set up before.

    Raises OSError for a file that cannot be written; nothing has changed then.
    """
    handlers: list[logging.Handler] = []
    if file is not None:
        handlers.append(OwnFileHandler(file))
        handlers[0].setFormatter(TextLines(HIDER) if form == "text" else JsonLines(HIDER))
    if stderr and sys.stderr is not None:
        handlers.append(StderrHandler(sys.stderr))
        handlers[-1].setFormatter(JsonLines(HIDER) if form == "json" else TextLines(HIDER))
    tear_down()
    for handler in handlers:
        handler.addFilter(LEVELS_HERE.shows)
        logging.getLogger().addHandler(handler)
    _handlers.extend(handlers)
    LEVELS_HERE.begin(level)


def tear_down() -> None:
    """Close what `set_up` opened."""
    for handler in _handlers:
        logging.getLogger().removeHandler(handler)
        handler.close()
    _handlers.clear()
    LEVELS_HERE.end()


def log_files(file: Path) -> list[Path]:
    """List a log and the full ones beside it, the oldest first."""
    numbered = [file.with_name(f"{file.name}.{number}") for number in range(KEPT_FILES, 0, -1)]
    return [path for path in (*numbered, file) if path.is_file()]
