"""What one line of a log is: a JSON object for programs, or text for people. Neither holds a secret or a prompt.

A traceback shows where something failed. What the exception itself says is left out where it may quote what somebody
asked: while a request is answered, and wherever prompts and answers pass through, unless the exception is ours, whose
sentences are made of names and numbers.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType

from agent.logs.about import of_record
from agent.logs.secrets import Hider

OURS = ("agent", "console", "shard_export")
CARRY_TEXTS = ("console.api.", "console.pipeline.", "console.chat.")
"""Packages through which prompts, answers and passwords pass."""
MOST_LETTERS = 8000
"""Of a message; a longer one is cut."""
MOST_CAUSES = 8
LEFT_OUT = "(what it says is left out: it may quote what was asked)"
_TASK = re.compile(r"name='[^']*'")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


class _Lines(logging.Formatter):
    """What both kinds of lines share."""

    def __init__(self, hider: Hider) -> None:
        super().__init__()
        self._hider = hider

    def _message(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.name == "asyncio":
            # Below its first line it shows tasks and errors as `repr` does, with whatever they were told.
            text = " ".join([text.partition("\n")[0], *_TASK.findall(text)])
        # Cut before secrets are looked for, so that a huge message costs little.
        return self._hider.hide(text[:MOST_LETTERS])

    def _failure(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return ""
        asked = "request" in of_record(record)
        return self._hider.hide("\n".join(told(error, private=asked)))


class JsonLines(_Lines):
    """One JSON object for each record: time (UTC), level, logger, message, what it is about, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
            **of_record(record),
        }
        if failure := self._failure(record):
            fields["exception"] = failure
        return json.dumps(fields, ensure_ascii=False)


class TextLines(_Lines):
    """A line of text for each record, its exception below. What would move a terminal's cursor is not let through."""

    def format(self, record: logging.LogRecord) -> str:
        said = "".join(f" {name}={value}" for name, value in of_record(record).items())
        message = _UNSEEN.sub(" ", f"{self._message(record)}{f' [{said[1:]}]' if said else ''}")
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {message}"
        failure = "\n".join(_UNSEEN.sub(" ", each) for each in self._failure(record).splitlines())
        return f"{line}\n{failure}" if failure else line


def told(error: BaseException, *, private: bool) -> Iterator[str]:
    """Yield the lines of an exception and what led to it. `private` leaves out what those of others say."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain and len(chain) < MOST_CAUSES:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    private = private or any(_carries_texts(each.__traceback__) for each in chain)
    for each in reversed(chain):
        if each.__traceback__ is not None:
            yield "Traceback (most recent call last):"
            yield from "".join(traceback.format_tb(each.__traceback__)).rstrip("\n").split("\n")
        yield _said(each, private=private)
        if isinstance(each, BaseExceptionGroup):
            for part in each.exceptions[:MOST_CAUSES]:
                yield from (f"  | {line}" for line in told(part, private=private))


def _said(error: BaseException, *, private: bool) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if private and not (kind.__module__.partition(".")[0] in OURS or isinstance(error, OSError)):
        return f"{name} {LEFT_OUT}"
    text = str(error)[:MOST_LETTERS]
    return f"{name}: {text}" if text else name


def _carries_texts(trace: TracebackType | None) -> bool:
    """Whether an exception passed through code that holds what people ask."""
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(CARRY_TEXTS):
            return True
        trace = trace.tb_next
    return False
