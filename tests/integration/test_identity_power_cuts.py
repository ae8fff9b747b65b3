"""The power is cut at any step of a change of identity: the next start finds the former one whole, or the next one.

Real consoles and a keyring in memory; each case goes on until a change gets through without a cut.
"""

from __future__ import annotations

import asyncio
import shutil
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from agent.link.approval import await_approval, awaited, withdraw
from agent.link.enrolment import enrol
from agent.link.errors import IdentityMissing
from agent.link.identity import Identity, load_identity, read_record
from agent.link.invite import Invite
from agent.link.keystore import Keystore
from agent.link.leftovers import clear_leftovers, forget_identity
from agent.link.mark import keep_mark, read_mark
from agent.link.renewal import renew
from tests.support.enrolment import Door, make_facts, open_door
from tests.support.patience import until
from tests.support.power import KeyringWithPower, Power

MARK = "7-0123456789abcdef"
FEWEST_STEPS = {"rest": 20, "leave": 6, "withdraw": 4}
"""A change has more steps than these, or they are not counted at all."""


@dataclass
class Pc:
    """A PC's identity folder and its keyring."""

    folder: Path
    keyring: KeyringWithPower

    @property
    def keystore(self) -> Keystore:
        return Keystore("test", find_backend=lambda: self.keyring, find_secret=lambda: None)

    async def enrol(self, invite: Invite, *, force: bool = False) -> Identity:
        return await enrol(invite, self.folder, make_facts(), keystore=self.keystore, force=force)

    def start(self) -> Identity | None:
        """What the next start of the agent finds."""
        clear_leftovers(self.folder, self.keystore)
        try:
            return load_identity(self.folder, self.keystore)
        except IdentityMissing:
            return None

    async def cut(self, at: int, change: Callable[[], Awaitable[object]]) -> bool:
        """Begin a change and cut the power at one of its steps; returns whether it came to that."""
        power = self.keyring.power = Power(self.folder, at)
        with power.on():
            await change()
        self.keyring.power = None
        return power.is_cut

    def whole(self, identity: Identity | None) -> tuple[object, ...]:
        """All that tells identities apart, from every file."""
        if identity is None:
            return ()
        return (
            identity.fleet_id, identity.device_id, identity.certificate, identity.authorities_pem,
            identity.passphrase.value, identity.urls, read_mark(identity.mark_path),
        )  # fmt: skip

    def ensure_clean(self, identity: Identity | None) -> None:
        """Nothing is here but an identity, in files and keyring, and nobody else may read it."""
        expected = set()
        if identity is not None:
            stem, record = identity.record.stem, identity.record
            expected = {"identity.json", f"{stem}.pem", f"{stem}.crt.pem", f"{stem}.passphrase.json"}
            expected |= {record.authorities, *([record.mark] if identity.mark_path.exists() else [])}
            assert stat.S_IMODE(self.folder.stat().st_mode) == 0o700
        files = list(self.folder.glob("*"))
        assert {path.name for path in files} == expected
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} <= {0o600}
        assert list(self.keyring.entries.values()) == ([] if identity is None else [identity.passphrase.value])


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path / "here", clock=time.time, name="Here") as opened:
        yield opened


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path / "there", clock=time.time, name="There") as opened:
        yield opened


async def make_member(door: Door, folder: Path, *, layout: str = "own") -> Pc:
    pc = Pc(folder, KeyringWithPower())
    identity = await pc.enrol(door.invite())
    keep_mark(identity.mark_path, MARK)
    if layout == "shared":
        to_shared_names(folder)
    return pc


def to_shared_names(folder: Path) -> None:
    """Make the folder as it was before each identity had its own authorities and mark."""
    record = read_record(folder)
    (folder / record.authorities).replace(folder / "authorities.pem")
    (folder / record.mark).replace(folder / "mark.txt")
    former = msgspec.to_builtins(record)
    del former["authorities"], former["mark"]
    (folder / "identity.json").write_bytes(msgspec.json.encode(former))


@pytest.mark.parametrize("layout", ["own", "shared"])
async def test_a_change_of_fleet_leaves_the_old_fleet_whole_or_the_new_one(
    here: Door, there: Door, tmp_path: Path, layout: str
) -> None:
    at, was_cut, outcomes = 0, True, set()
    while was_cut:
        at += 1
        pc = await make_member(here, tmp_path / f"pc-{at}", layout=layout)
        former, invite = pc.whole(pc.start()), there.invite(max_uses=1)
        was_cut = await pc.cut(at, lambda pc=pc, invite=invite: pc.enrol(invite, force=True))  # type: ignore[misc]
        found = pc.start()
        assert found is not None
        outcomes.add(found.fleet_id)
        if found.fleet_id == here.authority.fleet_id:
            assert pc.whole(found) == former
            assert await here.visit(found) == found.device_id
            found = await pc.enrol(invite, force=True)
        assert (found.authorities_pem, read_mark(found.mark_path)) == (there.authority.authorities_pem, "")
        assert await there.visit(found) == found.device_id
        pc.ensure_clean(found)
    assert at > FEWEST_STEPS["rest"]
    assert outcomes == {here.authority.fleet_id, there.authority.fleet_id}


async def test_the_same_invite_again_ends_a_change_of_fleet_that_was_cut_off(
    here: Door, there: Door, tmp_path: Path
) -> None:
    at, was_cut = 0, True
    while was_cut:
        at += 1
        pc, invite = await make_member(here, tmp_path / f"pc-{at}"), there.invite(max_uses=1)
        was_cut = await pc.cut(at, lambda pc=pc, invite=invite: pc.enrol(invite, force=True))  # type: ignore[misc]
        moved = await pc.enrol(invite, force=was_cut)
        assert await there.visit(moved) == moved.device_id
        pc.ensure_clean(moved)
    assert at > FEWEST_STEPS["rest"]


async def test_a_first_enrolment_leaves_no_identity_or_a_whole_one(here: Door, tmp_path: Path) -> None:
    at, was_cut = 0, True
    while was_cut:
        at += 1
        pc, invite = Pc(tmp_path / f"pc-{at}", KeyringWithPower()), here.invite(max_uses=1)
        was_cut = await pc.cut(at, lambda pc=pc, invite=invite: pc.enrol(invite))  # type: ignore[misc]
        found = pc.start()
        if found is not None:
            pc.ensure_clean(found)
        identity = await pc.enrol(invite)
        assert await here.visit(identity) == identity.device_id
        pc.ensure_clean(identity)
    assert at > FEWEST_STEPS["rest"]


@pytest.mark.parametrize("layout", ["own", "shared"])
async def test_a_renewal_leaves_the_former_key_whole_or_the_next_one(here: Door, tmp_path: Path, layout: str) -> None:
    at, was_cut = 0, True
    while was_cut:
        at += 1
        pc = await make_member(here, tmp_path / f"pc-{at}", layout=layout)
        former = pc.start()
        assert former is not None
        was_cut = await pc.cut(at, lambda pc=pc, former=former: renew(former, pc.keystore))  # type: ignore[misc]
        found = pc.start()
        assert found is not None
        if found.record.stem == former.record.stem:
            assert pc.whole(found) == pc.whole(former)
        # The mark is the device's: one that lost it with its key would look like a copy.
        assert read_mark(found.mark_path) == MARK
        renewed = await renew(found, pc.keystore)
        assert await here.visit(renewed) == former.device_id
        assert (renewed.record.generation, read_mark(renewed.mark_path)) == (found.record.generation + 1, MARK)
        pc.ensure_clean(pc.start())
    assert at > FEWEST_STEPS["rest"]


async def test_leaving_a_fleet_leaves_a_whole_identity_or_none(here: Door, tmp_path: Path) -> None:
    at, was_cut = 0, True
    while was_cut:
        at += 1
        pc = await make_member(here, tmp_path / f"pc-{at}")
        former = pc.start()
        assert former is not None

        async def leave(pc: Pc = pc, former: Identity = former) -> None:
            forget_identity(former, pc.keystore)
            shutil.rmtree(pc.folder, ignore_errors=True)

        was_cut = await pc.cut(at, leave)
        found = pc.start()
        assert found is None or pc.whole(found) == pc.whole(former)
        pc.ensure_clean(found)
    assert at > FEWEST_STEPS["leave"]


async def approve_everybody(door: Door) -> None:
    while True:
        for device in door.registry.devices.list("pending"):
            door.registry.devices.approve(device.device_id)
        await asyncio.sleep(0.005)


async def test_a_wait_for_approval_goes_on_or_begins_again_as_the_same_request(here: Door, tmp_path: Path) -> None:
    approving = asyncio.create_task(approve_everybody(here))
    at, was_cut, went_on = 0, True, 0
    while was_cut:
        at += 1
        pc, invite = Pc(tmp_path / f"pc-{at}", KeyringWithPower()), here.invite(max_uses=1, approve="manual")
        was_cut = await pc.cut(at, lambda pc=pc, invite=invite: pc.enrol(invite))  # type: ignore[misc]
        identity, waiting = pc.start(), awaited(pc.folder)
        if identity is None and waiting is not None:
            went_on += 1
            identity = await await_approval(pc.folder, waiting, keystore=pc.keystore)
        identity = identity or await pc.enrol(invite)
        assert await here.visit(identity) == identity.device_id
        pc.ensure_clean(identity)
    approving.cancel()
    await asyncio.gather(approving, return_exceptions=True)
    assert at > FEWEST_STEPS["rest"]
    assert went_on > 3
    devices = here.registry.devices.list()
    assert (len(devices), {device.state for device in devices}) == (at, {"active"})


async def test_a_request_that_is_taken_back_is_kept_whole_or_gone(here: Door, tmp_path: Path) -> None:
    at, was_cut = 0, True
    while was_cut:
        at += 1
        pc = Pc(tmp_path / f"pc-{at}", KeyringWithPower())
        asking = asyncio.create_task(pc.enrol(here.invite(approve="manual")))
        await until(lambda pc=pc: awaited(pc.folder) is not None)  # type: ignore[misc]
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        was_cut = await pc.cut(at, lambda pc=pc: withdraw(pc.folder, keystore=pc.keystore))  # type: ignore[misc]
        assert pc.start() is None
        assert await withdraw(pc.folder, keystore=pc.keystore)
        pc.ensure_clean(None)
    assert at > FEWEST_STEPS["withdraw"]
    assert here.registry.devices.list("pending") == []
