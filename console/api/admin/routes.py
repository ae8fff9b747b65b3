"""The routes of /admin/v1 for models and the service: HTTP in, a call to whoever knows, records out."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.admin import types as wire
from console.api.admin.guard import AdminRoute, JsonLines, guarded, whole_number
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.deliveries import DeliveryJobs
from console.deployments.deployments import Deployments
from console.libraries import LibraryShelf
from console.registry.audit import Actor

ANSWERS_TOLD = 50


class Overview(Protocol):
    """What the service says about itself."""

    async def status(self) -> wire.Status:
        """Describe the whole service now."""
        ...


class AdminRoutes:
    """Serves /admin/v1 from the parts of the console."""

    def __init__(
        self,
        *,
        shelf: LibraryShelf,
        deployments: Deployments,
        deliveries: DeliveryJobs,
        overview: Overview,
        gate: Gate,
    ) -> None:
        self._shelf = shelf
        self._deployments = deployments
        self._deliveries = deliveries
        self._overview = overview
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/status", "view", self.status),
            ("GET", "/performance", "view", self.performance),
            ("GET", "/answers", "view", self.answers),
            ("GET", "/libraries", "view", self.list_libraries),
            ("POST", "/libraries", "operate", self.add_library),
            ("DELETE", "/libraries/{digest}", "operate", self.remove_library),
            ("GET", "/deployments", "view", self.list_deployments),
            ("POST", "/deployments", "operate", self.deploy),
            ("GET", "/deliveries", "view", self.list_deliveries),
            ("POST", "/deliveries", "operate", self.deliver),
            ("GET", "/deliveries/{model:path}", "view", self.follow_delivery),
            ("DELETE", "/deliveries/{model:path}", "operate", self.stop_delivery),
            ("DELETE", "/deployments/{model:path}", "operate", self.undeploy),
        ]
        return guarded(self._gate, table)

    async def status(self, request: Request, actor: Actor) -> Response:
        return json_response(await self._overview.status())

    async def performance(self, request: Request, actor: Actor) -> Response:
        return json_response(self._deployments.performances())

    async def answers(self, request: Request, actor: Actor) -> Response:
        order = request.query_params.get("order", "slowest")
        if order not in get_args(wire.AnswerOrder):
            message = f"The parameter 'order' must be one of {', '.join(get_args(wire.AnswerOrder))}."
            raise ApiError(400, message, param="order", code="invalid_value")
        limit = whole_number(request, "limit", ANSWERS_TOLD)
        return json_response(self._deployments.answer_times("newest" if order == "newest" else "slowest", limit))

    async def list_libraries(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Libraries(await self._shelf.list()))

    async def add_library(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.NewLibrary)
        folder = Path(asked.folder)
        if not folder.is_absolute():
            raise ApiError(400, "The folder must be an absolute path on the console's PC.", param="folder")
        return json_response(await self._shelf.add(folder, actor), 201)

    async def remove_library(self, request: Request, actor: Actor) -> Response:
        self._shelf.remove(request.path_params["digest"], actor)
        return json_response(wire.Done())

    async def list_deployments(self, request: Request, actor: Actor) -> Response:
        return json_response({"deployments": self._deployments.views()})

    async def deploy(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.DeployRequest)
        return JsonLines(self._deployments.deploy(asked, actor))

    async def deliver(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), wire.DeliveryRequest)
        return JsonLines(self._deliveries.begin(asked, actor))

    async def list_deliveries(self, request: Request, actor: Actor) -> Response:
        return json_response(wire.Deliveries(self._deliveries.views()))

    async def follow_delivery(self, request: Request, actor: Actor) -> Response:
        return JsonLines(self._deliveries.follow(request.path_params["model"]))

    async def stop_delivery(self, request: Request, actor: Actor) -> Response:
        await self._deliveries.stop(request.path_params["model"], actor)
        return json_response(wire.Done())

    async def undeploy(self, request: Request, actor: Actor) -> Response:
        await self._deployments.undeploy(request.path_params["model"], actor)
        return json_response(wire.Done())
