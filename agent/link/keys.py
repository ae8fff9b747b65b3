"""Private keys on disk, and what is derived from their public halves.

A key is two files: `<stem>.pem` (PKCS#8, encrypted) and `<stem>.passphrase.json` (where its passphrase is, see
keystore). Which key is a PC's identity is said elsewhere (see identity).
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from agent.link.errors import IdentityMissing, IdentityUnreadable
from agent.link.keystore import Keystore, Passphrase, ensure_private_folder, write_private

_STEM = re.compile(r"key-[0-9a-f]{8}")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_AGAIN = "enrol this PC again with a new invite"


def spki_sha256(key: ec.EllipticCurvePublicKey) -> bytes:
    """SHA-256 of a public key (SubjectPublicKeyInfo, DER): what pins and registry records compare."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def device_code(spki_digest: bytes) -> str:
    """What employee and administrator compare: 40 bits of the key's hash and a check letter, `ABCD-EFGH-K`."""
    text = base64.b32encode(spki_digest[:5]).decode()
    total = 0
    for place, letter in enumerate(text):
        doubled = _BASE32.index(letter) * (2 - place % 2)
        total += doubled // 32 + doubled % 32
    return f"{text[:4]}-{text[4:]}-{_BASE32[-total % 32]}"


@dataclass(frozen=True)
class DeviceKey:
    """A private key on disk, not yet (or no longer) part of an identity."""

    folder: Path
    stem: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    passphrase: Passphrase = field(repr=False)

    @property
    def spki_sha256(self) -> bytes:
        return spki_sha256(self.key.public_key())


def create_key(folder: Path, keystore: Keystore) -> DeviceKey:
    """Make a new P-256 key and save it, encrypted. Raises OSError. Blocks (keyring, disk)."""
    ensure_private_folder(folder)
    stem = f"key-{secrets.token_hex(4)}"
    passphrase = keystore.create(folder / f"{stem}.passphrase.json")
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = BestAvailableEncryption(passphrase.value.encode())
    write_private(folder / f"{stem}.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return DeviceKey(folder, stem, key, passphrase)


def load_key(folder: Path, stem: str, keystore: Keystore) -> DeviceKey:
    """Open a saved key. Raises IdentityMissing, IdentityUnreadable, KeyLocked or OSError. Blocks (keyring, disk)."""
    if not _STEM.fullmatch(stem):
        raise IdentityUnreadable(f"{folder} names a key that cannot be one; {_AGAIN}.")
    passphrase = keystore.read(folder / f"{stem}.passphrase.json")
    path = folder / f"{stem}.pem"
    try:
        key = load_pem_private_key(path.read_bytes(), passphrase.value.encode())
    except FileNotFoundError:
        raise IdentityMissing(f"{path} does not exist; enrol this PC with an invite.") from None
    except (ValueError, TypeError):
        raise IdentityUnreadable(f"{path} is damaged or its passphrase does not open it; {_AGAIN}.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityUnreadable(f"{path} is not the kind of key Fallow uses; {_AGAIN}.")
    return DeviceKey(folder, stem, key, passphrase)


def forget_key(folder: Path, stem: str, keystore: Keystore) -> None:
    """Delete a key, its passphrase, its certificate and the authorities kept with it. Missing files are fine.

    While the keyring cannot be used, the file that names the passphrase's entry stays, for the next time.
    """
    for suffix in (".pem", ".crt.pem", ".authorities.pem"):
        (folder / f"{stem}{suffix}").unlink(missing_ok=True)
    keystore.forget(folder / f"{stem}.passphrase.json")


def forget_other_keys(folder: Path, stems: Collection[str], keystore: Keystore) -> None:
    """Delete every key of an identity's folder but these, also what is left of one that was half made or deleted."""
    found = {path.name.partition(".")[0] for path in folder.glob("key-????????.*")}
    for stem in found - set(stems):
        forget_key(folder, stem, keystore)


def certificate_request(key: DeviceKey) -> bytes:
    """Return a request (DER) that proves possession of a key. The console chooses every name, so it carries none."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key.key, hashes.SHA256())
    return request.public_bytes(Encoding.DER)
