"""Holds bodies against the openai SDK's models, which are generated from OpenAI's public specification.

Stricter than the SDK is: types are not converted, fields that a model does not declare are refused, and what the
specification requires but the SDK lets be absent must be there. Extensions of ours are named by who asks.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, TypeAdapter

REQUIRED: dict[str, tuple[str, ...]] = {
    "chat.completion": ("id", "choices", "created", "model", "object"),
    "chat.completion.chunk": ("id", "choices", "created", "model", "object"),
    "text_completion": ("id", "choices", "created", "model", "object"),
    "response": (
        "id", "object", "created_at", "error", "incomplete_details", "instructions", "metadata", "model", "output",
        "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p",
    ),
}  # fmt: skip
CHOICE: dict[str, tuple[str, ...]] = {
    "chat.completion": ("finish_reason", "index", "message", "logprobs"),
    "chat.completion.chunk": ("delta", "finish_reason", "index"),
    "text_completion": ("finish_reason", "index", "logprobs", "text"),
}
"""By the `object` of a body, what each of its choices must have."""


def check(model: type[BaseModel] | TypeAdapter[Any], body: dict[str, Any], *, extensions: Collection[str] = ()) -> None:
    """Raise pydantic's ValidationError or AssertionError for a body that is not as `model` says."""
    kind = body.get("object", "")
    assert not [name for name in REQUIRED.get(kind, ()) if name not in body]
    for choice in body.get("choices", ()):
        assert not [name for name in CHOICE[kind] if name not in choice]
        if kind == "chat.completion":
            assert {"role", "content", "refusal"} <= choice["message"].keys()
    known = {name: value for name, value in body.items() if name not in extensions}
    adapter: TypeAdapter[Any] = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    adapter.validate_json(json.dumps(known), strict=True, extra="forbid")
