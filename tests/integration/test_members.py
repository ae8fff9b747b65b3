"""Invites with rules and the states of PCs, through the service, its client and the command line."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.link.enrolment import enrol
from agent.link.errors import EnrolmentDenied
from agent.link.identity import Identity
from agent.link.invite import decode
from agent.link.keystore import Keystore
from agent.link.renewal import diagnose
from agent.membership import Membership
from console import cli
from console.client import AdminClient
from console.errors import ServiceRefused
from console.service import ConsoleService, ServiceSettings
from tests.support.enrolment import make_facts
from tests.support.patience import PATIENCE_S

KEYS = Keystore.files_only("test")


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)):
        yield tmp_path / "console"


async def run(folder: Path, *arguments: str) -> Any:
    """Run a subcommand in a thread, as a person would beside the service; returns its JSON."""

    def call() -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = cli.main([*arguments, "--data", str(folder), "--json"])
        assert code == 0, said.getvalue()
        return said.getvalue()

    return json.loads(await asyncio.to_thread(call))


async def join(folder: Path, pc: Path, text: str, **facts: Any) -> Identity:
    return await enrol(decode(text), pc, make_facts(**facts), keystore=KEYS)


async def test_a_rule_lets_in_what_meets_it_and_leaves_the_rest_to_an_administrator(
    folder: Path, tmp_path: Path
) -> None:
    rule = ("--uses", "5", "--auto-approve", "--network", "127.0.0.0/8", "--host-name", "LAB-*", "--tag", "lab")
    invite = await run(folder, "invite", *rule, "--hours", "240")
    await join(folder, tmp_path / "a", invite["text"], host="lab-1")
    waiting = asyncio.create_task(join(folder, tmp_path / "b", invite["text"], host="reception"))
    async with asyncio.timeout(PATIENCE_S):
        while len(agents := await run(folder, "agents")) < 2:
            await asyncio.sleep(0.05)
    assert {agent["name"]: (agent["state"], agent["tags"]) for agent in agents} == {
        "lab-1": ("active", ["lab"]),
        "reception": ("pending", ["lab"]),
    }
    (listed,) = await run(folder, "invites", "list")
    assert (listed["uses"], listed["rule"]) == (2, {"networks": ["127.0.0.0/8"], "names": ["LAB-*"]})
    code = next(agent["device_code"] for agent in agents if agent["name"] == "reception")
    await run(folder, "deny", code, "--reason", "Not a lab PC.")
    with pytest.raises(EnrolmentDenied, match="Not a lab PC"):
        await waiting


async def test_an_invite_that_lets_in_many_unseen_needs_a_condition_or_a_short_life(folder: Path) -> None:
    def call() -> None:
        with AdminClient.for_data_folder(folder) as console:
            console.create_invite(uses=9, hours=24, auto_approve=True)
            for wrong in ({"hours": 25.0}, {"hours": 25.0, "networks": ["10.0.0.0/99"]}):
                with pytest.raises(ServiceRefused) as refused:
                    console.create_invite(uses=9, auto_approve=True, **wrong)
                assert refused.value.status == 400

    await asyncio.to_thread(call)


async def test_a_pc_is_suspended_resumed_retired_and_merged(folder: Path, tmp_path: Path) -> None:
    first = await join(folder, tmp_path / "a", (await run(folder, "invite", "--auto-approve"))["text"])
    await run(folder, "suspend", first.device_id, "--reason", "Being repaired.")
    told = await diagnose(first)
    assert (told.code, "Being repaired." in told.message) == ("suspended", True)
    await run(folder, "resume", first.device_id)
    assert (await diagnose(first)).code == "ok"
    await run(folder, "tag", first.device_id, "floor-2", "quiet")
    second = await join(folder, tmp_path / "b", (await run(folder, "invite", "--auto-approve"))["text"])
    agents = {agent["device_id"]: agent for agent in await run(folder, "agents")}
    if agents[first.device_id]["same_machine"]:  # a container may have no machine id
        assert agents[first.device_id]["same_machine"] == [second.device_id]
    await run(folder, "merge", second.device_id, first.device_id)
    agents = {agent["device_id"]: agent for agent in await run(folder, "agents")}
    assert agents[second.device_id]["tags"] == ["floor-2", "quiet"]
    assert agents[first.device_id]["state"] == "retired"
    assert (await diagnose(first)).code == "retired"
    await run(folder, "revoke", second.device_id, "--retire", "--reason", "Sold.")
    assert "Sold." in (await diagnose(second)).message


async def test_the_root_is_rotated_step_by_step_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    identity = await join(folder, tmp_path / "a", (await run(folder, "invite", "--auto-approve"))["text"])
    before = await run(folder, "authority", "show")
    assert (before["phase"], len(before["roots"])) == ("steady", 1)
    assert (await run(folder, "authority", "rotate"))["phase"] == "announced"
    after = await run(folder, "authority", "rotate", "--at-once")
    assert (after["phase"], len(after["roots"])) == ("switched", 2)
    assert after["pin"] != before["pin"]
    membership = Membership(identity, KEYS)
    assert await membership.learn_authorities()
    assert (await diagnose(membership.identity)).code == "ok"
