"""The bodies of answers. Fields are always written out: strict clients need `finish_reason: null` to be there.

Events of a stream share everything but the text, so a stream renders its constant bytes once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from console.pipeline.types import (
    Ending,
    Finished,
    Reading,
    Recovering,
    ScoredToken,
    TokenLogprobs,
    Usage,
    Waiting,
)

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": waiting\n\n"
QUEUED = b": waiting, %d ahead\n\n"
"""A comment of the stream while no place is free: clients that do not know it skip it."""
RECOVERING = ": recovering, %s\n\n"
"""A comment while PCs are replaced; the answer goes on where it is."""
READING = b": reading, %d of %d tokens\n\n"
"""A comment while a long prompt is read, for who asked for details."""
LEAST_LOGPROB = -9999.0
"""What OpenAI writes for a token that is as good as impossible; JSON has no infinity."""


def usage_object(usage: Usage) -> dict[str, object]:
    """Return OpenAI's usage object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def logprobs_object(logprobs: Sequence[TokenLogprobs]) -> dict[str, object]:
    """Return OpenAI's logprobs object: log-softmax of the model's own logits, whatever sampling made of them."""
    content = [_scored(entry.chosen) | {"top_logprobs": [_scored(token) for token in entry.top]} for entry in logprobs]
    return {"content": content, "refusal": None}


def _scored(token: ScoredToken) -> dict[str, object]:
    logprob = max(LEAST_LOGPROB, token.logprob)
    return {"token": token.data.decode(errors="replace"), "logprob": logprob, "bytes": list(token.data)}


def completion(
    answer_id: str,
    created_s: int,
    model_id: str,
    text: str,
    finished: Finished,
    *,
    logprobs: Sequence[TokenLogprobs] | None = None,
) -> dict[str, object]:
    """Return the body of a whole answer; `logprobs` None means not asked for. `timings` (ms) is an extension."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": None if logprobs is None else logprobs_object(logprobs),
        "finish_reason": finished.reason,
    }
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created_s,
        "model": model_id,
        "choices": [choice],
        "usage": usage_object(finished.usage),
        "timings": finished.timings,
    }


class ChunkWriter:
    """Renders the events of one stream: same id, time and model on each; `usage: null` only when usage was asked."""

    def __init__(
        self, answer_id: str, created_s: int, model_id: str, *, include_usage: bool, include_details: bool = False
    ) -> None:
        """`include_details` says that who asks wants to know how the answer comes about: an extension."""
        encode = msgspec.json.encode
        self.include_details = include_details
        self._include_usage = include_usage
        self._encoder = msgspec.json.Encoder()
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (encode(answer_id), created_s, encode(model_id))
        )  # fmt: skip
        self._usage_null = b',"usage":null' if include_usage else b""
        self._before_text = self._head + b'{"index":0,"delta":{"content":'
        self._after_logprobs = b',"finish_reason":null}]' + self._usage_null + b"}\n\n"
        self._after_text = b'},"logprobs":null' + self._after_logprobs

    def role(self) -> bytes:
        """Return the first event."""
        delta = b'{"index":0,"delta":{"role":"assistant","content":""'
        return self._head + delta + self._after_text

    def text(self, text: str, logprobs: Sequence[TokenLogprobs] = ()) -> bytes:
        """Return the event of a piece of text."""
        body = self._before_text + self._encoder.encode(text)
        if not logprobs:
            return body + self._after_text
        return body + b'},"logprobs":' + self._encoder.encode(logprobs_object(logprobs)) + self._after_logprobs

    def note(self, event: Waiting | Reading | Recovering) -> bytes:
        """Return the comment that tells what goes on; empty when nobody asked for it."""
        if isinstance(event, Waiting):
            return QUEUED % event.ahead
        if isinstance(event, Reading):
            return READING % (event.done, event.total) if self.include_details else b""
        return (RECOVERING % " ".join(event.reason.split())).encode()

    def failed(self, envelope: bytes, reason: Ending) -> bytes:
        """Return the last event of an answer that failed: a chunk with the reason, and the error's object in it."""
        choice = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":' + self._encoder.encode(reason) + b"}],"
        return self._head + choice + envelope.removeprefix(b"{") + b"\n\n"

    def end(self, finished: Finished) -> bytes:
        """Return the last events: finish reason, usage when asked, end mark. The last chunk carries `timings`.

        Where they were asked for, it carries `details` as well.
        """
        details = b',"details":' + self._encoder.encode(finished.details) if self.include_details else b""
        timings = b',"timings":' + self._encoder.encode(finished.timings) + details + b"}\n\n"
        reason = self._encoder.encode(finished.reason)
        last = self._head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":' + reason + b"}]"
        if not self._include_usage:
            return last + timings + DONE
        usage = self._head + b'],"usage":' + self._encoder.encode(usage_object(finished.usage)) + timings
        return last + self._usage_null + b"}\n\n" + usage + DONE
