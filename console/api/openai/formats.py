"""What an answer may be: `response_format`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from console.api.http import ApiError


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
