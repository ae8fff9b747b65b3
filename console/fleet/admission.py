"""What the console answers who wants in: submissions, who waits for their answer, renewals. Knows no sockets.

It is asked in threads, several at once: registry calls and signatures would hold up an event loop.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.enrol_messages import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    Await,
    Diagnose,
    Diagnosis,
    EnrolHello,
    FromEnroller,
    Granted,
    Pending,
    Refused,
    Renew,
    Submit,
    await_content,
    renewal_content,
    submission_mac,
)
from agent.link.identity import DeviceId
from agent.link.keys import device_code, spki_sha256
from console.fleet.diagnosis import diagnosed, ensure_ours
from console.fleet.doorkeeper import Expel
from console.registry.access import refusal_sentence
from console.registry.audit import Actor
from console.registry.certificates import (
    DEVICE_LIFE,
    checked_request,
    device_id_from_certificate,
    read_certificate,
)
from console.registry.devices import CLONED, PENDING_LIFE_S, DeviceRequest
from console.registry.errors import Cloned, InviteNotUsable, NotAuthorised, RequestRefused
from console.registry.records import CertificateRecord, DeviceRecord, InviteRecord
from console.visible import all_visible, visible

if TYPE_CHECKING:
    from console.registry.authority import Authority
    from console.registry.registry import Registry

_log = logging.getLogger(__name__)

POLL_S = 2.0
UNKNOWN = Refused("invite_unknown", "This console does not know the invite; ask your administrator for a new one.")
_OTHER_VERSION = Refused("protocol", "This PC's Fallow does not fit the console's version; update Fallow.")
_NO_PROOF = Refused("wrong_key", "The renewal is not signed by the key of this PC's certificate; enrol this PC again.")
_NOT_WAITING = Refused(
    "unknown", "The console does not know that this PC waits for approval; ask your administrator for a new invite."
)


class Admission:
    """Decides on enrolments and renewals. Any thread.

    `expel` is called with a device that has just been held as cloned, in the thread that asked.
    """

    def __init__(
        self,
        registry: Registry,
        authority: Authority,
        *,
        now: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
        expel: Expel = lambda device_id, sentence: None,
    ) -> None:
        self._registry = registry
        self._authority = authority
        self._now = now
        self._poll_s = poll_s
        self._expel = expel

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
            endorsements=authority.endorsements,
        )

    def submit(self, message: Submit, nonce: bytes, source: str) -> tuple[DeviceRecord | None, FromEnroller]:
        """Check a submission and return the device it is for (None if refused) with the answer."""
        if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
            return None, _OTHER_VERSION
        token_id = message.token_id.hex()
        stored = self._registry.invites.secret_sha256(token_id)
        key = bytes(32) if stored is None else stored
        proofs = [
            submission_mac(key, nonce, message.nonce, message.csr, certificate)
            for certificate in self._authority.server_certificates_der
        ]
        proven = any(hmac.compare_digest(proof, message.mac) for proof in proofs)
        if not proven or stored is None:
            _log.info("Enrolment from %s refused: no such invite or wrong secret", source)
            return None, UNKNOWN
        try:
            spki = spki_sha256(checked_request(message.csr))
            invite = self._registry.invites.consume(token_id, spki.hex(), source=source)
        except RequestRefused as error:
            return None, Refused("request", str(error))
        except InviteNotUsable as error:
            _log.info("Enrolment from %s refused: invite %s is %s", source, token_id, error.code)
            return None, Refused(f"invite_{error.code}", str(error))
        return self._answered(self._take_in(message, spki, invite, source), spki.hex(), source)

    def awaited(self, message: Await, nonce: bytes, source: str) -> tuple[DeviceRecord | None, FromEnroller]:
        """Check who asks for the answer to an earlier submission; return its device (None if refused) with the answer.

        The key of the request is all the proof there is and all that is needed: the invite was checked with the
        submission, which counts whatever became of the invite since.
        """
        if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
            return None, _OTHER_VERSION
        try:
            public = checked_request(message.csr)
        except RequestRefused as error:
            return None, Refused("request", str(error))
        contents = [await_content(nonce, one, message) for one in self._authority.server_certificates_der]
        self._registry.devices.expire()
        spki = spki_sha256(public).hex()
        device = self._registry.devices.by_spki(spki)
        if device is None or not any(_is_signed(public, message.signature, content) for content in contents):
            return None, _NOT_WAITING
        if message.withdraw and device.spki_sha256 == spki and device.state in ("pending", "active"):
            device = self._registry.devices.withdraw(device.device_id, Actor("agent", source))
            self._expel(device.device_id, refusal_sentence(device))
        return self._answered(device, spki, source)

    def _answered(self, device: DeviceRecord, spki: str, source: str) -> tuple[DeviceRecord, FromEnroller]:
        if device.state == "active" and device.spki_sha256 != spki:
            self._hold(device.device_id, f"it enrols again with the key {spki[:16]}, which was replaced", source)
        return device, self.answer(device.device_id)

    def _take_in(self, message: Submit, spki: bytes, invite: InviteRecord, source: str) -> DeviceRecord:
        """Make the device of a submission known, and approve it if the invite's rule lets it in."""
        devices, facts, name = self._registry.devices, message.facts, visible(message.facts.host)
        devices.expire()
        request = DeviceRequest(
            spki_sha256=spki.hex(),
            csr=message.csr,
            device_code=device_code(spki),
            name=name,
            facts=all_visible(msgspec.to_builtins(facts)),
            key_protection=facts.key_protection,
            token_id=invite.token_id,
            tags=invite.tags,
            machine_sha256=facts.machine_sha256,
        )
        device = devices.add_pending(request, source=source)
        if device.state != "pending" or invite.approve != "auto":
            return device
        objection = invite.rule.objection(name=name, source=source, key_protection=facts.key_protection)
        if objection:
            _log.info("%s (%s) waits for an administrator: %s", name, source, objection)
            return device
        return devices.approve(device.device_id, Actor(f"invite:{invite.token_id}", source))

    def answer(self, device_id: DeviceId) -> FromEnroller:
        """What a device that proved its key in a submission is told now."""
        device = self._registry.devices.find(device_id)
        if device is None:
            return UNKNOWN
        if device.state == "pending" and self._now() - device.created_s > PENDING_LIFE_S:
            self._registry.devices.expire()
            device = self._registry.devices.find(device_id) or device
        if device.state == "pending":
            return Pending(self._poll_s)
        if device.state != "active":
            return Refused(device.state, refusal_sentence(device))
        # A repeated question gets the same certificate until a third of its life is left.
        newest = self._registry.device_keys.newest_certificate(device_id, device.spki_sha256)
        if newest is None or newest.not_after_s - self._now() <= DEVICE_LIFE.total_seconds() / 3:
            newest = self._issue(self._registry.device_keys.request_of(device_id), device_id)
            self._registry.device_keys.add_certificate(newest)
        return self._granted(newest)

    def renew(self, message: Renew, nonce: bytes, source: str) -> FromEnroller:
        """Check a renewal and certify the next key. Two PCs that renew one certificate are both held."""
        if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
            return _OTHER_VERSION
        self._registry.devices.expire()
        try:
            device, signer = self._signer(message, nonce)
            wanted = spki_sha256(checked_request(message.csr)).hex()
            certificate = self._registry.device_keys.renew(
                device.device_id,
                signer=signer,
                wanted=wanted,
                generation=message.generation,
                issue=lambda: self._issue(message.csr, device.device_id),
                source=source,
            )
        except NotAuthorised as error:
            return Refused(error.code, str(error))
        except RequestRefused as error:
            return Refused("request", str(error))
        except Cloned as error:
            self._hold(device.device_id, error.evidence, source)
            return Refused("suspended", CLONED)
        return self._granted(certificate)

    def _signer(self, message: Renew, nonce: bytes) -> tuple[DeviceRecord, str]:
        """Return the active device whose key signed, and the key's hash. Raises NotAuthorised."""
        certificate = read_certificate(message.certificate)
        ensure_ours(self._authority, certificate)
        device_id = device_id_from_certificate(certificate, self._authority.fleet_id)
        device = self._registry.devices.find(device_id)
        if device is None:
            raise NotAuthorised(4401, "unknown", f"The console does not know {device_id}; enrol this PC again.")
        public = certificate.public_key()
        contents = [
            renewal_content(nonce, certificate, message) for certificate in self._authority.server_certificates_der
        ]
        if not isinstance(public, ec.EllipticCurvePublicKey) or not any(
            _is_signed(public, message.signature, content) for content in contents
        ):
            raise NotAuthorised(4401, _NO_PROOF.code, _NO_PROOF.message)
        signer = spki_sha256(public).hex()
        owner = self._registry.devices.by_spki(signer)
        if owner is None or owner.device_id != device_id:
            raise NotAuthorised(4401, _NO_PROOF.code, _NO_PROOF.message)
        if device.state != "active":
            raise NotAuthorised(4403, device.state, refusal_sentence(device))
        return device, signer

    def _hold(self, device_id: DeviceId, evidence: str, source: str) -> None:
        _log.warning("Device %s is held: two PCs use its identity (%s).", device_id, evidence)
        self._registry.devices.quarantine(device_id, evidence, source=source)
        self._expel(device_id, CLONED)

    def _issue(self, request_der: bytes, device_id: DeviceId) -> CertificateRecord:
        certificate = self._authority.issue_device(request_der, device_id)
        return CertificateRecord(
            serial=f"{certificate.serial_number:x}",
            device_id=device_id,
            pem=certificate.public_bytes(Encoding.PEM),
            issued_s=self._now(),
            not_after_s=certificate.not_valid_after_utc.timestamp(),
            spki_sha256=spki_sha256(checked_request(request_der)).hex(),
        )

    def _granted(self, certificate: CertificateRecord) -> Granted:
        generation = self._registry.device_keys.generation(certificate.device_id)
        return Granted(certificate.device_id, certificate.pem, self._authority.authorities_pem, generation)

    def diagnose(self, message: Diagnose, shown: bytes | None) -> Diagnosis:
        """Say why a certificate or key is refused, or that it is not; see `diagnosis`."""
        return diagnosed(self._registry, self._authority, self._now(), message, shown, expel=self._expel)


def _is_signed(public: ec.EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    try:
        public.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
