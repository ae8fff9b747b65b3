"""What a client may ask of /v1/responses: text for text. Everything else is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from console.api.http import convert
from console.api.openai.parameters import (
    AnyRequest,
    IgnoredFields,
    Positive,
    Refusals,
    is_empty,
    one_of,
    refuse,
    unsupported,
    wrong,
)
from console.api.openai.requests import MAX_MESSAGES, Message


class InputText(msgspec.Struct, frozen=True, tag="input_text"):
    """A text piece of what somebody says to the model."""

    text: str


class OutputText(msgspec.Struct, frozen=True, tag="output_text"):
    """A text piece of what the model said before."""

    text: str


class InputMessage(msgspec.Struct, frozen=True):
    """One turn; also an output item of an earlier response, whose `id` and `status` do not matter here."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[InputText | OutputText]
    type: Literal["message"] = "message"

    def plain(self, where: str) -> dict[str, Any]:
        """Return what chat templates take: parts are joined. `where` names the item in errors."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return Message(self.role, text).plain(where)


class ResponseStreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries beside text; `include_details` is an extension, as of the other endpoints."""

    include_obfuscation: bool | None = None
    include_details: bool | None = None


class ResponsesRequest(AnyRequest, frozen=True, kw_only=True):
    """The supported parameters. `metadata` comes back as it was sent; nothing is stored, whatever `store` says."""

    input: str | Annotated[list[InputMessage], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    stream_options: ResponseStreamOptions | None = None

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens the answer has at most; None: as many as fit."""
        return self.max_output_tokens

    @property
    def include_details(self) -> bool:
        """Whether a stream tells how its answer comes about."""
        return self.stream_options is not None and bool(self.stream_options.include_details)

    def plain_messages(self) -> list[dict[str, Any]]:
        """Return the conversation, the instructions first."""
        said = [{"role": "system", "content": self.instructions}] if self.instructions else []
        if isinstance(self.input, str):
            return [*said, {"role": "user", "content": self.input}]
        return said + [message.plain(f"input[{place}]") for place, message in enumerate(self.input)]


def _asks_for_details_only(value: object) -> bool:
    fields = ResponseStreamOptions.__struct_fields__
    return value is None or (
        isinstance(value, dict) and value.keys() <= {*fields} and is_empty(value.get("include_obfuscation"))
    )


RESPONSES_REFUSALS: Refusals = {
    "background": is_empty,
    "conversation": is_empty,
    "include": is_empty,
    "max_tool_calls": one_of(),
    "previous_response_id": is_empty,
    "prompt": is_empty,
    "reasoning": is_empty,
    "stream_options": _asks_for_details_only,
    "text": one_of({}, {"format": {"type": "text"}}),
    "tool_choice": one_of("none", "auto"),
    "tools": is_empty,
    "top_logprobs": is_empty,
    "truncation": one_of("disabled"),
}
_HARMLESS = frozenset({
    "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user",
})  # fmt: skip
"""Known parameters that do not change what a text answer here would be."""
_PARTS = ("input_text", "output_text")


def parse_responses(raw: dict[str, Any], ignored: IgnoredFields) -> ResponsesRequest:
    """Check a request. Raises ApiError 400 naming the parameter."""
    refuse(raw, RESPONSES_REFUSALS)
    for name in raw:
        if name not in ResponsesRequest.__struct_fields__ and name not in _HARMLESS | RESPONSES_REFUSALS.keys():
            raise unsupported(name)
    _refuse_items(raw.get("input"))
    ignored.tell(raw.keys() & _HARMLESS)
    asked = convert(raw, ResponsesRequest)
    if asked.include_details and not asked.stream:
        raise wrong("stream_options", "Details of an answer are only told in a stream: set 'stream' to true.")
    return asked


def _refuse_items(items: object) -> None:
    """Name the item that is no message, or whose content is no text."""
    for index, item in enumerate(items if isinstance(items, list) else []):
        if not isinstance(item, dict):
            continue
        kind, parts = item.get("type", "message"), item.get("content")
        if kind == "message" and isinstance(parts, list):
            kinds = [part.get("type") for part in parts if isinstance(part, dict)]
            kind = next((other for other in kinds if other not in _PARTS), "message")
        if kind != "message":
            message = f"Input item {index} holds {str(kind)[:40]!r}, which this model does not take; send text only."
            raise wrong(f"input[{index}]", message, code="unsupported_content")
