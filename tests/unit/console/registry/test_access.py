from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.identity import DeviceId
from agent.link.keys import spki_sha256
from agent.link.keystore import Keystore
from console.registry.access import REFUSALS, authorise
from console.registry.authority import Authority
from console.registry.devices import DeviceRequest
from console.registry.errors import NotAuthorised
from console.registry.records import DeviceRecord
from console.registry.registry import Registry


class Fleet:
    """A registry and an authority that issue to devices without a wire."""

    def __init__(self, folder: Path) -> None:
        self.registry = Registry.open(folder / "r.sqlite3")
        self.authority = Authority.open(folder / "authority", Keystore.files_only("test"))

    def add(self) -> tuple[DeviceRecord, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        token = self.registry.invites.create().token_id.hex()
        spki = spki_sha256(key.public_key()).hex()
        device = self.registry.devices.add_pending(DeviceRequest(spki, b"", "ABCD-EFGH-K", "pc", {}, "file", token))
        return device, self.certify(key, device.device_id)

    def certify(self, key: ec.EllipticCurvePrivateKey, device_id: DeviceId) -> bytes:
        request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
        return self.authority.issue_device(request.public_bytes(Encoding.DER), device_id).public_bytes(Encoding.DER)

    def refusal(self, certificate: bytes | None) -> NotAuthorised:
        with pytest.raises(NotAuthorised) as refused:
            authorise(self.registry, self.authority.fleet_id, certificate)
        return refused.value


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.registry.close()


def test_an_active_device_with_its_own_key_is_let_in(fleet: Fleet) -> None:
    device, certificate = fleet.add()
    fleet.registry.devices.approve(device.device_id)
    assert authorise(fleet.registry, fleet.authority.fleet_id, certificate).device_id == device.device_id


def test_a_pending_device_is_told_to_wait(fleet: Fleet) -> None:
    _, certificate = fleet.add()
    refusal = fleet.refusal(certificate)
    assert (refusal.close_code, refusal.code, str(refusal)) == (4403, "pending", REFUSALS["pending"])


@pytest.mark.parametrize(("how", "state"), [("evict", "evicted"), ("ban", "banned"), ("retire", "retired")])
def test_a_revoked_device_is_refused_with_the_reason(
    fleet: Fleet, how: Literal["evict", "ban", "retire"], state: Literal["evicted", "banned", "retired"]
) -> None:
    device, certificate = fleet.add()
    fleet.registry.devices.approve(device.device_id)
    fleet.registry.devices.revoke(device.device_id, how, "Stolen.")
    refusal = fleet.refusal(certificate)
    assert (refusal.close_code, refusal.code) == (4403, state)
    assert str(refusal) == f"{REFUSALS[state]} Reason given: Stolen."


def test_a_suspended_device_is_refused_until_it_is_resumed(fleet: Fleet) -> None:
    device, certificate = fleet.add()
    fleet.registry.devices.approve(device.device_id)
    fleet.registry.devices.suspend(device.device_id, "")
    assert fleet.refusal(certificate).code == "suspended"
    fleet.registry.devices.resume(device.device_id)
    authorise(fleet.registry, fleet.authority.fleet_id, certificate)


def test_no_certificate_or_garbage_is_nobody(fleet: Fleet) -> None:
    for certificate in (None, b"", b"\x30\x00", bytes(10_000)):
        refusal = fleet.refusal(certificate)
        assert (refusal.close_code, refusal.code) == (4401, "no_certificate")


def test_a_device_the_registry_does_not_know_is_refused(fleet: Fleet) -> None:
    certificate = fleet.certify(ec.generate_private_key(ec.SECP256R1()), DeviceId("0" * 16))
    assert fleet.refusal(certificate).code == "unknown"


def test_another_key_with_a_known_name_is_refused(fleet: Fleet) -> None:
    device, _ = fleet.add()
    fleet.registry.devices.approve(device.device_id)
    certificate = fleet.certify(ec.generate_private_key(ec.SECP256R1()), device.device_id)
    assert (fleet.refusal(certificate).close_code, fleet.refusal(certificate).code) == (4401, "wrong_key")


def test_a_certificate_of_another_fleet_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    other = Fleet(tmp_path / "other")
    _, certificate = other.add()
    other.registry.close()
    assert fleet.refusal(certificate).code == "wrong_fleet"
