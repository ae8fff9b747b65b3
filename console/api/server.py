"""The HTTP server as a part of a bigger program: no signal handlers of its own, started and stopped by its owner."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from console.api.connections import Connection
from console.errors import PortUnavailable

GRACE_S = 3
"""How long running requests get at shutdown; streams were told to end before."""
KEEP_ALIVE_IDLE_S = 30


class _Server(uvicorn.Server):
    """uvicorn without signal handlers and with an event for "accepts connections"."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


class ApiServer:
    """Serves one ASGI application on one address. Start and stop on the service's event loop."""

    def __init__(
        self, app: ASGIApp, *, host: str, port: int, tls: ssl.SSLContext | None = None, dialled_as: str = ""
    ) -> None:
        """`dialled_as` is the name in `url` when `host` is not one a client can dial."""
        self._host, self._port = host, port
        self._dialled_as = dialled_as or host
        self._secure = tls is not None
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                http=Connection,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
                timeout_keep_alive=KEEP_ALIVE_IDLE_S,
                ws="none",
                # Whoever asks is who the socket says: no forwarded header may name another source.
                proxy_headers=False,
                ssl_context_factory=None if tls is None else lambda _config, _default: tls,
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address with the real port, once started."""
        host = f"[{self._dialled_as}]" if ":" in self._dialled_as else self._dialled_as
        return f"{'https' if self._secure else 'http'}://{host}:{self._port}"

    async def start(self) -> None:
        """Open the port and return when requests are accepted. Raises PortUnavailable."""
        listener = _listen(self._host, self._port)
        self._port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve([listener]), name="api server")
        accepting = asyncio.create_task(self._server.accepting.wait())
        try:
            await asyncio.wait((self._task, accepting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not accepting.done():
                accepting.cancel()
                with contextlib.closing(listener):
                    await self.stop()

    async def stop(self) -> None:
        """Stop accepting, let running requests end within the grace time, close everything."""
        if self._task is not None:
            self._server.should_exit = True
            await self._task


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        message = f"The API port {host}:{port} cannot be opened ({error.strerror}); choose another with --api-port."
        raise PortUnavailable(message) from None
    listener.setblocking(False)
    # Each event of a stream is one small write that must leave at once.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
