"""Enrolling over real TLS on loopback: from an invite to links that are let in or refused."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.http11 import Response

from agent.link.approval import EnrolState
from agent.link.enrol_messages import (
    MAX_ENROL_BYTES,
    EnrolHello,
    FromEnroller,
    Granted,
    Poll,
    Refused,
    Submit,
    decode_from_enroller,
    encode_enrol,
    submission_mac,
)
from agent.link.enrolment import enrol
from agent.link.errors import (
    ClockWrong,
    ConsoleUnreachable,
    EnrolmentDenied,
    InviteExpired,
    InviteRefused,
    InviteUsedUp,
    PinMismatch,
    ProtocolMismatch,
    TlsInspected,
)
from agent.link.identity import Identity, client_context, load_identity, server_verifying_context
from agent.link.invite import Invite
from agent.link.keystore import Keystore
from agent.link.messages import ENROL_PATH
from agent.link.renewal import diagnose
from console.fleet.admission import Admission
from console.fleet.enrol import EnrolHandler
from console.fleet.ratelimit import RateLimiter
from console.registry.authority import Authority
from console.registry.records import DeviceRecord
from tests.support.enrolment import Clock, Door, enrol_pc, make_facts, open_door
from tests.support.patience import PATIENCE_S

KEYS = Keystore.files_only("test")


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path / "console", clock=Clock(time.time())) as opened:
        yield opened


def clock_of(door: Door) -> Clock:
    assert isinstance(door.clock, Clock)
    return door.clock


async def wait_for_pending(door: Door) -> DeviceRecord:
    async with asyncio.timeout(PATIENCE_S):
        while not (devices := door.registry.devices.list("pending")):
            await asyncio.sleep(0.005)
    return devices[0]


async def test_two_pcs_enrol_and_are_let_in_as_two_devices(door: Door, tmp_path: Path) -> None:
    invite = door.invite(max_uses=2)
    first = await enrol_pc(invite, tmp_path / "a")
    second = await enrol_pc(invite, tmp_path / "b")
    assert await door.visit(first) == first.device_id
    assert await door.visit(second) == second.device_id
    assert first.device_id != second.device_id
    assert first.key_protection == "file"
    assert {device.state for device in door.registry.devices.list()} == {"active"}


async def test_what_a_pc_says_of_itself_is_taken_in_as_one_visible_line(door: Door, tmp_path: Path) -> None:
    facts = make_facts(host="pc-17\nZZZZ-ZZZZ\u202e", os="Linux\x1b[2K", devices=["CPU\u2028"])
    await enrol(door.invite(), tmp_path / "a", facts, keystore=KEYS)
    (device,) = door.registry.devices.list()
    assert device.name == "pc-17�ZZZZ-ZZZZ�"
    assert (device.facts["os"], device.facts["devices"]) == ("Linux�[2K", ["CPU�"])


async def test_an_identity_survives_a_restart_of_the_agent(door: Door, tmp_path: Path) -> None:
    made = await enrol_pc(door.invite(), tmp_path / "a")
    loaded = load_identity(tmp_path / "a", KEYS)
    assert loaded.device_id == made.device_id
    assert await door.visit(loaded) == made.device_id


async def test_a_console_that_restarts_knows_its_fleet_and_its_devices(tmp_path: Path) -> None:
    async with open_door(tmp_path / "console", clock=time.time) as door:
        identity = await enrol_pc(door.invite(), tmp_path / "a")
        invite = door.invite()
    async with open_door(tmp_path / "console", clock=time.time) as again:
        assert await again.visit(identity) == identity.device_id
        moved = msgspec.structs.replace(invite, urls=[again.url])
        assert (await enrol_pc(moved, tmp_path / "b")).fleet_id == identity.fleet_id


async def test_an_invite_is_used_up_by_its_last_pc(door: Door, tmp_path: Path) -> None:
    invite = door.invite(max_uses=1)
    await enrol_pc(invite, tmp_path / "a")
    with pytest.raises(InviteUsedUp, match="used up"):
        await enrol_pc(invite, tmp_path / "b")


async def test_two_pcs_at_once_cannot_share_the_last_use(door: Door, tmp_path: Path) -> None:
    invite = door.invite(max_uses=1)
    results = await asyncio.gather(*(enrol_pc(invite, tmp_path / name) for name in "abc"), return_exceptions=True)
    assert sum(isinstance(result, Identity) for result in results) == 1
    assert sum(isinstance(result, InviteUsedUp) for result in results) == 2


async def test_a_double_click_enrols_one_device(door: Door, tmp_path: Path) -> None:
    invite = door.invite(max_uses=1)
    first, second = await asyncio.gather(enrol_pc(invite, tmp_path / "a"), enrol_pc(invite, tmp_path / "a"))
    assert first.device_id == second.device_id
    assert len(door.registry.devices.list()) == 1
    assert load_identity(tmp_path / "a", KEYS).device_id == first.device_id


async def test_an_expired_invite_is_refused_by_the_consoles_clock(door: Door, tmp_path: Path) -> None:
    invite = door.invite(life_s=60)
    clock_of(door).now_s += 61
    with pytest.raises(InviteExpired, match="expired on"):
        await enrol_pc(invite, tmp_path / "a")
    assert door.registry.devices.list() == []


async def test_the_console_checks_the_invites_time_itself(door: Door, tmp_path: Path) -> None:
    invite = door.invite(life_s=60)
    clock_of(door).now_s += 61
    prolonged = msgspec.structs.replace(invite, expires_at_s=invite.expires_at_s + 10_000)
    with pytest.raises(InviteExpired, match="has expired"):
        await enrol_pc(prolonged, tmp_path / "a")


async def test_a_revoked_invite_is_refused(door: Door, tmp_path: Path) -> None:
    invite = door.invite()
    door.registry.invites.revoke(invite.token_id.hex())
    with pytest.raises(InviteRefused, match="revoked"):
        await enrol_pc(invite, tmp_path / "a")


async def test_a_guessed_secret_is_refused_like_an_unknown_invite(door: Door, tmp_path: Path) -> None:
    invite = door.invite()
    for wrong in (
        msgspec.structs.replace(invite, token_secret=bytes(16)),
        msgspec.structs.replace(invite, token_id=bytes(8)),
    ):
        with pytest.raises(InviteRefused, match="does not know the invite"):
            await enrol_pc(wrong, tmp_path / "a")
    assert door.registry.devices.list() == []


async def test_both_sides_see_the_same_device_code_and_approval_lets_in(door: Door, tmp_path: Path) -> None:
    states: list[EnrolState] = []
    task = asyncio.create_task(enrol_pc(door.invite(approve="manual"), tmp_path / "a", on_state=states.append))
    pending = await wait_for_pending(door)
    door.registry.devices.approve(door.registry.devices.resolve(pending.device_code).device_id)
    identity = await task
    assert {state.device_code for state in states} == {pending.device_code}
    assert states[-1].phase == "enrolled"
    assert await door.visit(identity) == pending.device_id


async def test_a_denied_pc_reads_the_administrators_reason(door: Door, tmp_path: Path) -> None:
    invite = door.invite(approve="manual")
    task = asyncio.create_task(enrol_pc(invite, tmp_path / "a"))
    pending = await wait_for_pending(door)
    door.registry.devices.deny(pending.device_id, "Not a company PC.")
    with pytest.raises(EnrolmentDenied, match="Not a company PC"):
        await task
    assert list((tmp_path / "a").glob("key-*")) == []


async def test_a_pc_that_stops_waiting_continues_with_the_same_key(door: Door, tmp_path: Path) -> None:
    invite = door.invite(approve="manual", life_s=60)
    task = asyncio.create_task(enrol_pc(invite, tmp_path / "a"))
    pending = await wait_for_pending(door)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    door.registry.devices.approve(pending.device_id)
    clock_of(door).now_s += 120  # the invite has expired meanwhile, its use has not
    assert (await enrol_pc(invite, tmp_path / "a")).device_id == pending.device_id


async def test_a_lost_answer_is_asked_for_again_and_counts_once(door: Door, tmp_path: Path) -> None:
    invite = door.invite(max_uses=1)
    door.cut_replies = 2
    identity = await enrol_pc(invite, tmp_path / "a")
    assert door.cut_replies == 0
    assert [device.device_id for device in door.registry.devices.list()] == [identity.device_id]
    assert door.registry.invites.list()[0].uses == 1
    assert door.registry.devices.list()[0].generation == 1


async def test_a_console_that_never_answers_leaves_an_enrolment_that_can_continue(door: Door, tmp_path: Path) -> None:
    invite = door.invite(max_uses=1)
    door.cut_replies = 5
    with pytest.raises(ConsoleUnreachable, match="same invite"):
        await enrol_pc(invite, tmp_path / "a")
    assert (await enrol_pc(invite, tmp_path / "a")).device_id == door.registry.devices.list()[0].device_id


async def test_a_revoked_pc_is_refused_and_told_why(door: Door, tmp_path: Path) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    door.registry.devices.revoke(identity.device_id, "evict", "Laptop was returned.")
    assert (await door.visit(identity)).startswith("4403 An administrator has removed this PC")
    answer = await diagnose(identity)
    assert (answer.code, "Laptop was returned." in answer.message) == ("evicted", True)


async def test_an_evicted_pc_comes_back_with_a_new_invite_and_a_banned_key_does_not(door: Door, tmp_path: Path) -> None:
    first = await enrol_pc(door.invite(), tmp_path / "a")
    door.registry.devices.revoke(first.device_id, "evict")
    second = await enrol_pc(door.invite(), tmp_path / "a", force=True)
    assert await door.visit(second) == second.device_id
    assert second.device_id != first.device_id
    door.registry.devices.revoke(second.device_id, "ban")
    assert (await door.visit(second)).startswith("4403 An administrator has banned")


async def test_enrolling_again_keeps_a_usable_identity_and_the_invite(door: Door, tmp_path: Path) -> None:
    first = await enrol_pc(door.invite(), tmp_path / "a")
    unused = door.invite()
    again = await enrol_pc(unused, tmp_path / "a")
    assert again.device_id == first.device_id
    assert {invite.token_id: invite.uses for invite in door.registry.invites.list()}[unused.token_id.hex()] == 0


async def test_a_damaged_identity_is_put_aside_and_replaced(door: Door, tmp_path: Path) -> None:
    await enrol_pc(door.invite(), tmp_path / "a")
    (tmp_path / "a" / "identity.json").write_bytes(b'{"fleet_id":')
    again = await enrol_pc(door.invite(), tmp_path / "a")
    assert await door.visit(again) == again.device_id
    assert (tmp_path / "a" / "identity.json.unreadable").exists()
    assert len(list((tmp_path / "a").glob("key-*.crt.pem"))) == 1


async def test_an_identity_that_cannot_be_read_now_is_neither_put_aside_nor_replaced(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, read = await enrol_pc(door.invite(), tmp_path / "a"), Path.read_bytes
    unused, before = door.invite(), sorted(tmp_path.glob("a/*"))

    def refuse(path: Path) -> bytes:
        if path.name.startswith("key-"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(PermissionError):
            await enrol_pc(unused, tmp_path / "a")
    assert sorted(tmp_path.glob("a/*")) == before
    assert (await enrol_pc(unused, tmp_path / "a")).device_id == first.device_id
    assert {invite.token_id: invite.uses for invite in door.registry.invites.list()}[unused.token_id.hex()] == 0


async def test_a_certificate_of_another_fleet_is_refused(door: Door, tmp_path: Path) -> None:
    async with open_door(tmp_path / "other", clock=time.time, name="Other") as other:
        stranger = await enrol_pc(other.invite(), tmp_path / "a")
    context = server_verifying_context(door.authority.authorities_pem)
    stem = stranger.folder / stranger.record.stem
    context.load_cert_chain(f"{stem}.crt.pem", f"{stem}.pem", password=lambda: stranger.passphrase.value)
    with pytest.raises((InvalidMessage, ConnectionClosed, OSError)):
        async with connect(
            f"{door.url}/control", ssl=context, server_hostname=door.authority.server_hostname, proxy=None
        ) as connection:
            await connection.recv()


async def test_an_identity_does_not_trust_another_fleets_console(door: Door, tmp_path: Path) -> None:
    async with open_door(tmp_path / "other", clock=time.time, name="Other") as other:
        stranger = await enrol_pc(other.invite(), tmp_path / "a")
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(
            f"{door.url}/control", ssl=client_context(stranger), server_hostname=stranger.server_hostname, proxy=None
        )


async def test_without_a_certificate_only_enrolment_is_open(door: Door) -> None:
    async with open_connection(door, "/control") as connection:
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401


async def test_an_invite_of_another_fleet_does_not_match_the_pin(door: Door, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other", KEYS, fleet_name="Other")
    invite = door.invite(fleet_id=other.fleet_id, ca_spki_sha256=other.ca_spki_sha256)
    with pytest.raises(PinMismatch, match="not the one this invite was made for"):
        await enrol_pc(invite, tmp_path / "a")
    assert door.registry.invites.list()[0].uses == 0


async def test_a_pc_of_one_fleet_does_not_slip_into_another(door: Door, tmp_path: Path) -> None:
    first = await enrol_pc(door.invite(), tmp_path / "a")
    async with open_door(tmp_path / "other", clock=time.time, name="Other") as other:
        with pytest.raises(EnrolmentDenied, match="already belongs to the fleet 'Test fleet'"):
            await enrol_pc(other.invite(), tmp_path / "a")
        moved = await enrol_pc(other.invite(), tmp_path / "a", force=True)
        assert moved.fleet_id != first.fleet_id


async def test_the_address_that_works_is_tried_after_those_that_do_not(door: Door, tmp_path: Path) -> None:
    invite = door.invite(urls=["wss://127.0.0.1:1", "wss://console.invalid:1", door.url])
    identity = await enrol_pc(invite, tmp_path / "a")
    assert identity.urls[0] == door.url
    assert set(identity.urls) == set(invite.urls)


async def test_an_unreachable_console_is_named_with_every_address(door: Door, tmp_path: Path) -> None:
    invite = door.invite(urls=["wss://127.0.0.1:1", "wss://127.0.0.1:2"])
    with pytest.raises(ConsoleUnreachable, match=r"127\.0\.0\.1:1 .*127\.0\.0\.1:2"):
        await enrol_pc(invite, tmp_path / "a")


async def test_a_web_server_in_place_of_the_console_is_recognised(door: Door, tmp_path: Path) -> None:
    def login_page(connection: ServerConnection, _: object) -> Response:
        return connection.respond(200, "<html>Please log in</html>")

    async def nobody(_: ServerConnection) -> None:
        return

    context = door.authority.server_context()
    async with serve(nobody, "127.0.0.1", 0, ssl=context, process_request=login_page) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(ProtocolMismatch, match="HTTP 200"):
            await enrol_pc(door.invite(urls=[f"wss://127.0.0.1:{port}"]), tmp_path / "a")


async def test_tls_inspection_is_named(door: Door, tmp_path: Path) -> None:
    inspector = Authority.open(tmp_path / "inspector", KEYS, fleet_name="Proxy Corp")
    handler = EnrolHandler(Admission(door.registry, door.authority))
    async with serve(handler.handle, "127.0.0.1", 0, ssl=inspector.server_context()) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(TlsInspected, match="Proxy Corp"):
            await enrol_pc(door.invite(urls=[f"wss://127.0.0.1:{port}"]), tmp_path / "a")


async def test_a_pc_whose_clock_is_off_is_told_by_how_much(door: Door, tmp_path: Path) -> None:
    two_years_s = 2 * 365 * 86_400
    with pytest.raises(ClockWrong, match="730 days ahead"):
        await enrol_pc(door.invite(), tmp_path / "a", now=lambda: time.time() + two_years_s)


async def test_diagnosis_tells_an_expired_certificate_from_a_good_one(door: Door, tmp_path: Path) -> None:
    identity = await enrol_pc(door.invite(), tmp_path / "a")
    assert (await diagnose(identity)).code == "ok"
    clock_of(door).now_s += 31 * 86_400
    assert (await diagnose(identity)).code == "expired"


async def test_no_secret_is_logged_or_kept_in_the_clear(
    door: Door, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    invite = door.invite(approve="manual")
    task = asyncio.create_task(enrol_pc(invite, tmp_path / "a"))
    door.registry.devices.approve((await wait_for_pending(door)).device_id)
    identity = await task
    text = caplog.text + repr(identity) + repr(door.registry.audit.list())
    secret = invite.token_secret
    for canary in (secret.hex(), repr(secret)[2:-1], base64.b64encode(secret).decode(), identity.passphrase.value):
        assert canary not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(secret not in path.read_bytes() and b"BEGIN PRIVATE" not in path.read_bytes() for path in files)


@contextlib.asynccontextmanager
async def open_connection(door: Door, path: str = ENROL_PATH) -> AsyncIterator[ClientConnection]:
    context = server_verifying_context(door.authority.authorities_pem)
    async with connect(
        f"{door.url}{path}", ssl=context, server_hostname=door.authority.server_hostname, proxy=None, compression=None
    ) as connection:
        yield connection


async def close_code(connection: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        await connection.recv()
    assert closed.value.rcvd is not None
    return int(closed.value.rcvd.code)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", "text", b"\x81\xa4type\xa7Granted"])
async def test_what_is_no_message_closes_the_connection(door: Door, data: bytes | str) -> None:
    async with open_connection(door) as connection:
        await connection.recv()
        await connection.send(data)
        assert await close_code(connection) == 4400


async def test_a_message_over_the_limit_closes_the_connection(door: Door) -> None:
    async with open_connection(door) as connection:
        await connection.recv()
        with contextlib.suppress(ConnectionClosed):
            await connection.send(bytes(MAX_ENROL_BYTES + 1))
        assert await close_code(connection) == 1009


async def test_polling_before_submitting_is_refused(door: Door) -> None:
    async with open_connection(door) as connection:
        await connection.recv()
        await connection.send(encode_enrol(Poll()))
        assert isinstance(decode_from_enroller(await connection.recv()), Refused)


def make_submit(invite: Invite, hello: EnrolHello, server_certificate: bytes) -> Submit:
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    csr, nonce = request.public_bytes(Encoding.DER), bytes(32)
    secret_sha256 = hashlib.sha256(invite.token_secret).digest()
    mac = submission_mac(secret_sha256, hello.nonce, nonce, csr, server_certificate)
    return Submit(1, invite.token_id, csr, nonce, make_facts(), mac)


async def exchange(door: Door, make: Callable[[EnrolHello], Submit]) -> FromEnroller:
    async with open_connection(door) as connection:
        hello = decode_from_enroller(await connection.recv())
        assert isinstance(hello, EnrolHello)
        await connection.send(encode_enrol(make(hello)))
        return decode_from_enroller(await connection.recv())


async def test_a_recorded_submission_cannot_be_played_on_another_connection(door: Door) -> None:
    invite, recorded = door.invite(), []

    def record(hello: EnrolHello) -> Submit:
        recorded.append(make_submit(invite, hello, door.authority.server_certificate_der))
        return recorded[0]

    assert isinstance(await exchange(door, record), Granted)
    reply = await exchange(door, lambda _: recorded[0])
    assert isinstance(reply, Refused)
    assert reply.code == "invite_unknown"


async def test_a_submission_meant_for_another_console_is_refused(door: Door, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other", KEYS)
    invite = door.invite()
    reply = await exchange(door, lambda hello: make_submit(invite, hello, other.server_certificate_der))
    assert isinstance(reply, Refused)


async def test_a_source_that_connects_too_often_is_told_to_wait(door: Door) -> None:
    handler = EnrolHandler(Admission(door.registry, door.authority), limiter=RateLimiter(burst=1, per_s=0.001))
    async with serve(handler.handle, "127.0.0.1", 0, ssl=door.authority.server_context()) as server:
        door.url = f"wss://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        async with open_connection(door) as connection:
            assert isinstance(decode_from_enroller(await connection.recv()), EnrolHello)
        async with open_connection(door) as connection:
            reply = decode_from_enroller(await connection.recv())
    assert isinstance(reply, Refused)
    assert reply.code == "busy"
