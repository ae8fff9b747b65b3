"""From an invite's addresses to a verified connection: find the console, check the pin, connect again with TLS checked.

The first connection is not verified (Python cannot show us the chain a peer sent), so it only reads the authorities
the console claims, compares the key of one with the invite's pin, and sends nothing. The second trusts that one
authority and nothing else; only there anything is said.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

from agent.link.authorities import pinned, read_authorities, with_endorsed, write_authorities
from agent.link.credentials import unverified_context
from agent.link.enrol_messages import (
    MAX_ENROL_BYTES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    EnrolHello,
    FromEnrollee,
    FromEnroller,
    Refused,
    decode_from_enroller,
    encode_enrol,
)
from agent.link.errors import (
    ClockWrong,
    ConsoleUnreachable,
    EnrolmentError,
    PinMismatch,
    ProtocolMismatch,
    TlsInspected,
)
from agent.link.identity import server_hostname, server_verifying_context
from agent.link.messages import ENROL_PATH, MessageError
from agent.link.proxies import proxy_hint
from shard_export.library.counts import counted

_log = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 10.0
_REPLY_TIMEOUT_S = 30.0
_CLOCK_LEEWAY_S = 3600.0


@dataclass(frozen=True)
class FoundConsole:
    """A console that proved to hold the pinned key. `url` is the address that worked."""

    url: str
    fleet_id: str
    authority_pem: bytes


@dataclass(frozen=True)
class VerifiedConsole:
    """An open, verified connection with the console's greeting."""

    connection: ClientConnection
    hello: EnrolHello
    server_certificate: bytes

    @property
    def nonce(self) -> bytes:
        """What this console said in this conversation alone."""
        return self.hello.nonce


class Pinned(Protocol):
    """Where a console is said to be, and by what it is recognised: an invite, or what is kept of one."""

    @property
    def urls(self) -> Sequence[str]:
        """Its addresses, in the order they are tried."""
        ...

    @property
    def fleet_id(self) -> str:
        """The fleet."""
        ...

    @property
    def ca_spki_sha256(self) -> bytes:
        """The hash of its authority's key."""
        ...


async def find_console(invite: Pinned, now: Callable[[], float] = time.time) -> FoundConsole:
    """Try the invite's addresses in order and return the first whose authority matches the pin.

    Raises PinMismatch, TlsInspected, ClockWrong or ProtocolMismatch if something answered and nothing fitted,
    ConsoleUnreachable if nothing answered.
    """
    answered: EnrolmentError | None = None
    silent: list[str] = []
    for url in invite.urls:
        try:
            return await _check_pin(url, invite, now)
        except ConsoleUnreachable as error:
            silent.append(str(error))
        except EnrolmentError as error:
            _log.info("The console at %s is not the invite's: %s", url, error)
            answered = answered or error
    if answered is not None:
        raise answered
    raise ConsoleUnreachable(
        f"The console does not answer at {' or '.join(silent)}; check that this PC is in the company network and that "
        f"the console is running.{proxy_hint(invite.urls[0])}"
    )


async def _check_pin(url: str, invite: Pinned, now: Callable[[], float]) -> FoundConsole:
    async with _open(url, unverified_context(), invite.fleet_id) as connection:
        hello = await _greeting(connection, url)
        leaf_der = _peer_certificate(connection)
    try:
        authorities = read_authorities(hello.authorities_pem)
    except ValueError as error:
        raise PinMismatch(f"What answers at {url} is not this invite's console ({error}).") from None
    root = pinned(authorities, invite.ca_spki_sha256)
    if root is None:
        raise PinMismatch(
            f"The console at {url} is not the one this invite was made for; ask your administrator for a new invite "
            "and do not use this address."
        )
    trusted = with_endorsed([root], hello.endorsements, invite.fleet_id, now())
    _check_leaf(x509.load_der_x509_certificate(leaf_der), trusted, hello, now())
    return FoundConsole(url, invite.fleet_id, write_authorities(trusted))


async def learn_authorities(url: str, fleet_id: str, authorities_pem: bytes, now_s: float) -> bytes:
    """Ask a console for roots that those we trust vouch for; returns the grown set, or the same if there are none.

    Nothing is sent, and nothing is believed but what a trusted root has signed. Raises EnrolmentError kinds.
    """
    async with _open(url, unverified_context(), fleet_id) as connection:
        hello = await _greeting(connection, url)
    known = read_authorities(authorities_pem)
    return write_authorities(with_endorsed(known, hello.endorsements, fleet_id, now_s))


def _check_leaf(leaf: x509.Certificate, trusted: Sequence[x509.Certificate], hello: EnrolHello, now_s: float) -> None:
    if not any(_is_issued_by(leaf, root) for root in trusted):
        issuer = leaf.issuer.rfc4514_string()[:120] or "an unnamed issuer"
        raise TlsInspected(
            f"The encrypted connection is opened on the way (its certificate comes from {issuer!r}); ask your network "
            "administrator to exempt the Fallow console from TLS inspection."
        ) from None
    offset_s = now_s - hello.now_s
    valid = leaf.not_valid_before_utc.timestamp() <= now_s <= leaf.not_valid_after_utc.timestamp()
    if not valid and abs(offset_s) > _CLOCK_LEEWAY_S:
        direction = "ahead" if offset_s > 0 else "behind"
        raise ClockWrong(
            f"This PC's clock is {_duration(abs(offset_s))} {direction} of the console's; set it right and try again."
        )


def _is_issued_by(leaf: x509.Certificate, root: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _duration(seconds: float) -> str:
    hours, days = round(seconds / 3600), round(seconds / 86_400)
    return counted(days, "day") if hours >= 48 else counted(hours, "hour")


@asynccontextmanager
async def verified_connection(
    url: str, fleet_id: str, authorities_pem: bytes, context: ssl.SSLContext | None = None
) -> AsyncIterator[VerifiedConsole]:
    """Connect with the server's certificate checked against these authorities only, and read the greeting.

    `context` is one that trusts them and shows a certificate as well. Raises EnrolmentError kinds; ConnectionClosed
    may pass through later.
    """
    async with _open(url, context or server_verifying_context(authorities_pem), fleet_id) as connection:
        hello = await _greeting(connection, url)
        if hello.fleet_id != fleet_id:
            raise PinMismatch(f"The console at {url} belongs to the fleet {hello.fleet_id!r}, not to {fleet_id!r}.")
        if not hello.oldest_protocol <= PROTOCOL or hello.protocol < OLDEST_PROTOCOL:
            raise ProtocolMismatch(
                f"The console speaks enrolment versions {hello.oldest_protocol} to {hello.protocol} and this PC "
                f"{PROTOCOL}; update the older of the two."
            )
        yield VerifiedConsole(connection, hello, _peer_certificate(connection))


async def ask(console: VerifiedConsole, question: FromEnrollee) -> FromEnroller:
    """One question, one answer. Raises ConnectionClosed, ConsoleUnreachable, ProtocolMismatch."""
    try:
        async with asyncio.timeout(_REPLY_TIMEOUT_S):
            await console.connection.send(encode_enrol(question))
            return decode_from_enroller(await console.connection.recv())
    except TimeoutError:
        raise ConsoleUnreachable(f"The console does not answer within {_REPLY_TIMEOUT_S:g} s; try again.") from None
    except MessageError as error:
        raise ProtocolMismatch(f"{error} Update Fallow on this PC.") from None


@asynccontextmanager
async def _open(url: str, context: ssl.SSLContext, fleet_id: str) -> AsyncIterator[ClientConnection]:
    try:
        connection = await connect(
            url.rstrip("/") + ENROL_PATH,
            ssl=context,
            server_hostname=server_hostname(fleet_id),
            compression=None,
            proxy=None,
            user_agent_header=None,
            max_size=MAX_ENROL_BYTES,
            max_queue=4,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=1,
            ping_interval=None,
        )
    except ssl.SSLCertVerificationError as error:
        raise PinMismatch(
            f"The console at {url} shows a certificate that does not hold: {error.verify_message}."
        ) from None
    except InvalidStatus as error:
        raise ProtocolMismatch(
            f"{url} answered HTTP {error.response.status_code} instead of a Fallow console; a proxy or a login page "
            "may be in between."
        ) from None
    except (InvalidHandshake, ssl.SSLError):
        raise ProtocolMismatch(f"What answers at {url} is not a Fallow console; check address and port.") from None
    except TimeoutError:
        raise ConsoleUnreachable(f"{url} (no answer within {OPEN_TIMEOUT_S:g} s)") from None
    except (OSError, WebSocketException) as error:
        raise ConsoleUnreachable(f"{url} ({_cause(error)})") from None
    async with connection:
        yield connection


def _cause(error: Exception) -> str:
    if not isinstance(error, OSError):
        return type(error).__name__
    said = error.strerror or "no connection"
    # asyncio's own words name the address, which stands before them already, and not what is wrong with it.
    if said.startswith("Connect call failed") and error.errno is not None:
        return os.strerror(error.errno).lower()
    return said


async def _greeting(connection: ClientConnection, url: str) -> EnrolHello:
    try:
        message = decode_from_enroller(await _receive(connection))
    except MessageError:
        raise ProtocolMismatch(f"What answers at {url} is not a Fallow console; check address and port.") from None
    except (ConnectionClosed, TimeoutError):
        raise ConsoleUnreachable(f"{url} (it accepts connections but does not greet)") from None
    if isinstance(message, Refused):
        raise ConsoleUnreachable(f"{url} ({message.message})")
    if not isinstance(message, EnrolHello):
        raise ProtocolMismatch(f"The console at {url} did not greet first; update Fallow on this PC.")
    return message


async def _receive(connection: ClientConnection) -> bytes | str:
    async with asyncio.timeout(OPEN_TIMEOUT_S):
        return await connection.recv()


def _peer_certificate(connection: ClientConnection) -> bytes:
    der: bytes | None = connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if der is None:
        raise ProtocolMismatch("The console shows no certificate; check address and port.")
    return der
