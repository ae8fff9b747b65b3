"""Renewing over real TLS: on time, after the end, cut off at every step, and when two PCs do it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link import renewal
from agent.link.enrol_messages import Granted, Refused, Renew, renewal_content
from agent.link.errors import ConsoleUnreachable, EnrolmentDenied
from agent.link.identity import Identity, load_identity
from agent.link.keys import certificate_request, create_key, load_key
from agent.link.keystore import Keystore
from agent.link.renewal import diagnose, renew
from agent.membership import Membership
from console.fleet.admission import Admission
from console.registry.devices import CLONED, RENEWAL_GRACE_S
from tests.support.enrolment import Clock, Door, enrol_pc, open_door
from tests.support.membership import copy_data_folder
from tests.support.patience import PATIENCE_S

KEYS = Keystore.files_only("test")
DAY_S = 86_400.0
HELD = pytest.mark.expected_logs("console.fleet.admission", "two PCs use its identity")


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time())


@pytest.fixture
async def door(tmp_path: Path, clock: Clock) -> AsyncIterator[Door]:
    async with open_door(tmp_path / "console", clock=clock) as opened:
        yield opened


def serial_of(identity: Identity) -> int:
    return identity.certificate.serial_number


async def test_a_renewed_pc_is_the_same_device_with_another_key(door: Door, tmp_path: Path) -> None:
    first = await enrol_pc(door.invite(), tmp_path / "a")
    second = await renew(first, KEYS)
    assert second.device_id == first.device_id
    assert second.certificate.public_key() != first.certificate.public_key()
    assert (first.record.generation, second.record.generation) == (1, 2)
    assert await door.visit(second) == first.device_id
    assert load_identity(tmp_path / "a", KEYS).record == second.record
    assert len(list((tmp_path / "a").glob("key-????????.pem"))) == 1
    assert not (tmp_path / "a" / "renewal.json").exists()


async def test_a_former_key_is_good_for_an_hour_and_gives_a_copy_away_after_it(
    door: Door, tmp_path: Path, clock: Clock
) -> None:
    await enrol_pc(door.invite(), tmp_path / "a")
    copy_data_folder(tmp_path / "a", tmp_path / "copy")
    former = load_identity(tmp_path / "copy", KEYS)
    second = await renew(load_identity(tmp_path / "a", KEYS), KEYS)
    assert await door.visit(former) == former.device_id
    clock.now_s += 3601
    assert (await door.visit(former)).startswith("4403 Two PCs use this identity")
    assert (await door.visit(second)).startswith("4403 Two PCs use this identity")
    assert (await diagnose(second)).message == CLONED


async def test_a_certificate_is_renewed_at_two_thirds_of_its_life(door: Door, tmp_path: Path, clock: Clock) -> None:
    clock.now_s -= 25 * DAY_S
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    began_s, life_s = clock.now_s, 30 * DAY_S
    assert 0.55 * life_s < identity.renew_after_s - began_s < 0.75 * life_s
    membership = Membership(identity, KEYS, now=clock)
    assert await membership.renew_if_due() is None
    assert membership.identity is identity
    clock.now_s = identity.renew_after_s + 1
    assert await membership.renew_if_due() is None
    assert membership.identity.record.generation == 2
    link = await membership.dialler.dial("/control")
    assert await link.recv() == identity.device_id
    await link.close()


async def test_lifetimes_go_by_the_consoles_clock(door: Door, tmp_path: Path, clock: Clock) -> None:
    membership = Membership(await enrol_pc(door.invite(), tmp_path / "a"), KEYS, now=lambda: 0.0)
    membership.take_console_time(clock.now_s)
    assert membership.due_in_s > 0
    membership.take_console_time(clock.now_s + 29 * DAY_S)
    assert membership.due_in_s < 0


async def test_renewing_works_after_the_certificates_end(tmp_path: Path) -> None:
    async with open_door(tmp_path / "console", clock=Clock(time.time() - 45 * DAY_S)) as door:
        expired = await enrol_pc(door.invite(), tmp_path / "a")
        assert isinstance(door.clock, Clock)
        door.clock.now_s = time.time()
        assert (await diagnose(expired)).code == "expired"
        renewed = await renew(expired, KEYS)
        assert await door.visit(renewed) == expired.device_id


async def test_a_pc_that_was_away_too_long_waits_for_one_click(tmp_path: Path) -> None:
    away_s = RENEWAL_GRACE_S + 35 * DAY_S
    async with open_door(tmp_path / "console", clock=Clock(time.time() - away_s)) as door:
        identity = await enrol_pc(door.invite(), tmp_path / "a")
        assert isinstance(door.clock, Clock)
        door.clock.now_s = time.time()
        with pytest.raises(EnrolmentDenied, match="away too long") as denied:
            await renew(identity, KEYS)
        assert denied.value.code == "expired"
        assert door.registry.devices.list("expired")
        door.registry.devices.approve(identity.device_id)
        assert await door.visit(await renew(identity, KEYS)) == identity.device_id


@pytest.mark.parametrize("state", ["suspend", "evict", "ban", "retire"])
async def test_a_pc_that_is_not_wanted_is_not_renewed(door: Door, tmp_path: Path, state: str) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    devices = door.registry.devices
    if state == "suspend":
        devices.suspend(identity.device_id, "Audit.")
    else:
        devices.revoke(identity.device_id, state, "Audit.")  # type: ignore[arg-type]  # one of the three
    with pytest.raises(EnrolmentDenied, match="Audit"):
        await renew(identity, KEYS)
    assert load_identity(tmp_path / "a", KEYS).record == identity.record


@pytest.mark.parametrize("step", ["answer", "certificate", "trial", "switch"])
async def test_a_renewal_that_is_cut_off_leaves_one_good_pair_and_goes_on_with_the_same_key(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")

    def power_cut(*_: object) -> None:
        raise SystemExit(step)

    async def cut_trial(*_: object) -> None:
        raise SystemExit(step)

    with monkeypatch.context() as patched:
        match step:
            case "answer":
                door.cut_replies = 1
            case "certificate":
                patched.setattr("agent.link.identity.PreparedIdentity.write_pair", power_cut)
            case "trial":
                patched.setattr(renewal, "_try_out", cut_trial)
            case "switch":
                patched.setattr("agent.link.identity.PreparedIdentity.make_current", power_cut)
        with pytest.raises((SystemExit, ConsoleUnreachable)):
            await renew(identity, KEYS)
    after = load_identity(tmp_path / "a", KEYS)
    assert await door.visit(after) == identity.device_id
    renewed = await renew(after, KEYS)
    assert renewed.record.generation == 2
    assert await door.visit(renewed) == identity.device_id
    certificates = [entry for entry in door.registry.audit.list() if entry.action == "certificate.issue"]
    assert len(certificates) == 2


@HELD
async def test_two_copies_that_renew_are_both_held(door: Door, tmp_path: Path) -> None:
    await enrol_pc(door.invite(), tmp_path / "a")
    copy_data_folder(tmp_path / "a", tmp_path / "copy")
    await renew(load_identity(tmp_path / "a", KEYS), KEYS)
    with pytest.raises(EnrolmentDenied) as held:
        await renew(load_identity(tmp_path / "copy", KEYS), KEYS)
    assert (held.value.code, str(held.value)) == ("suspended", CLONED)
    assert (await door.visit(load_identity(tmp_path / "a", KEYS))).startswith("4403")


@HELD
async def test_a_copy_that_enrols_again_with_the_key_of_the_first_day_has_both_held(door: Door, tmp_path: Path) -> None:
    invite = door.invite(approve="manual")
    task = asyncio.create_task(enrol_pc(invite, tmp_path / "a"))
    async with asyncio.timeout(PATIENCE_S):
        while not (pending := door.registry.devices.list("pending")):
            await asyncio.sleep(0.005)
    copy_data_folder(tmp_path / "a", tmp_path / "copy")
    door.registry.devices.approve(pending[0].device_id)
    await renew(await task, KEYS)
    with pytest.raises(EnrolmentDenied) as held:
        await enrol_pc(invite, tmp_path / "copy")
    assert str(held.value) == CLONED


async def test_a_registry_from_an_old_backup_takes_a_later_certificate(door: Door, tmp_path: Path) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    ahead = msgspec.structs.replace(identity.record, generation=7)
    later = Identity(identity.folder, ahead, identity.certificate, identity.authorities_pem, identity.passphrase)
    assert (await renew(later, KEYS)).record.generation == 8


async def make_renewal(door: Door, identity: Identity, nonce: bytes, **changes: object) -> Renew:
    fresh = await asyncio.to_thread(create_key, identity.folder / "fresh", KEYS)
    present = load_key(identity.folder, identity.record.stem, KEYS)
    certificate = identity.certificate.public_bytes(Encoding.DER)
    unsigned = Renew(1, certificate, certificate_request(fresh), 1, bytes(32), b"")
    content = renewal_content(nonce, door.authority.server_certificate_der, unsigned)
    signature = present.key.sign(content, ec.ECDSA(hashes.SHA256()))
    return msgspec.structs.replace(unsigned, signature=signature, **changes)


async def test_a_renewal_counts_in_its_own_conversation_only(door: Door, tmp_path: Path, clock: Clock) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    other = await enrol_pc(door.invite(), tmp_path / "b")
    admission = Admission(door.registry, door.authority, now=clock)
    nonce = bytes(range(32))
    good = await make_renewal(door, identity, nonce)
    wrong = {
        "another conversation": (good, bytes(32)),
        "another generation": (msgspec.structs.replace(good, generation=2), nonce),
        "another nonce": (msgspec.structs.replace(good, nonce=b"\x01" * 32), nonce),
        "another key": (msgspec.structs.replace(good, csr=(await make_renewal(door, other, nonce)).csr), nonce),
        "another device": (
            msgspec.structs.replace(good, certificate=other.certificate.public_bytes(Encoding.DER)), nonce,
        ),
        "no signature": (msgspec.structs.replace(good, signature=b""), nonce),
        "no certificate": (msgspec.structs.replace(good, certificate=b"\x30\x00"), nonce),
        "another version": (msgspec.structs.replace(good, protocol=99), nonce),
    }  # fmt: skip
    for message, heard in wrong.values():
        assert isinstance(admission.renew(message, heard, "here"), Refused)
    assert door.registry.device_keys.generation(identity.device_id) == 1
    first = admission.renew(good, nonce, "here")
    assert isinstance(first, Granted)
    assert admission.renew(good, nonce, "here") == first


async def test_a_new_key_that_another_device_has_is_not_certified(door: Door, tmp_path: Path, clock: Clock) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    other = await enrol_pc(door.invite(), tmp_path / "b")
    (identity.folder / "fresh").mkdir()
    for path in other.folder.glob(f"{other.record.stem}*"):
        shutil.copy(path, identity.folder)
    stolen = load_key(identity.folder, other.record.stem, KEYS)
    with contextlib.suppress(EnrolmentDenied):
        (identity.folder / "renewal.json").write_bytes(
            msgspec.json.encode({"stem": stolen.stem, "follows": identity.record.stem})
        )
        await renew(identity, KEYS)
        pytest.fail("another device's key was certified")
    assert door.registry.device_keys.generation(identity.device_id) == 1


async def test_a_full_disk_delays_the_renewal_and_nothing_else(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = Membership(await enrol_pc(door.invite(), tmp_path / "a"), KEYS, now=lambda: time.time() + 29 * DAY_S)
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        problem = await membership.renew_if_due()
    assert "No space left" in str(problem)
    assert await membership.renew_if_due() is None
    assert membership.identity.record.generation == 2


async def test_a_pc_whose_clock_is_behind_renews_when_the_console_says_it_is_time(tmp_path: Path) -> None:
    async with open_door(tmp_path / "console", clock=Clock(time.time() - 45 * DAY_S)) as door:
        identity = await enrol_pc(door.invite(), tmp_path / "a")
        assert isinstance(door.clock, Clock)
        membership = Membership(identity, KEYS, now=door.clock)
        behind_s, door.clock.now_s = door.clock.now_s, time.time()
        membership._now = lambda: behind_s
        assert membership.due_in_s > 0
        told = await membership.why_refused()
        assert told is not None
        assert told.code == "expired"
        assert await membership.renew_if_due() is None
        assert await door.visit(membership.identity) == identity.device_id
