"""The bodies of /v1/chat/completions. Fields are always written out: strict clients need `finish_reason: null`.

Events of a stream share everything but the text, so a stream renders its constant bytes once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from console.api.openai.chunks import ChoiceStream
from console.api.openai.shapes import Answered, Identity, UsageBody, usage_body
from console.api.openai.speech import CallArguments, CallBegins, Content, Part, SpeechReader, Thought
from console.api.openai.tools import CalledFunction, ToolCall
from console.pipeline.types import Finished, FinishReason, ScoredToken, Text, Timings, TokenLogprobs

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
    """What the model said; thoughts and calls are there only if there are any."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChoiceBody(msgspec.Struct, frozen=True):
    """One answer."""

    index: int
    message: MessageBody
    logprobs: LogprobsBody | None
    finish_reason: FinishReason | Literal["tool_calls"]


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


def chat_body(
    identity: Identity, answered: Sequence[Answered], *, reader: Callable[[], SpeechReader], logprobs: bool
) -> ChatBody:
    """Return the body of whole answers to one prompt; `logprobs` says whether they were asked for."""
    choices = []
    for place, answer in enumerate(answered):
        speech = reader()
        message = message_body([*speech.push(answer.text), *speech.flush()])
        scores = logprobs_body(answer.logprobs) if logprobs else None
        choices.append(ChoiceBody(place, message, scores, finish_reason(answer.finished, speech)))
    return ChatBody(
        id=identity.answer_id,
        created=identity.created_s,
        model=identity.model_id,
        choices=choices,
        usage=usage_body([answer.finished.usage for answer in answered], len(answered)),
        timings=answered[0].finished.timings,
    )


def message_body(parts: Sequence[Part]) -> MessageBody:
    """Join the parts of a whole answer."""
    content = "".join(part.text for part in parts if isinstance(part, Content))
    thoughts = "".join(part.text for part in parts if isinstance(part, Thought))
    calls = []
    for begun in parts:
        if isinstance(begun, CallBegins):
            pieces = [part.text for part in parts if isinstance(part, CallArguments) and part.call == begun.call]
            calls.append(ToolCall(new_call_id(), CalledFunction(begun.name, "".join(pieces))))
    return MessageBody(
        content if content or not calls else None,
        reasoning_content=thoughts or msgspec.UNSET,
        tool_calls=calls or msgspec.UNSET,
    )


def finish_reason(finished: Finished, speech: SpeechReader) -> FinishReason | Literal["tool_calls"]:
    """Say how an answer ended: one that calls tools ends for them to be called."""
    return "tool_calls" if speech.called and finished.reason == "stop" else finished.reason


def new_call_id() -> str:
    """Name a call, so that its result can be told from others."""
    return f"call_{secrets.token_hex(12)}"


class ChunkWriter(ChoiceStream):
    """Renders the events of a chat; the first of each answer says whose it is."""

    def __init__(
        self,
        identity: Identity,
        *,
        answers: int = 1,
        include_usage: bool = False,
        include_details: bool = False,
        reader: Callable[[], SpeechReader] = SpeechReader,
    ) -> None:
        """`reader` parts what an answer says."""
        super().__init__(
            identity, "chat.completion.chunk",
            answers=answers, include_usage=include_usage, include_details=include_details,
        )  # fmt: skip
        self._speech = [reader() for _ in range(answers)]
        self._opened: set[int] = set()
        self._after_logprobs = b',"finish_reason":null}]' + self._usage_null + b"}\n\n"
        self._after_text = b'},"logprobs":null' + self._after_logprobs

    def _opening(self, place: int) -> bytes:
        if place in self._opened:
            return b""
        self._opened.add(place)
        return self._start(place) + b'"role":"assistant","content":""' + self._after_text

    def _text(self, place: int, event: Text) -> bytes:
        parts = self._speech[place].push(event.text)
        return self._parts(place, parts or [Content("")], event.logprobs) if parts or event.logprobs else b""

    def _left(self, place: int) -> bytes:
        return self._parts(place, self._speech[place].flush())

    def _reason(self, place: int, finished: Finished) -> str:
        return finish_reason(finished, self._speech[place])

    def _parts(self, place: int, parts: Sequence[Part], logprobs: Sequence[TokenLogprobs] = ()) -> bytes:
        """Render an event for each part; the first of them carries the log-probabilities."""
        events = []
        for part in parts:
            body = self._start(place) + self._delta(part)
            if logprobs:
                body += b'},"logprobs":' + self._encoder.encode(logprobs_body(logprobs)) + self._after_logprobs
                logprobs = ()
            else:
                body += self._after_text
            events.append(body)
        return b"".join(events)

    def _delta(self, part: Part) -> bytes:
        encode = self._encoder.encode
        if isinstance(part, Content):
            return b'"content":' + encode(part.text)
        if isinstance(part, Thought):
            return b'"reasoning_content":' + encode(part.text)
        if isinstance(part, CallBegins):
            call = ToolCall(new_call_id(), CalledFunction(part.name, ""))
            return b'"tool_calls":[{"index":%d,' % part.call + encode(call).removeprefix(b"{") + b"]"
        return b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (part.call, encode(part.text))

    def _start(self, place: int) -> bytes:
        return self._head + b'{"index":%d,"delta":{' % place

    def _last(self, place: int, reason: str) -> bytes:
        return self._start(place) + b'},"logprobs":null,"finish_reason":' + self._encoder.encode(reason) + b"}]"
