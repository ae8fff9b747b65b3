"""/authority.pem: the fleet's root certificates, for who holds a pin of one. They are no secret and need no key."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.chat_link import AUTHORITY_PATH


class AuthorityRoutes:
    """Serves what the service's certificate is verified with."""

    def __init__(self, authorities_pem: Callable[[], bytes]) -> None:
        """`authorities_pem` returns the roots as they are now."""
        self._authorities_pem = authorities_pem

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route(AUTHORITY_PATH, self.show)]

    async def show(self, request: Request) -> Response:
        return Response(self._authorities_pem(), media_type="application/x-pem-file")
