"""Small shared pieces of the HTTP surface: errors in OpenAI's shape, JSON responses, bodies read within limits."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

MAX_BODY_BYTES = 2 << 20
"""Far more text than any context holds. Tokenizing it takes seconds, in a thread: see `openai.prompts`."""
BODY_TIMEOUT_S = 30.0
_MISSING = re.compile(r"missing required field `(\w+)`")


class ErrorBody(msgspec.Struct, frozen=True):
    """The inside of an error response; clients read exactly these four fields."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """An error response."""

    error: ErrorBody


class ApiError(Exception):
    """A refusal on its way to the client: HTTP status, OpenAI error object, and what to do about retrying.

    `retry_after_s` becomes Retry-After; `should_retry` False becomes `x-should-retry: false`, which keeps the SDKs
    from trying again when that cannot help.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        retry_after_s: int | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(message, kind or _kind(status), param, code)
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry

    def envelope(self) -> bytes:
        """Return the JSON of the error, as a response body or an event of a stream carries it."""
        return msgspec.json.encode(ErrorEnvelope(self.body))

    def response(self) -> Response:
        """Return the whole HTTP response."""
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.should_retry is not None:
            headers["x-should-retry"] = "true" if self.should_retry else "false"
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status == 408:
            # The rest of the body may never come, so the connection cannot carry another request.
            headers["Connection"] = "close"
        return Response(self.envelope(), self.status, headers, "application/json")


def _kind(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return `value` (Structs welcome) as a JSON response."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def read_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Read the body.

    Raises ApiError 413 before holding more than `limit_bytes`, 408 when it takes too long, 415 when it is compressed.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        message = "The request body is compressed; send it as it is, without Content-Encoding."
        raise ApiError(415, message, code="unsupported_encoding", should_retry=False)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit_bytes:
                    raise _too_large(limit_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise ApiError(408, "The request body did not arrive in time; send it again.", code="timeout") from None
    except ClientDisconnect:
        raise client_left() from None
    return b"".join(chunks)


def client_left() -> ApiError:
    """End a request whose client has closed its connection; nobody will read it."""
    return ApiError(400, "The client left before its request was complete.", code="disconnected")


def _too_large(limit_bytes: int) -> ApiError:
    message = f"The request body is over the limit of {limit_bytes} bytes; send less text."
    return ApiError(413, message, code="request_too_large", should_retry=False)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ApiError 400."""
    try:
        value = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return value


T = TypeVar("T")


def convert(value: dict[str, Any], type_: type[T]) -> T:
    """Check a parsed object against a Struct. Raises ApiError 400 naming the field that is wrong."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        missing = _MISSING.search(reason)
        param = ".".join(filter(None, (path.rstrip("`"), missing.group(1) if missing else "")))
        message = f"The parameter {param!r} is wrong: {reason}." if param else f"The body is wrong: {reason}."
        raise ApiError(400, message, param=param or None, code="invalid_value") from None
