"""Two consoles on one PostgreSQL registry: one fleet, one audit log, the same keys, each sees the other's PCs."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from agent.link.authorities import read_authorities
from agent.link.channel import Dialler
from agent.link.enrolment import enrol
from agent.link.identity import Identity, client_context, load_identity
from agent.link.invite import decode
from agent.link.keystore import Keystore
from agent.link.messages import BULK_PATH, CONTROL_PATH, DATA_PATH, encode_message
from agent.link.renewal import renew
from agent.membership import Membership
from console.client import AdminClient
from console.data import admin_key_path
from console.errors import DataFolderUnusable
from console.fleet.policies import PolicyPost
from console.service import ConsoleService, ServiceSettings
from tests.support.enrolment import make_facts
from tests.support.fleet import ScriptedAgent, make_hello
from tests.support.membership import copy_data_folder
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Server

KEYS = Keystore.files_only("test")
Two = tuple[ConsoleService, ConsoleService]


def settings(folder: Path, database: str) -> ServiceSettings:
    return ServiceSettings(
        folder=folder, database=database, keyring=False, fleet_name="Nordlicht", heartbeat_s=PATIENCE_S
    )


@pytest.fixture
def database(postgres: Server) -> str:
    return postgres.registry()


@pytest.fixture
async def two(tmp_path: Path, database: str) -> AsyncIterator[Two]:
    async with (
        ConsoleService(settings(tmp_path / "a", database)) as first,
        ConsoleService(settings(tmp_path / "b", database)) as second,
    ):
        yield first, second


async def ask(service: ConsoleService, call: Callable[[AdminClient], Any]) -> Any:
    def run() -> Any:
        with AdminClient.for_data_folder(service.data_folder) as console:
            return call(console)

    return await asyncio.to_thread(run)


async def join(service: ConsoleService, pc: Path) -> Identity:
    invite = await ask(service, lambda console: console.create_invite(auto_approve=True))
    return await enrol(decode(invite.text), pc, make_facts(), keystore=KEYS)


async def moved_to(service: ConsoleService, identity: Identity) -> Identity:
    """The identity with the other console's address, once it has learnt to trust that."""
    record = msgspec.structs.replace(identity.record, urls=service.agents_urls())
    membership = Membership(dataclasses.replace(identity, record=record), KEYS)
    async with asyncio.timeout(PATIENCE_S):
        # It may know both since it joined: the consoles greet each other while it does.
        while len(read_authorities(membership.identity.authorities_pem)) < 2:
            await membership.learn_authorities()
            await asyncio.sleep(0.1)
    return membership.identity


async def link(service: ConsoleService, identity: Identity) -> ScriptedAgent:
    """Open both links of an agent by hand."""
    dialler = Dialler(service.agents_urls(), client_context(identity), identity.server_hostname)
    control = await dialler.dial(CONTROL_PATH)
    await control.send(encode_message(make_hello()))
    await control.recv(decode=False)
    return ScriptedAgent(identity, control, await dialler.dial(DATA_PATH))


async def until_seen(service: ConsoleService, device_id: str, link_state: str, *, elsewhere: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            agents = await ask(service, lambda console: console.agents())
            (agent,) = [agent for agent in agents if agent.device_id == device_id]
            if (agent.link, bool(agent.console)) == (link_state, elsewhere):
                return
            await asyncio.sleep(0.05)


async def test_keys_and_the_audit_log_are_shared_and_each_console_has_its_own_admin_key(two: Two) -> None:
    first, second = two
    made = await ask(first, lambda console: console.create_key("someone"))
    async with httpx2.AsyncClient(base_url=second.api_url) as http:
        response = await http.get("/v1/models", headers={"Authorization": f"Bearer {made.secret}"})
        assert response.status_code == 200
    entries = await ask(second, lambda console: console.audit())
    assert {"key.create", "console.join"} <= {entry.action for entry in entries}
    assert admin_key_path(first.data_folder).read_text() != admin_key_path(second.data_folder).read_text()
    assert (await ask(first, lambda console: console.status())).agents_known == 0


async def test_a_pc_of_one_console_is_seen_by_the_other_and_may_be_revoked_there(two: Two, tmp_path: Path) -> None:
    first, second = two
    agent = await link(first, await join(first, tmp_path / "pc"))
    await until_seen(second, agent.device_id, "connected", elsewhere=True)
    await until_seen(first, agent.device_id, "connected", elsewhere=False)
    await ask(second, lambda console: console.revoke(agent.device_id, reason="Sold."))
    async with asyncio.timeout(PATIENCE_S):
        await agent.control.wait_closed()
    assert agent.control.close_code == 4403
    await until_seen(second, agent.device_id, "offline", elsewhere=False)


async def test_a_pc_that_only_fetches_files_may_be_revoked_at_the_other_console(two: Two, tmp_path: Path) -> None:
    first, second = two
    identity = await join(first, tmp_path / "pc")
    bulk = await Dialler(first.agents_urls(), client_context(identity), identity.server_hostname).dial(BULK_PATH)
    await ask(second, lambda console: console.revoke(identity.device_id, reason="Sold."))
    async with asyncio.timeout(PATIENCE_S):
        await bulk.wait_closed()
    assert bulk.close_code == 4403


async def test_a_policy_that_cannot_be_passed_on_keeps_no_revocation_back(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Any
) -> None:
    expected_logs("console.fleet.presence", "policy cannot be passed on")
    tried = asyncio.Event()

    async def fails(_: PolicyPost) -> None:
        tried.set()
        raise ValueError("a row of a newer console")

    monkeypatch.setattr(PolicyPost, "catch_up", fails)
    first, second = two
    agent = await link(first, await join(first, tmp_path / "pc"))
    await until_seen(second, agent.device_id, "connected", elsewhere=True)
    tried.clear()
    async with asyncio.timeout(PATIENCE_S):
        await tried.wait()  # not every round passes policies on
        await ask(second, lambda console: console.revoke(agent.device_id))
        await agent.control.wait_closed()
    assert agent.control.close_code == 4403


async def test_a_pc_of_one_console_may_connect_to_the_other(two: Two, tmp_path: Path) -> None:
    first, second = two
    identity = await moved_to(second, await join(first, tmp_path / "pc"))
    agent = await link(second, await renew(identity, KEYS))
    await until_seen(first, agent.device_id, "connected", elsewhere=True)
    await agent.close()


@pytest.mark.expected_logs("console.fleet.presence", "two consoles")
async def test_copies_at_two_consoles_are_both_held(two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.registry.consoles.SILENT_S", 3.0)
    first, second = two
    identity = await join(first, tmp_path / "pc")
    copy_data_folder(tmp_path / "pc", tmp_path / "copy")
    copy = await link(second, await moved_to(second, load_identity(tmp_path / "copy", KEYS)))
    original = await link(first, identity)
    for agent in (original, copy):
        async with asyncio.timeout(PATIENCE_S):
            await agent.control.wait_closed()
        assert agent.control.close_code == 4403
    (device,) = await ask(first, lambda console: console.agents())
    assert device.state == "suspended"


async def test_a_console_of_another_fleet_is_refused(two: Two, tmp_path: Path, database: str) -> None:
    async with ConsoleService(ServiceSettings(folder=tmp_path / "c", keyring=False)):
        pass
    with pytest.raises(DataFolderUnusable, match="another data folder or another database"):
        await ConsoleService(settings(tmp_path / "c", database)).start()
