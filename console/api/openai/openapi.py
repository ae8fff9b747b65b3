"""The OpenAPI document of /v1, made from the types that requests are checked against and answers are written with."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.http import ErrorEnvelope

_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


class Endpoint(NamedTuple):
    """A route, and what travels there; `streams` says that server-sent events may come instead of `answer`."""

    method: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    summary: str
    request: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    streams: bool = False

    def route(self) -> Route:
        """Return the route."""
        return Route(self.path, self.handler, methods=[self.method])


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Describe endpoints in OpenAPI 3.1."""
    types: list[type[msgspec.Struct]] = [ErrorEnvelope]
    types += [kind for endpoint in endpoints for kind in (endpoint.request, endpoint.answer) if kind is not None]
    ordered = sorted(set(types), key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    known = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fallow", "version": "1", "summary": "An OpenAI-compatible API for text."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if endpoint.answer is not None:
        content["application/json"] = {"schema": schemas[endpoint.answer]}
    if endpoint.streams:
        # Without a schema: OpenAPI 3.1 describes a body, and tools hold one against each event of a stream.
        content["text/event-stream"] = {}
    error = {"application/json": {"schema": schemas[ErrorEnvelope]}}
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "responses": {
            **({"200": {"description": "Done.", "content": content}} if content else {}),
            "default": {"description": "Refused, or failed.", "content": error},
        },
    }
    if parameters := _PARAMETER.findall(endpoint.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters
        ]
    if endpoint.request is not None:
        body = {"application/json": {"schema": schemas[endpoint.request]}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation
