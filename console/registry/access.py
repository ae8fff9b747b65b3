"""May this peer use a link? The registry decides on each accept, so a revocation needs no certificate lists.

The TLS layer checks chain, dates and purpose of the certificate a client shows, but a client may show none: every
path of the agents' port except enrolment calls `authorise` before it reads a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec

from agent.link.identity import spki_sha256
from console.registry.certificates import device_id_from_certificate, read_certificate
from console.registry.errors import NotAuthorised

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from console.registry.records import DeviceRecord, DeviceState
    from console.registry.registry import Registry

REFUSALS: dict[DeviceState, str] = {
    "pending": "An administrator has not approved this PC yet; compare its code with the one in the console.",
    "suspended": "An administrator has suspended this PC; it may come back when it is resumed in the console.",
    "expired": "This PC was away too long and its certificate has expired; it must be renewed or enrolled again.",
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
    if not isinstance(public, ec.EllipticCurvePublicKey) or spki_sha256(public).hex() != device.spki_sha256:
        raise NotAuthorised(
            4401, "wrong_key", f"The key is not the one registered for {device_id}; enrol this PC again."
        )
    if device.state != "active":
        raise NotAuthorised(4403, device.state, refusal_sentence(device))
    return device


def refusal_sentence(device: DeviceRecord) -> str:
    """Why this device is refused (empty if it is active), with the administrator's reason."""
    sentence = REFUSALS.get(device.state, "")
    return f"{sentence} Reason given: {device.reason}" if sentence and device.reason else sentence
