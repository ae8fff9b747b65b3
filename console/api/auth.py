"""Who is asking: a bearer token, an API key or a login's, checked by the registry on every request."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from starlette.requests import Request

from agent.threads import InThread, finish_in_thread
from console.api.http import ApiError
from console.registry.audit import Actor
from console.registry.records import Principal, Scope


class KeyRing(Protocol):
    """The part of the registry that knows keys and logins."""

    def authenticate(self, token: str) -> Principal | None:
        """Return who a live token stands for; None for an unknown, expired or revoked one. Compares hashes only."""
        ...


class Gate:
    """Lets requests through to the routes of a scope."""

    def __init__(self, keys: KeyRing, *, ask: InThread = finish_in_thread) -> None:
        """`ask` is where the keys are looked up: every request needs that, and none may hold up the others."""
        self._keys = keys
        self._ask = ask

    async def require(self, request: Request, scope: Scope | None) -> Principal:
        """Return who asks. Raises ApiError 401 without a live token, 403 when it does not reach to `scope`.

        None asks for any live token.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            message = "This needs an API key in the header 'Authorization: Bearer <key>'."
            raise ApiError(401, message, code="invalid_api_key", should_retry=False)
        principal = await self._ask(partial(self._keys.authenticate, secret.strip()))
        if principal is None:
            message = "The API key is not known here, has expired or was revoked; ask the admin for a new one."
            raise ApiError(401, message, code="invalid_api_key", should_retry=False)
        if scope is not None and not principal.allows(scope):
            message = f"The API key's scope or role does not allow this; {scope!r} is needed."
            raise ApiError(403, message, code="insufficient_scope", kind="invalid_request_error", should_retry=False)
        request.state.principal = principal
        return principal


def source_of(request: Request) -> str:
    """Return the address a request came from: the socket's, whatever its headers claim."""
    return request.client.host if request.client is not None else ""


def actor_of(principal: Principal, request: Request) -> Actor:
    """Say who makes a change and from where, for the audit log."""
    return Actor(principal.actor_name, source_of(request))
