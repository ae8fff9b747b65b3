"""A PC that waits for approval goes on waiting after its program, the PC or the console ended, over real TLS."""

from __future__ import annotations

import asyncio
import logging
import shutil
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect

from agent.link import approval
from agent.link.approval import EnrolState, await_approval, awaited, withdraw
from agent.link.binding import Binding
from agent.link.enrol_messages import (
    Await,
    EnrolHello,
    FromEnroller,
    Granted,
    Pending,
    Refused,
    decode_from_enroller,
    encode_enrol,
)
from agent.link.enrolment import enrol
from agent.link.errors import EnrolmentDenied, IdentityCopied, IdentityUnreadable, InviteExpired, KeyLocked, LinkError
from agent.link.identity import Identity, server_verifying_context
from agent.link.invite import Invite
from agent.link.keys import DeviceKey, create_key, load_key
from agent.link.keystore import Keystore
from agent.link.messages import ENROL_PATH
from agent.link.waiting import keep_waiting, read_waiting, signed_request
from agent.threads import finish_in_thread
from console.registry.authority import Authority
from console.registry.devices import PENDING_LIFE_S, WITHDRAWN
from console.registry.records import DeviceRecord
from tests.support.enrolment import Clock, Door, enrol_pc, make_facts, open_door
from tests.support.patience import PATIENCE_S, until

KEYS = Keystore.files_only("test")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(approval, "LONGEST_RETRY_S", 0.05)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path / "console", clock=Clock(time.time())) as opened:
        yield opened


def pass_s(door: Door, seconds: float) -> None:
    assert isinstance(door.clock, Clock)
    door.clock.now_s += seconds


async def ask_and_end(door: Door, folder: Path, invite: Invite | None = None) -> DeviceRecord:
    """Ask to join, and end as a program does that is killed once the console has the request."""
    task = asyncio.create_task(enrol_pc(invite or door.invite(approve="manual"), folder))
    async with asyncio.timeout(PATIENCE_S):
        while not ((devices := door.registry.devices.list("pending")) and awaited(folder)):
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return devices[0]


async def go_on(folder: Path, on_state: Callable[[EnrolState], None] = lambda _: None, **options: Keystore) -> Identity:
    """Wait as the next life of the program does: with nothing but what is on the disk."""
    waiting = awaited(folder)
    assert waiting is not None
    async with asyncio.timeout(PATIENCE_S):
        return await await_approval(folder, waiting, keystore=options.get("keystore", KEYS), on_state=on_state)


def last_said(states: list[EnrolState]) -> str:
    return states[-1].said if states else ""


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("when", ["while it was away", "while it waits again"])
async def test_a_pc_goes_on_waiting_without_its_invite_and_is_let_in(door: Door, tmp_path: Path, when: str) -> None:
    folder, states = tmp_path / "a", list[EnrolState]()
    pending = await ask_and_end(door, folder)
    if when == "while it was away":
        door.registry.devices.approve(pending.device_id)
    task = asyncio.create_task(go_on(folder, states.append))
    if when == "while it waits again":
        await until(lambda: any(state.url for state in states))
        assert [device.state for device in door.registry.devices.list()] == ["pending"], "listed once"
        door.registry.devices.approve(pending.device_id)
    identity = await task
    assert identity.device_id == pending.device_id
    assert await door.visit(identity) == pending.device_id
    assert {state.device_code for state in states} == {pending.device_code}
    assert (states[0].phase, states[-1].phase) == ("pending", "enrolled")
    assert door.registry.invites.list()[0].uses == 1
    assert read_waiting(folder) is None


async def test_it_goes_on_through_many_lives_as_one_request(door: Door, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    pending = await ask_and_end(door, folder)
    for _ in range(4):
        states: list[EnrolState] = []
        task = asyncio.create_task(go_on(folder, states.append))
        await until(lambda seen=states: any(state.url for state in seen))  # type: ignore[misc]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [device.device_id for device in door.registry.devices.list()] == [pending.device_id]
    assert door.registry.invites.list()[0].uses == 1


@pytest.mark.parametrize("ended", ["revoked", "expired", "used up by others"])
async def test_what_becomes_of_the_invite_meanwhile_does_not_matter(door: Door, tmp_path: Path, ended: str) -> None:
    invite = door.invite(approve="manual", life_s=60, max_uses=2)
    pending = await ask_and_end(door, tmp_path / "a", invite)
    if ended == "revoked":
        door.registry.invites.revoke(invite.token_id.hex())
    elif ended == "expired":
        pass_s(door, 61)
    else:
        door.registry.invites.consume(invite.token_id.hex(), "ab" * 32)
    door.registry.devices.approve(pending.device_id)
    assert (await go_on(tmp_path / "a")).device_id == pending.device_id


@pytest.mark.parametrize("waits_again", [False, True], ids=["while away", "while waiting again"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("deny", "removed this PC from the fleet.*Reason given: Not a company PC"), ("evict", "removed this PC"),
        ("ban", "has banned this PC"), ("retire", "was retired"), ("time", "Nobody approved the request within 7 days"),
    ],
)  # fmt: skip
async def test_a_no_ends_it_in_one_sentence_and_nothing_is_kept(
    door: Door, tmp_path: Path, how: str, said: str, *, waits_again: bool
) -> None:
    folder, states = tmp_path / "a", list[EnrolState]()
    pending = await ask_and_end(door, folder)

    def end() -> None:
        if how == "deny":
            door.registry.devices.deny(pending.device_id, "Not a company PC.")
        elif how == "time":
            pass_s(door, PENDING_LIFE_S + 1)
        else:
            door.registry.devices.revoke(pending.device_id, how)  # type: ignore[arg-type]

    if not waits_again:
        end()
    task = asyncio.create_task(go_on(folder, states.append))
    if waits_again:
        await until(lambda: any(state.url for state in states))
        end()
    with pytest.raises(EnrolmentDenied, match=said):
        await task
    assert left_in(folder) == []
    assert awaited(folder) is None


async def test_a_console_that_lost_the_request_says_what_to_do(door: Door, tmp_path: Path) -> None:
    """As one does that was restored from a backup which is older than the request."""
    folder = tmp_path / "a"
    await ask_and_end(door, folder)
    waiting = awaited(folder)
    assert waiting is not None
    keep_waiting(folder, msgspec.structs.replace(waiting, stem=create_key(folder, KEYS).stem))
    with pytest.raises(EnrolmentDenied, match=r"does not know that this PC waits.*new invite"):
        await go_on(folder)
    assert awaited(folder) is None


async def test_one_that_is_suspended_before_it_heard_of_its_approval_comes_in_when_resumed(
    door: Door, tmp_path: Path
) -> None:
    folder, states = tmp_path / "a", list[EnrolState]()
    pending = await ask_and_end(door, folder)
    door.registry.devices.approve(pending.device_id)
    door.registry.devices.suspend(pending.device_id, "Wait for Monday.")
    task = asyncio.create_task(go_on(folder, states.append))
    await until(lambda: "Wait for Monday" in last_said(states))
    door.registry.devices.resume(pending.device_id)
    assert (await task).device_id == pending.device_id


async def test_a_console_that_is_away_is_asked_until_it_is_back_and_the_owner_reads_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent.link.approval")
    folder, states = tmp_path / "a", list[EnrolState]()
    async with open_door(tmp_path / "console", clock=time.time) as door:
        pending = await ask_and_end(door, folder)
    task = asyncio.create_task(go_on(folder, states.append))
    await until(lambda: [bool(state.said) for state in states].count(True) >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "does not answer at" in last_said(states)
    assert caplog.text.count("Waiting for approval goes on") == 1, "a weekend of it would fill the log"
    async with open_door(tmp_path / "console", clock=time.time) as again:
        waiting = awaited(folder)
        assert waiting is not None
        keep_waiting(folder, msgspec.structs.replace(waiting, urls=("wss://127.0.0.1:1", again.url)))
        again.registry.devices.approve(pending.device_id)
        assert (await go_on(folder)).urls[0] == again.url


async def test_a_keyring_that_is_locked_at_login_is_waited_for(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, states, locked = tmp_path / "a", list[EnrolState](), [True]
    pending = await ask_and_end(door, folder)
    door.registry.devices.approve(pending.device_id)

    def load(folder: Path, stem: str, keystore: Keystore) -> DeviceKey:
        if locked[0]:
            raise KeyLocked("The keyring is locked; unlock it.")
        return load_key(folder, stem, keystore)

    monkeypatch.setattr(approval, "load_key", load)
    task = asyncio.create_task(go_on(folder, states.append))
    await until(lambda: "unlock it" in last_said(states))
    assert states[-1].device_code == pending.device_code, "the code is shown all the same"
    locked[0] = False
    assert (await task).device_id == pending.device_id


@pytest.mark.parametrize("damage", ["no key", "no passphrase", "rubbish"])
async def test_a_key_that_is_lost_ends_it_with_what_to_do(door: Door, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "a"
    await ask_and_end(door, folder)
    for path in folder.glob("key-*"):
        if damage == "no passphrase" and path.suffix == ".json":
            path.unlink()
        elif damage != "no passphrase" and path.suffix == ".pem":
            path.unlink() if damage == "no key" else path.write_bytes(b"rubbish")
    with pytest.raises(IdentityUnreadable, match="lost or damaged; join with a new invite"):
        await go_on(folder)
    assert left_in(folder) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token_id": 5}', b"\xff" * 40])
def test_a_damaged_note_is_no_waiting(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "enrolment.json").write_bytes(content)
    assert awaited(tmp_path) is None


async def test_a_copied_folder_does_not_wait_in_the_name_of_the_first_pc(door: Door, tmp_path: Path) -> None:
    folder, copy = tmp_path / "a", tmp_path / "copy"
    pending = await ask_and_end(door, folder)
    waiting = awaited(folder)
    assert waiting is not None
    shutil.copytree(folder, copy)
    keep_waiting(copy, msgspec.structs.replace(waiting, binding=Binding("ab" * 32, "cd" * 32)))
    with pytest.raises(IdentityCopied, match=r"copied from another PC.*new invite"):
        await go_on(copy)
    assert left_in(copy) == []
    door.registry.devices.approve(pending.device_id)
    assert (await go_on(folder)).device_id == pending.device_id


async def test_the_invite_again_is_the_same_request(door: Door, tmp_path: Path) -> None:
    invite = door.invite(approve="manual")
    pending = await ask_and_end(door, tmp_path / "a", invite)
    door.registry.devices.approve(pending.device_id)
    assert (await enrol_pc(invite, tmp_path / "a")).device_id == pending.device_id


async def test_another_invite_of_the_same_fleet_lets_the_same_request_in(door: Door, tmp_path: Path) -> None:
    pending = await ask_and_end(door, tmp_path / "a")
    identity = await enrol_pc(door.invite(approve="auto"), tmp_path / "a")
    assert identity.device_id == pending.device_id
    assert [device.state for device in door.registry.devices.list()] == ["active"]


async def test_another_invite_that_is_refused_leaves_the_request_waiting(door: Door, tmp_path: Path) -> None:
    pending = await ask_and_end(door, tmp_path / "a")
    expired = door.invite(life_s=60)
    pass_s(door, 61)
    with pytest.raises(InviteExpired):
        await enrol_pc(expired, tmp_path / "a")
    door.registry.devices.approve(pending.device_id)
    assert (await go_on(tmp_path / "a")).device_id == pending.device_id


async def test_another_fleets_invite_takes_the_first_request_back(door: Door, tmp_path: Path) -> None:
    await ask_and_end(door, tmp_path / "a")
    async with open_door(tmp_path / "other", clock=time.time, name="Other") as other:
        await enrol_pc(other.invite(), tmp_path / "a")
    (device,) = door.registry.devices.list()
    assert (device.state, device.reason) == ("retired", WITHDRAWN)


@pytest.mark.parametrize("meanwhile", ["nothing", "approved"])
async def test_who_no_longer_wants_in_is_off_the_list_and_keeps_nothing(
    door: Door, tmp_path: Path, meanwhile: str
) -> None:
    folder = tmp_path / "a"
    invite = door.invite(approve="manual")
    pending = await ask_and_end(door, folder, invite)
    if meanwhile == "approved":
        door.registry.devices.approve(pending.device_id)
    assert await withdraw(folder, keystore=KEYS)
    (device,) = door.registry.devices.list()
    assert (device.state, device.reason) == ("retired", WITHDRAWN)
    assert left_in(folder) == []
    assert await withdraw(folder, keystore=KEYS), "twice is fine"
    with pytest.raises(LinkError, match="used up"):
        await enrol_pc(invite, folder)
    assert (await enrol_pc(door.invite(), folder)).device_id != pending.device_id


async def test_who_no_longer_wants_in_need_not_wait_for_a_console_that_is_away(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    async with open_door(tmp_path / "console", clock=time.time) as door:
        await ask_and_end(door, folder)
    assert not await withdraw(folder, keystore=KEYS)
    assert left_in(folder) == []


async def test_a_member_can_not_be_thrown_out_with_a_key_it_has_replaced(
    door: Door, tmp_path: Path, expected_logs: Callable[..., None]
) -> None:
    """A copy of the key a PC once asked with takes nothing back; it shows that somebody has a copy."""
    expected_logs("console.fleet.admission", "two PCs use its identity")
    folder = tmp_path / "a"
    pending = await ask_and_end(door, folder)
    shutil.copytree(folder, tmp_path / "copy")
    door.registry.devices.approve(pending.device_id)
    await go_on(folder)
    fresh = create_key(tmp_path / "next", KEYS)
    keys = door.registry.device_keys
    certificate = keys.newest_certificate(pending.device_id, pending.spki_sha256)
    assert certificate is not None
    spki = fresh.spki_sha256.hex()
    renewed = msgspec.structs.replace(certificate, serial="ff", spki_sha256=spki)
    keys.renew(pending.device_id, signer=pending.spki_sha256, wanted=spki, generation=1, issue=lambda: renewed)
    keys.use(pending.device_id, spki)
    assert await withdraw(tmp_path / "copy", keystore=KEYS)
    assert door.registry.devices.list()[0].state == "suspended"


async def exchange(door: Door, make: Callable[[Greeting], Await]) -> FromEnroller:
    context = server_verifying_context(door.authority.authorities_pem)
    async with connect(
        door.url + ENROL_PATH, ssl=context, server_hostname=door.authority.server_hostname, compression=None, proxy=None
    ) as connection:
        hello = decode_from_enroller(await connection.recv())
        assert isinstance(hello, EnrolHello)
        await connection.send(encode_enrol(make(Greeting(hello.nonce, door.authority.server_certificate_der))))
        return decode_from_enroller(await connection.recv())


class Greeting(msgspec.Struct, frozen=True):
    nonce: bytes
    server_certificate: bytes


async def test_only_who_has_the_key_is_answered(door: Door, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    pending = await ask_and_end(door, folder)
    waiting = awaited(folder)
    assert waiting is not None
    key = load_key(folder, waiting.stem, KEYS)
    stranger = create_key(tmp_path / "b", KEYS)
    other = Authority.open(tmp_path / "other", KEYS).server_certificate_der
    recorded: list[Await] = []

    def honest(greeting: Greeting) -> Await:
        recorded.append(signed_request(key, greeting))
        return recorded[0]

    def with_strangers_key(greeting: Greeting) -> Await:
        return msgspec.structs.replace(signed_request(stranger, greeting), csr=recorded[0].csr)

    def turned_into_a_withdrawal(greeting: Greeting) -> Await:
        return msgspec.structs.replace(signed_request(key, greeting), withdraw=True)

    assert isinstance(await exchange(door, honest), Pending)
    for attempt in (
        lambda greeting: signed_request(stranger, greeting), lambda _: recorded[0], with_strangers_key,
        turned_into_a_withdrawal, lambda greeting: signed_request(key, Greeting(greeting.nonce, other), withdraw=True),
        lambda greeting: msgspec.structs.replace(signed_request(key, greeting), csr=b"rubbish"),
        lambda greeting: msgspec.structs.replace(signed_request(key, greeting), protocol=99),
    ):  # fmt: skip
        assert isinstance(await exchange(door, attempt), Refused)
    assert door.registry.devices.list() == [pending]
    door.registry.devices.approve(pending.device_id)
    assert isinstance(await exchange(door, lambda greeting: signed_request(key, greeting)), Granted)


async def test_what_is_kept_for_the_wait_opens_nothing_and_is_in_no_log(
    door: Door, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder, invite = tmp_path / "a", door.invite(approve="manual")
    await ask_and_end(door, folder, invite)
    states: list[EnrolState] = []
    task = asyncio.create_task(go_on(folder, states.append))
    await until(lambda: any(state.url for state in states))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        assert invite.token_secret not in path.read_bytes()
        assert invite.token_secret.hex().encode() not in path.read_bytes()
        if sys.platform != "win32":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    passphrase = load_key(folder, awaited(folder).stem, KEYS).passphrase.value  # type: ignore[union-attr]
    for secret in (invite.token_secret.hex(), passphrase):
        assert secret not in caplog.text + repr(states)


async def test_a_disk_that_is_full_costs_the_next_life_not_this_one(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.link.enrolment", "free some space")

    def full(folder: Path, waiting: object) -> None:
        if getattr(waiting, "waits", False):
            raise OSError(28, "No space left on device")
        keep_waiting(folder, waiting)  # type: ignore[arg-type]

    monkeypatch.setattr("agent.link.enrolment.keep_waiting", full)
    task = asyncio.create_task(enrol(door.invite(approve="manual"), tmp_path / "a", make_facts(), keystore=KEYS))
    await until(lambda: bool(door.registry.devices.list("pending")))
    door.registry.devices.approve(door.registry.devices.list()[0].device_id)
    assert (await task).device_id == door.registry.devices.list()[0].device_id
    assert await finish_in_thread(lambda: awaited(tmp_path / "a")) is None


async def test_a_wait_that_is_ended_while_the_answer_is_written_down_ends_as_a_member(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the console has a member, the disk an identity, and the program knows of neither."""
    folder, begun, goes_on = tmp_path / "a", threading.Event(), threading.Event()
    pending = await ask_and_end(door, folder)
    door.registry.devices.approve(pending.device_id)
    adopt = approval.adopt

    def slowly(*parts: Any) -> Identity:
        begun.set()
        goes_on.wait()
        return adopt(*parts)

    monkeypatch.setattr(approval, "adopt", slowly)
    task = asyncio.create_task(go_on(folder))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    goes_on.set()
    assert (await task).device_id == pending.device_id
