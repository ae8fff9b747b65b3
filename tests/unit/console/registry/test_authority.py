from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.link.authorities import read_authorities
from agent.link.errors import KeyLocked
from agent.link.identity import DeviceId, server_hostname
from agent.link.keystore import Keystore
from console.registry.authority import Authority
from console.registry.certificates import checked_request, device_id_from_certificate
from console.registry.errors import NotAuthorised, RegistryUnreadable, RequestRefused
from tests.support.enrolment import Clock

KEYS = Keystore.files_only("test")
DEVICE = DeviceId("0123456789abcdef")
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"), KEYS, fleet_name="Nordlicht AG")


def make_request(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, name: str = "") -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def make_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A TLS handshake in memory; returns the server's side. Raises ssl.SSLError of the side that refuses."""
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    sides = [
        server.wrap_bio(pipes[0], pipes[1], server_side=True),
        client.wrap_bio(pipes[1], pipes[0], server_hostname=name),
    ]
    done = [False, False]
    for _ in range(6):
        for number, side in enumerate(sides):
            if not done[number]:
                try:
                    side.do_handshake()
                    done[number] = True
                except ssl.SSLWantReadError:
                    continue
    assert done == [True, True]
    return sides[0]


def client_context(authority: Authority, folder: Path, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=authority.authorities_pem.decode())
    if certificate:
        (folder / "client.pem").write_bytes(key + certificate)
        context.load_cert_chain(folder / "client.pem")
    return context


def device_context(authority: Authority, folder: Path) -> ssl.SSLContext:
    key = make_key()
    certificate = authority.issue_device(make_request(key), DEVICE)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return client_context(authority, folder, certificate.public_bytes(Encoding.PEM), pem)


def test_a_fleet_is_founded_once_and_found_again(tmp_path: Path) -> None:
    first = Authority.open(tmp_path, KEYS, fleet_name="Nordlicht AG")
    second = Authority.open(tmp_path, KEYS, fleet_name="Another name")
    assert second.fleet_id == first.fleet_id
    assert second.fleet_name == "Nordlicht AG"
    assert second.ca_spki_sha256 == first.ca_spki_sha256
    assert second.server_certificate_der == first.server_certificate_der
    assert first.key_protection == "file"


def test_private_keys_are_encrypted_and_readable_by_their_user_only(authority: Authority) -> None:
    files = [path for path in authority._folder.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    keys = [path for path in files if path.name.endswith(".pem") and b"PRIVATE" in path.read_bytes()]
    assert len(keys) == 2
    assert all(b"ENCRYPTED PRIVATE KEY" in path.read_bytes() for path in keys)


def test_the_root_may_sign_leaves_only_and_carries_its_identifiers(authority: Authority) -> None:
    (root,) = read_authorities(authority.authorities_pem)
    constraints = root.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = root.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    own = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    issuer = root.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert own == issuer
    assert (root.not_valid_after_utc - root.not_valid_before_utc).days > 3650


def test_a_device_certificate_names_its_device_and_nothing_of_the_request(authority: Authority) -> None:
    now_s = time.time()
    key = make_key()
    certificate = authority.issue_device(make_request(key, name="administrator"), DEVICE)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
        f"spiffe://{authority.fleet_id}/device/{DEVICE}"
    ]
    assert "administrator" not in certificate.subject.rfc4514_string()
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    assert certificate.not_valid_before_utc.timestamp() == pytest.approx(now_s - DAY_S, abs=5)
    assert certificate.not_valid_after_utc.timestamp() == pytest.approx(now_s + 30 * DAY_S, abs=5)
    assert certificate.public_key() == key.public_key()
    assert device_id_from_certificate(certificate, authority.fleet_id) == DEVICE


def test_a_certificate_of_another_fleet_names_no_device_here(authority: Authority) -> None:
    certificate = authority.issue_device(make_request(make_key()), DEVICE)
    with pytest.raises(NotAuthorised, match="does not name a device of this fleet") as refused:
        device_id_from_certificate(certificate, authority.fleet_id[:-1])
    assert refused.value.close_code == 4401
    server = x509.load_der_x509_certificate(authority.server_certificate_der)
    with pytest.raises(NotAuthorised):
        device_id_from_certificate(server, authority.fleet_id)


def flip_signature(der: bytes) -> bytes:
    return der[:-1] + bytes([der[-1] ^ 1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: b"", "cannot be read"),
        (lambda: b"\x30\x82\xff\xff", "cannot be read"),
        (lambda: bytes(5000), "larger than"),
        (lambda: make_request(make_key())[:-10], "cannot be read"),
        (lambda: make_request(rsa.generate_private_key(65537, 1024)), "P-256"),
        (lambda: make_request(ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (lambda: flip_signature(make_request(make_key())), "not signed by its own key"),
    ],
    ids=["empty", "length", "huge", "torn", "rsa", "curve", "signature"],
)
def test_a_request_that_proves_no_key_is_refused(make: Callable[[], bytes], sentence: str) -> None:
    with pytest.raises(RequestRefused, match=sentence):
        checked_request(make())


def test_both_sides_pass_strict_verification(authority: Authority, tmp_path: Path) -> None:
    side = handshake(authority.server_context(), device_context(authority, tmp_path), authority.server_hostname)
    assert side.version() == "TLSv1.3"
    peer = side.getpeercert(binary_form=True)
    assert peer is not None
    assert device_id_from_certificate(x509.load_der_x509_certificate(peer), authority.fleet_id) == DEVICE


def test_enrolment_needs_no_client_certificate(authority: Authority, tmp_path: Path) -> None:
    side = handshake(authority.server_context(), client_context(authority, tmp_path), authority.server_hostname)
    assert side.getpeercert(binary_form=True) is None


def test_the_servers_name_must_be_the_fleets(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority.server_context(), client_context(authority, tmp_path), server_hostname("another"))


def test_a_client_certificate_of_another_fleet_fails_the_handshake(authority: Authority, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other", KEYS)
    context = device_context(other, tmp_path)
    context.load_verify_locations(cadata=authority.authorities_pem.decode())
    with pytest.raises(ssl.SSLError):
        handshake(authority.server_context(), context, authority.server_hostname)


@pytest.mark.parametrize("offset_days", [-40, 2], ids=["expired", "future"])
def test_a_client_certificate_outside_its_time_fails_the_handshake(tmp_path: Path, offset_days: int) -> None:
    clock = Clock(time.time())
    authority = Authority.open(tmp_path / "authority", KEYS, now=clock)
    clock.now_s += offset_days * DAY_S
    context = device_context(authority, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority.server_context(), context, authority.server_hostname)


def test_a_server_certificate_does_not_prove_a_client(authority: Authority, tmp_path: Path) -> None:
    key = authority._server_key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = x509.load_der_x509_certificate(authority.server_certificate_der).public_bytes(Encoding.PEM)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(authority.server_context(), client_context(authority, tmp_path, pem, key), authority.server_hostname)


def test_older_tls_is_not_spoken_and_no_session_is_resumed(authority: Authority, tmp_path: Path) -> None:
    context = client_context(authority, tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(authority.server_context(), context, authority.server_hostname)
    assert authority.server_context().num_tickets == 0


def test_the_servers_certificate_is_replaced_in_its_last_third(tmp_path: Path) -> None:
    clock = Clock(time.time())
    first = Authority.open(tmp_path, KEYS, now=clock).server_certificate_der
    clock.now_s += 240 * DAY_S
    assert Authority.open(tmp_path, KEYS, now=clock).server_certificate_der == first
    clock.now_s += 10 * DAY_S
    renewed = Authority.open(tmp_path, KEYS, now=clock)
    assert renewed.server_certificate_der != first
    renewed.server_context()


@pytest.mark.parametrize("pattern", ["fleet.json", "root/key-????????.pem", "server/key-????????.pem"])
@pytest.mark.parametrize("harm", ["torn", "missing"])
def test_a_damaged_authority_is_reported_and_never_founded_anew(tmp_path: Path, pattern: str, harm: str) -> None:
    Authority.open(tmp_path, KEYS)
    (path,) = tmp_path.glob(pattern)
    if harm == "torn":
        path.write_bytes(path.read_bytes()[:20])
    else:
        path.unlink()
    with pytest.raises(RegistryUnreadable, match="backup"):
        Authority.open(tmp_path, KEYS)


@pytest.mark.parametrize("harm", [b"", b"-----BEGIN CERTIFICATE-----", None])
def test_the_set_of_roots_is_written_anew_from_the_roots(tmp_path: Path, harm: bytes | None) -> None:
    pem = Authority.open(tmp_path, KEYS).authorities_pem
    path = tmp_path / "authorities.pem"
    path.unlink() if harm is None else path.write_bytes(harm)
    assert Authority.open(tmp_path, KEYS).authorities_pem == pem
    assert path.read_bytes() == pem


def test_a_root_certificate_of_another_key_is_damage(tmp_path: Path) -> None:
    Authority.open(tmp_path / "a", KEYS)
    other = Authority.open(tmp_path / "b", KEYS)
    (path,) = (tmp_path / "a").glob("root/key-*.crt.pem")
    path.write_bytes(other.authorities_pem)
    with pytest.raises(RegistryUnreadable, match="another key"):
        Authority.open(tmp_path / "a", KEYS)


def test_an_authority_from_before_there_were_several_roots_is_opened(tmp_path: Path) -> None:
    first = Authority.open(tmp_path, KEYS)
    (path,) = tmp_path.glob("root/key-*.crt.pem")
    path.unlink()
    assert Authority.open(tmp_path, KEYS).root == first.root


def test_a_founding_that_was_interrupted_starts_over(tmp_path: Path) -> None:
    (tmp_path / "authority.new" / "root").mkdir(parents=True)
    (tmp_path / "authority.new" / "root" / "key-00000000.pem").write_bytes(b"half")
    Authority.open(tmp_path / "authority", KEYS).server_context()
    assert [path.name for path in tmp_path.iterdir()] == ["authority"]


def test_a_locked_keyring_is_not_taken_for_damage(tmp_path: Path) -> None:
    Authority.open(tmp_path, KEYS)
    (path,) = tmp_path.glob("root/*.passphrase.json")
    path.write_bytes(b'{"protection": "keyring", "service": "fallow/test/1"}')
    with pytest.raises(KeyLocked):
        Authority.open(tmp_path, KEYS)


def test_a_fleets_name_is_cleaned_of_what_does_not_belong_in_one(tmp_path: Path) -> None:
    assert Authority.open(tmp_path, KEYS, fleet_name="Nord\u202elicht\n<b>" + "x" * 100).fleet_name.startswith(
        "Nordlichtb"
    )


def test_the_pin_is_the_hash_of_the_roots_key(authority: Authority) -> None:
    (root,) = read_authorities(authority.authorities_pem)
    spki = root.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert authority.ca_spki_sha256 == hashlib.sha256(spki).digest()
