"""The fleet's certificate authorities are a set, and it may grow: a root we trust vouches for one we do not know yet.

Roots are rotated, and each console of a shared registry has its own. An endorsement is a signature by one root over
another. So a PC that was away while the roots changed needs no new invite, and an invite pins one root and reaches
consoles that use a younger one. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.keys import spki_sha256
from shard_export.library.counts import counted

MAX_AUTHORITIES_BYTES = 16 * 1024
MAX_AUTHORITIES = 8
_PURPOSE = b"fallow-root-1"


class Endorsement(msgspec.Struct, frozen=True):
    """One root (`signer_spki_sha256`) vouches for another until `until_s` (Unix time)."""

    authority_pem: Annotated[bytes, msgspec.Meta(max_length=2048)]
    signer_spki_sha256: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    until_s: float
    signature: Annotated[bytes, msgspec.Meta(max_length=128)]


def endorsement_content(fleet_id: str, authority_der: bytes, until_s: float) -> bytes:
    """Return what the endorsing root signs (ECDSA, SHA-256)."""
    digest = hashlib.sha256(authority_der).digest()
    return _PURPOSE + fleet_id.encode() + b"\0" + digest + int(until_s).to_bytes(8, "little", signed=True)


def read_authorities(pem: bytes) -> list[x509.Certificate]:
    """Parse a fleet's set of authorities. Raises ValueError for anything but 1 to 8 P-256 CA certificates."""
    if len(pem) > MAX_AUTHORITIES_BYTES:
        raise ValueError(f"the set of authorities is larger than {MAX_AUTHORITIES_BYTES} bytes")
    found = x509.load_pem_x509_certificates(pem)
    if not 1 <= len(found) <= MAX_AUTHORITIES:
        raise ValueError(f"the set of authorities has {counted(len(found), 'certificate')}")
    for certificate in found:
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except x509.ExtensionNotFound:
            raise ValueError("a certificate in the set of authorities is not an authority") from None
        if not constraints.ca or not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
            raise ValueError("a certificate in the set of authorities is not an authority")
    return found


def pinned(authorities: Sequence[x509.Certificate], pin: bytes) -> x509.Certificate | None:
    """Return the one authority whose public key has this SHA-256; others may stand beside it, and mean nothing."""
    return next((one for one in authorities if hmac.compare_digest(_spki_sha256(one), pin)), None)


def write_authorities(authorities: Sequence[x509.Certificate]) -> bytes:
    """Write a set as PEM, without doubles, at most as many as a set may have."""
    pems = dict.fromkeys(certificate.public_bytes(Encoding.PEM) for certificate in authorities)
    return b"".join(list(pems)[:MAX_AUTHORITIES])


def with_endorsed(
    trusted: Sequence[x509.Certificate], endorsements: Sequence[Endorsement], fleet_id: str, now_s: float
) -> list[x509.Certificate]:
    """Return the trusted roots and every root they vouch for, directly or through one another."""
    known = list(trusted)
    waiting = list(endorsements)[: MAX_AUTHORITIES * MAX_AUTHORITIES]
    for _ in range(MAX_AUTHORITIES):
        fresh = [one for one in waiting if _holds(one, known, fleet_id, now_s)]
        for endorsement in fresh:
            known += [root for root in read_authorities(endorsement.authority_pem) if root not in known]
        waiting = [one for one in waiting if one not in fresh]
        if not fresh or len(known) >= MAX_AUTHORITIES:
            break
    return known[:MAX_AUTHORITIES]


def _spki_sha256(authority: x509.Certificate) -> bytes:
    public = authority.public_key()
    return spki_sha256(public) if isinstance(public, ec.EllipticCurvePublicKey) else b""


def _holds(endorsement: Endorsement, known: Sequence[x509.Certificate], fleet_id: str, now_s: float) -> bool:
    if endorsement.until_s <= now_s or not 0 < endorsement.until_s < 1 << 40:
        return False
    try:
        (root,) = read_authorities(endorsement.authority_pem)
    except ValueError:
        return False
    content = endorsement_content(fleet_id, root.public_bytes(Encoding.DER), endorsement.until_s)
    for signer in known:
        public = signer.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey):
            try:
                public.verify(endorsement.signature, content, ec.ECDSA(hashes.SHA256()))
                return True
            except InvalidSignature:
                continue
    return False
