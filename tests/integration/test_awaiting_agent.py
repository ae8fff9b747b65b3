"""The whole agent goes on waiting for approval in its next life: with a tray, alone, with an installer's invite."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agent import cli
from agent.control.client import ControlClient
from agent.control.errors import OrderRefused
from agent.control.protocol import CancelEnrolment, Done, Enrol, Told
from agent.control.status import Status
from agent.link import approval
from agent.link import invite as invites
from agent.link.approval import awaited
from agent.link.invite import Invite
from agent.settings import lock_folder
from console.registry.devices import WITHDRAWN
from console.registry.records import DeviceRecord
from tests.support.membership import Office, open_office
from tests.support.patience import PATIENCE_S, until
from tests.support.programs import KEYS, follow, running


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(approval, "LONGEST_RETRY_S", 0.05)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, whose paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="fw") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    (tmp_path / "office").mkdir()
    async with open_office(tmp_path / "office") as office:
        yield office


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def pending(office: Office) -> list[DeviceRecord]:
    return office.registry.devices.list("pending")


async def pending_status(client: ControlClient, said: str = "") -> Status:
    async with asyncio.timeout(PATIENCE_S):
        async for status in client.statuses():
            if status.phase == "pending" and said in status.link_message:
                return status
    raise AssertionError


@contextlib.asynccontextmanager
async def ordered(client: ControlClient, invite: Invite) -> AsyncIterator[asyncio.Task[object]]:
    """The order of a tray to join, until it has asked; whoever ordered leaves with the client."""
    told: list[Told] = []
    order = Enrol(client.next_id(), invites.encode(invite), "pc-17")
    task = asyncio.create_task(client.order(order, told.append))
    await until(lambda: any(one.phase == "pending" for one in told))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_once(office: Office, folder: Path, invite: Invite | None = None) -> DeviceRecord:
    """One life of an agent in which the owner pastes an invite and an administrator does not come."""
    async with (
        running(folder, None),
        ControlClient.open(folder, "tray") as client,
        ordered(client, invite or office.invite(approve="manual")),
    ):
        return pending(office)[0]


@pytest.mark.parametrize("when", ["while it was off", "while it waits again"])
async def test_the_next_life_waits_by_itself_and_is_let_in(office: Office, folder: Path, when: str) -> None:
    asked = await wait_once(office, folder)
    if when == "while it was off":
        office.registry.devices.approve(asked.device_id)
    async with running(folder, None), ControlClient.open(folder, "tray") as client:
        if when == "while it waits again":
            status = await pending_status(client)
            assert status.device_code == asked.device_code
            assert [device.device_id for device in pending(office)] == [asked.device_id], "listed once"
            office.registry.devices.approve(asked.device_id)
        status = await follow(client, "available")
        assert (status.link, status.device_id) == ("connected", asked.device_id)
    assert awaited(folder / "identity") is None


async def test_waiting_goes_on_when_whoever_ordered_it_leaves(office: Office, folder: Path) -> None:
    """A tray that is closed or crashes, a command that is ended: the agent waits all the same."""
    async with running(folder, None):
        async with ControlClient.open(folder, "tray") as client, ordered(client, office.invite(approve="manual")):
            pass
        async with ControlClient.open(folder, "tray") as client:
            assert (await pending_status(client)).device_code == pending(office)[0].device_code
            office.registry.devices.approve(pending(office)[0].device_id)
            await follow(client, "available")


@pytest.mark.parametrize("when", ["while it was off", "while it waits again"])
async def test_a_no_is_shown_in_one_sentence_and_the_pc_may_ask_anew(
    office: Office, folder: Path, when: str, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.unenrolled", "Not a company PC")
    asked = await wait_once(office, folder)
    if when == "while it was off":
        office.registry.devices.deny(asked.device_id, "Not a company PC.")
    async with running(folder, None), ControlClient.open(folder, "tray") as client:
        if when == "while it waits again":
            await pending_status(client)
            office.registry.devices.deny(asked.device_id, "Not a company PC.")
        async with asyncio.timeout(PATIENCE_S):
            async for status in client.statuses():
                if "Not a company PC" in status.link_message:
                    break
        assert (status.phase, status.device_code) == ("unenrolled", "")
        assert awaited(folder / "identity") is None
        await client.order(Enrol(client.next_id(), invites.encode(office.invite())))
        assert (await follow(client, "available")).link_message == ""


async def test_the_owner_ends_the_wait_and_the_console_lists_it_no_more(office: Office, folder: Path) -> None:
    await wait_once(office, folder)
    async with running(folder, None), ControlClient.open(folder, "tray") as client:
        await pending_status(client)
        done = await client.order(CancelEnrolment(client.next_id()))
        assert isinstance(done, Done)
        assert done.said == "This PC no longer waits for approval; to join later it needs a new invite."
        assert (await follow(client, "unenrolled")).link_message == ""
        with pytest.raises(OrderRefused, match="does not wait for approval"):
            await client.order(CancelEnrolment(client.next_id()))
        await client.order(Enrol(client.next_id(), invites.encode(office.invite())))
        await follow(client, "available")
    assert pending(office) == []
    assert {device.reason for device in office.registry.devices.list("retired")} == {WITHDRAWN}


async def test_ending_the_wait_answers_whoever_ordered_it(office: Office, folder: Path) -> None:
    async with (
        running(folder, None),
        ControlClient.open(folder, "tray") as client,
        ControlClient.open(folder, "cli") as other,
        ordered(client, office.invite(approve="manual")) as order,
    ):
        await other.order(CancelEnrolment(other.next_id()))
        with pytest.raises(OrderRefused, match="no longer waits"):
            await order
    assert pending(office) == []


@pytest.mark.parametrize("ordered_now", [True, False], ids=["ordered in this life", "of an earlier life"])
async def test_another_invite_takes_the_place_of_the_wait(office: Office, folder: Path, *, ordered_now: bool) -> None:
    if not ordered_now:
        await wait_once(office, folder)
    async with running(folder, None), ControlClient.open(folder, "tray") as client:
        waiting = ordered(client, office.invite(approve="manual")) if ordered_now else contextlib.nullcontext()
        async with waiting, ControlClient.open(folder, "cli") as other:
            await pending_status(other)
            await other.order(Enrol(other.next_id(), invites.encode(office.invite())))
            await follow(other, "available")
    assert [device.state for device in office.registry.devices.list()] == ["active"], "the same request"


@pytest.mark.parametrize("why", ["damaged", "expired"])
async def test_another_invite_that_is_of_no_use_leaves_the_wait_as_it_is(
    office: Office, folder: Path, why: str
) -> None:
    asked = await wait_once(office, folder)
    other = office.invite()
    office.registry.invites.revoke(other.token_id.hex())
    async with running(folder, None), ControlClient.open(folder, "tray") as client:
        await pending_status(client)
        with pytest.raises(OrderRefused, match="invite"):
            await client.order(Enrol(client.next_id(), invites.encode(other) if why == "expired" else "fallow1.x"))
        await pending_status(client)
        office.registry.devices.approve(asked.device_id)
        await follow(client, "available")


async def test_a_console_that_is_away_at_the_start_is_said_and_waited_for(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "office").mkdir()
    async with open_office(tmp_path / "office") as office:
        asked = await wait_once(office, folder)
    async with running(folder, None), ControlClient.open(folder, "tray") as client:
        status = await pending_status(client, "does not answer at")
        assert status.device_code == asked.device_code


@pytest.mark.parametrize("max_uses", [1, 9], ids=["for one PC", "for many"])
@pytest.mark.parametrize("end", ["approve", "deny", "cancel"])
async def test_an_installers_invite_waits_over_lives_as_one_request_and_is_gone_at_the_end(
    office: Office, folder: Path, tmp_path: Path, end: str, max_uses: int, expected_logs: Callable[..., None]
) -> None:
    if end == "deny":
        expected_logs("agent.unenrolled", "Not a company PC")
    path = tmp_path / "invite.txt"
    path.write_text(invites.encode(office.invite(approve="manual", max_uses=max_uses)), encoding="utf-8")
    for _ in range(2):
        async with running(folder, None, path), ControlClient.open(folder, "tray") as client:
            await pending_status(client)
            await until(lambda: bool(pending(office)) and awaited(folder / "identity") is not None)
            assert len(office.registry.devices.list()) == 1
    async with running(folder, None, path), ControlClient.open(folder, "tray") as client:
        await pending_status(client)
        device = pending(office)[0].device_id
        if end == "approve":
            office.registry.devices.approve(device)
            await follow(client, "available")
        elif end == "deny":
            office.registry.devices.deny(device, "Not a company PC.")
            await follow(client, "unenrolled")
        else:
            await client.order(CancelEnrolment(client.next_id()))
        await until(lambda: not path.exists())
    async with running(folder, None, path) if end != "approve" else contextlib.nullcontext():
        await asyncio.sleep(0)
    assert len(office.registry.devices.list()) == 1, "nobody was asked again"
    assert office.registry.invites.list()[0].uses == 1


async def command(*words: str, folder: Path) -> int:
    return await asyncio.to_thread(cli.main, [*words, "--data", str(folder)])


async def test_the_command_line_ends_the_wait_with_and_without_an_agent(
    office: Office, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.cli_enrol.Keystore", lambda label: KEYS)
    assert await command("enrol", "--cancel", folder=folder) == 0
    assert "does not wait" in capsys.readouterr().out
    asked = await wait_once(office, folder)
    assert await command("status", folder=folder) == cli.EXIT_NOT_RUNNING
    assert asked.device_code in capsys.readouterr().out
    assert await command("enrol", "--cancel", folder=folder) == 0
    assert "no longer waits" in capsys.readouterr().out
    assert pending(office) == []
    await wait_once(office, folder)
    with lock_folder(folder):
        async with running(folder, None):
            assert await command("enrol", "--cancel", folder=folder) == 0
    assert "no longer waits" in capsys.readouterr().out
    assert pending(office) == []


@pytest.mark.parametrize("end", ["approve", "deny"])
async def test_a_run_that_waits_for_no_tray_goes_on_before_it_serves(
    office: Office, folder: Path, tmp_path: Path, end: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    served: list[str] = []
    monkeypatch.setattr("agent.cli_enrol.Keystore", lambda label: KEYS)
    monkeypatch.setattr(cli, "_serve", lambda options, found, *_: served.append(found[0].device_id))
    invite = office.invite(approve="manual")
    asked = await wait_once(office, folder, invite)
    path = tmp_path / "invite.txt"
    path.write_text(invites.encode(invite), encoding="utf-8")
    task = asyncio.create_task(command("run", "--invite-file", str(path), folder=folder))
    await until(lambda: asked.device_code in capsys.readouterr().out)
    if end == "approve":
        office.registry.devices.approve(asked.device_id)
    else:
        office.registry.devices.deny(asked.device_id, "Not a company PC.")
    assert await task == (0 if end == "approve" else 12)
    assert served == ([asked.device_id] if end == "approve" else [])
    assert not path.exists()
    assert awaited(folder / "identity") is None
