"""What is told of an answer in a trace: numbers, names and codes, never a word of the prompt or the answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from console.pipeline.ended import EndedAnswer
from console.telemetry.tracing import TracedRequest

Value = str | int | float | list[str]
NANO = 1_000_000_000
_OPERATIONS: Mapping[str, Mapping[str, Value]] = {
    "/v1/chat/completions": {"gen_ai.operation.name": "chat", "openai.api.type": "chat_completions"},
    "/v1/completions": {"gen_ai.operation.name": "text_completion"},
    # The conventions know no operation of this name: a response is a turn of a conversation.
    "/v1/responses": {"gen_ai.operation.name": "chat", "openai.api.type": "responses"},
}
"""By route, the names that the conventions for OpenAI's API have for what is asked."""


class Span(NamedTuple):
    """A part of an answer's life, in nanoseconds of Unix time."""

    name: str
    from_ns: int
    to_ns: int
    attributes: Mapping[str, Value]


def request_attributes(request: TracedRequest) -> dict[str, Value]:
    """Say what is asked; names as OpenTelemetry's conventions for HTTP and generative AI have them, others are ours."""
    return {
        "http.request.method": request.method,
        "http.route": request.route,
        "gen_ai.provider.name": "fallow",
        "gen_ai.request.model": request.model,
        "fallow.request_id": request.request_id,
        **_OPERATIONS.get(request.route, {}),
        **({"gen_ai.request.choice.count": request.answers} if request.answers != 1 else {}),
    }


def phase_spans(ended: EndedAnswer, place: int, now_ns: int) -> list[Span]:
    """Return the phases of an answer that was asked for `ended.age_s` ago; it is its request's answer `place`."""
    accepted_ns = now_ns - round(ended.age_s * NANO)
    return [
        Span(
            phase.name,
            accepted_ns + round(phase.from_s * NANO),
            accepted_ns + round(phase.to_s * NANO),
            {"fallow.answer": place} | (_decode_attributes(ended) if phase.name == "decode" else {}),
        )
        for phase in ended.phases
    ]


def _decode_attributes(ended: EndedAnswer) -> dict[str, Value]:
    parts, details = ended.timings.parts, ended.details
    return {
        "fallow.pcs": list(details.pcs),
        "fallow.compute_ms": parts.compute_ms,
        "fallow.turn_ms": parts.turn_ms,
        "fallow.link_ms": parts.link_ms,
        "fallow.waiting_ms": parts.waiting_ms,
        "fallow.sampling_ms": parts.sampling_ms,
        "fallow.guessing_ms": parts.guessing_ms,
        "fallow.drafted_tokens": details.drafted,
        "fallow.accepted_tokens": details.accepted,
    }


def answer_attributes(ended: EndedAnswer) -> dict[str, Value]:
    """Say what an answer took, for the span of its request."""
    return {
        "gen_ai.usage.input_tokens": ended.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": ended.usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": ended.usage.cached_tokens,
        "fallow.first_token_ms": ended.timings.first_token_ms,
        "fallow.slowest": ended.details.slowest,
    }
