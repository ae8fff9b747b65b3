"""/healthz: the process answers. /readyz: every deployed model let a real token through all its stages just now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.admin.types import PipelineView
from console.api.auth import Gate
from console.api.http import json_response

MAX_AGE_S = 5.0
WAIT_S = 5.0

Probe = Callable[[float, float], Awaitable[list[PipelineView]]]


class HealthRoutes:
    """Serves health and readiness. Health needs no key, so that a supervisor can ask."""

    def __init__(self, probe: Probe, gate: Gate) -> None:
        """`probe(max_age_s, wait_s)` describes the pipelines after probing those whose last token is older."""
        self._probe = probe
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route("/healthz", self.health), Route("/readyz", self.readiness)]

    async def health(self, request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readiness(self, request: Request) -> Response:
        await self._gate.require(request, "chat")
        views = await self._probe(MAX_AGE_S, WAIT_S)
        models = [
            {
                "model": view.model, "pipeline": view.number, "state": view.state, "ready": _is_ready(view),
                "probe": view.probe,
            }
            for view in views
        ]  # fmt: skip
        # A model of several pipelines answers as long as one of them does.
        wanted = {view.model for view in views if view.state != "failed"}
        ready = bool(wanted) and wanted <= {view.model for view in views if _is_ready(view)}
        headers = {} if ready else {"Retry-After": "5"}
        return json_response({"ready": ready, "models": models}, 200 if ready else 503, headers)


def _is_ready(view: PipelineView) -> bool:
    age_s = view.probe.age_s
    return view.state == "ready" and view.probe.ok and age_s is not None and age_s <= MAX_AGE_S + WAIT_S
