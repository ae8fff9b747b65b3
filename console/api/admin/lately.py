"""The routes of /admin/v1 for how one PC was lately: samples for charts, and the last lines of its log."""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.admin.guard import AdminRoute, guarded
from console.api.auth import Gate
from console.api.http import ApiError, json_response
from console.fleet.errors import LogNotSent
from console.fleet.hub import Hub
from console.fleet.lately import EVERY_S
from console.registry.audit import Actor
from console.registry.registry import Registry


class LatelySample(msgspec.Struct, frozen=True):
    """One PC at Unix time `at_s`; `round_trip_ms` is None before the first ping came back."""

    at_s: float
    memory_free_bytes: int
    round_trip_ms: float | None
    held: bool


class LatelyView(msgspec.Struct, frozen=True):
    """One PC in the hour before `now_s`, a sample every `every_s` while it was connected to this console."""

    now_s: float
    every_s: float
    samples: list[LatelySample]


class LogView(msgspec.Struct, frozen=True):
    """What the agent of a PC logged last about its work, the oldest line first."""

    lines: list[str]


class LatelyRoutes:
    """Serves what is known of one PC beside its record."""

    def __init__(self, registry: Registry, hub: Hub, gate: Gate) -> None:
        self._registry = registry
        self._hub = hub
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/agents/{device_id}/lately", "view", self.show_lately),
            ("GET", "/agents/{device_id}/log", "operate", self.show_log),
        ]
        return guarded(self._gate, table)

    async def show_lately(self, request: Request, actor: Actor) -> Response:
        samples = [
            LatelySample(one.at_s, one.memory_free_bytes, one.round_trip_ms or None, one.held)
            for one in self._hub.lately.of(await self._device_id(request))
        ]
        return json_response(LatelyView(time.time(), EVERY_S, samples))

    async def show_log(self, request: Request, actor: Actor) -> Response:
        device_id = await self._device_id(request)
        try:
            lines = await self._hub.lately.log_of(device_id)
        except LogNotSent as error:
            raise ApiError(409, str(error), code="not_connected", should_retry=False) from None
        await self._registry.ask(lambda: self._registry.audit.append(actor, "log.read", device_id))
        return json_response(LogView(lines))

    async def _device_id(self, request: Request) -> str:
        wanted = request.path_params["device_id"]
        return (await self._registry.ask(lambda: self._registry.devices.resolve(wanted))).device_id
