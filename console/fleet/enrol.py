"""The open door of the agents' port: enrolment, and the answer to "why was I refused?".

TLS 1.3 hides from a client why its certificate was not accepted, so diagnosis lives here, where none is needed. The
handler owns no socket: the hub calls `EnrolHandler.handle` for each connection to the enrolment path. It runs on the
event loop; registry calls and signatures take a millisecond or so.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from websockets.exceptions import ConnectionClosed

from agent.link.enrol_messages import (
    MAX_ENROL_BYTES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Diagnose,
    Diagnosis,
    EnrolHello,
    FromEnroller,
    Granted,
    Pending,
    Poll,
    Refused,
    Submit,
    decode_from_enrollee,
    encode_enrol,
    submission_mac,
)
from agent.link.identity import DeviceId, device_code, read_authorities, spki_sha256
from agent.link.messages import MessageError
from console.fleet.ratelimit import RateLimiter
from console.registry.access import authorise, refusal_sentence
from console.registry.audit import Actor
from console.registry.certificates import DEVICE_LIFE, checked_request, read_certificate
from console.registry.devices import DeviceRequest
from console.registry.errors import InviteNotUsable, NotAuthorised, RequestRefused
from console.registry.records import CertificateRecord, DeviceRecord

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from console.registry.authority import Authority
    from console.registry.registry import Registry

_log = logging.getLogger(__name__)

POLL_S = 2.0
IDLE_S = 90.0
"""Longer than the slowest poll of an agent (30 s) by far; a silent stranger is dropped after it."""
MAX_CONNECTIONS = 500
MAX_MESSAGES = 2000
_UNKNOWN = Refused("invite_unknown", "This console does not know the invite; ask your administrator for a new one.")
_BUSY = Refused("busy", "The console is answering too many enrolments; try again in a minute.")


class EnrolHandler:
    """Answers one enrolment connection at a time per call of `handle`; share one handler for all."""

    def __init__(
        self,
        registry: Registry,
        authority: Authority,
        *,
        now: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
        limiter: RateLimiter | None = None,
    ) -> None:
        self._registry = registry
        self._authority = authority
        self._now = now
        self._poll_s = poll_s
        self._limiter = limiter or RateLimiter(burst=200, per_s=20.0)
        self._open = 0

    async def handle(self, websocket: ServerConnection) -> None:
        """Talk to one agent until it leaves, errs or stays silent. Never raises but for cancellation."""
        # The port is shared with data links, whose messages are large; a stranger's are not.
        websocket.protocol.max_message_size = MAX_ENROL_BYTES
        source = _source(websocket)
        if self._open >= MAX_CONNECTIONS or not self._limiter.allow(source, time.monotonic()):
            await _send_and_close(websocket, _BUSY, 1013)
            return
        self._open += 1
        try:
            await _Conversation(self, websocket, source).run()
        except ConnectionClosed:
            pass
        except MessageError as error:
            _log.info("Enrolment connection from %s ended: %s", source, error)
            await websocket.close(4400)
        except TimeoutError:
            _log.info("Enrolment connection from %s ended: it stayed silent for %g s", source, IDLE_S)
            await websocket.close(4408)
        finally:
            self._open -= 1

    def hello(self) -> EnrolHello:
        """A greeting with a new nonce."""
        authority = self._authority
        return EnrolHello(
            protocol=PROTOCOL,
            oldest_protocol=OLDEST_PROTOCOL,
            fleet_id=authority.fleet_id,
            fleet_name=authority.fleet_name,
            now_s=self._now(),
            nonce=secrets.token_bytes(32),
            authorities_pem=authority.authorities_pem,
        )

    def submit(self, message: Submit, nonce: bytes, source: str) -> tuple[DeviceRecord | None, FromEnroller]:
        """Check a submission and return the device it is for (None if refused) with the answer."""
        if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
            return None, Refused("protocol", "This PC's Fallow does not fit the console's version; update Fallow.")
        token_id = message.token_id.hex()
        stored = self._registry.invites.secret_sha256(token_id)
        key = bytes(32) if stored is None else stored
        server_certificate = self._authority.server_certificate_der
        wanted = submission_mac(key, nonce, message.nonce, message.csr, server_certificate)
        if not hmac.compare_digest(wanted, message.mac) or stored is None:
            _log.info("Enrolment from %s refused: no such invite or wrong secret", source)
            return None, _UNKNOWN
        try:
            spki = spki_sha256(checked_request(message.csr))
            invite = self._registry.invites.consume(token_id, spki.hex(), source=source)
        except RequestRefused as error:
            return None, Refused("request", str(error))
        except InviteNotUsable as error:
            _log.info("Enrolment from %s refused: invite %s is %s", source, token_id, error.code)
            return None, Refused(f"invite_{error.code}", str(error))
        self._registry.devices.expire_pending()
        request = DeviceRequest(
            spki_sha256=spki.hex(),
            csr=message.csr,
            device_code=device_code(spki),
            name=message.facts.host,
            facts=msgspec.to_builtins(message.facts),
            key_protection=message.facts.key_protection,
            token_id=token_id,
        )
        device = self._registry.devices.add_pending(request, source=source)
        if device.state == "pending" and invite.approve == "auto":
            device = self._registry.devices.approve(device.device_id, Actor(f"invite:{token_id}", source))
        return device, self.answer(device.device_id)

    def answer(self, device_id: DeviceId) -> FromEnroller:
        """What a device that proved its key in a submission is told now."""
        device = self._registry.devices.find(device_id)
        if device is None:
            return _UNKNOWN
        if device.state == "pending":
            return Pending(self._poll_s)
        if device.state != "active":
            return Refused(device.state, refusal_sentence(device))
        return Granted(device_id, self._certificate(device), self._authority.authorities_pem)

    def _certificate(self, device: DeviceRecord) -> bytes:
        """The device's certificate; a repeated question gets the same one until a third of its life is left."""
        now_s = self._now()
        newest = self._registry.devices.newest_certificate(device.device_id)
        if newest is not None and newest.not_after_s - now_s > DEVICE_LIFE.total_seconds() / 3:
            return newest.pem
        request = self._registry.devices.request_of(device.device_id)
        certificate = self._authority.issue_device(request, device.device_id)
        pem = certificate.public_bytes(Encoding.PEM)
        self._registry.devices.add_certificate(
            CertificateRecord(
                serial=f"{certificate.serial_number:x}",
                device_id=device.device_id,
                pem=pem,
                issued_s=now_s,
                not_after_s=certificate.not_valid_after_utc.timestamp(),
            )
        )
        return pem

    def diagnose(self, message: Diagnose) -> Diagnosis:
        """Say why a certificate or key is refused, or that it is not."""
        if not message.certificate:
            device = self._registry.devices.by_spki(message.spki_sha256)
            if device is None:
                return Diagnosis("unknown", "The console does not know this PC's key; enrol this PC again.")
            return Diagnosis(_code(device), refusal_sentence(device) or _FINE)
        try:
            certificate = read_certificate(message.certificate)
            self._ensure_ours(certificate)
            authorise(self._registry, self._authority.fleet_id, message.certificate)
        except NotAuthorised as error:
            return Diagnosis(error.code, str(error))
        now_s = self._now()
        if certificate.not_valid_after_utc.timestamp() < now_s:
            return Diagnosis("expired", "This PC's certificate has expired; renew it or enrol this PC again.")
        if certificate.not_valid_before_utc.timestamp() > now_s:
            return Diagnosis("not_yet_valid", "This PC's certificate is not valid yet; check the console's clock.")
        return Diagnosis("ok", _FINE)

    def _ensure_ours(self, certificate: x509.Certificate) -> None:
        for root in read_authorities(self._authority.authorities_pem):
            try:
                certificate.verify_directly_issued_by(root)
                return
            except (ValueError, TypeError, InvalidSignature):
                continue
        raise NotAuthorised(
            4401,
            "wrong_fleet",
            f"This PC's certificate was not issued by the fleet {self._authority.fleet_name}; enrol this PC here.",
        )


_FINE = "The console sees no reason to refuse this PC; check the network between them."


def _code(device: DeviceRecord) -> str:
    return "ok" if device.state == "active" else device.state


class _Conversation:
    """One connection: greeting, then answers until it ends."""

    def __init__(self, handler: EnrolHandler, websocket: ServerConnection, source: str) -> None:
        self._handler = handler
        self._websocket = websocket
        self._source = source
        self._submitted: DeviceId | None = None

    async def run(self) -> None:
        hello = self._handler.hello()
        await self._websocket.send(encode_enrol(hello))
        for _ in range(MAX_MESSAGES):
            async with asyncio.timeout(IDLE_S):
                data = await self._websocket.recv()
            reply = self._reply(decode_from_enrollee(data), hello.nonce)
            if isinstance(reply, Pending):
                await self._websocket.send(encode_enrol(reply))
            else:
                await _send_and_close(self._websocket, reply, 1000)
                return
        await self._websocket.close(1000)

    def _reply(self, message: Submit | Poll | Diagnose, nonce: bytes) -> FromEnroller:
        match message:
            case Submit():
                device, reply = self._handler.submit(message, nonce, self._source)
                self._submitted = None if device is None else device.device_id
                return reply
            case Poll():
                return _UNKNOWN if self._submitted is None else self._handler.answer(self._submitted)
            case Diagnose():
                return self._handler.diagnose(message)


async def _send_and_close(websocket: ServerConnection, message: FromEnroller, code: int) -> None:
    try:
        await websocket.send(encode_enrol(message))
        await websocket.close(code)
    except ConnectionClosed:
        pass


def _source(websocket: ServerConnection) -> str:
    address = websocket.remote_address
    return str(address[0]) if isinstance(address, tuple) and address else "unknown"
