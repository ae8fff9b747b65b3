"""From the administrator's command line to the PC's data folder: the policy is set, signed, sent, judged and kept."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from agent.devices import find_runtime
from agent.link.authorities import read_authorities
from agent.link.channel import Backoff
from agent.link.enrolment import enrol
from agent.link.errors import LinkError
from agent.link.identity import Identity
from agent.link.invite import decode
from agent.link.keystore import Keystore
from agent.link.messages import (
    CONTROL_PATH,
    DATA_PATH,
    PolicyKept,
    Resting,
    VolunteerPolicy,
    decode_from_console,
    encode_message,
)
from agent.membership import Membership
from agent.service import AgentService
from agent.settings import AgentSettings
from agent.stage.gate import Gates
from agent.volunteer.documents import PolicyDocument
from agent.volunteer.duty import Volunteer
from agent.volunteer.errors import PolicyRefused
from agent.volunteer.keeping import PolicyKeeper
from agent.volunteer.schedule import format_schedule, parse_schedule
from agent.volunteer.states import Pause, Phase, Resume
from console import cli
from console.data import registry_path
from console.registry.registry import Registry
from console.service import ConsoleService, ServiceSettings
from tests.support.agents import Children
from tests.support.enrolment import make_facts
from tests.support.fleet import make_hello
from tests.support.patience import PATIENCE_S, until
from tests.support.volunteers import PlayedBoard, quick

KEYS = Keystore.files_only("test")


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False, heartbeat_s=PATIENCE_S)):
        yield tmp_path / "console"


async def run(folder: Path, *arguments: str, code: int = 0) -> Any:
    """Run a subcommand in a thread, as a person would beside the service; returns its JSON."""

    def call() -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert cli.main([*arguments, "--data", str(folder), "--json"]) == code
        return said.getvalue()

    text = await asyncio.to_thread(call)
    return json.loads(text) if text else None


class Pc:
    """An enrolled PC with both its links, that keeps what it is told."""

    def __init__(self, identity: Identity, data: Path) -> None:
        self.identity = identity
        self.control: ClientConnection
        self.keeper = PolicyKeeper(
            data,
            fleet=identity.fleet_id,
            device=identity.device_id,
            authorities=lambda: read_authorities(identity.authorities_pem),
            now_s=time.time(),
        )

    @contextlib.asynccontextmanager
    async def linked(self) -> AsyncIterator[None]:
        dialler = Membership(self.identity, KEYS).dialler
        self.control = await dialler.dial(CONTROL_PATH)
        await self.control.send(encode_message(make_hello(takes_policy=True)))
        await self.control.recv(decode=False)
        data = await dialler.dial(DATA_PATH)
        try:
            yield
        finally:
            await data.close()
            await self.control.close()

    async def told(self) -> VolunteerPolicy:
        """Wait for the next policy, keep it and answer."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = decode_from_console(await self.control.recv(decode=False))
                if isinstance(message, VolunteerPolicy):
                    break
        try:
            revision = self.keeper.take(PolicyDocument(message.body, message.signature), time.time())
            answer = PolicyKept(revision)
        except PolicyRefused as error:
            answer = PolicyKept(self.keeper.revision, error.code, str(error))
        await self.control.send(encode_message(answer))
        return message

    @property
    def idle_start_s(self) -> float:
        return self.keeper.merged(time.time()).policy.idle_start_s


@pytest.fixture
async def pc(folder: Path, tmp_path: Path) -> Pc:
    invite = await run(folder, "invite", "--auto-approve", "--tag", "office")
    try:
        identity = await enrol(decode(invite["text"]), tmp_path / "pc" / "identity", make_facts(), keystore=KEYS)
    except LinkError as error:
        pytest.fail(str(error))
    return Pc(identity, tmp_path / "pc")


async def until_kept(folder: Path, pc: Pc, key: str, is_wanted: Callable[[Any], bool]) -> None:
    """Wait until the console has kept a fact of a PC, which it writes every second."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with Registry.open(registry_path(folder)) as registry:
                record = registry.devices.find(pc.identity.device_id)
            if record is not None and is_wanted(record.facts.get(key)):
                return
            await asyncio.sleep(0.05)


async def test_what_an_administrator_sets_reaches_a_pc_at_once_and_when_it_connects(folder: Path, pc: Pc) -> None:
    await run(folder, "policy", "set", "idle_start_s=10min", "schedule=Mon-Fri 20:00-06:00")
    async with pc.linked():
        await pc.told()
        assert pc.idle_start_s == 600
        await run(folder, "policy", "set", "idle_start_s=20min", "--tag", "office")
        await pc.told()
        assert pc.idle_start_s == 1200
        await run(folder, "tag", pc.identity.device_id, "elsewhere")
        await pc.told()
        assert pc.idle_start_s == 600
        kept = {"revision": pc.keeper.revision, "code": "", "message": ""}
        await until_kept(folder, pc, "volunteer_policy", lambda fact: fact == kept)
    shown = await run(folder, "policy", "show")
    assert [(scope["tag"], scope["values"]) for scope in shown["scopes"]] == [
        ("", {"idle_start_s": 600.0, "schedule": format_schedule(parse_schedule("Mon-Fri 20:00-06:00"))}),
        ("office", {"idle_start_s": 1200.0}),
    ]


async def test_a_pc_that_refuses_the_policy_is_shown(folder: Path, pc: Pc, expected_logs: Any) -> None:
    expected_logs("console.fleet.policies", "does not take the policy")
    await run(folder, "policy", "set", "paused=yes")
    async with pc.linked():
        pc.keeper = PolicyKeeper(pc.identity.folder, fleet="another", device="pc", now_s=time.time())
        await pc.told()
        await until_kept(folder, pc, "volunteer_policy", bool)
    (refusal,) = (await run(folder, "policy", "show"))["refusals"]
    assert (refusal["device_id"], refusal["revision"]) == (pc.identity.device_id, 0)
    assert refusal["message"].endswith(".")


async def test_when_a_pc_tends_to_rest_is_kept_for_the_planner(folder: Path, pc: Pc, expected_logs: Any) -> None:
    expected_logs("console.fleet.policies", "in a way that cannot be")
    async with pc.linked():
        await pc.control.send(encode_message(Resting([500], 0.0)))
        await pc.control.send(encode_message(Resting([90] * 56, 3600.0)))
        kept = {"blocks": [90] * 56, "utc_offset_s": 3600.0}
        await until_kept(folder, pc, "resting", lambda fact: fact == kept)
    (shown,) = await run(folder, "agents")
    assert shown["rests_percent"] == 90


async def test_a_row_that_is_none_is_refused_with_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row in ("idle_start_s", "moon_phase=1", "idle_start_s=soon", "unattended=yes"):
        await run(folder, "policy", "set", row, code=1)
        said = capsys.readouterr().err
        assert said.startswith("fallow-console: "), row
        assert said.endswith(".\n"), row


@contextlib.asynccontextmanager
async def working(pc: Pc) -> AsyncIterator[Volunteer]:
    """Run an enrolled PC's agent, whose owner has been away for long."""
    folder = pc.identity.folder.parent
    volunteer = Volunteer(pc.keeper, Gates(folder / "gates"), PlayedBoard(), adjust=quick, jitter_s=0.0)
    service = AgentService(
        folder, pc.identity, AgentSettings(), volunteer, start_child=Children(), list_devices=find_runtime,
        backoff=Backoff(uniform=lambda low, high: 0.05), keystore=KEYS,
    )  # fmt: skip
    volunteer.resting = Resting([80] * 56, 0.0)
    tasks = [asyncio.create_task(service.run()), asyncio.create_task(volunteer.run(service))]
    try:
        await until(lambda: volunteer.state.phase is Phase.AVAILABLE)
        yield volunteer
    finally:
        service.stop()
        await tasks[0]
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_running_agent_obeys_its_administrator_but_never_against_its_owner(folder: Path, pc: Pc) -> None:
    async with working(pc) as volunteer:
        await until_kept(folder, pc, "resting", lambda fact: fact is not None and fact["blocks"] == [80] * 56)
        await run(folder, "policy", "set", "paused=yes")
        await until(lambda: volunteer.state.codes() == ["paused_by_admin"])
        volunteer.order(Pause(None))
        await run(folder, "policy", "set", "paused=default")
        await until(lambda: volunteer.state.codes() == ["paused_by_user"])
        volunteer.order(Resume())
        await until(lambda: volunteer.state.phase is Phase.AVAILABLE)
        kept = {"revision": volunteer.keeper.revision, "code": "", "message": ""}
        await until_kept(folder, pc, "volunteer_policy", lambda fact: fact == kept)
