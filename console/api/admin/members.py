"""The routes of /admin/v1 for who is in the fleet: invites, and the states PCs go through."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.link import invite as invites
from agent.link.authorities import read_authorities
from agent.link.closing import CloseCode
from agent.threads import finish_in_thread
from console.api.admin import types as wire
from console.api.admin.guard import AdminRoute, guarded
from console.api.admin.measured import measured_view
from console.api.admin.views import agent_views
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.fleet.hub import Hub
from console.fleet.measured import stage_speeds
from console.fleet.policies import PolicyPost
from console.fleet.presence import Presence
from console.registry.approval import ApprovalRule
from console.registry.audit import Actor
from console.registry.authority import Authority
from console.registry.records import DeviceRecord
from console.registry.registry import Registry

T = TypeVar("T", bound=msgspec.Struct)


class MemberRoutes:
    """Serves invites and agents. `agents_urls` lists the addresses that go into invites; `presence` knows the other
    consoles of a shared registry, `post` tells PCs whose tags changed what is wanted of them now."""

    def __init__(
        self,
        registry: Registry,
        authority: Authority,
        hub: Hub,
        agents_urls: Callable[[], list[str]],
        gate: Gate,
        *,
        presence: Presence | None = None,
        post: PolicyPost | None = None,
    ) -> None:
        self._post = post
        self._presence = presence
        self._registry = registry
        self._authority = authority
        self._hub = hub
        self._agents_urls = agents_urls
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/invites", "view", self.list_invites),
            ("POST", "/invites", "operate", self.create_invite),
            ("DELETE", "/invites/{token_id}", "operate", self.revoke_invite),
            ("GET", "/agents", "view", self.list_agents),
            ("GET", "/agents/{device_id}/measured", "view", self.show_measured),
            ("POST", "/agents/{device_id}/approve", "operate", self.approve),
            ("POST", "/agents/{device_id}/deny", "operate", self.deny),
            ("POST", "/agents/{device_id}/suspend", "operate", self.suspend),
            ("POST", "/agents/{device_id}/resume", "operate", self.resume),
            ("POST", "/agents/{device_id}/revoke", "operate", self.revoke),
            ("POST", "/agents/{device_id}/tags", "operate", self.tag),
            ("POST", "/agents/{device_id}/merge", "operate", self.merge),
            ("GET", "/authority", "view", self.show_authority),
            ("POST", "/authority/rotate", "admin", self.rotate),
        ]
        return guarded(self._gate, table)

    async def list_invites(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Invites(await self._registry.ask(self._registry.invites.list)))

    async def create_invite(self, request: Request, actor: Actor) -> Response:
        asked = await _body(request, wire.NewInvite)
        try:
            making = partial(
                self._registry.invites.create,
                max_uses=asked.uses,
                life_s=asked.hours * 3600,
                approve="auto" if asked.auto_approve else "manual",
                hint=asked.hint,
                tags=asked.tags,
                rule=ApprovalRule(asked.networks, asked.names, asked.keyring),
                actor=actor,
            )
            made = await self._registry.ask(making)
        except ValueError as error:
            sentence = f"{str(error)[:1].upper()}{str(error)[1:]}."
            raise ApiError(400, sentence, code="invalid_value") from None
        text = invites.encode(
            invites.Invite(
                fleet_id=self._authority.fleet_id,
                fleet_name=self._authority.fleet_name,
                urls=self._agents_urls(),
                ca_spki_sha256=self._authority.ca_spki_sha256,
                token_id=made.token_id,
                token_secret=made.secret,
                expires_at_s=int(made.expires_s),
                max_uses=asked.uses,
                approve="auto" if asked.auto_approve else "manual",
                hint=asked.hint,
            )
        )
        return json_response(wire.Invite(made.token_id.hex(), text, made.expires_s), 201)

    async def revoke_invite(self, request: Request, actor: Actor) -> Response:
        await self._registry.ask(partial(self._registry.invites.revoke, request.path_params["token_id"], actor))
        return json_response(wire.Done())

    async def list_agents(self, request: Request, actor: Actor) -> Response:
        elsewhere = self._presence.elsewhere if self._presence is not None else {}
        records = await self._registry.ask(self._registry.devices.list)
        views = agent_views(records, self._hub.agents(), elsewhere, now_s=time.time())
        return json_response(wire.Agents(views))

    async def show_measured(self, request: Request, actor: Actor) -> Response:
        record, libraries = await self._registry.ask(
            lambda: (self._device(request), {one.digest: one.model_id for one in self._registry.libraries.list()})
        )
        live = next((agent for agent in self._hub.agents() if agent.device_id == record.device_id), None)
        return json_response(measured_view(record, live, libraries, stage_speeds(record.facts), now_s=time.time()))

    async def approve(self, request: Request, actor: Actor) -> Response:
        devices = self._registry.devices
        await self._registry.ask(lambda: devices.approve(self._device(request).device_id, actor))
        return json_response(wire.Done())

    async def deny(self, request: Request, actor: Actor) -> Response:
        asked, devices = await _body(request, wire.Reason), self._registry.devices
        reason = asked.reason or "An administrator turned the request down."
        await self._registry.ask(lambda: devices.deny(self._device(request).device_id, reason, actor))
        return json_response(wire.Done())

    async def suspend(self, request: Request, actor: Actor) -> Response:
        asked, devices = await _body(request, wire.Reason), self._registry.devices
        await self._put_out(
            lambda: devices.suspend(self._device(request).device_id, asked.reason, actor),
            "suspended",
            "An administrator has suspended this PC.",
        )
        return json_response(wire.Done())

    async def resume(self, request: Request, actor: Actor) -> Response:
        devices = self._registry.devices
        await self._registry.ask(lambda: devices.resume(self._device(request).device_id, actor))
        return json_response(wire.Done())

    async def revoke(self, request: Request, actor: Actor) -> Response:
        asked, devices = await _body(request, wire.Revocation), self._registry.devices
        how = "ban" if asked.ban else asked.how
        await self._put_out(
            lambda: devices.revoke(self._device(request).device_id, how, asked.reason, actor),
            "revoked",
            "An administrator has taken this PC out of the fleet.",
        )
        return json_response(wire.Done())

    async def tag(self, request: Request, actor: Actor) -> Response:
        asked, devices = await _body(request, wire.Tags), self._registry.devices
        await self._registry.ask(lambda: devices.set_tags(self._device(request).device_id, asked.tags, actor))
        if self._post is not None:
            self._post.publish()
        return json_response(wire.Done())

    async def merge(self, request: Request, actor: Actor) -> Response:
        asked, devices = await _body(request, wire.Merge), self._registry.devices

        def merge() -> DeviceRecord:
            former = devices.resolve(asked.former)
            devices.merge(self._device(request).device_id, former.device_id, actor)
            return former

        await self._put_out(merge, "retired", "This PC was enrolled anew.")
        if self._post is not None:
            self._post.publish()
        return json_response(wire.Done())

    async def show_authority(self, request: Request, actor: Actor) -> Response:
        return json_response(self._authority_view())

    async def rotate(self, request: Request, actor: Actor) -> Response:
        asked = await _body(request, wire.Rotation)
        if not (asked.at_once and self._authority.rotation.next_root):
            await finish_in_thread(self._authority.rotate)
        if asked.at_once:
            await finish_in_thread(partial(self._authority.refresh, at_once=True))
        view = self._authority_view()
        fleet_id, audit = self._authority.fleet_id, self._registry.audit
        await self._registry.ask(lambda: audit.append(actor, "root.rotate", fleet_id, phase=view.phase))
        return json_response(view)

    def _authority_view(self) -> wire.AuthorityView:
        authority, fleet = self._authority, self._authority.rotation
        phase: Literal["steady", "announced", "switched"] = "switched" if fleet.former_root else "steady"
        if fleet.next_root:
            phase = "announced"
        return wire.AuthorityView(
            fleet_id=authority.fleet_id,
            fleet_name=authority.fleet_name,
            pin=authority.ca_spki_sha256.hex(),
            phase=phase,
            next_step_s=authority.next_step_s,
            roots=[f"{root.serial_number:x}" for root in read_authorities(authority.authorities_pem)],
            key_protection=authority.key_protection,
        )

    def _device(self, request: Request) -> DeviceRecord:
        return self._registry.devices.resolve(request.path_params["device_id"])

    async def _put_out(self, decide: Callable[[], DeviceRecord], code: str, message: str) -> None:
        """Put a device out as `decide` writes it, and close its links; also when nobody waits for the answer now."""

        def cut(device: DeviceRecord) -> None:
            self._hub.disconnect(device.device_id, CloseCode.NOT_APPROVED, code, message)

        cut(await self._registry.ask(decide, cut))


async def _body(request: Request, kind: type[T]) -> T:
    return convert(parse_object(await read_body(request) or b"{}"), kind)
