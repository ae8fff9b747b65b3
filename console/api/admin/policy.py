"""The routes of /admin/v1 for what volunteering PCs may do: HTTP in, a call to the registry, and the PCs are told."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.link.messages import PolicyKept
from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import BUILT_IN, ROWS
from agent.volunteer.wishes import to_plain
from console.api.admin import types as wire
from console.api.admin.guard import AdminRoute, guarded
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.fleet.policies import POLICY_FACT, PolicyPost
from console.registry.audit import Actor
from console.registry.records import DeviceRecord, PolicyRecord
from console.registry.registry import Registry


class PolicyRoutes:
    """Shows and changes the policy. Changing it is for owners: it says what people's PCs do."""

    def __init__(self, registry: Registry, post: PolicyPost, gate: Gate) -> None:
        self._registry = registry
        self._post = post
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/policy", "view", self.show),
            ("POST", "/policy", "admin", self.change),
        ]
        return guarded(self._gate, table)

    async def show(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._registry.ask(self._view))

    async def change(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.PolicyChange)
        try:
            await self._registry.ask(partial(self._registry.policies.change, asked.tag, asked.values, actor))
        except WishRefused as error:
            raise ApiError(400, str(error), param="values", code="invalid_value") from None
        self._post.publish()
        return json_response(await self._registry.ask(self._view))

    def _view(self) -> wire.PolicyView:
        refusals = [_refusal(device) for device in self._registry.devices.list() if device.state == "active"]
        return wire.PolicyView(
            scopes=[_scope(record) for record in self._registry.policies.list()],
            refusals=[refusal for refusal in refusals if refusal is not None],
            built_in={name: to_plain(name, getattr(BUILT_IN, name)) for name in ROWS},
        )


def _scope(record: PolicyRecord) -> wire.PolicyScope:
    values = {name: to_plain(name, getattr(record.wishes, name)) for name in ROWS}
    values = {name: value for name, value in values.items() if value is not None}
    return wire.PolicyScope(record.tag, values, record.revision, record.updated_s)


def _refusal(device: DeviceRecord) -> wire.PolicyRefusal | None:
    fact = device.facts.get(POLICY_FACT)
    if fact is None:
        return None
    kept = msgspec.convert(fact, PolicyKept)
    return wire.PolicyRefusal(device.device_id, device.name, kept.revision, kept.message) if kept.code else None
