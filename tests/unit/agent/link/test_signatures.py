"""Who may sign a library for agents, and who may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from agent.link.authorities import read_authorities
from agent.link.errors import SignatureRefused
from agent.link.identity import DeviceId
from agent.link.keystore import Keystore
from agent.link.signatures import ManifestSignature, check_digest, sign_digest
from console.registry.authority import Authority
from console.registry.signing import Signer
from tests.support.enrolment import Clock

DIGEST = "ab" * 32
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("a") / "a", Keystore.files_only("a"), now=clock)


def check(authority: Authority, data: bytes, digest: str = DIGEST, now_s: float = Clock().now_s) -> None:
    check_digest(data, digest, read_authorities(authority.authorities_pem), now_s)


def refused(authority: Authority, data: bytes, digest: str = DIGEST, now_s: float = Clock().now_s) -> str:
    with pytest.raises(SignatureRefused) as caught:
        check(authority, data, digest, now_s)
    return str(caught.value)


def test_what_the_console_signed_is_taken(authority: Authority, clock: Clock) -> None:
    check(authority, Signer(authority, clock).sign(DIGEST))


def test_another_library_an_unsigned_one_and_a_late_one_are_refused(authority: Authority, clock: Clock) -> None:
    signed = Signer(authority, clock).sign(DIGEST)
    assert "not signed by this fleet" in refused(authority, signed, "cd" * 32)
    assert "not signed by this fleet" in refused(authority, signed, now_s=clock.now_s + 400 * DAY_S)
    assert "not signed by this fleet" in refused(authority, signed, now_s=clock.now_s - 30 * DAY_S)
    assert "update the console" in refused(authority, b"")


def test_a_console_that_runs_for_long_renews_its_key(authority: Authority, clock: Clock) -> None:
    later = Clock(clock.now_s)
    signer = Signer(authority, later)
    first = msgspec.msgpack.decode(signer.sign(DIGEST), type=ManifestSignature)
    assert msgspec.msgpack.decode(signer.sign(DIGEST), type=ManifestSignature).certificate == first.certificate
    later.now_s += 200 * DAY_S
    assert msgspec.msgpack.decode(signer.sign(DIGEST), type=ManifestSignature).certificate != first.certificate


def by_another_fleet(authority: Authority, folder: Path) -> bytes:
    return Signer(Authority.open(folder / "b", Keystore.files_only("b"), now=Clock()), Clock()).sign(DIGEST)


def by_another_key(authority: Authority, folder: Path) -> bytes:
    real = msgspec.msgpack.decode(Signer(authority, Clock()).sign(DIGEST), type=ManifestSignature)
    return sign_digest(DIGEST, Ed25519PrivateKey.generate(), real.certificate)


def by_a_device(authority: Authority, folder: Path) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    certificate = authority.issue_device(request.public_bytes(Encoding.DER), DeviceId("d"))
    return sign_digest(DIGEST, Ed25519PrivateKey.generate(), certificate.public_bytes(Encoding.DER))


def by_the_authority_itself(authority: Authority, folder: Path) -> bytes:
    root = read_authorities(authority.authorities_pem)[0]
    return sign_digest(DIGEST, Ed25519PrivateKey.generate(), root.public_bytes(Encoding.DER))


@pytest.mark.parametrize("forge", [by_another_fleet, by_another_key, by_a_device, by_the_authority_itself])
def test_nobody_else_can_sign(authority: Authority, tmp_path: Path, forge: Callable[[Authority, Path], bytes]) -> None:
    assert "not signed by this fleet" in refused(authority, forge(authority, tmp_path))


@given(st.binary(max_size=200) | st.tuples(st.binary(max_size=40), st.binary(max_size=70)).map(msgspec.msgpack.encode))
def test_noise_is_refused_and_nothing_else_happens(authority: Authority, data: bytes) -> None:
    refused(authority, data)
