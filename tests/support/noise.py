"""Logs of WARNING and above: every test must announce those it causes."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass


@dataclass
class Expectation:
    """A log a test announces: its logger or one above, a pattern searched in the message, whether it must come."""

    logger: str
    pattern: str = ""
    required: bool = False
    seen: bool = False

    def matches(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is the announced one."""
        under = record.name == self.logger or record.name.startswith(f"{self.logger}.")
        return under and re.search(self.pattern, record.getMessage()) is not None


# transformers hands its logs to the root logger only where the variable CI is set. What a test may say must not
# depend on that, so its logger is watched as well.
WATCHED = ("", "transformers")


class LogWatch(logging.Handler):
    """Collects what reaches the root logger or the other watched ones at WARNING and above, from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: list[logging.LogRecord] = []
        self._guard = threading.Lock()

    def install(self) -> None:
        """Listen at the watched loggers; again, if a test has taken the handler away."""
        for name in WATCHED:
            logger = logging.getLogger(name)
            if self not in logger.handlers:
                logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, once if it passes several watched loggers."""
        with self._guard:
            if not any(kept is record for kept in self._records):
                self._records.append(record)

    def take(self) -> list[logging.LogRecord]:
        """Give what was collected since the last call."""
        with self._guard:
            records, self._records = self._records, []
        return records


def complaints(records: list[logging.LogRecord], expectations: list[Expectation]) -> list[str]:
    """Compare logs with what was announced: one line for each surprise, and for each required log that never came."""
    lines = []
    for record in records:
        known = [expectation for expectation in expectations if expectation.matches(record)]
        for expectation in known:
            expectation.seen = True
        if not known:
            text = f"unexpected log: {record.levelname} {record.name}: {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                text += f" [{record.exc_info[1]!r}]"
            lines.append(text)
    absent = [expectation for expectation in expectations if expectation.required and not expectation.seen]
    return lines + [f"announced log never came: {absentee.logger} /{absentee.pattern}/" for absentee in absent]
