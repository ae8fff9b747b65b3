"""The routes of /admin/v1: HTTP in, a call to whoever knows, records out. Every one needs an admin key."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent.link import invite as invites
from agent.link.closing import CloseCode
from console.api.admin import types as wire
from console.api.admin.views import agent_views
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.deploy import Deployments
from console.errors import DeployRefused
from console.fleet.errors import LibraryNotServed
from console.fleet.hub import Hub
from console.libraries import LibraryShelf
from console.registry.audit import Actor
from console.registry.authority import Authority
from console.registry.errors import NotFound, RegistryError, WrongState
from console.registry.records import Approval
from console.registry.registry import Registry
from shard_export.library.errors import LibraryError

MAX_AUDIT = 1000


class Overview(Protocol):
    """What the service says about itself."""

    def status(self) -> wire.Status:
        """Describe the whole service now."""
        ...

    def agents_urls(self) -> list[str]:
        """List the addresses that go into invites."""
        ...


class AdminRoutes:
    """Serves /admin/v1 from the parts of the console."""

    def __init__(
        self,
        *,
        registry: Registry,
        authority: Authority,
        hub: Hub,
        shelf: LibraryShelf,
        deployments: Deployments,
        overview: Overview,
        gate: Gate,
    ) -> None:
        self._registry = registry
        self._authority = authority
        self._hub = hub
        self._shelf = shelf
        self._deployments = deployments
        self._overview = overview
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the admin gate."""
        table: list[tuple[str, str, Callable[[Request, Actor], Awaitable[Response]]]] = [
            ("GET", "/status", self.status),
            ("GET", "/invites", self.list_invites),
            ("POST", "/invites", self.create_invite),
            ("DELETE", "/invites/{token_id}", self.revoke_invite),
            ("GET", "/agents", self.list_agents),
            ("POST", "/agents/{device_id}/approve", self.approve),
            ("POST", "/agents/{device_id}/deny", self.deny),
            ("POST", "/agents/{device_id}/revoke", self.revoke),
            ("GET", "/libraries", self.list_libraries),
            ("POST", "/libraries", self.add_library),
            ("GET", "/deployments", self.list_deployments),
            ("POST", "/deployments", self.deploy),
            ("DELETE", "/deployments/{model:path}", self.undeploy),
            ("GET", "/keys", self.list_keys),
            ("POST", "/keys", self.create_key),
            ("DELETE", "/keys/{key_id}", self.revoke_key),
            ("GET", "/audit", self.list_audit),
        ]
        return [Route(f"/admin/v1{path}", self._guarded(handler), methods=[method]) for method, path, handler in table]

    def _guarded(
        self, handler: Callable[[Request, Actor], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            principal = await self._gate.admin(request)
            source = request.client.host if request.client is not None else ""
            with _refusals():
                return await handler(request, Actor(f"admin:{principal.key_id}", source))

        return endpoint

    async def status(self, request: Request, actor: Actor) -> Response:
        return json_response(self._overview.status())

    async def list_invites(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Invites(self._registry.invites.list()))

    async def create_invite(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request) or b"{}"), wire.NewInvite)
        approve: Approval = "auto" if asked.auto_approve else "manual"
        made = self._registry.invites.create(
            max_uses=asked.uses, life_s=asked.hours * 3600, approve=approve, hint=asked.hint, actor=actor
        )
        text = invites.encode(
            invites.Invite(
                fleet_id=self._authority.fleet_id,
                fleet_name=self._authority.fleet_name,
                urls=self._overview.agents_urls(),
                ca_spki_sha256=self._authority.ca_spki_sha256,
                token_id=made.token_id,
                token_secret=made.secret,
                expires_at_s=int(made.expires_s),
                max_uses=asked.uses,
                approve=approve,
                hint=asked.hint,
            )
        )
        return json_response(wire.Invite(made.token_id.hex(), text, made.expires_s), 201)

    async def revoke_invite(self, request: Request, actor: Actor) -> Response:
        self._registry.invites.revoke(request.path_params["token_id"], actor)
        return json_response(wire.Done())

    async def list_agents(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Agents(agent_views(self._registry.devices.list(), self._hub.agents())))

    async def approve(self, request: Request, actor: Actor) -> Response:
        device = self._registry.devices.resolve(request.path_params["device_id"])
        self._registry.devices.approve(device.device_id, actor)
        return json_response(wire.Done())

    async def deny(self, request: Request, actor: Actor) -> Response:
        device = self._registry.devices.resolve(request.path_params["device_id"])
        self._registry.devices.deny(device.device_id, "An administrator turned the request down.", actor)
        return json_response(wire.Done())

    async def revoke(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request) or b"{}"), wire.Revocation)
        device = self._registry.devices.resolve(request.path_params["device_id"])
        self._registry.devices.revoke(device.device_id, "ban" if asked.ban else "evict", actor=actor)
        message = "An administrator has taken this PC out of the fleet."
        self._hub.disconnect(device.device_id, CloseCode.NOT_APPROVED, "revoked", message)
        return json_response(wire.Done())

    async def list_libraries(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Libraries(self._shelf.list()))

    async def add_library(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.NewLibrary)
        folder = Path(asked.folder)
        if not folder.is_absolute():
            raise ApiError(400, "The folder must be an absolute path on the console's PC.", param="folder")
        return json_response(await self._shelf.add(folder, actor), 201)

    async def list_deployments(self, request: Request, actor: Actor) -> Response:
        return json_response({"deployments": self._deployments.views()})

    async def deploy(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.DeployRequest)
        return JsonLines(self._deployments.deploy(asked, actor))

    async def undeploy(self, request: Request, actor: Actor) -> Response:
        await self._deployments.undeploy(request.path_params["model"], actor)
        return json_response(wire.Done())

    async def list_keys(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Keys(self._registry.keys.list()))

    async def create_key(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.NewKey)
        expires_s = None if asked.days is None else time.time() + asked.days * 86_400
        record, secret = self._registry.keys.create(asked.name, [asked.scope], expires_s=expires_s, actor=actor)
        return json_response(wire.Key(record, secret), 201)

    async def revoke_key(self, request: Request, actor: Actor) -> Response:
        self._registry.keys.revoke(request.path_params["key_id"], actor)
        return json_response(wire.Done())

    async def list_audit(self, request: Request, actor: Actor) -> Response:
        limit = _whole_number(request, "limit", 100)
        before = _whole_number(request, "before", 0)
        entries = self._registry.audit.list(limit=min(limit, MAX_AUDIT), before=before or None)
        return json_response(wire.Audit(entries))


class JsonLines(Response):
    """Sends each value as one line of JSON when it comes. The client leaving ends the reading, not the work."""

    def __init__(self, values: AsyncIterator[msgspec.Struct]) -> None:
        super().__init__()
        self._values = values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/jsonl"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for value in self._values:
            await send({"type": "http.response.body", "body": msgspec.json.encode(value) + b"\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Say the errors of the parts in HTTP."""
    try:
        yield
    except NotFound as error:
        raise ApiError(404, str(error), code="not_found") from None
    except WrongState as error:
        raise ApiError(409, str(error), code="wrong_state") from None
    except DeployRefused as error:
        raise ApiError(409, str(error), code="deploy_refused") from None
    except (LibraryError, LibraryNotServed) as error:
        raise ApiError(400, str(error), param="folder", code="library_unusable") from None
    except RegistryError as error:
        raise ApiError(400, str(error), code="refused") from None


def _whole_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 18:
        raise ApiError(400, f"The parameter {name!r} must be a whole number.", param=name, code="invalid_value")
    return int(text)
