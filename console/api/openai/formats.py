"""What an answer may be: `response_format` as a grammar for the last stage, checked before anything runs."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from agent.stage.grammar import problem_of
from console.api.http import ApiError

WHITESPACE = r"[ \n\r\t]{1,24}"
"""Between the parts of JSON; without a bound a small model may go on with blanks until its tokens are used up."""
_problem_of = lru_cache(maxsize=256)(problem_of)
"""Clients ask with the same grammar again and again."""


class JsonSchema(msgspec.Struct, frozen=True):
    """A JSON schema with a name. `strict` changes nothing here: an answer always keeps to its schema."""

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """What the answer's text must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema the answer keeps to; None: it may be any text. Raises ApiError 400."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "object"}
        if self.json_schema is None:
            message = "The parameter 'response_format.json_schema' is missing; send the schema."
            raise ApiError(400, message, param="response_format.json_schema", code="invalid_value")
        return self.json_schema.schema or {}


def json_rule(schema: dict[str, Any]) -> str:
    """Return the part of a grammar that stands for the values a schema allows."""
    bounded = {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}
    return f"%json {msgspec.json.encode(bounded).decode()}"


def json_grammar(schema: dict[str, Any]) -> str:
    """Return the grammar of an answer that is one JSON value."""
    return f"start: {json_rule(schema)}"


async def check_grammar(grammar: str, param: str) -> None:
    """Refuse, off the event loop, what no answer can be kept to. Raises ApiError 400 naming `param`."""
    if grammar and (problem := await asyncio.to_thread(_problem_of, grammar)):
        message = f"The parameter {param!r} cannot be kept to: {problem}."
        raise ApiError(400, message, param=param, code="invalid_value", should_retry=False)
