"""The routes of /admin/v1 for plans that nobody carries out: HTTP in, the planner's answer out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.admin import plan_types as wire
from console.api.admin.guard import AdminRoute, guarded
from console.api.admin.types import DeployRequest
from console.api.auth import Gate
from console.api.http import convert, json_response, parse_object, read_body
from console.planning import Planning
from console.registry.audit import Actor


class PlanningRoutes:
    """Whoever may look at the fleet may ask: nothing changes by it."""

    def __init__(self, planning: Planning, gate: Gate) -> None:
        self._planning = planning
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("POST", "/plans", "view", self.plan),
            ("POST", "/plans/check", "view", self.check),
            ("POST", "/plans/what-if", "view", self.what_if),
        ]
        return guarded(self._gate, table)

    async def plan(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.PlanRequest)
        return json_response(await self._planning.plan(asked))

    async def check(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), DeployRequest)
        return json_response(await self._planning.check(asked))

    async def what_if(self, request: Request, actor: Actor) -> Response:
        question = convert(parse_object(await read_body(request)), wire.Question)
        return json_response(await self._planning.what_if(question))
