"""The routes of /admin/v1 for builds and the folders they read and write."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.admin import build_types as wire
from console.api.admin.guard import AdminRoute, guarded
from console.api.auth import Gate
from console.api.http import convert, json_response, parse_object, read_body
from console.builds.jobs import BuildJobs
from console.registry.audit import Actor


class BuildRoutes:
    """Serves the builds of this console."""

    def __init__(self, jobs: BuildJobs, gate: Gate) -> None:
        self._jobs = jobs
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/folders", "operate", self.look),
            ("GET", "/builds", "view", self.list_builds),
            ("POST", "/builds", "operate", self.begin),
            ("POST", "/builds/estimate", "operate", self.estimate),
            ("GET", "/builds/{build_id}", "view", self.detail),
            ("POST", "/builds/{build_id}/pause", "operate", self.pause),
            ("POST", "/builds/{build_id}/resume", "operate", self.resume),
            ("POST", "/builds/{build_id}/cancel", "operate", self.cancel),
            ("POST", "/builds/{build_id}/publish", "operate", self.publish),
        ]
        return guarded(self._gate, table)

    async def look(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._jobs.look(request.query_params.get("path", "")[:4096]))

    async def list_builds(self, request: Request, actor: Actor) -> Response:
        return json_response(self._jobs.views())

    async def begin(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.BuildRequest)
        return json_response(await self._jobs.begin(asked, actor), 201)

    async def estimate(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.BuildRequest)
        return json_response(await self._jobs.estimate(asked))

    async def detail(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._jobs.detail(_build_id(request)))

    async def pause(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._jobs.pause(_build_id(request), actor))

    async def resume(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._jobs.resume(_build_id(request), actor))

    async def cancel(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request) or b"{}"), wire.CancelBuild)
        return json_response(await self._jobs.cancel(_build_id(request), actor, discard=asked.discard))

    async def publish(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._jobs.publish(_build_id(request), actor))


def _build_id(request: Request) -> str:
    return str(request.path_params["build_id"])
