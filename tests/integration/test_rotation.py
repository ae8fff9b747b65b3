"""The console's certificate and the fleet's roots change while it runs, and PCs that were away find out."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import msgspec
import pytest

from agent.link.authorities import Endorsement, read_authorities, with_endorsed, write_authorities
from agent.link.errors import PinMismatch, TlsInspected
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.link.pinning import learn_authorities, verified_connection
from agent.link.renewal import renew
from agent.membership import Membership
from console.registry.authority import Authority
from console.registry.errors import WrongState
from console.registry.roots import ANNOUNCED_S, FORMER_S
from tests.support.enrolment import Clock, Door, enrol_pc, open_door

KEYS = Keystore.files_only("test")
DAY_S = 86_400.0


async def shown_certificate(door: Door, identity: Identity) -> bytes:
    async with verified_connection(door.url, identity.fleet_id, identity.authorities_pem) as console:
        return console.server_certificate


async def test_the_consoles_certificate_is_replaced_while_it_runs(tmp_path: Path) -> None:
    clock = Clock(time.time() - 300 * DAY_S)
    async with open_door(tmp_path / "console", clock=clock) as door:
        identity = await enrol_pc(door.invite(expires_at_s=int(time.time() + DAY_S)), tmp_path / "a")
        first = await shown_certificate(door, identity)
        clock.now_s = time.time()
        assert door.authority.refresh()
        assert not door.authority.refresh()
        second = await shown_certificate(door, identity)
        assert second != first
        assert second == door.authority.server_certificate_der
        assert door.authority.server_certificates_der == [first, second]
        door.registry.devices.approve(identity.device_id)
        another = await enrol_pc(door.invite(), tmp_path / "b")
        assert await door.visit(another) == another.device_id


async def test_a_pc_that_was_away_while_the_root_changed_learns_the_new_one_from_the_old(tmp_path: Path) -> None:
    clock = Clock(time.time() - 60 * DAY_S)
    async with open_door(tmp_path / "console", clock=clock) as door:
        away = await enrol_pc(door.invite(), tmp_path / "away")
        door.authority.rotate()
        clock.now_s += ANNOUNCED_S - 1
        assert not door.authority.refresh()
        clock.now_s = time.time() - 20 * DAY_S
        present = await renew(await enrol_pc(door.invite(), tmp_path / "present"), KEYS)
        assert len(read_authorities(present.authorities_pem)) == 2
        assert door.authority.refresh()
        clock.now_s = time.time()
        assert await door.visit(present) == present.device_id
        with pytest.raises(ssl.SSLCertVerificationError):
            await door.visit(away)
        membership = Membership(away, KEYS)
        assert await membership.learn_authorities()
        assert not await membership.learn_authorities()
        renewed = await renew(membership.identity, KEYS)
        assert await door.visit(renewed) == away.device_id


async def test_an_invite_from_before_the_switch_still_finds_the_console(tmp_path: Path) -> None:
    clock = Clock(time.time() - 31 * DAY_S)
    async with open_door(tmp_path / "console", clock=clock) as door:
        door.authority.rotate()
        clock.now_s += 2 * DAY_S
        invite = door.invite(life_s=30 * DAY_S)
        clock.now_s = time.time()
        assert door.authority.refresh()
        assert invite.ca_spki_sha256 != door.authority.ca_spki_sha256
        identity = await enrol_pc(invite, tmp_path / "a")
        assert await door.visit(identity) == identity.device_id


def test_a_rotation_goes_step_by_step_and_survives_restarts(tmp_path: Path) -> None:
    clock = Clock(time.time())
    authority = Authority.open(tmp_path / "authority", KEYS, now=clock)
    first = authority.root
    authority.rotate()
    with pytest.raises(WrongState, match="already"):
        authority.rotate()
    authority = Authority.open(tmp_path / "authority", KEYS, now=clock)
    assert (authority.root, len(authority.own_roots)) == (first, 2)
    assert authority.refresh(at_once=True)
    second = authority.root
    assert second != first
    clock.now_s += FORMER_S - 1
    authority = Authority.open(tmp_path / "authority", KEYS, now=clock)
    assert (authority.root, authority.own_roots) == (second, [second, first])
    clock.now_s += 1
    assert authority.refresh()
    assert authority.own_roots == [second]
    assert read_authorities(authority.authorities_pem) == [second]
    assert len(list((tmp_path / "authority" / "root").glob("key-????????.pem"))) == 1


def test_a_root_is_rotated_by_itself_in_its_last_year(tmp_path: Path) -> None:
    clock = Clock(time.time())
    authority = Authority.open(tmp_path / "authority", KEYS, now=clock)
    clock.now_s += 9.1 * 365.25 * DAY_S
    authority.refresh()
    assert authority.rotation.next_root


def test_only_a_trusted_root_can_vouch_for_another(tmp_path: Path) -> None:
    ours = Authority.open(tmp_path / "ours", KEYS)
    strange = Authority.open(tmp_path / "strange", KEYS, fleet_id=ours.fleet_id)
    now_s, fleet_id = time.time(), ours.fleet_id
    good, by_itself = ours.endorse(strange.root), strange.endorse(strange.root)
    assert with_endorsed([ours.root], [good], fleet_id, now_s) == [ours.root, strange.root]
    refused = [
        by_itself,
        Endorsement(good.authority_pem, good.signer_spki_sha256, good.until_s + 1, good.signature),
        Endorsement(good.authority_pem, good.signer_spki_sha256, float("nan"), good.signature),
        Endorsement(good.authority_pem, good.signer_spki_sha256, good.until_s, b""),
        Endorsement(b"-----BEGIN", good.signer_spki_sha256, good.until_s, good.signature),
    ]
    assert with_endorsed([ours.root], refused, fleet_id, now_s) == [ours.root]
    assert with_endorsed([ours.root], [good], "another-fleet", now_s) == [ours.root]
    assert with_endorsed([ours.root], [good], fleet_id, good.until_s) == [ours.root]


async def test_a_stranger_with_the_fleets_name_is_not_believed(tmp_path: Path) -> None:
    async with open_door(tmp_path / "console", clock=time.time) as door:
        identity = await enrol_pc(door.invite(), tmp_path / "a")
        invite, known = door.invite(), identity.authorities_pem
    Authority.open(tmp_path / "stranger" / "authority", KEYS, fleet_id=identity.fleet_id)
    async with open_door(tmp_path / "stranger", clock=time.time) as other:
        other.authority.adopt(read_authorities(known), [other.authority.endorse(other.authority.root)])
        assert await learn_authorities(other.url, identity.fleet_id, known, time.time()) == known
        with pytest.raises((TlsInspected, PinMismatch)):
            await enrol_pc(msgspec.structs.replace(invite, urls=[other.url]), tmp_path / "b")


def test_a_set_of_authorities_has_no_doubles_and_a_limit(tmp_path: Path) -> None:
    roots = [Authority.open(tmp_path / f"{number}", KEYS).root for number in range(10)]
    assert read_authorities(write_authorities([*roots[:3], *roots[:3]])) == roots[:3]
    assert read_authorities(write_authorities(roots)) == roots[:8]
