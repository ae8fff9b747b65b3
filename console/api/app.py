"""The HTTP application: routes of all parts, one shape of errors, a request id on everything."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Collection, Sequence

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.logs.about import about
from console.api.cors import allow_origins
from console.api.http import ApiError
from console.pipeline.errors import ContextExceeded, GrammarRefused, PromptError, QueueFull, UnknownToken

log = logging.getLogger(__name__)
requests_log = logging.getLogger("console.api.requests")
"""Says every request at DEBUG: its path and what came of it."""

MAX_RUNNING = 2000
UNKNOWN = "other"
"""Counted as the endpoint or method of requests for what there is none of."""
LOST_ANSWERS = frozenset({"stage_lost", "stage_failed"})
"""Codes of answers that broke by our fault: counted by these, whether the client was sent a status or half a stream."""
FROM_THE_START = ("200", "429", "500", "503", "internal_error", *sorted(LOST_ANSWERS))
"""Outcomes of `/v1` that are exposed before they happen: who collects sees no rise in what begins above 0."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "DELETE"})
MOST_PATH = 200
"""Letters of a path that are logged."""
_EXPECTED = (ApiError, HTTPException, PromptError, QueueFull)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def build_app(
    routes: Sequence[BaseRoute], *, cors_origins: Collection[str] = (), counts: RequestCounts | None = None
) -> ASGIApp:
    """Return the ASGI application that serves `routes`.

    Browsers' pages of other origins stay out, but those of `cors_origins` (`*`: all) may use `/v1` with a key.
    `counts` hears of every request.
    """
    router = Router(list(routes), redirect_slashes=False)
    refusing = ExceptionMiddleware(router, handlers=dict.fromkeys(_EXPECTED, _refuse))
    app = RequestEdge(refusing, RequestCounts() if counts is None else counts, routes)
    return allow_origins(app, cors_origins) if cors_origins else app


async def _refuse(request: Request, error: Exception) -> Response:
    """Shape every expected error; what is not expected goes on to the edge."""
    if isinstance(error, ApiError):
        if error.body.code in LOST_ANSWERS:
            request.state.outcome = error.body.code
        return error.response()
    if isinstance(error, HTTPException):
        return _routing_error(request, error)
    # Where a request holds its prompt its route says.
    prompt = getattr(request.state, "prompt_param", "messages")
    if isinstance(error, ContextExceeded):
        return ApiError(400, str(error), param=prompt, code="context_length_exceeded", should_retry=False).response()
    if isinstance(error, UnknownToken):
        return ApiError(400, str(error), param="logit_bias", code="invalid_value", should_retry=False).response()
    if isinstance(error, GrammarRefused):
        return ApiError(400, str(error), param=error.param, code="unsupported_parameter", should_retry=False).response()
    if isinstance(error, PromptError):
        return ApiError(400, str(error), param=prompt, code="invalid_prompt", should_retry=False).response()
    if isinstance(error, QueueFull):
        return ApiError(503, str(error), code="overloaded", retry_after_s=2, should_retry=True).response()
    raise error


def _routing_error(request: Request, error: HTTPException) -> Response:
    messages = {404: f"There is nothing at {request.url.path[:200]!r}.", 405: "This path does not take that method."}
    codes = {404: "not_found", 405: "method_not_allowed"}
    refusal = ApiError(
        error.status_code, messages.get(error.status_code, error.detail), code=codes.get(error.status_code)
    )
    response = refusal.response()
    response.headers.update(error.headers or {})
    return response


class RequestCounts:
    """How many requests came, by endpoint (a route's path), method and outcome, and how many are being answered.

    The outcome is the HTTP status, or what became of a stream after it: see `request.state.outcome`.
    """

    def __init__(self) -> None:
        self.running = 0
        self.done: Counter[tuple[str, str, str]] = Counter()
        self.possible: set[tuple[str, str, str]] = set()
        """What is told also before it was counted."""


class RequestEdge:
    """Gives each request its id (the client's own when it is sane) and turns unexpected errors into a 500.

    What a route puts into `request.state.headers` goes out with whatever answers the request, and what it puts into
    `request.state.outcome` counts instead of the status that the client was sent.
    """

    def __init__(self, app: ASGIApp, counts: RequestCounts, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._counts = counts
        self._paths = {route.endpoint: route.path for route in routes if isinstance(route, Route)}
        counts.possible |= {
            (route.path, "POST", outcome)
            for route in routes
            if isinstance(route, Route) and route.path.startswith("/v1/") and "POST" in (route.methods or ())
            for outcome in FROM_THE_START
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        with about(request=request_id):
            await self._serve(scope, receive, send, request_id)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        began_s = time.perf_counter()
        scope.setdefault("state", {})["request_id"] = request_id
        scope["app"] = self  # the router raises its 404 for us to shape only when it is part of an application
        header = (b"x-request-id", request_id.encode())
        started, status = False, 0

        async def tagged(message: Message) -> None:
            nonlocal started, status
            if message["type"] == "http.response.start":
                started, status = True, message["status"]
                more = scope["state"].get("headers", {}).items()
                added = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in more]
                message = {**message, "headers": [*message.get("headers", ()), header, *added]}
            await send(message)

        if self._counts.running >= MAX_RUNNING:
            message = "The server is answering too many requests at once; try again in a moment."
            busy = ApiError(503, message, code="overloaded", retry_after_s=2, should_retry=True)
            await busy.response()(scope, receive, tagged)
            return self._count(scope, status)
        self._counts.running += 1
        try:
            await self._app(scope, receive, tagged)
        except Exception:  # the edge of the request: whatever broke, the client gets an answer and the log the cause
            log.exception("Request %s (%s %s) failed unexpectedly.", request_id, scope["method"], scope["path"])
            if not started:
                message = f"The server failed at this request; its log says why under {request_id}."
                await ApiError(500, message, code="internal_error").response()(scope, receive, tagged)
            else:
                scope["state"]["outcome"] = "internal_error"
        finally:
            self._counts.running -= 1
            self._count(scope, status)
            path, took_ms = scope["path"][:MOST_PATH], 1000 * (time.perf_counter() - began_s)
            requests_log.debug("%s %s: %s in %.1f ms", scope["method"], path, status or "no answer", took_ms)

    def _count(self, scope: Scope, status: int) -> None:
        # What is typed into an address must not become a label: only our own paths and methods do.
        path = self._paths[scope["endpoint"]] if "endpoint" in scope else UNKNOWN
        method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
        outcome = scope["state"].get("outcome") or (str(status) if status else "client_left")
        self._counts.done[path, method, outcome] += 1


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(text := value.decode("latin-1")):
            return str(text)
    return f"req_{secrets.token_hex(12)}"
