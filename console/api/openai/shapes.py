"""What all kinds of answers share: who an answer is, what was collected of it, and who renders its stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from console.pipeline.types import Ending, Finished, Reading, Recovering, Text, TokenLogprobs, Usage, Waiting

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": waiting\n\n"
QUEUED = b": waiting, %d ahead\n\n"
"""A comment of the stream while no place is free: clients that do not know it skip it."""
RECOVERING = ": recovering, %s\n\n"
"""A comment while PCs are replaced; the answer goes on where it is."""
READING = b": reading, %d of %d tokens\n\n"
"""A comment while a long prompt is read, for who asked for details."""


class Identity(NamedTuple):
    """What stands on every part of an answer: its id, the Unix time it was asked for, and the model."""

    answer_id: str
    created_s: int
    model_id: str

    @classmethod
    def new(cls, prefix: str, model_id: str) -> Identity:
        """Make one whose id begins with `prefix` and a dash or underscore."""
        return cls(f"{prefix}{secrets.token_hex(12)}", int(time.time()), model_id)


class Answered(NamedTuple):
    """A complete answer; `logprobs` is empty where none were asked for."""

    text: str
    logprobs: list[TokenLogprobs]
    finished: Finished


class EventWriter(Protocol):
    """Renders the server-sent events of one stream. Keeps state, does no I/O.

    A stream may carry several answers to one request; `place` says which of them an event is of.
    """

    @property
    def complete(self) -> bool:
        """Whether every answer has ended and the end of the stream was rendered."""
        ...

    def render(self, place: int, event: Text | Waiting | Reading | Recovering | Finished) -> bytes:
        """Return what an event becomes, perhaps nothing."""
        ...

    def failed(self, place: int, envelope: bytes, reason: Ending) -> bytes:
        """Return the last bytes of a stream that failed; `envelope` is the JSON of an error response."""
        ...


def note(event: Waiting | Reading | Recovering, *, details: bool) -> bytes:
    """Return the comment that tells what goes on; empty when nobody asked for it."""
    if isinstance(event, Waiting):
        return QUEUED % event.ahead
    if isinstance(event, Reading):
        return READING % (event.done, event.total) if details else b""
    return (RECOVERING % " ".join(event.reason.split())).encode()


class PromptDetails(msgspec.Struct, frozen=True):
    """How much of the prompts was in the caches already."""

    cached_tokens: int


class UsageBody(msgspec.Struct, frozen=True):
    """OpenAI's usage object."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


def joint_usage(usages: Sequence[Usage], answers: int) -> Usage:
    """Return the usage of a request: each prompt once, however many `answers` it has, and all answers."""
    prompts = usages[::answers]
    return Usage(
        sum(usage.prompt_tokens for usage in prompts),
        sum(usage.completion_tokens for usage in usages),
        sum(usage.cached_tokens for usage in prompts),
    )


def usage_body(usages: Sequence[Usage], answers: int = 1) -> UsageBody:
    """Return OpenAI's usage object for all answers of a request, so many `answers` to each prompt."""
    usage = joint_usage(usages, answers)
    total = usage.prompt_tokens + usage.completion_tokens
    return UsageBody(usage.prompt_tokens, usage.completion_tokens, total, PromptDetails(usage.cached_tokens))
