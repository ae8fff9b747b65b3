"""Dialling the console: one websocket per link over mutual TLS, and how long to wait before the next try.

Agents only dial out. Every failure becomes one of the errors of `agent.link.closing`, with a sentence.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI

from agent.link.closing import (
    ConsoleNotTrusted,
    LinkCut,
    LinkDown,
    LinkRefused,
    NotApproved,
    NotRecognised,
    error_of,
)
from agent.link.proxies import proxy_hint
from agent.link.sockets import client_settings

SHORTEST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
PENDING_WAIT_S = 30.0
REFUSED_WAIT_S = 15 * 60.0
"""How often a PC that is not let in asks again: it may be let in later, and thousands may be waiting."""

Diagnose = Callable[[], Awaitable[LinkDown | None]]
"""Asks the console, over a link that needs no certificate, why it refuses ours; None when it does not say."""


class Backoff:
    """Waiting times between attempts: full jitter from 1 s up to a cap that doubles to 60 s. Pure but for chance."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._attempts = 0

    def reset(self) -> None:
        """Call after a link worked."""
        self._attempts = 0

    def next_wait_s(self, error: LinkDown) -> float:
        """Return the seconds to wait after `error`. A refusal waits 15 min (30 s if it may end soon), give or take."""
        if isinstance(error, NotApproved | NotRecognised):
            wait_s = PENDING_WAIT_S if error.code in ("pending", "suspended") else REFUSED_WAIT_S
            return wait_s * self._uniform(0.9, 1.1)
        self._attempts = min(self._attempts + 1, 16)
        return self._uniform(SHORTEST_WAIT_S, min(LONGEST_WAIT_S, SHORTEST_WAIT_S * 2.0**self._attempts))


class Dialler:
    """Opens links to the console; remembers which of its addresses answered last. Event loop only.

    `urls` are `wss://host:port` addresses of the same console; its certificate is checked against `server_hostname`,
    so addresses may change. `tls` is a context that trusts the fleet's CA alone and holds this PC's certificate.
    """

    def __init__(
        self,
        urls: Sequence[str],
        tls: ssl.SSLContext,
        server_hostname: str,
        diagnose: Diagnose | None = None,
    ) -> None:
        self._urls = [_base(url) for url in urls]
        self._tls = tls
        self._server_hostname = server_hostname
        self._diagnose = diagnose

    @property
    def url(self) -> str:
        """The address that answered last, or the first to be tried (empty: none known)."""
        return self._urls[0] if self._urls else ""

    def use(self, tls: ssl.SSLContext) -> None:
        """Show another certificate of the same identity from the next link on."""
        self._tls = tls

    async def dial(self, path: str) -> ClientConnection:
        """Open one link. Raises LinkDown: the most telling error of all addresses."""
        worst: LinkDown = LinkCut("This agent knows no address of its console; enrol it again.", "no_address")
        for url in list(self._urls):
            try:
                link = await connect(
                    url + path, ssl=self._tls, server_hostname=self._server_hostname, **client_settings(path)
                )
            except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
                told = await self._explain(url, error)
                worst = worst if isinstance(worst, LinkRefused | ConsoleNotTrusted) else told
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return link
        raise worst

    async def _explain(self, url: str, error: Exception) -> LinkDown:
        """Find the reason behind a failed dial. With TLS 1.3 a refused certificate looks like a cut to the client."""
        host = urlsplit(url).netloc
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConsoleNotTrusted(
                f"What answers at {host} has no certificate of this fleet ({error.verify_message}); check this PC's "
                "clock and whether a proxy inspects TLS.",
                "certificate",
            )
        if isinstance(error, ConnectionClosed):
            return link_error(error)
        if isinstance(error, InvalidStatus):
            return LinkCut(f"{host} answered with HTTP {error.response.status_code} and is not a console.", "http")
        if isinstance(error, InvalidMessage | ssl.SSLError | ConnectionResetError) and self._diagnose is not None:
            told = await self._diagnose()
            if told is not None:
                return told
        if isinstance(error, TimeoutError):
            return LinkCut(
                f"The console at {host} did not answer in time; it is tried again.{proxy_hint(url)}", "timeout"
            )
        return LinkCut(f"The console at {host} cannot be reached; it is tried again.{proxy_hint(url)}", "unreachable")


def link_error(closed: ConnectionClosed) -> LinkDown:
    """Turn websockets' exception into ours; what the other side said goes before what we said."""
    frame = closed.rcvd or closed.sent
    return error_of(frame.code, frame.reason) if frame is not None else error_of(None, None)


def _base(url: str) -> str:
    split = urlsplit(url)
    return f"wss://{split.netloc}"
