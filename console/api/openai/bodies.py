"""The bodies of /v1/chat/completions. Fields are always written out: strict clients need `finish_reason: null`.

Events of a stream share everything but the text, so a stream renders its constant bytes once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from console.api.openai.shapes import DONE, Answered, Identity, UsageBody, note, usage_body
from console.pipeline.types import (
    Ending,
    Finished,
    FinishReason,
    Reading,
    Recovering,
    ScoredToken,
    Text,
    Timings,
    TokenLogprobs,
    Waiting,
)

LEAST_LOGPROB = -9999.0
"""What OpenAI writes for a token that is as good as impossible; JSON has no infinity."""


class LogprobBody(msgspec.Struct, frozen=True):
    """A token with its log-probability; `bytes` are its text's, which may be a part of a code point."""

    token: str
    logprob: float
    bytes: list[int]


class TokenBody(LogprobBody, frozen=True):
    """A sampled token and the likeliest ones at its position."""

    top_logprobs: list[LogprobBody]


class LogprobsBody(msgspec.Struct, frozen=True):
    """Log-softmax of the model's own logits, whatever sampling made of them."""

    content: list[TokenBody]
    refusal: None = None


class MessageBody(msgspec.Struct, frozen=True):
    """What the model said."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChoiceBody(msgspec.Struct, frozen=True):
    """One answer."""

    index: int
    message: MessageBody
    logprobs: LogprobsBody | None
    finish_reason: FinishReason


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer of /v1/chat/completions. `timings` (ms, of the first answer) is an extension."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChoiceBody]
    usage: UsageBody
    timings: Timings


def logprobs_body(logprobs: Sequence[TokenLogprobs]) -> LogprobsBody:
    """Return OpenAI's logprobs object."""
    return LogprobsBody(
        [
            TokenBody(
                token_text(entry.chosen), least(entry.chosen), list(entry.chosen.data), [_scored(t) for t in entry.top]
            )
            for entry in logprobs
        ]
    )


def _scored(token: ScoredToken) -> LogprobBody:
    return LogprobBody(token_text(token), least(token), list(token.data))


def token_text(token: ScoredToken) -> str:
    """Return a token's text, with a mark for what is only a part of a code point."""
    return token.data.decode(errors="replace")


def least(token: ScoredToken) -> float:
    """Return a log-probability that JSON can hold."""
    return max(LEAST_LOGPROB, token.logprob)


def chat_body(identity: Identity, answered: Sequence[Answered], *, logprobs: bool) -> ChatBody:
    """Return the body of whole answers to one prompt; `logprobs` says whether they were asked for."""
    choices = [
        ChoiceBody(
            place,
            MessageBody(answer.text),
            logprobs_body(answer.logprobs) if logprobs else None,
            answer.finished.reason,
        )
        for place, answer in enumerate(answered)
    ]
    return ChatBody(
        id=identity.answer_id,
        created=identity.created_s,
        model=identity.model_id,
        choices=choices,
        usage=usage_body([answer.finished.usage for answer in answered], len(answered)),
        timings=answered[0].finished.timings,
    )


class ChunkWriter:
    """Renders the events of a chat: same id, time and model on each; `usage: null` only when usage was asked.

    The last event of all carries `timings`, and `details` where they were asked for; both are of the first answer.
    """

    def __init__(
        self, identity: Identity, *, answers: int = 1, include_usage: bool = False, include_details: bool = False
    ) -> None:
        """`include_details` says that who asks wants to know how the answer comes about: an extension."""
        encode = msgspec.json.encode
        self._answers = answers
        self._include_usage, self._include_details = include_usage, include_details
        self._opened: set[int] = set()
        self._finished: dict[int, Finished] = {}
        self._encoder = msgspec.json.Encoder()
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (encode(identity.answer_id), identity.created_s, encode(identity.model_id))
        )  # fmt: skip
        self._usage_null = b',"usage":null' if include_usage else b""
        self._after_logprobs = b',"finish_reason":null}]' + self._usage_null + b"}\n\n"
        self._after_text = b'},"logprobs":null' + self._after_logprobs

    @property
    def complete(self) -> bool:
        """Whether every answer has ended and the end of the stream was rendered."""
        return len(self._finished) == self._answers

    def render(self, place: int, event: Text | Waiting | Reading | Recovering | Finished) -> bytes:
        """Return what an event becomes: the role before an answer's first text, text, its reason, the stream's end."""
        if isinstance(event, Text):
            if not (event.text or event.logprobs):
                return b""
            return self._opening(place) + self._text(place, event.text, event.logprobs)
        if isinstance(event, Finished):
            return self._opening(place) + self._end(place, event)
        return note(event, details=self._include_details)

    def failed(self, place: int, envelope: bytes, reason: Ending) -> bytes:
        """Return the last event of an answer that failed: a chunk with the reason, and the error's object in it."""
        return self._last(place, reason) + b"," + envelope.removeprefix(b"{") + b"\n\n"

    def _opening(self, place: int) -> bytes:
        if place in self._opened:
            return b""
        self._opened.add(place)
        return self._start(place) + b'"role":"assistant","content":""' + self._after_text

    def _text(self, place: int, text: str, logprobs: Sequence[TokenLogprobs]) -> bytes:
        body = self._start(place) + b'"content":' + self._encoder.encode(text)
        if not logprobs:
            return body + self._after_text
        return body + b'},"logprobs":' + self._encoder.encode(logprobs_body(logprobs)) + self._after_logprobs

    def _end(self, place: int, finished: Finished) -> bytes:
        self._finished[place] = finished
        last = self._last(place, finished.reason)
        if not self.complete:
            return last + self._usage_null + b"}\n\n"
        first = self._finished[0]
        timings = b',"timings":' + self._encoder.encode(first.timings)
        if self._include_details:
            timings += b',"details":' + self._encoder.encode(first.details)
        if not self._include_usage:
            return last + timings + b"}\n\n" + DONE
        usages = [self._finished[place].usage for place in range(self._answers)]
        usage = self._encoder.encode(usage_body(usages, self._answers))
        return last + self._usage_null + b"}\n\n" + self._head + b'],"usage":' + usage + timings + b"}\n\n" + DONE

    def _start(self, place: int) -> bytes:
        return self._head + b'{"index":%d,"delta":{' % place

    def _last(self, place: int, reason: Ending) -> bytes:
        return self._start(place) + b'},"logprobs":null,"finish_reason":' + self._encoder.encode(reason) + b"}]"
