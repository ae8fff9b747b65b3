"""The routes of /admin/v1 for releases of the agent, and what travels on them. Times are Unix seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.update.releases import SHARE_OF_ALL
from console.api.admin.guard import AdminRoute, guarded
from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.errors import ReleaseUnusable
from console.registry.audit import Actor
from console.registry.records import ReleaseRecord, Ring
from console.releases import ReleaseShelf


class NewRelease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take a signed release: an absolute path on the console's PC, with the archive beside it."""

    file: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class RingChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offer a release to a ring; `percent` of all PCs at most (None: as before)."""

    ring: Ring
    percent: Annotated[int, msgspec.Meta(ge=1, le=SHARE_OF_ALL)] | None = None


class ReleaseView(msgspec.Struct, frozen=True):
    """A release as it describes itself, how far it is offered, and where it is: PCs by the phase of their update."""

    release_id: str
    version: str
    platform: str
    channel: str
    minimum_version: str
    size_bytes: int
    sequence: int
    expires_s: float
    added_s: float
    withdrawn_s: float | None
    ring: Ring
    percent: int
    installed: int = 0
    under_way: dict[str, int] = {}


class ReleasesView(msgspec.Struct, frozen=True):
    """All releases, the newest first."""

    releases: list[ReleaseView]


class ReleaseRoutes:
    """Adds, lists, offers and withdraws releases. Changing them is for owners: they say what runs on people's PCs."""

    def __init__(self, shelf: ReleaseShelf, gate: Gate) -> None:
        self._shelf = shelf
        self._gate = gate

    def routes(self) -> list[Route]:
        """List the routes, each behind the gate of its scope."""
        table: list[AdminRoute] = [
            ("GET", "/releases", "view", self.show),
            ("POST", "/releases", "admin", self.add),
            ("POST", "/releases/{release_id}/ring", "admin", self.set_ring),
            ("POST", "/releases/{release_id}/withdraw", "admin", self.withdraw),
        ]
        return guarded(self._gate, table)

    async def show(self, request: Request, actor: Actor) -> Response:
        rows = await self._shelf.list()
        return json_response(ReleasesView([_view(record, having, phases) for record, having, phases in rows]))

    async def add(self, request: Request, actor: Actor) -> Response:
        file = Path(convert(parse_object(await read_body(request)), NewRelease).file)
        if not file.is_absolute():
            raise ApiError(
                400, "Give the release's whole path on the console's PC.", param="file", code="invalid_value"
            )
        try:
            return json_response(_view(await self._shelf.add(file, actor)))
        except ReleaseUnusable as error:
            raise ApiError(400, str(error), param="file", code="release_unusable") from None

    async def set_ring(self, request: Request, actor: Actor) -> Response:
        asked = convert(parse_object(await read_body(request)), RingChange)
        release_id = request.path_params["release_id"]
        return json_response(_view(await self._shelf.set_ring(release_id, asked.ring, asked.percent, actor)))

    async def withdraw(self, request: Request, actor: Actor) -> Response:
        return json_response(_view(await self._shelf.withdraw(request.path_params["release_id"], actor)))


def _view(record: ReleaseRecord, installed: int = 0, under_way: dict[str, int] | None = None) -> ReleaseView:
    said = record.description
    return ReleaseView(
        record.release_id, said.version, said.platform, said.channel, said.minimum_version, record.size_bytes,
        record.sequence, record.expires_s, record.added_s, record.withdrawn_s, record.ring, record.percent,
        installed, under_way or {},
    )  # fmt: skip
