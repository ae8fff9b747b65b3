"""The console's word, an Ed25519 signature, for a library or a policy. Pure: time is a number.

A library is signed by its manifest's digest, which names every file by its SHA-256, so the signature covers the whole
library, whoever the files came from; a policy is signed as it is. The key is the console's for one run; the fleet's
authority vouches for it with a certificate that allows nothing else, so agents need no more than the authorities they
pinned when they enrolled. Neither a device's certificate nor the console's TLS certificate can sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from agent.link.errors import SignatureRefused
from agent.link.parsing import UNREADABLE

MAX_SIGNATURE_BYTES = 4096
_LIBRARY, _POLICY = b"fallow library manifest 1\0", b"fallow volunteer policy 1\0"
"""Signed with what follows, so that a word for one thing is none for another."""


class ManifestSignature(msgspec.Struct, frozen=True, array_like=True):
    """`certificate` (DER) holds the public key that made `signature`."""

    certificate: bytes
    signature: bytes


def sign_digest(digest: str, key: Ed25519PrivateKey, certificate_der: bytes) -> bytes:
    """Sign a library's digest (lower-case hex)."""
    return _sign(_LIBRARY + digest.encode(), key, certificate_der)


def sign_policy(body: bytes, key: Ed25519PrivateKey, certificate_der: bytes) -> bytes:
    """Sign the body of a volunteer policy."""
    return _sign(_POLICY + body, key, certificate_der)


def check_digest(data: bytes, digest: str, authorities: Sequence[x509.Certificate], now_s: float) -> None:
    """Raise SignatureRefused unless this fleet's console signed `digest`."""
    if not data:
        raise SignatureRefused("The console did not sign the library's manifest; update the console.")
    if not _is_signed(data, _LIBRARY + digest.encode(), authorities, now_s):
        raise SignatureRefused(
            "The library's manifest is not signed by this fleet's console and nothing of it is used; check this PC's "
            "clock, then tell the administrator."
        )


def check_policy(data: bytes, body: bytes, authorities: Sequence[x509.Certificate], now_s: float) -> None:
    """Raise SignatureRefused unless this fleet's console signed the policy `body`."""
    if not _is_signed(data, _POLICY + body, authorities, now_s):
        raise SignatureRefused(
            "The policy is not signed by this fleet's console and is not used; check this PC's clock, then tell the "
            "administrator."
        )


def _sign(message: bytes, key: Ed25519PrivateKey, certificate_der: bytes) -> bytes:
    return msgspec.msgpack.encode(ManifestSignature(certificate_der, key.sign(message)))


def _is_signed(data: bytes, message: bytes, authorities: Sequence[x509.Certificate], now_s: float) -> bool:
    try:
        _check(data[: MAX_SIGNATURE_BYTES + 1], message, authorities, now_s)
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound, *UNREADABLE):
        return False
    return True


def _check(data: bytes, message: bytes, authorities: Sequence[x509.Certificate], now_s: float) -> None:
    if len(data) > MAX_SIGNATURE_BYTES:
        raise ValueError("too long")
    signed = msgspec.msgpack.decode(data, type=ManifestSignature)
    certificate = x509.load_der_x509_certificate(signed.certificate)
    _check_certificate(certificate, authorities, now_s)
    public = certificate.public_key()
    if not isinstance(public, Ed25519PublicKey):
        raise TypeError("the key is of another kind")
    public.verify(signed.signature, message)


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
