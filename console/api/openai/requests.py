"""What a client may ask of /v1/chat/completions, checked before anything runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from console.api.openai.formats import ResponseFormat, json_grammar
from console.api.openai.parameters import (
    UNSUPPORTED,
    IgnoredFields,
    Positive,
    Refusals,
    TextRequest,
    is_empty,
    one_of,
    parse,
    wrong,
)

MAX_MESSAGES = 10_000
MAX_TOP_LOGPROBS = 20


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


class ChatRequest(TextRequest, frozen=True, kw_only=True):
    """The supported parameters of a chat; ranges are OpenAI's."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens an answer has at most; None: as many as fit."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def wanted_logprobs(self) -> int:
        """How many likeliest tokens to tell beside each sampled one; -1: no log-probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else -1

    @property
    def grammar(self) -> str:
        """What an answer must be, as the last stage reads it; empty: any text. Raises ApiError 400."""
        schema = self.response_format.schema if self.response_format is not None else None
        return "" if schema is None else json_grammar(schema)

    def plain_messages(self) -> list[dict[str, str]]:
        return [message.plain() for message in self.messages]


CHAT_REFUSALS: Refusals = UNSUPPORTED | {
    "best_of": one_of(1),
    "tools": is_empty,
    "tool_choice": one_of("none", "auto"),
    "functions": is_empty,
    "function_call": one_of("none", "auto"),
    "audio": is_empty,
    "modalities": one_of(["text"], []),
    "prediction": is_empty,
    "web_search_options": one_of(),
    "echo": is_empty,
    "suffix": is_empty,
    "add_generation_prompt": one_of(True),
    "continue_final_message": is_empty,
    "chat_template": is_empty,
    "chat_template_kwargs": is_empty,
    "documents": is_empty,
}


def parse_chat(raw: dict[str, Any], ignored: IgnoredFields) -> ChatRequest:
    """Check a request. Raises ApiError 400 naming the parameter."""
    refuse_foreign_content(raw.get("messages"))
    request = parse(raw, ChatRequest, CHAT_REFUSALS, ignored)
    if request.top_logprobs and not request.logprobs:
        raise wrong("top_logprobs", "The parameter 'top_logprobs' is only allowed when 'logprobs' is true.")
    if request.ignore_eos and request.grammar:
        message = "The parameter 'ignore_eos' is not allowed with 'response_format': the answer ends with the format."
        raise wrong("ignore_eos", message)
    return request


def refuse_foreign_content(messages: object) -> None:
    """Name the message that carries a picture, a sound, a file or a tool call: only text is understood."""
    if not isinstance(messages, list):
        return
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        if not is_empty(message.get("tool_calls")) or message.get("role") in {"tool", "function"}:
            _refuse_message(index, "tool calls")
        parts = message.get("content")
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and part.get("type", "text") != "text":
                _refuse_message(index, f"content of type {str(part['type'])[:40]!r}")


def _refuse_message(index: int, what: str) -> None:
    message = f"Message {index} holds {what}, which this model does not take; send text only."
    raise wrong(f"messages[{index}]", message, code="unsupported_content")
