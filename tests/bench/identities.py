"""Many PCs taken into a fleet at once: by registry and authority themselves, without the network.

Each gets what enrolment gives it: a key of its own, an approved record, a certificate of the console's own authority.
Only the waiting is left out, and the passphrase of the key, whose derivation would take most of the time.
"""

from __future__ import annotations

import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from agent.link.keys import device_code, spki_sha256
from agent.link.keystore import Keystore, ensure_private_folder
from console.data import authority_path, prepare, registry_path
from console.registry.authority import Authority
from console.registry.devices import DeviceRequest
from console.registry.records import CertificateRecord
from console.registry.registry import Registry

AUTHORITIES = "authorities.pem"


def take_in(console_folder: Path, folder: Path, count: int) -> str:
    """Found a console's fleet and take `count` PCs into it; returns the name its console's certificate carries.

    `folder` gets one file for each PC with its key and certificate, and the fleet's roots. No console may run on
    `console_folder` meanwhile.
    """
    prepare(console_folder)
    ensure_private_folder(folder)
    authority = Authority.open(authority_path(console_folder), Keystore.files_only("console"), fleet_name="Benchmark")
    with Registry.open(registry_path(console_folder)) as registry:
        invite = registry.invites.create(max_uses=count, approve="auto")
        for number in range(count):
            name = f"pc-{number:04d}"
            (folder / f"{name}.pem").write_bytes(_member(registry, authority, name, invite.token_id.hex()))
    (folder / AUTHORITIES).write_bytes(authority.authorities_pem)
    return authority.server_hostname


def _member(registry: Registry, authority: Authority, name: str, token_id: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    request_der, spki = request.public_bytes(Encoding.DER), spki_sha256(key.public_key())
    asked = DeviceRequest(
        spki_sha256=spki.hex(),
        csr=request_der,
        device_code=device_code(spki),
        name=name,
        facts={},
        key_protection="file",
        token_id=token_id,
    )
    device = registry.devices.add_pending(asked)
    registry.devices.approve(device.device_id)
    certificate = authority.issue_device(request_der, device.device_id)
    pem = certificate.public_bytes(Encoding.PEM)
    registry.device_keys.add_certificate(
        CertificateRecord(
            serial=f"{certificate.serial_number:x}",
            device_id=device.device_id,
            pem=pem,
            issued_s=time.time(),
            not_after_s=certificate.not_valid_after_utc.timestamp(),
            spki_sha256=spki.hex(),
        )
    )
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem
