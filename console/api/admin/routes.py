"""The routes of /admin/v1 for the fleet and its models: HTTP in, a call to whoever knows, records out."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.link import invite as invites
from agent.link.closing import CloseCode
from console.api.admin import types as wire
from console.api.admin.guard import AdminRoute, JsonLines, guarded
from console.api.admin.views import agent_views
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.deploy import Deployments
from console.fleet.hub import Hub
from console.libraries import LibraryShelf
from console.registry.audit import Actor
from console.registry.authority import Authority
from console.registry.records import Approval
from console.registry.registry import Registry


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
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/status", "view", self.status),
            ("GET", "/invites", "view", self.list_invites),
            ("POST", "/invites", "operate", self.create_invite),
            ("DELETE", "/invites/{token_id}", "operate", self.revoke_invite),
            ("GET", "/agents", "view", self.list_agents),
            ("POST", "/agents/{device_id}/approve", "operate", self.approve),
            ("POST", "/agents/{device_id}/deny", "operate", self.deny),
            ("POST", "/agents/{device_id}/revoke", "operate", self.revoke),
            ("GET", "/libraries", "view", self.list_libraries),
            ("POST", "/libraries", "operate", self.add_library),
            ("GET", "/deployments", "view", self.list_deployments),
            ("POST", "/deployments", "operate", self.deploy),
            ("DELETE", "/deployments/{model:path}", "operate", self.undeploy),
        ]
        return guarded(self._gate, table)

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
