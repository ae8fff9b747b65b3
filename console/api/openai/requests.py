"""What a client may ask of /v1/chat/completions, checked before anything runs.

A parameter that would change the answer and is not supported is refused by name, never silently ignored; a value of
it that asks for nothing (`n: 1`, `tools: []`) is fine. Fields nobody here has heard of are accepted with a log line.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from agent.stage.types import Sampling
from console.api.http import ApiError, convert

log = logging.getLogger(__name__)

MAX_MESSAGES = 10_000
MAX_STOP_CHARACTERS = 256
MAX_BIASED_TOKENS = 1024
MAX_BIAS = 100.0
MAX_TOP_LOGPROBS = 20
_SEED_BITS = 64
_TOKEN_ID = re.compile("[0-9]{1,9}")


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A text piece of a message; other kinds of parts are refused."""

    text: str


class Message(msgspec.Struct, frozen=True):
    """One turn of the chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def plain(self) -> dict[str, str]:
        """Return what chat templates take: `developer` is `system`, parts are joined."""
        role = "system" if self.role == "developer" else self.role
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": role, "content": text}


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries beside text.

    `include_details` is an extension: how far a long prompt is read, in comments, and at the end which PCs answered.
    """

    include_usage: bool | None = None
    include_details: bool | None = None


StopText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class ChatRequest(msgspec.Struct, frozen=True):
    """The supported parameters; ranges are OpenAI's.

    `top_k`, `min_p`, `repetition_penalty` and `ignore_eos` are extensions.
    """

    model: str
    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    seed: int | None = None
    stop: StopText | Annotated[list[StopText], msgspec.Meta(max_length=4)] | None = None
    ignore_eos: bool | None = None

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens at most; None: as many as fit."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def plain_messages(self) -> list[dict[str, str]]:
        return [message.plain() for message in self.messages]

    def sampling(self) -> Sampling:
        """Return how the tail samples: temperature 1 and a random seed unless asked otherwise."""
        temperature = 1.0 if self.temperature is None else self.temperature
        top_p = 1.0 if self.top_p is None else self.top_p
        asked = Sampling(
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items() if bias},
            logprobs=(self.top_logprobs or 0) if self.logprobs else -1,
        )
        if temperature == 0 or top_p == 0:
            return asked
        seed = secrets.randbits(_SEED_BITS - 1) if self.seed is None else self.seed % (1 << _SEED_BITS)
        return msgspec.structs.replace(
            asked, temperature=temperature, top_k=max(0, self.top_k or 0), top_p=top_p, min_p=self.min_p or 0.0,
            seed=seed,
        )  # fmt: skip


def _empty(value: object) -> bool:
    return value in (None, False, 0, "", [], {})


def _one_of(*neutral: object) -> Callable[[object], bool]:
    return lambda value: value is None or value in neutral


_UNSUPPORTED: dict[str, Callable[[object], bool]] = {
    "n": _one_of(1),
    "best_of": _one_of(1),
    "tools": _empty,
    "tool_choice": _one_of("none", "auto"),
    "functions": _empty,
    "function_call": _one_of("none", "auto"),
    "prompt_logprobs": _empty,
    "response_format": _one_of({"type": "text"}),
    "audio": _empty,
    "modalities": _one_of(["text"], []),
    "prediction": _empty,
    "web_search_options": _one_of(),
    "use_beam_search": _empty,
    "length_penalty": _one_of(1),
    "min_tokens": _empty,
    "stop_token_ids": _empty,
    "echo": _empty,
    "suffix": _empty,
    "add_generation_prompt": _one_of(True),
    "continue_final_message": _empty,
    "chat_template": _empty,
    "chat_template_kwargs": _empty,
    "documents": _empty,
    "structured_outputs": _empty,
    "guided_json": _empty,
    "guided_regex": _empty,
    "guided_choice": _empty,
    "guided_grammar": _empty,
    "grammar": _empty,
    "json_schema": _empty,
}
"""Parameters that would change the answer, each with the test for values that ask for nothing."""

_HARMLESS = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls",
    "reasoning_effort", "verbosity",
})  # fmt: skip
"""Known parameters that do not change what a text answer here would be."""


def parse_chat(raw: dict[str, Any]) -> ChatRequest:
    """Check a request. Raises ApiError 400 naming the parameter."""
    for name, asks_nothing in _UNSUPPORTED.items():
        if name in raw and not asks_nothing(raw[name]):
            message = f"The parameter {name!r} is not supported with this value; leave it out."
            raise ApiError(400, message, param=name, code="unsupported_parameter")
    _refuse_foreign_content(raw.get("messages"))
    _refuse_bias(raw.get("logit_bias"))
    request = convert(raw, ChatRequest)
    if request.top_logprobs and not request.logprobs:
        message = "The parameter 'top_logprobs' is only allowed when 'logprobs' is true."
        raise ApiError(400, message, param="top_logprobs", code="invalid_value")
    if request.stream_options is not None and not request.stream:
        message = "The parameter 'stream_options' is only allowed when 'stream' is true."
        raise ApiError(400, message, param="stream_options", code="invalid_value")
    if unknown := raw.keys() - _KNOWN:
        log.info("Ignored unknown request fields: %s", ", ".join(sorted(repr(name)[:64] for name in unknown)[:16]))
    return request


_KNOWN = frozenset(ChatRequest.__struct_fields__) | _UNSUPPORTED.keys() | _HARMLESS


def _refuse_bias(bias: object) -> None:
    """Check what types alone cannot say, under the parameter's own name; whether an id exists the model says."""
    if not isinstance(bias, dict):
        return
    if len(bias) > MAX_BIASED_TOKENS:
        wrong = f"it has {len(bias)} entries and {MAX_BIASED_TOKENS} are allowed"
    elif not all(_TOKEN_ID.fullmatch(token) for token in bias):
        wrong = "its keys must be token ids of this model, as decimal numbers"
    elif not all(type(value) in {int, float} and abs(value) <= MAX_BIAS for value in bias.values()):
        wrong = f"its values must be numbers from -{MAX_BIAS:.0f} to {MAX_BIAS:.0f}"
    elif len({int(token) for token in bias}) != len(bias):
        wrong = "it names a token id twice"
    else:
        return
    raise ApiError(400, f"The parameter 'logit_bias' is wrong: {wrong}.", param="logit_bias", code="invalid_value")


def _refuse_foreign_content(messages: object) -> None:
    """Name the message that carries a picture, a sound, a file or a tool call: only text is understood."""
    if not isinstance(messages, list):
        return
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        if not _empty(message.get("tool_calls")) or message.get("role") in {"tool", "function"}:
            _refuse_message(index, "tool calls")
        parts = message.get("content")
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and part.get("type", "text") != "text":
                _refuse_message(index, f"content of type {str(part['type'])[:40]!r}")


def _refuse_message(index: int, what: str) -> None:
    message = f"Message {index} holds {what}, which this model does not take; send text only."
    raise ApiError(400, message, param=f"messages[{index}]", code="unsupported_content")
