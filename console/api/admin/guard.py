"""What every route of /admin/v1 has around it: the gate of its scope, who acts, and the parts' errors said in HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from console.api.auth import Gate, actor_of
from console.api.http import ApiError
from console.errors import BuildRefused, DeployRefused
from console.fleet.errors import LibraryNotServed
from console.registry.audit import Actor
from console.registry.errors import AuditBroken, NotFound, PasswordUnfit, RegistryError, WrongState
from console.registry.records import Scope
from shard_export.library.errors import LibraryError

PREFIX = "/admin/v1"

Handler = Callable[[Request, Actor], Awaitable[Response]]
AdminRoute = tuple[str, str, Scope | None, Handler]
"""Method, path below the prefix, the scope it needs (None: any live token), and what answers."""


def guarded(gate: Gate, table: Sequence[AdminRoute]) -> list[Route]:
    """Return the routes of a table, each behind the gate."""
    return [
        Route(PREFIX + path, _endpoint(gate, scope, handler), methods=[method])
        for method, path, scope, handler in table
    ]


def _endpoint(gate: Gate, scope: Scope | None, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        principal = await gate.require(request, scope)
        with refusals():
            return await handler(request, actor_of(principal, request))

    return endpoint


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Say the errors of the parts in HTTP."""
    try:
        yield
    except NotFound as error:
        raise ApiError(404, str(error), code="not_found") from None
    except (WrongState, AuditBroken) as error:
        code = "audit_broken" if isinstance(error, AuditBroken) else "wrong_state"
        raise ApiError(409, str(error), code=code) from None
    except DeployRefused as error:
        raise ApiError(409, str(error), code="deploy_refused") from None
    except BuildRefused as error:
        raise ApiError(409, str(error), code="build_refused") from None
    except (LibraryError, LibraryNotServed) as error:
        raise ApiError(400, str(error), param="folder", code="library_unusable") from None
    except PasswordUnfit as error:
        raise ApiError(400, str(error), param="password", code="password_unfit") from None
    except RegistryError as error:
        raise ApiError(400, str(error), code="refused") from None


def whole_number(request: Request, name: str, default: int) -> int:
    """Return a query parameter. Raises ApiError 400."""
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 18:
        raise ApiError(400, f"The parameter {name!r} must be a whole number.", param=name, code="invalid_value")
    return int(text)


class JsonLines(Response):
    """Sends each value as one line of JSON when it comes. The client leaving ends the reading, not the work."""

    def __init__(self, values: AsyncIterator[msgspec.Struct]) -> None:
        super().__init__()
        self._values = values

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/jsonl"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for value in self._values:
            await send({"type": "http.response.body", "body": msgspec.json.encode(value) + b"\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
