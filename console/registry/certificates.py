"""How the fleet's certificates look: pure functions from keys and times to signed certificates.

All are P-256 and pass OpenSSL's strict checks: authorities carry a subject key identifier and key usage, leaves an
authority key identifier. Names never come from a request; the console chooses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.link.identity import FLEET_ID, DeviceId, device_hostname, device_uri, server_hostname
from console.registry.errors import NotAuthorised, RequestRefused

ROOT_LIFE = timedelta(days=3652)
SERVER_LIFE = timedelta(days=365)
DEVICE_LIFE = timedelta(days=30)
SERVER_BACKDATED = timedelta(hours=48)
DEVICE_BACKDATED = timedelta(hours=24)
MAX_REQUEST_BYTES = 4096
_MAX_CERTIFICATE_BYTES = 8192

_LEAF_USAGE = {
    "digital_signature": True, "content_commitment": False, "key_encipherment": False, "data_encipherment": False,
    "key_agreement": False, "key_cert_sign": False, "crl_sign": False, "encipher_only": False,
    "decipher_only": False,
}  # fmt: skip
_ROOT_USAGE = _LEAF_USAGE | {"digital_signature": False, "key_cert_sign": True, "crl_sign": True}


@dataclass(frozen=True)
class Issuer:
    """A root that signs, with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    fleet_id: str


@dataclass(frozen=True)
class _Validity:
    backdated: timedelta
    life: timedelta


_PublicKey = ec.EllipticCurvePublicKey | Ed25519PublicKey

_ROOT = _Validity(SERVER_BACKDATED, ROOT_LIFE)
_SERVER = _Validity(SERVER_BACKDATED, SERVER_LIFE)
_DEVICE = _Validity(DEVICE_BACKDATED, DEVICE_LIFE)


def make_root(key: ec.EllipticCurvePrivateKey, fleet_id: str, fleet_name: str, now_s: float) -> x509.Certificate:
    """Sign the fleet's own root with its own key; it may sign leaves only (path length 0)."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, fleet_name[:64]),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Fallow fleet {fleet_id}"),
        ]
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(name, name, key.public_key(), now_s, _ROOT)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**_ROOT_USAGE), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )


def make_server(issuer: Issuer, public: ec.EllipticCurvePublicKey, now_s: float) -> x509.Certificate:
    """Sign the console's certificate: one fixed name, whatever address it is reached by."""
    name = server_hostname(issuer.fleet_id)
    return (
        _leaf(issuer, public, name, now_s, _SERVER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def make_api(
    issuer: Issuer, public: ec.EllipticCurvePublicKey, names: Sequence[x509.GeneralName], now_s: float
) -> x509.Certificate:
    """Sign the certificate of the HTTP API: clients know it by the names and addresses they dial."""
    return (
        _leaf(issuer, public, server_hostname(issuer.fleet_id), now_s, _SERVER)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def make_signer(issuer: Issuer, public: Ed25519PublicKey, now_s: float) -> x509.Certificate:
    """Sign the certificate of a key that signs libraries; it proves nobody on any link."""
    return (
        _leaf(issuer, public, f"libraries of {issuer.fleet_id}", now_s, _SERVER)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=True)
        .sign(issuer.key, hashes.SHA256())
    )


def make_device(
    issuer: Issuer, public: ec.EllipticCurvePublicKey, device_id: DeviceId, now_s: float
) -> x509.Certificate:
    """Sign a device's certificate. To the console it proves a client; to other devices also the end of a direct link.

    It cannot pass for the console, whose one host name no device certificate has.
    """
    names = x509.SubjectAlternativeName(
        [
            x509.UniformResourceIdentifier(device_uri(issuer.fleet_id, device_id)),
            x509.DNSName(device_hostname(issuer.fleet_id, device_id)),
        ]
    )
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        _leaf(issuer, public, device_id, now_s, _DEVICE)
        .add_extension(names, critical=False)
        .add_extension(usage, critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def _leaf(
    issuer: Issuer, public: _PublicKey, common_name: str, now_s: float, validity: _Validity
) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer_identifier = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_identifier)
    return (
        _builder(name, issuer.certificate.subject, public, now_s, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**_LEAF_USAGE), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(authority, critical=False)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public: _PublicKey, now_s: float, validity: _Validity
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_s, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - validity.backdated)
        .not_valid_after(now + validity.life)
    )


def checked_request(der: bytes) -> ec.EllipticCurvePublicKey:
    """Return the public key of a certificate request that proves possession of a P-256 key.

    Nothing else of the request is used. Raises RequestRefused.
    """
    if len(der) > MAX_REQUEST_BYTES:
        raise RequestRefused(f"The certificate request is larger than {MAX_REQUEST_BYTES} bytes.")
    try:
        request = x509.load_der_x509_csr(der)
        public = request.public_key()
        valid = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        raise RequestRefused("The certificate request cannot be read.") from None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise RequestRefused("The certificate request is not for a P-256 key; update Fallow on this PC.")
    if not valid:
        raise RequestRefused("The certificate request is not signed by its own key.")
    return public


def device_id_from_certificate(certificate: x509.Certificate, fleet_id: str) -> DeviceId:
    """Return whom a device certificate names. Raises NotAuthorised (4401) if it names no device of this fleet.

    The TLS layer has checked chain and dates; this checks the name only.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        uris = []
    prefix = device_uri(fleet_id, DeviceId(""))
    if len(uris) != 1 or not uris[0].startswith(prefix) or not FLEET_ID.fullmatch(uris[0].removeprefix(prefix)):
        raise NotAuthorised(4401, "wrong_fleet", "The certificate does not name a device of this fleet.")
    return DeviceId(uris[0].removeprefix(prefix))


def read_certificate(der: bytes) -> x509.Certificate:
    """Parse a peer's certificate. Raises NotAuthorised (4401)."""
    refusal = NotAuthorised(4401, "no_certificate", "The peer's certificate cannot be read.")
    if len(der) > _MAX_CERTIFICATE_BYTES:
        raise refusal
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise refusal from None
