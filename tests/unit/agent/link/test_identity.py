from __future__ import annotations

import errno
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link.authorities import read_authorities
from agent.link.errors import IdentityMissing, IdentityUnreadable
from agent.link.identity import DeviceId, Identity, client_context, load_identity, save_identity
from agent.link.keys import create_key, device_code
from agent.link.keystore import Keystore
from console.registry.authority import Authority

KEYS = Keystore.files_only("test")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"), KEYS)


def make_identity(authority: Authority, folder: Path, **fields: Any) -> Identity:
    key = create_key(folder, KEYS)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key.key, hashes.SHA256())
    certificate = authority.issue_device(request.public_bytes(Encoding.DER), DeviceId("0123456789abcdef"))
    values: dict[str, Any] = {
        "fleet_id": authority.fleet_id,
        "fleet_name": "Test",
        "device_id": DeviceId("0123456789abcdef"),
        "urls": ["wss://127.0.0.1:1"],
        "certificate_pem": certificate.public_bytes(Encoding.PEM),
        "authorities_pem": authority.authorities_pem,
    }
    return save_identity(key, **(values | fields))


def test_an_identity_is_loaded_as_it_was_saved(authority: Authority, tmp_path: Path) -> None:
    saved = make_identity(authority, tmp_path)
    loaded = load_identity(tmp_path, KEYS)
    assert loaded.record == saved.record
    assert loaded.not_after_s == saved.not_after_s
    assert loaded.server_hostname == f"console.{authority.fleet_id}.invalid"


def test_the_private_key_on_disk_is_encrypted(authority: Authority, tmp_path: Path) -> None:
    identity = make_identity(authority, tmp_path)
    pem = (tmp_path / f"{identity.record.stem}.pem").read_bytes()
    assert pem.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    with pytest.raises(TypeError):
        load_pem_private_key(pem, None)


def test_a_folder_without_identity_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(IdentityMissing, match="ask your administrator for an invite"):
        load_identity(tmp_path, KEYS)


@pytest.mark.parametrize("victim", ["{stem}.pem", "{stem}.crt.pem", "{stem}.passphrase.json", "{stem}.authorities.pem"])
@pytest.mark.parametrize("harm", ["missing", "torn", "empty"])
def test_each_damaged_file_asks_for_a_new_enrolment(
    authority: Authority, tmp_path: Path, victim: str, harm: str
) -> None:
    identity = make_identity(authority, tmp_path)
    path = tmp_path / victim.format(stem=identity.record.stem)
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if harm == "torn" else b"")
    with pytest.raises(IdentityUnreadable, match="enrol this PC"):
        load_identity(tmp_path, KEYS)


@pytest.mark.parametrize(
    "victim", ["identity.json", "{stem}.pem", "{stem}.crt.pem", "{stem}.passphrase.json", "{stem}.authorities.pem"]
)
def test_a_file_that_cannot_be_read_now_is_no_reason_for_a_new_enrolment(
    authority: Authority, tmp_path: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = make_identity(authority, tmp_path)
    name, read = victim.format(stem=identity.record.stem), Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(PermissionError, match=name):
            load_identity(tmp_path, KEYS)
    assert load_identity(tmp_path, KEYS).record == identity.record


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"\xff\xfe", b'{"fleet_id": 3}'])
def test_a_damaged_record_asks_for_a_new_enrolment(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity.json").write_bytes(content)
    with pytest.raises(IdentityUnreadable, match="enrol this PC again"):
        load_identity(tmp_path, KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"fleet_id": "../x"},
        {"stem": "../../etc/key"},
        {"authorities": "../authorities.pem"},
        {"mark": "/mark.txt"},
    ],
)
def test_a_record_that_cannot_be_ours_is_refused(authority: Authority, tmp_path: Path, change: dict[str, Any]) -> None:
    identity = make_identity(authority, tmp_path)
    record = msgspec.structs.replace(identity.record, **change)
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(record))
    with pytest.raises(IdentityUnreadable):
        load_identity(tmp_path, KEYS)


def test_a_certificate_for_another_key_or_name_is_not_adopted(authority: Authority, tmp_path: Path) -> None:
    other = make_identity(authority, tmp_path / "other")
    with pytest.raises(IdentityUnreadable, match="another key"):
        make_identity(authority, tmp_path / "a", certificate_pem=other.certificate.public_bytes(Encoding.PEM))
    with pytest.raises(IdentityUnreadable, match="another device or fleet"):
        make_identity(authority, tmp_path / "b", device_id=DeviceId("fedcba9876543210"))
    assert not (tmp_path / "a" / "identity.json").exists()


def test_a_failed_save_keeps_the_former_identity(authority: Authority, tmp_path: Path) -> None:
    former = make_identity(authority, tmp_path)
    with pytest.raises(IdentityUnreadable):
        make_identity(authority, tmp_path, fleet_id="another-fleet")
    assert load_identity(tmp_path, KEYS).record == former.record


def test_the_client_context_verifies_and_shows_its_certificate(authority: Authority, tmp_path: Path) -> None:
    context = client_context(make_identity(authority, tmp_path))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
    assert len(context.get_ca_certs()) == 1


def test_a_wrong_passphrase_does_not_open_the_context(authority: Authority, tmp_path: Path) -> None:
    identity = make_identity(authority, tmp_path)
    identity.passphrase.value = "wrong"
    with pytest.raises(IdentityUnreadable):
        client_context(identity)


def test_no_representation_shows_the_passphrase(authority: Authority, tmp_path: Path) -> None:
    identity = make_identity(authority, tmp_path)
    assert identity.passphrase.value not in repr(identity)


def test_a_device_code_is_short_and_follows_from_the_key() -> None:
    assert device_code(bytes(32)) == "AAAA-AAAA-A"
    assert device_code(bytes([1, 2, 3, 4, 5]) + bytes(27)) == device_code(bytes([1, 2, 3, 4, 5]) + b"\xff" * 27)


@settings(deadline=None)
@given(st.binary(min_size=5, max_size=5), st.integers(0, 7), st.integers(1, 31))
def test_one_misread_letter_of_a_device_code_gives_another_check_letter(digest: bytes, place: int, step: int) -> None:
    number = int.from_bytes(digest)
    shift = 35 - 5 * place
    letter = number >> shift & 31
    other = (number & ~(31 << shift)) | ((letter + step) % 32) << shift
    assert device_code(digest)[-1] != device_code(other.to_bytes(5))[-1]


def test_only_a_small_set_of_authorities_is_read(authority: Authority, tmp_path: Path) -> None:
    root = authority.authorities_pem
    leaf = make_identity(authority, tmp_path).certificate.public_bytes(Encoding.PEM)
    assert len(read_authorities(root + root)) == 2
    for wrong in (b"", b"-----BEGIN", leaf, root + leaf, root * 9, root + b" " * 20_000):
        with pytest.raises(ValueError, match=r"."):
            read_authorities(wrong)
