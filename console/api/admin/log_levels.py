"""The routes of /admin/v1 for how much this console logs while it runs. Others of a shared registry have their own."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.logs.levels import LEVELS_HERE, LevelRefused, Levels
from agent.logs.types import LoggerLevel
from console.api.admin.guard import AdminRoute, guarded
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.registry.audit import Actor
from console.registry.registry import Registry


class LogLevelChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log more or less, from `logger` down: until the service ends, or for a time."""

    logger: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    level: Annotated[str, msgspec.Meta(max_length=20)]
    for_s: float | None = None


class LogLevelsView(msgspec.Struct, frozen=True):
    """All levels that are set."""

    levels: list[LoggerLevel]


class LogLevelRoutes:
    """Serves the levels of this process."""

    def __init__(self, registry: Registry, gate: Gate, levels: Levels = LEVELS_HERE) -> None:
        self._registry = registry
        self._gate = gate
        self._levels = levels

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/log-levels", "admin", self.show),
            ("POST", "/log-levels", "admin", self.change),
        ]
        return guarded(self._gate, table)

    async def show(self, request: Request, actor: Actor) -> Response:
        return json_response(LogLevelsView(self._levels.all()))

    async def change(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), LogLevelChange)
        try:
            levels = self._levels.set(asked.logger, asked.level, asked.for_s)
        except LevelRefused as error:
            raise ApiError(400, str(error), code="invalid_value", should_retry=False) from None
        await self._registry.ask(
            lambda: self._registry.audit.append(actor, "log.level", asked.logger, level=asked.level, for_s=asked.for_s)
        )
        return json_response(LogLevelsView(levels))
