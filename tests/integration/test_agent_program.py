"""The whole agent in one process, driven as the tray and the command line drive it: through its socket."""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agent import cli
from agent.control.client import ControlClient
from agent.control.errors import OrderRefused
from agent.control.protocol import Enrol, Leave, Pause, QueryHistory, Quit, Release, Resume, Told
from agent.link import invite as invites
from agent.link.messages import PROTOCOL, PolicyKept
from agent.program import Program
from agent.settings import AgentSettings
from agent.unenrolled import Unenrolled
from agent.volunteer.documents import PolicyBody
from agent.volunteer.policy import Wishes
from agent.volunteer.probes.base import SystemEvent
from console.fleet.errors import StageLoadFailed
from console.fleet.events import AgentLost, AgentYielded
from tests.support.fleet import Fleet, make_load, running_fleet
from tests.support.libraries import make_library
from tests.support.membership import open_office
from tests.support.patience import PATIENCE_S, until
from tests.support.programs import KEYS, follow, running


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, whose paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="fw") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
async def fleet(tmp_path: Path, runtime: Path) -> AsyncIterator[Fleet]:
    async with running_fleet(tmp_path) as fleet:
        yield fleet


async def test_a_pause_gives_everything_back_and_its_end_is_shown(fleet: Fleet) -> None:
    folder = fleet.folder / "data"
    folder.mkdir()
    identity = fleet.enrol("data/identity")
    library = fleet.folder / "library"
    _, digest = make_library(library)
    fleet.distribution.register(library)
    async with running(folder, identity) as agent, ControlClient.open(folder, "test") as client:
        assert (await follow(client, "available")).volunteer == "always"
        await fleet.hub.load(identity.device_id, make_load(library_digest=digest))
        serving = await follow(client, "serving")
        assert [(stage.pipeline, stage.done) for stage in serving.stages] == [(1, 1.0)]
        assert serving.icon == "contributing"
        await client.order(Pause(client.next_id(), "time", 3600.0))
        paused = await follow(client, "held")
        assert paused.icon == "paused"
        assert paused.headline.startswith("Paused by you for another")
        assert paused.pause_until_s == pytest.approx(time.time() + 3600, abs=60)
        assert paused.countdown is not None
        assert (paused.countdown.what, paused.stages) == ("resumes", [])
        assert agent.children.started[0].closed
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentYielded))
        await client.order(Resume(client.next_id()))
        await follow(client, "available")
        history = await client.order(QueryHistory(client.next_id(), 0.0, time.time() + 1))
        assert len(history.rows) == 1  # type: ignore[union-attr]


async def test_the_owner_s_view_follows_what_the_console_is_told(fleet: Fleet) -> None:
    folder = fleet.folder / "data"
    folder.mkdir()
    identity = fleet.enrol("data/identity")
    async with running(folder, identity) as agent, ControlClient.open(folder, "test") as client:
        seen = (await follow(client, "available")).seen_by_console
        assert seen["protocol"].startswith(str(PROTOCOL))
        service = agent.program._service
        assert service is not None
        assert service._session is not None
        service._session.say(PolicyKept(77))  # nothing else changes
        async with asyncio.timeout(PATIENCE_S):
            async for status in client.statuses():
                if status.seen_by_console["policy"] == "77":
                    break
        await client.order(Leave(client.next_id()))
        assert (await follow(client, "unenrolled")).seen_by_console == {}


async def test_leaving_says_goodbye_and_deletes_the_identity(fleet: Fleet) -> None:
    folder = fleet.folder / "data"
    folder.mkdir()
    identity = fleet.enrol("data/identity")
    async with running(folder, identity) as agent, ControlClient.open(folder, "test") as client:
        await follow(client, "available")
        agent.program._volunteer.keeper._admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf)
        with pytest.raises(OrderRefused, match="in a fleet already"):
            await client.order(Enrol(client.next_id(), "anything"))
        await client.order(Leave(client.next_id()))
        assert (await follow(client, "unenrolled")).device_id == ""
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
        assert fleet.events[-1] == AgentLost(identity.device_id, "The PC's owner left the fleet")
        assert not (folder / "identity").exists()
        assert agent.program._volunteer.keeper.revision == 0
        with pytest.raises(OrderRefused, match="in no fleet"):
            await client.order(Leave(client.next_id()))


async def test_a_device_an_administrator_forbids_is_given_back_and_offered_no_more(fleet: Fleet) -> None:
    folder = fleet.folder / "data"
    folder.mkdir()
    identity = fleet.enrol("data/identity")
    library = fleet.folder / "library"
    _, digest = make_library(library)
    fleet.distribution.register(library)

    def offered() -> list[str]:
        return [device.name for view in fleet.hub.agents() for device in view.hello.devices]

    async with running(folder, identity) as agent, ControlClient.open(folder, "test") as client:
        await follow(client, "available")
        assert "CPU" in offered()
        await fleet.hub.load(identity.device_id, make_load(library_digest=digest))
        volunteer = agent.program._volunteer
        admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf, Wishes(devices=frozenset({"GPU"})))
        volunteer.keeper._admin = admin
        volunteer.policy_changed()
        await fleet.wait_for(lambda: bool(fleet.hub.agents()) and "CPU" not in offered())
        assert agent.children.started[0].closed
        with pytest.raises(StageLoadFailed, match="CPU may not be used on this PC"):
            await fleet.hub.load(identity.device_id, make_load(library_digest=digest, epoch=2))
        assert len(agent.children.started) == 1
        volunteer.keeper._admin = None
        volunteer.policy_changed()
        await fleet.wait_for(lambda: "CPU" in offered())


async def test_an_agent_without_a_fleet_waits_and_is_enrolled_through_its_socket(tmp_path: Path, runtime: Path) -> None:
    (tmp_path / "office").mkdir()
    async with open_office(tmp_path / "office") as console:
        folder = tmp_path / "data"
        folder.mkdir()
        async with running(folder, None), ControlClient.open(folder, "test") as client:
            assert (await follow(client, "unenrolled")).icon == "attention"
            with pytest.raises(OrderRefused, match="invite"):
                await client.order(Enrol(client.next_id(), "no invite"))
            told: list[Told] = []
            done = await client.order(Enrol(client.next_id(), invites.encode(console.invite())), told.append)
            assert "Enrolled as device" in done.said  # type: ignore[union-attr]
            assert told[-1].phase == "enrolled"
            status = await follow(client, "available")
            assert (status.link, status.device_id) == ("connected", console.device().device_id)


async def test_an_invite_that_an_installer_left_is_used_and_gone(tmp_path: Path, runtime: Path) -> None:
    async with open_office(tmp_path / "office") as console:
        folder, invite = tmp_path / "data", tmp_path / "invite.txt"
        folder.mkdir()
        invite.write_text(invites.encode(console.invite()), encoding="utf-8")
        async with running(folder, None, invite), ControlClient.open(folder, "test") as client:
            status = await follow(client, "available")
            assert (status.link, status.device_id) == ("connected", console.device().device_id)
            assert not invite.exists()


async def test_the_end_is_ordered_through_the_socket_and_the_release_is_not_the_end(fleet: Fleet) -> None:
    folder = fleet.folder / "data"
    folder.mkdir()
    async with running(folder, fleet.enrol("data/identity")) as agent, ControlClient.open(folder, "test") as client:
        await follow(client, "available")
        await client.order(Release(client.next_id()))
        await follow(client, "held")
        await client.order(Quit(client.next_id()))
        await asyncio.wait_for(agent.task, PATIENCE_S)


async def test_the_command_line_is_a_client(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fleet.folder / "data"
    folder.mkdir()
    async with running(folder, fleet.enrol("data/identity")) as _, ControlClient.open(folder, "test") as client:
        await follow(client, "available")

        async def run(*words: str) -> tuple[int, str]:
            code = await asyncio.to_thread(cli.main, [*words, "--data", str(folder)])
            return code, capsys.readouterr().out

        code, out = await run("pause", "15min")
        assert (code, out.split()[:2]) == (0, ["Paused", "until"])
        await follow(client, "held")
        code, out = await run("status")
        assert (code, out.splitlines()[0][:28]) == (0, "Paused by you for another 15")
        assert (await run("resume"))[1] == "Resumed.\n"
        assert await run("policy", "idle_start_s=10min") == (0, "Kept.\n")
        assert "employee wants 600" in (await run("policy"))[1]
        assert (await run("history"))[1] == "Nothing was contributed in that time.\n"
        assert (await run("device", "GPU.9", "off"))[0] == 19
        assert "agent.link: DEBUG for" in (await run("log-level", "agent.link", "debug", "--for", "1h"))[1]
        assert (await run("log-level", "websockets", "DEBUG"))[0] == 19
        assert (await run("log-level", "agent.link"))[0] == 15
        assert (await run("leave"))[0] == 15
        assert (await run("pause", "soon"))[0] == 15


def test_without_an_agent_the_commands_say_so(tmp_path: Path, runtime: Path) -> None:
    assert cli.main(["pause", "1h", "--data", str(tmp_path)]) == 3
    assert cli.main(["policy", "--data", str(tmp_path)]) == 3


async def test_an_invite_that_an_installer_left_and_that_is_over_is_shown_with_what_to_do(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.first_run", "ask for a new one")

    async def refuse(*_: object, **__: object) -> None:
        raise OrderRefused("The invite has expired; ask for a new one.", "failed")

    (tmp_path / "invite.txt").write_text("fallow1.x")
    monkeypatch.setattr(Unenrolled, "join", refuse)
    async with running(tmp_path, None, tmp_path / "invite.txt") as agent:
        await until(lambda: "ask for a new one" in agent.program.status().link_message)


async def test_a_pc_whose_identity_is_of_no_use_shows_why_it_is_in_no_fleet(tmp_path: Path, runtime: Path) -> None:
    why = "The certificate of this PC is damaged; enrol this PC again with a new invite."
    status = Program(tmp_path, AgentSettings(), KEYS, None, why_none=why).status()
    assert (status.link, status.link_message) == ("stopped", why)


@pytest.mark.parametrize("event", ["suspending", "shutting_down"])
async def test_the_system_goes_on_as_soon_as_the_memory_is_back(
    tmp_path: Path, runtime: Path, event: SystemEvent
) -> None:
    program = Program(tmp_path, AgentSettings(), KEYS, None)
    reads, writes = os.pipe()
    program._delay._descriptor = writes
    program._hear(event)
    await until(lambda: not program._volunteer._empty.is_set())
    assert program._delay.is_held
    program._volunteer._look(program._unenrolled)
    await until(lambda: not program._delay.is_held)
    assert os.read(reads, 1) == b"", "the descriptor is closed, which is what logind waits for"
    os.close(reads)
