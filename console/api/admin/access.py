"""The routes of /admin/v1 for people: logging in, users, API keys, the audit log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.admin import types as wire
from console.api.admin.guard import PREFIX, AdminRoute, JsonLines, guarded, whole_number
from console.api.auth import Gate, source_of
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.fleet.ratelimit import RateLimiter
from console.registry.audit import Actor
from console.registry.errors import NotFound
from console.registry.records import AuditEntry, Principal
from console.registry.registry import Registry

MAX_AUDIT = 1000
LOGIN_BURST, LOGIN_EVERY_S = 5, 12
"""So many tries at once from an address, then one in so many seconds. By name, anybody could lock others out."""
CHECKS_AT_ONCE = 2
"""Each check of a password takes 19 MB and a core for 0.1 s, whoever asks."""


class AccessRoutes:
    """Serves who may do what from the registry."""

    def __init__(self, registry: Registry, gate: Gate, now_s: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._gate = gate
        self._now_s = now_s
        self._by_source = RateLimiter(burst=LOGIN_BURST, per_s=1 / LOGIN_EVERY_S)
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)

    def routes(self) -> list[Route]:
        """List the routes; only the login needs no token."""
        table: list[AdminRoute] = [
            ("POST", "/logout", None, self.log_out),
            ("GET", "/me", None, self.who_am_i),
            ("POST", "/me/password", None, self.change_own_password),
            ("GET", "/users", "admin", self.list_users),
            ("POST", "/users", "admin", self.create_user),
            ("PATCH", "/users/{name}", "admin", self.change_user),
            ("GET", "/keys", "admin", self.list_keys),
            ("POST", "/keys", "admin", self.create_key),
            ("PATCH", "/keys/{key_id}", "admin", self.limit_key),
            ("DELETE", "/keys/{key_id}", "admin", self.revoke_key),
            ("GET", "/audit", "audit", self.list_audit),
            ("GET", "/audit/export", "audit", self.export_audit),
            ("POST", "/audit/verify", "audit", self.verify_audit),
        ]
        return [Route(f"{PREFIX}/login", self.log_in, methods=["POST"]), *guarded(self._gate, table)]

    # Logging in

    async def log_in(self, request: Request) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.Login)
        self._slow_down(request)
        async with self._checks:
            opening = partial(self._registry.sessions.open, asked.name, asked.password, source=source_of(request))
            opened = await self._registry.ask(opening)
        principal = None
        if opened is not None:
            principal = await self._registry.ask(partial(self._registry.authenticate, opened[1]))
        if opened is None or principal is None:
            message = "Name and password do not fit together, or the user is disabled; try again or ask an owner."
            raise ApiError(401, message, code="invalid_login", should_retry=False)
        return json_response(wire.Session(opened[1], opened[0].expires_s, _me(principal)), 201)

    def _slow_down(self, request: Request) -> None:
        """Raise ApiError 429 for an address that tries passwords too often."""
        if not self._by_source.allow(source_of(request), self._now_s()):
            message = f"There were too many logins from this address; try again in {LOGIN_EVERY_S} s."
            raise ApiError(429, message, code="too_many_logins", retry_after_s=LOGIN_EVERY_S, should_retry=True)

    async def log_out(self, request: Request, actor: Actor) -> Response:
        session_id = _principal(request).session_id
        if session_id:
            await self._registry.ask(partial(self._registry.sessions.close, session_id, actor))
        return json_response(wire.Done())

    async def who_am_i(self, request: Request, actor: Actor) -> Response:
        return json_response(_me(_principal(request)))

    async def change_own_password(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.OwnPassword)
        principal = _principal(request)
        if not principal.session_id:
            raise ApiError(403, "Only somebody who logged in can change their password.", code="insufficient_scope")
        self._slow_down(request)
        async with self._checks:
            fits = await self._registry.ask(partial(self._registry.users.has_password, principal.user, asked.password))
            if not fits:
                raise ApiError(403, "This is not the present password.", param="password", code="invalid_login")
            await self._registry.ask(
                partial(self._registry.users.set_password, principal.user, asked.new_password, actor)
            )
        return json_response(wire.Done())

    # Users

    async def list_users(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Users(await self._registry.ask(self._registry.users.list)))

    async def create_user(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.NewUser)
        async with self._checks:
            user = await self._registry.ask(
                partial(self._registry.users.create, asked.name, asked.role, asked.password, actor=actor)
            )
        return json_response(user, 201)

    async def change_user(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.UserChange)
        users, name = self._registry.users, request.path_params["name"]
        if asked.password is not UNSET:
            async with self._checks:
                await self._registry.ask(partial(users.set_password, name, asked.password, actor))
        if asked.role is not UNSET:
            await self._registry.ask(partial(users.set_role, name, asked.role, actor))
        if asked.disabled is not UNSET:
            await self._registry.ask(partial(users.set_disabled, name, asked.disabled, actor))
        user = await self._registry.ask(partial(users.find, name))
        if user is None:
            raise NotFound(f"There is no user {name[:64]}; see: fallow-console user list")
        return json_response(user)

    # Keys

    async def list_keys(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Keys(await self._registry.ask(self._registry.keys.list)))

    async def create_key(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.NewKey)
        expires_s = None if asked.days is None else time.time() + asked.days * 86_400
        create, user = self._registry.keys.create, asked.user.lower()
        record, secret = await self._registry.ask(
            lambda: create(asked.name, [asked.scope], expires_s=expires_s, user=user, quota=asked.quota(), actor=actor)
        )
        return json_response(wire.Key(record, secret), 201)

    async def limit_key(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.Limits)
        limit = partial(self._registry.keys.limit, request.path_params["key_id"], asked.quota(), actor)
        return json_response(await self._registry.ask(limit))

    async def revoke_key(self, request: Request, actor: Actor) -> Response:
        await self._registry.ask(partial(self._registry.keys.revoke, request.path_params["key_id"], actor))
        return json_response(wire.Done())

    # Audit

    async def list_audit(self, request: Request, actor: Actor) -> Response:
        limit, before = whole_number(request, "limit", 100), whole_number(request, "before", 0)
        entries = await self._registry.ask(
            partial(
                self._registry.audit.list,
                limit=min(limit, MAX_AUDIT),
                before=before or None,
                search=request.query_params.get("search", "")[:1000],
            )
        )
        return json_response(wire.Audit(entries))

    async def export_audit(self, request: Request, actor: Actor) -> Response:
        await self._registry.ask(partial(self._registry.audit.append, actor, "audit.export", "audit"))
        return JsonLines(self._export())

    async def _export(self) -> AsyncIterator[AuditEntry]:
        after = 0
        while page := await self._registry.ask(partial(self._registry.audit.page, after)):
            for entry in page:
                yield entry
            after = page[-1].sequence

    async def verify_audit(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request) or b"{}"), wire.VerifyAudit)
        known = [(asked.sequence, asked.hash)] if asked.hash else []
        return json_response(await self._registry.ask(partial(self._registry.audit.verify, known)))


def _principal(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


def _me(principal: Principal) -> wire.Me:
    return wire.Me(principal.key_id, principal.user, sorted(principal.scopes), principal.quota)
