"""May this peer use a link? The registry decides on each accept, so a revocation needs no certificate lists.

The TLS layer checks chain, dates and purpose of the certificate a client shows, but a client may show none: every
path of the agents' port except enrolment calls `authorise` before it reads a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec

from agent.link.keys import spki_sha256
from console.registry.certificates import device_id_from_certificate, read_certificate
from console.registry.devices import CLONED
from console.registry.errors import NotAuthorised

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from console.registry.records import DeviceRecord, DeviceState
    from console.registry.registry import Registry

REFUSALS: dict[DeviceState, str] = {
    "pending": "An administrator has not approved this PC yet; compare its code with the one in the console.",
    "suspended": "This PC is suspended; it comes back when an administrator resumes it in the console.",
    "expired": "This PC was away too long; an administrator must approve it again in the console.",
    "evicted": "An administrator has removed this PC from the fleet; it needs a new invite to come back.",
    "banned": "An administrator has banned this PC from the fleet.",
    "retired": "This PC was retired from the fleet; it needs a new invite to come back.",
}
"""Why a device that is not active may not use a link, as a sentence for its user."""


def peer_certificate(connection: ServerConnection) -> bytes | None:
    """Return the certificate (DER) the client of a websocket showed in the TLS handshake, or None."""
    tls = connection.transport.get_extra_info("ssl_object")
    return tls.getpeercert(binary_form=True) if tls is not None else None


def authorise(registry: Registry, fleet_id: str, certificate_der: bytes | None) -> DeviceRecord:
    """Return the active device a verified client certificate stands for. One short database read.

    The first use of a renewed key makes it the device's key, and an outdated key holds the device (two PCs use it).
    Raises NotAuthorised: 4401 if no device of this fleet is named or the key is not the registered one, 4403 if the
    device is known but not active. Close the websocket with `error.close_code` and `str(error)`.
    """
    if certificate_der is None:
        raise NotAuthorised(4401, "no_certificate", "This link needs a device certificate; enrol this PC first.")
    certificate = read_certificate(certificate_der)
    device_id = device_id_from_certificate(certificate, fleet_id)
    public = certificate.public_key()
    device = registry.devices.find(device_id)
    if device is None:
        raise NotAuthorised(4401, "unknown", f"The console does not know the device {device_id}; enrol this PC again.")
    if device.state != "active":
        raise NotAuthorised(4403, device.state, refusal_sentence(device), device_id)
    key = spki_sha256(public).hex() if isinstance(public, ec.EllipticCurvePublicKey) else ""
    if key != device.spki_sha256:
        _check_other_key(registry, device, key)
    return device


def _check_other_key(registry: Registry, device: DeviceRecord, key: str) -> None:
    use = registry.device_keys.use(device.device_id, key)
    if use == "unknown":
        sentence = f"The key is not the one registered for {device.device_id}; enrol this PC again."
        raise NotAuthorised(4401, "wrong_key", sentence)
    if use == "outdated":
        registry.devices.quarantine(device.device_id, f"it shows the key {key[:16]}, which was replaced")
        raise NotAuthorised(4403, "suspended", CLONED, device.device_id)


def refusal_sentence(device: DeviceRecord) -> str:
    """Why this device is refused (empty if it is active), with the administrator's reason."""
    if device.reason == CLONED:
        return CLONED
    sentence = REFUSALS.get(device.state, "")
    return f"{sentence} Reason given: {device.reason}" if sentence and device.reason else sentence
