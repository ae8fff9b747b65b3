"""Every kind of wrong certificate on every path that needs one, over real TLS; and the reason, asked for separately."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from agent.link.enrol_messages import Diagnose
from agent.link.identity import DeviceId, device_uri, server_verifying_context
from agent.link.keys import spki_sha256
from agent.link.keystore import Keystore
from agent.link.messages import BULK_PATH, CONTROL_PATH, DATA_PATH
from agent.link.pinning import ask, verified_connection
from console.registry.authority import Authority
from console.registry.certificates import Issuer
from console.registry.devices import DeviceRequest
from tests.support.membership import Office, open_office

KEYS = Keystore.files_only("test")
DAY_S = 86_400.0
KINDS = ("none", "expired", "future", "other fleet", "server only", "revoked", "weak key", "unknown device")
# TLS refuses what it can tell itself and says nothing; the rest is told by a close code.
BY_TLS = {"expired", "future", "other fleet", "server only"}
REASONS = {
    "expired": "expired", "future": "not_yet_valid", "other fleet": "wrong_fleet", "revoked": "banned",
    "weak key": "wrong_key", "unknown device": "unknown",
}  # fmt: skip

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass
class Pc:
    """A device the registry knows as active, and its right key."""

    device_id: DeviceId
    key: ec.EllipticCurvePrivateKey


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as opened:
        yield opened


def add_pc(office: Office) -> Pc:
    key = ec.generate_private_key(ec.SECP256R1())
    token = office.registry.invites.create().token_id.hex()
    spki = spki_sha256(key.public_key()).hex()
    request = DeviceRequest(spki, b"", "ABCD-EFGH-K", "pc", {}, "file", token)
    device = office.registry.devices.approve(office.registry.devices.add_pending(request).device_id)
    return Pc(device.device_id, key)


def sign(
    issuer: Issuer, key: Key, device_id: DeviceId, *, begins_s: float = -DAY_S, usage: x509.ObjectIdentifier
) -> x509.Certificate:
    """Sign what the authority itself would never sign."""
    now_s = time.time()
    root = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    uri = x509.UniformResourceIdentifier(device_uri(issuer.fleet_id, device_id))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now_s + begins_s))
        .not_valid_after(_moment(now_s + begins_s + 2 * DAY_S))
        .add_extension(x509.SubjectAlternativeName([uri]), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(root), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def make(kind: str, office: Office, folder: Path) -> tuple[Key, x509.Certificate] | None:
    """Make a certificate of a kind, for a device that would be let in with a right one."""
    pc, issuer, client = add_pc(office), office.authority._roots.issuer, ExtendedKeyUsageOID.CLIENT_AUTH
    match kind:
        case "none":
            return None
        case "expired":
            return pc.key, sign(issuer, pc.key, pc.device_id, begins_s=-3 * DAY_S, usage=client)
        case "future":
            return pc.key, sign(issuer, pc.key, pc.device_id, begins_s=DAY_S, usage=client)
        case "other fleet":
            other = Authority.open(folder / "other", KEYS)._roots.issuer
            return pc.key, sign(other, pc.key, pc.device_id, usage=client)
        case "server only":
            return pc.key, sign(issuer, pc.key, pc.device_id, usage=ExtendedKeyUsageOID.SERVER_AUTH)
        case "revoked":
            office.registry.devices.revoke(pc.device_id, "ban", "Stolen.")
            return pc.key, sign(issuer, pc.key, pc.device_id, usage=client)
        case "weak key":
            weak = rsa.generate_private_key(65537, 2048)
            return weak, sign(issuer, weak, pc.device_id, usage=client)
        case "unknown device":
            return pc.key, sign(issuer, pc.key, DeviceId("0" * 16), usage=client)
        case _:
            return pc.key, sign(issuer, pc.key, pc.device_id, usage=client)


async def knock(office: Office, path: str, shown: tuple[Key, x509.Certificate] | None, folder: Path) -> str:
    """Open a path and wait for how it ends: `tls`, a close code, or `open` if nothing ends it."""
    context = server_verifying_context(office.authority.authorities_pem)
    if shown is not None:
        key, certificate = shown
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "pair.pem").write_bytes(pem + certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(folder / "pair.pem")
    try:
        async with connect(
            office.url + path, ssl=context, server_hostname=office.authority.server_hostname, compression=None,
            proxy=None, close_timeout=0.2,
        ) as link:  # fmt: skip
            await (await link.ping())
            await link.recv()
    except ConnectionClosed as closed:
        return "tls" if closed.rcvd is None else str(closed.rcvd.code)
    except (InvalidHandshake, OSError, EOFError):
        return "tls"
    return "open"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_certificate_opens_nothing_and_the_console_says_why(
    office: Office, tmp_path: Path, kind: str
) -> None:
    shown, authority = make(kind, office, tmp_path), office.authority
    for path in (CONTROL_PATH, DATA_PATH, BULK_PATH):
        ended = await knock(office, path, shown, tmp_path)
        assert ended == ("tls" if kind in BY_TLS else "4403" if kind == "revoked" else "4401")
    assert office.hub.agents() == []
    if shown is not None and kind in REASONS:
        async with verified_connection(office.url, authority.fleet_id, authority.authorities_pem) as console:
            told = await ask(console, Diagnose(certificate=shown[1].public_bytes(Encoding.DER)))
        assert getattr(told, "code", "") == REASONS[kind]


async def test_a_right_certificate_made_the_same_way_is_let_in(office: Office, tmp_path: Path) -> None:
    shown = make("right", office, tmp_path)
    # Without a control link a data link is told to come back: it was let in, and found nothing to join.
    assert await knock(office, DATA_PATH, shown, tmp_path) == "4408"
