"""What a client may ask of /v1/chat/completions, checked before anything runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from console.api.openai.formats import ResponseFormat
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
from console.api.openai.tools import (
    MAX_TOOLS,
    CallPlan,
    Tool,
    ToolCall,
    ToolChoice,
    plan_calls,
    refuse_unknown_results,
)

MAX_MESSAGES = 10_000
MAX_TOP_LOGPROBS = 20


class TextPart(msgspec.Struct, frozen=True):
    """A text piece of a message, which may leave out that it is one; other kinds of parts are refused."""

    text: str
    type: Literal["text"] = "text"


class Message(msgspec.Struct, frozen=True):
    """One turn of the chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    def plain(self, where: str) -> dict[str, Any]:
        """Return what chat templates take: `developer` is `system`, parts are joined. Raises ApiError 400."""
        role = "system" if self.role == "developer" else self.role
        if self.content is None and not self.tool_calls:
            raise wrong(f"{where}.content", f"The parameter '{where}.content' is missing.")
        text = "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""
        plain: dict[str, Any] = {"role": role, "content": text}
        if role == "tool":
            if self.tool_call_id is None:
                raise wrong(f"{where}.tool_call_id", f"The parameter '{where}.tool_call_id' is missing.")
            plain["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            if role != "assistant":
                raise wrong(f"{where}.tool_calls", f"The parameter '{where}.tool_calls' is only for the assistant.")
            calls = enumerate(self.tool_calls)
            plain["tool_calls"] = [call.plain(f"{where}.tool_calls[{place}]") for place, call in calls]
        return plain


class ChatRequest(TextRequest, frozen=True, kw_only=True):
    """The supported parameters of a chat; ranges are OpenAI's."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens an answer has at most; None: as many as fit."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def wanted_logprobs(self) -> int:
        """How many likeliest tokens to tell beside each sampled one; -1: no log-probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else -1

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema the answer keeps to; None: it may be any text. Raises ApiError 400."""
        return self.response_format.schema if self.response_format is not None else None

    @property
    def calls(self) -> CallPlan:
        """What of the tools an answer may or must call. Raises ApiError 400."""
        several = self.parallel_tool_calls is not False
        return plan_calls(self.tools or [], self.tool_choice if self.tools else None, several=several)

    def plain_messages(self) -> list[dict[str, Any]]:
        """Return the conversation as chat templates take it. Raises ApiError 400."""
        plain = [message.plain(f"messages[{place}]") for place, message in enumerate(self.messages)]
        refuse_unknown_results(plain)
        return plain


CHAT_REFUSALS: Refusals = UNSUPPORTED | {
    "best_of": one_of(1),
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
    calls = request.calls
    if request.tool_choice not in {None, "none", "auto"} and not calls.tools:
        raise wrong("tool_choice", "The parameter 'tool_choice' is only allowed with 'tools'.")
    if request.ignore_eos and (request.schema is not None or calls.tools):
        message = "The parameter 'ignore_eos' is not allowed with 'response_format' or 'tools': they say how it ends."
        raise wrong("ignore_eos", message)
    return request


def refuse_foreign_content(messages: object) -> None:
    """Name the message that carries a picture, a sound or a file: only text is understood."""
    if not isinstance(messages, list):
        return
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        if message.get("role") == "function":
            _refuse_message(index, "the result of a function, which is now that of a tool")
        parts = message.get("content")
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and part.get("type", "text") != "text":
                _refuse_message(index, f"content of type {str(part['type'])[:40]!r}")


def _refuse_message(index: int, what: str) -> None:
    message = f"Message {index} holds {what}, which this model does not take; send text only."
    raise wrong(f"messages[{index}]", message, code="unsupported_content")
