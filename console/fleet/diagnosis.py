"""Why a PC's certificate or key is refused. Anybody may ask: nothing is changed, but by who proved the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from agent.link.authorities import read_authorities
from agent.link.enrol_messages import Diagnose, Diagnosis
from agent.link.identity import DeviceId
from agent.link.keys import spki_sha256
from console.fleet.doorkeeper import Expel
from console.registry.access import authorise, refusal_sentence
from console.registry.certificates import device_id_from_certificate, read_certificate
from console.registry.errors import NotAuthorised

if TYPE_CHECKING:
    from console.registry.authority import Authority
    from console.registry.registry import Registry

_FINE = "The console sees no reason to refuse this PC; check the network between them."


def diagnosed(
    registry: Registry, authority: Authority, now_s: float, message: Diagnose, shown: bytes | None, *, expel: Expel
) -> Diagnosis:
    """Say why a certificate or key is refused, or that it is not.

    `shown` is the certificate the PC proved in this connection's handshake, if any: only that one counts as used, and
    `expel` is called if that shows that two PCs use it.
    """
    if not message.certificate:
        device = registry.devices.by_spki(message.spki_sha256)
        if device is None:
            return Diagnosis("unknown", "The console does not know this PC's key; enrol this PC again.")
        return Diagnosis("ok" if device.state == "active" else device.state, refusal_sentence(device) or _FINE)
    try:
        certificate = read_certificate(message.certificate)
        ensure_ours(authority, certificate)
        if shown == message.certificate:
            authorise(registry, authority.fleet_id, shown)
        else:
            _explain(registry, authority, now_s, certificate)
    except NotAuthorised as error:
        if error.device_id:
            expel(DeviceId(error.device_id), str(error))
        return Diagnosis(error.code, str(error))
    return Diagnosis("ok", _FINE)


def ensure_ours(authority: Authority, certificate: x509.Certificate) -> None:
    """Raise NotAuthorised for a certificate of another fleet."""
    for root in read_authorities(authority.authorities_pem):
        try:
            certificate.verify_directly_issued_by(root)
            return
        except (ValueError, TypeError, InvalidSignature):
            continue
    raise NotAuthorised(
        4401,
        "wrong_fleet",
        f"This PC's certificate was not issued by the fleet {authority.fleet_name}; enrol this PC here.",
    )


def _explain(registry: Registry, authority: Authority, now_s: float, certificate: x509.Certificate) -> None:
    """Raise NotAuthorised for what would keep this certificate out."""
    device_id = device_id_from_certificate(certificate, authority.fleet_id)
    device = registry.devices.find(device_id)
    if device is None:
        raise NotAuthorised(4401, "unknown", f"The console does not know {device_id}; enrol this PC again.")
    if device.state != "active":
        raise NotAuthorised(4403, device.state, refusal_sentence(device))
    public = certificate.public_key()
    key = spki_sha256(public).hex() if isinstance(public, ec.EllipticCurvePublicKey) else ""
    owner = registry.devices.by_spki(key)
    if owner is None or owner.device_id != device_id:
        raise NotAuthorised(4401, "wrong_key", f"The key is not the one of {device_id}; enrol this PC again.")
    if certificate.not_valid_after_utc.timestamp() < now_s:
        raise NotAuthorised(
            4401, "expired", "This PC's certificate has expired; Fallow renews it, else enrol this PC again."
        )
    if certificate.not_valid_before_utc.timestamp() > now_s:
        raise NotAuthorised(4401, "not_yet_valid", "This PC's certificate is not valid yet; check the console's clock.")
