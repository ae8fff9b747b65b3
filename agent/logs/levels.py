"""How much is logged, logger by logger, and changed while the program runs. Any thread.

Libraries are never heard below WARNING, whatever is set: at DEBUG they print the headers, bodies and frames that they
carry, with keys and prompts in them.
"""

from __future__ import annotations

import difflib
import logging
import threading
import time
from collections.abc import Callable

from agent.logs.lines import OURS
from agent.logs.types import ALL, LEVELS, Level, LoggerLevel

FLOOR = logging.WARNING
"""Of what is not ours."""
TAILED = logging.INFO
"""Our loggers pass on at least this, whatever is shown: an administrator may ask for the last lines of the work."""
LONGEST_S = 7 * 86_400.0


class LevelRefused(Exception):
    """A level cannot be set so: one sentence, what happened and what to do."""


class Levels:
    """The levels of one process. A logger without one of its own has that of the nearest above it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, Level] = {ALL: "INFO"}
        self._for_now: dict[str, tuple[Level, float]] = {}

    def begin(self, level: Level) -> None:
        """Set the level of all, and forget every other."""
        with self._lock:
            over = {*self._kept, *self._for_now} - {ALL}
            self._kept, self._for_now = {ALL: level}, {}
            self._apply(*over)

    def end(self) -> None:
        """Leave the loggers as they are without this."""
        with self._lock:
            names = {*self._kept, *self._for_now, *OURS} - {ALL}
            self._kept, self._for_now = {ALL: "INFO"}, {}
            for name in names:
                logging.getLogger(name).setLevel(logging.NOTSET)

    def set(self, logger: str, level: str, for_s: float | None = None) -> list[LoggerLevel]:
        """Change a logger and those below it, for a time or until the program ends. Raises LevelRefused."""
        checked = _checked(logger, level)
        if for_s is not None and not 0 < for_s <= LONGEST_S:
            raise LevelRefused(f"A level can be set for up to {LONGEST_S / 86_400:g} days, or until the program ends.")
        with self._lock:
            if for_s is None:
                self._for_now.pop(logger, None)
                self._kept[logger] = checked
            else:
                self._for_now[logger] = (checked, self._clock() + for_s)
            self._apply()
        return self.all()

    def all(self) -> list[LoggerLevel]:
        """List what is set, all of ours first."""
        with self._lock:
            self._look()
            now_s = self._clock()
            found = {name: LoggerLevel(name, level) for name, level in self._kept.items()}
            found |= {
                name: LoggerLevel(name, level, round(until_s - now_s, 1))
                for name, (level, until_s) in self._for_now.items()
            }
        return [found[name] for name in sorted(found, key=lambda name: (name != ALL, name))]

    def shows(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be written: the filter of every handler."""
        if record.name.partition(".")[0] not in OURS:
            return record.levelno >= FLOOR
        if self._for_now:
            with self._lock:
                self._look()
        return record.levelno >= self._of(record.name)

    def _of(self, name: str) -> int:
        while name:
            level = self._own(name)
            if level is not None:
                return level
            name = name.rpartition(".")[0]
        return self._own(ALL) or logging.INFO

    def _own(self, name: str) -> int | None:
        level = self._for_now[name][0] if name in self._for_now else self._kept.get(name)
        return None if level is None else int(logging.getLevelNamesMapping()[level])

    def _look(self) -> None:
        """Fall back from what was set for a time that is over. Called with the lock."""
        now_s = self._clock()
        over = [name for name, (_, until_s) in self._for_now.items() if until_s <= now_s]
        if over:
            # Readers without the lock see the old dict or the new one.
            self._for_now = {name: value for name, value in self._for_now.items() if name not in over}
            self._apply(*over)

    def _apply(self, *over: str) -> None:
        """Let the loggers themselves pass on what is shown, so that the rest costs nothing. Called with the lock."""
        for name in {*self._kept, *self._for_now, *over} - {ALL}:
            level = self._own(name)
            logging.getLogger(name).setLevel(logging.NOTSET if level is None else min(level, TAILED))
        for name in OURS:
            if self._own(name) is None:
                logging.getLogger(name).setLevel(min(self._own(ALL) or TAILED, TAILED))


def _checked(logger: str, level: str) -> Level:
    if level not in LEVELS:
        raise LevelRefused(f"{level[:20]!r} is no level; choose one of {', '.join(LEVELS)}.")
    if logger == ALL or logger in OURS:
        return level
    if logger.partition(".")[0] not in OURS:
        raise LevelRefused(
            f"{logger[:60]!r} is no logger of Fallow's: libraries write down what they carry, keys and prompts too, so "
            f"they stay at WARNING. Name {ALL}, or one below {', '.join(OURS)}."
        )
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in OURS]
    if logger not in known:
        near = difflib.get_close_matches(logger, known, 3)
        raise LevelRefused(f"There is no logger {logger[:80]!r} here{f'; is it {near[0]}?' if near else '.'}")
    return level


LEVELS_HERE = Levels()
"""Of this process: loggers are global, so there is one."""
