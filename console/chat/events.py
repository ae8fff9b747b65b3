"""What comes of a question, as typed events: read from the stream's data and comments. No I/O."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from console.chat.errors import AnswerFailed, Kind
from console.chat.records import Facts
from console.sse import Comment, Data

DONE = "[DONE]"
_QUEUED = re.compile(r"waiting, (\d{1,9}) ahead")
_READING = re.compile(r"reading, (\d{1,9}) of (\d{1,9}) tokens")
_RECOVERING = re.compile(r"recovering, (.+)")


class Piece(NamedTuple):
    """More of the answer's text."""

    text: str


class Queued(NamedTuple):
    """No place is free yet: so many others get one first."""

    ahead: int


class Reading(NamedTuple):
    """So many of the prompt's tokens have been read."""

    done: int
    total: int


class Recovering(NamedTuple):
    """A PC left; the answer goes on where it is once others have taken over."""

    reason: str


class Ended(NamedTuple):
    """The answer is whole."""

    facts: Facts


Event = Piece | Queued | Reading | Recovering | Ended


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Timings(msgspec.Struct, frozen=True):
    queue_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0


class _Details(msgspec.Struct, frozen=True):
    pcs: list[str] = []
    drafted: int = 0
    accepted: int = 0


class ErrorBody(msgspec.Struct, frozen=True):
    """OpenAI's error object, as far as it is read."""

    message: str = ""
    code: str | int | None = None


class _Chunk(msgspec.Struct, frozen=True):
    model: str = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    details: _Details | None = None
    error: ErrorBody | str | None = None


class AnswerReader:
    """Reads one stream. What it was told is in `facts`, also when the stream ends early."""

    def __init__(self, model: str) -> None:
        self.facts = Facts(model=model)
        self._decoder = msgspec.json.Decoder(_Chunk)

    def read(self, item: Data | Comment) -> list[Event]:
        """Return the events of one item; Ended is the last of all. Raises AnswerFailed."""
        if isinstance(item, Comment):
            return _noted(item.text)
        if item.text.startswith(DONE):
            if not self.facts.ending:
                raise incomplete()
            return [Ended(self.facts)]
        try:
            chunk = self._decoder.decode(item.text)
        except msgspec.MsgspecError:
            message = "The server sent something that is no answer; check its address, or ask an administrator."
            raise AnswerFailed(message, kind="broken") from None
        pieces = (choice.delta.content for choice in chunk.choices)
        events: list[Event] = [Piece(text) for text in pieces if text]
        self._note(chunk)
        if chunk.error:
            raise _failed(chunk.error)
        return events

    def _note(self, chunk: _Chunk) -> None:
        changes: dict[str, Any] = {}
        if chunk.model:
            changes["model"] = chunk.model
        for choice in chunk.choices:
            if choice.finish_reason and not chunk.error:
                changes["ending"] = choice.finish_reason
        for part in (chunk.usage, chunk.timings, chunk.details):
            if part is not None:
                changes |= msgspec.structs.asdict(part)
        if changes and any(getattr(self.facts, name) != value for name, value in changes.items()):
            self.facts = msgspec.structs.replace(self.facts, **changes)


def incomplete() -> AnswerFailed:
    """Return the error for a stream that ended without saying that it ended."""
    return AnswerFailed("The answer broke off before its end; ask again.", kind="incomplete")


def refusal(status: int, body: bytes, retry_after: str) -> AnswerFailed:
    """Return the error that an HTTP status of 400 or more stands for."""
    try:
        said = msgspec.json.decode(body, type=_Chunk).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = None
    error = said if isinstance(said, ErrorBody) else ErrorBody(said or "")
    code = str(error.code or "")
    kind = _kind(status, code)
    message = error.message or f"The server answered with status {status}, not like a Fallow console."
    if kind == "key" and status == 401:
        message = "Your key is not valid any more: it ran out or was revoked. Sign in with another one."
    return AnswerFailed(message, kind=kind, code=code, retry_after_s=_seconds(retry_after))


def _kind(status: int, code: str) -> Kind:
    if status == 401 or (status == 403 and code != "model_not_allowed"):
        return "key"
    if status == 404 or code == "model_not_allowed":
        return "model"
    if status in {408, 429} or status >= 500:
        return "busy"
    return "refused"


def _failed(error: ErrorBody | str) -> AnswerFailed:
    body = error if isinstance(error, ErrorBody) else ErrorBody(error)
    code = str(body.code or "")
    kind: Kind = "model" if code in {"cancelled", "not_ready", "model_not_found"} else "broken"
    return AnswerFailed(body.message or "The server failed while answering; ask again.", kind=kind, code=code)


def _noted(comment: str) -> list[Event]:
    if found := _QUEUED.fullmatch(comment):
        return [Queued(int(found[1]))]
    if found := _READING.fullmatch(comment):
        return [Reading(int(found[1]), int(found[2]))]
    if found := _RECOVERING.fullmatch(comment):
        return [Recovering(found[1])]
    return []


def _seconds(retry_after: str) -> float | None:
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
