"""/metrics: what the console counts, for Prometheus. It needs a key with the scope `view`, like every look inside."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.threads import finish_in_thread
from console.api.auth import Gate
from console.metrics.collecting import ConsoleMetrics
from console.metrics.scrape import exposed
from console.registry.registry import Registry


class MetricsRoutes:
    """Serves the metrics."""

    def __init__(self, metrics: ConsoleMetrics, registry: Registry, gate: Gate) -> None:
        self._metrics = metrics
        self._registry = registry
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route("/metrics", self.expose)]

    async def expose(self, request: Request) -> Response:
        await self._gate.require(request, "view")
        known = await self._registry.ask(self._registry.devices.count_by_state)
        scrape, accept = self._metrics.scrape(known), request.headers.get("accept", "")
        exposition = await finish_in_thread(lambda: exposed(scrape, accept))
        return Response(exposition.body, headers={"content-type": exposition.content_type, "cache-control": "no-store"})
