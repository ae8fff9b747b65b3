"""The console's word for a library: an Ed25519 signature of its manifest's digest. Pure: time is a number.

The digest names every file by its SHA-256, so the signature covers the whole library, whoever the files came from. The
key is the console's for one run; the fleet's authority vouches for it with a certificate that allows nothing else, so
agents need no more than the authorities they pinned when they enrolled. Neither a device's certificate nor the
console's TLS certificate can sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from agent.link.errors import SignatureRefused

MAX_SIGNATURE_BYTES = 4096
_PURPOSE = b"fallow library manifest 1\0"


class ManifestSignature(msgspec.Struct, frozen=True, array_like=True):
    """`certificate` (DER) holds the public key that made `signature`."""

    certificate: bytes
    signature: bytes


def sign_digest(digest: str, key: Ed25519PrivateKey, certificate_der: bytes) -> bytes:
    """Sign a library's digest (lower-case hex)."""
    return msgspec.msgpack.encode(ManifestSignature(certificate_der, key.sign(_PURPOSE + digest.encode())))


def check_digest(data: bytes, digest: str, authorities: Sequence[x509.Certificate], now_s: float) -> None:
    """Raise SignatureRefused unless this fleet's console signed `digest`."""
    if not data:
        raise SignatureRefused("The console did not sign the library's manifest; update the console.")
    try:
        _check(data[: MAX_SIGNATURE_BYTES + 1], digest, authorities, now_s)
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound, msgspec.MsgspecError):
        raise SignatureRefused(
            "The library's manifest is not signed by this fleet's console and nothing of it is used; check this PC's "
            "clock, then tell the administrator."
        ) from None


def _check(data: bytes, digest: str, authorities: Sequence[x509.Certificate], now_s: float) -> None:
    if len(data) > MAX_SIGNATURE_BYTES:
        raise ValueError("too long")
    signed = msgspec.msgpack.decode(data, type=ManifestSignature)
    certificate = x509.load_der_x509_certificate(signed.certificate)
    _check_certificate(certificate, authorities, now_s)
    public = certificate.public_key()
    if not isinstance(public, Ed25519PublicKey):
        raise TypeError("the key is of another kind")
    public.verify(signed.signature, _PURPOSE + digest.encode())


def _check_certificate(certificate: x509.Certificate, authorities: Sequence[x509.Certificate], now_s: float) -> None:
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if not begin <= now_s <= end or list(usage) != [ExtendedKeyUsageOID.CODE_SIGNING]:
        raise ValueError("not for signing now")
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return
    raise ValueError("issued by nobody of this fleet")
