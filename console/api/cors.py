"""Lets browsers' pages of chosen origins use /v1. Off unless somebody asks for it; never for the admin's routes."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]{1,253}")
PATHS = "/v1/"
READABLE = (
    "x-request-id", "retry-after", "x-should-retry",
    "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
)  # fmt: skip
"""Headers that scripts of a page may read."""
REMEMBERED_S = 600
"""How long a browser need not ask again."""


def is_origin(text: str) -> bool:
    """Whether a text is an origin as browsers write it (`https://chat.example.org`), or `*` for all."""
    return text == "*" or ORIGIN.fullmatch(text) is not None


def allow_origins(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """Return `app` with CORS for what is below `/v1`. No cookies: who asks shows a key in the Authorization header."""
    allowing = CORSMiddleware(
        app,
        allow_origins=tuple(origins),
        allow_methods=("GET", "POST"),
        # SDKs send headers of their own that nobody here reads; a page may set whatever it likes.
        allow_headers=("*",),
        expose_headers=READABLE,
        max_age=REMEMBERED_S,
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and scope["path"].startswith(PATHS)
        await (allowing if is_api else app)(scope, receive, send)

    return serve
