"""The bodies and events of /v1/responses. The one output item is a message with one text part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from console.api.http import ErrorEnvelope
from console.api.openai.response_requests import ResponsesRequest
from console.api.openai.shapes import Answered, Identity, note
from console.api.openai.speech import Content, Part, SpeechReader
from console.pipeline.types import Details, Ending, Finished, Reading, Recovering, Text, Timings, Usage, Waiting

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputPart(msgspec.Struct, frozen=True):
    """The text of an answer."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: list[str] = []
    logprobs: list[str] = []


class OutputMessage(msgspec.Struct, frozen=True):
    """What the model said."""

    id: str
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputPart]
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"


class ResponseUsage(msgspec.Struct, frozen=True):
    """OpenAI's usage object of this endpoint."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why an answer ended before the model ended it."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(msgspec.Struct, frozen=True):
    """Why there is no complete answer; OpenAI's own codes."""

    message: str
    code: Literal["server_error", "rate_limit_exceeded"] = "server_error"


class PlainText(msgspec.Struct, frozen=True):
    """The only format of an answer."""

    type: Literal["text"] = "text"


class TextConfig(msgspec.Struct, frozen=True):
    """How an answer is written."""

    format: PlainText = PlainText()


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A response. Nothing is stored, so it cannot be asked for again.

    Extensions: `timings` (ms) of one that is complete; `details`, of a stream that was asked for them.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    background: Literal[False] = False
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    temperature: float
    text: TextConfig = TextConfig()
    tool_choice: Literal["none"] = "none"
    tools: list[str] = []
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: None = None
    timings: Timings | msgspec.UnsetType = msgspec.UNSET
    details: Details | msgspec.UnsetType = msgspec.UNSET


def response_usage(usage: Usage) -> ResponseUsage:
    """Return OpenAI's usage object of this endpoint."""
    return ResponseUsage(
        usage.prompt_tokens,
        {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        usage.completion_tokens,
        {"reasoning_tokens": 0},
        usage.prompt_tokens + usage.completion_tokens,
    )


def response_body(
    identity: Identity,
    asked: ResponsesRequest,
    status: Status = "in_progress",
    output: list[OutputMessage] | None = None,
    *,
    finished: Finished | None = None,
    error: ResponseFailure | None = None,
) -> ResponseBody:
    """Return a response as it is at some time of its life."""
    return ResponseBody(
        id=identity.answer_id,
        created_at=identity.created_s,
        status=status,
        error=error,
        incomplete_details=IncompleteDetails() if status == "incomplete" else None,
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        metadata=asked.metadata or {},
        model=identity.model_id,
        output=output or [],
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        usage=None if finished is None else response_usage(finished.usage),
        timings=msgspec.UNSET if finished is None else finished.timings,
        details=finished.details if finished is not None and asked.stream and asked.include_details else msgspec.UNSET,
    )


def whole_response(
    identity: Identity, asked: ResponsesRequest, answered: Sequence[Answered], *, reader: Callable[[], SpeechReader]
) -> ResponseBody:
    """Return the body of a complete answer; `reader` parts its text from what the model wrote for itself."""
    (answer,) = answered
    speech = reader()
    return _ended(identity, asked, _spoken([*speech.push(answer.text), *speech.flush()]), answer.finished)


def _spoken(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Content))


def _ended(identity: Identity, asked: ResponsesRequest, text: str, finished: Finished) -> ResponseBody:
    status: Literal["completed", "incomplete"] = "incomplete" if finished.reason == "length" else "completed"
    message = OutputMessage(item_id(identity), status, [OutputPart(text)])
    return response_body(identity, asked, status, [message], finished=finished)


def item_id(identity: Identity) -> str:
    """Return the id of a response's one output item."""
    return "msg_" + identity.answer_id.rpartition("_")[2]


class ResponseWriter:
    """Renders the typed events of one response. Keeps state, does no I/O."""

    def __init__(self, identity: Identity, asked: ResponsesRequest, speech: SpeechReader) -> None:
        """`speech` parts the answer's text from what the model wrote for itself."""
        self._speech = speech
        self._identity = identity
        self._asked = asked
        self._texts: list[str] = []
        self._number = 0
        self._encoder = msgspec.json.Encoder()
        self.complete = False
        """Whether the answer has ended and the end of the stream was rendered."""

    def render(self, place: int, event: Text | Waiting | Reading | Recovering | Finished) -> bytes:
        """Return what an event becomes: the opening events before the first text, a delta, the closing ones."""
        if isinstance(event, Text):
            return self._delta(_spoken(self._speech.push(event.text)))
        if isinstance(event, Finished):
            return self._delta(_spoken(self._speech.flush())) + self._opening() + self._end(event)
        return note(event, details=self._asked.include_details)

    def failed(self, place: int, envelope: bytes, reason: Ending) -> bytes:
        """Return the last events: the error, also as an object of its own that makes SDKs raise, and the response."""
        error = msgspec.json.decode(envelope, type=ErrorEnvelope).error
        told = self._event("error", code=error.code, message=error.message, param=error.param, error=error)
        status: Status = "cancelled" if reason == "cancelled" else "failed"
        output = [OutputMessage(item_id(self._identity), "incomplete", [OutputPart("".join(self._texts))])]
        failure = ResponseFailure(
            error.message, "rate_limit_exceeded" if error.type == "rate_limit_error" else "server_error"
        )
        body = response_body(self._identity, self._asked, status, output if self._texts else [], error=failure)
        return told + self._event("response.failed", response=body)

    def _opening(self) -> bytes:
        if self._number:
            return b""
        begun = response_body(self._identity, self._asked)
        item = OutputMessage(item_id(self._identity), "in_progress", [])
        return (
            self._event("response.created", response=begun)
            + self._event("response.in_progress", response=begun)
            + self._event("response.output_item.added", output_index=0, item=item)
            + self._in_part("response.content_part.added", part=OutputPart(""))
        )

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        opening = self._opening()
        self._texts.append(text)
        return opening + self._in_part("response.output_text.delta", delta=text, logprobs=[])

    def _end(self, finished: Finished) -> bytes:
        self.complete = True
        text = "".join(self._texts)
        body = _ended(self._identity, self._asked, text, finished)
        return (
            self._in_part("response.output_text.done", text=text, logprobs=[])
            + self._in_part("response.content_part.done", part=OutputPart(text))
            + self._event("response.output_item.done", output_index=0, item=body.output[0])
            + self._event(f"response.{body.status}", response=body)
        )

    def _in_part(self, kind: str, **fields: object) -> bytes:
        return self._event(kind, item_id=item_id(self._identity), output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        data = self._encoder.encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
