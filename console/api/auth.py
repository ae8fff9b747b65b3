"""Who is asking: a bearer key, checked by the registry on every request."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request

from console.api.http import ApiError
from console.registry.records import ApiKey, Scope

Principal = ApiKey


class KeyRing(Protocol):
    """The part of the registry that knows keys."""

    def authenticate(self, key: str) -> ApiKey | None:
        """Return the live key's record; None for an unknown, expired or revoked one. Compares hashes only."""
        ...


class Gate:
    """Lets requests through to the routes of a scope."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    async def chat(self, request: Request) -> Principal:
        """Raises ApiError 401 without a live key, 403 when the key's scope does not reach."""
        return self._check(request, "chat")

    async def admin(self, request: Request) -> Principal:
        """Raises ApiError 401 without a live key, 403 when the key's scope does not reach."""
        return self._check(request, "admin")

    def _check(self, request: Request, scope: Scope) -> Principal:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            message = "This needs an API key in the header 'Authorization: Bearer <key>'."
            raise ApiError(401, message, code="invalid_api_key", should_retry=False)
        principal = self._keys.authenticate(secret.strip())
        if principal is None:
            message = "The API key is not known here, has expired or was revoked; ask the admin for a new one."
            raise ApiError(401, message, code="invalid_api_key", should_retry=False)
        if not principal.allows(scope):
            message = f"The API key's scope does not allow this; a key with scope {scope!r} is needed."
            raise ApiError(403, message, code="insufficient_scope", kind="invalid_request_error", should_retry=False)
        request.state.principal = principal
        return principal
