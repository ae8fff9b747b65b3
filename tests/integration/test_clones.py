"""One PC that restarts is one device; two PCs with one identity are both held, however the second one comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.link.identity import client_context, load_identity
from agent.link.mark import keep_mark, read_mark
from agent.link.messages import CONTROL_PATH, Hello, MarkKept, Welcome, decode_from_console, encode_message
from agent.membership import Membership
from agent.service import AgentService
from console.registry.devices import CLONED
from tests.support.fleet import make_hello
from tests.support.membership import KEYS, Office, open_office
from tests.support.patience import PATIENCE_S, until

HELD = pytest.mark.expected_logs("console.fleet.clones", "two PCs use its identity")


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as opened:
        yield opened


def is_connected(agent: AgentService) -> bool:
    return agent.state.link == "connected"


def is_held(agent: AgentService) -> bool:
    return agent.state.link == "refused" and agent.state.message == CLONED


async def test_twenty_restarts_are_one_device(office: Office) -> None:
    data = await office.enrol("pc")
    mark_path = load_identity(data / "identity", KEYS).mark_path
    marks = set[str]()
    for number in range(20):
        agent = await office.start(data)
        await until(lambda: bool(office.hub.agents()))
        if number % 3:
            # Two of three end after the mark was saved, the others in the middle of it.
            await until(lambda: read_mark(mark_path) not in marks | {""})
        await office.stop(agent)
        await until(lambda: not office.hub.agents())
        marks.add(read_mark(mark_path))
    device = office.device()
    assert (device.state, device.generation) == ("active", 1)
    assert len(marks) >= 13


async def test_a_mark_that_is_still_being_written_is_waited_for(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = load_identity(await office.enrol("pc") / "identity", KEYS)
    begun, may_write = threading.Event(), threading.Event()

    def slow(path: Path, mark: str) -> bool:
        begun.set()
        return may_write.wait(PATIENCE_S) and keep_mark(path, mark)

    monkeypatch.setattr("agent.membership.keep_mark", slow)
    keeping = asyncio.create_task(Membership(identity, KEYS).keep("3-ab"))
    await asyncio.to_thread(begun.wait, 10)
    keeping.cancel()
    _, pending = await asyncio.wait({keeping}, timeout=0.05)
    assert pending
    may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert read_mark(identity.mark_path) == "3-ab"


async def test_an_agent_that_is_killed_and_comes_back_is_no_copy(office: Office) -> None:
    data = await office.enrol("pc")
    for _ in range(3):
        agent = await office.start(data)
        await until(lambda a=agent: is_connected(a))  # type: ignore[misc]  # bound now
        (_, task) = office.agents.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert office.device().state == "active"


@HELD
async def test_a_copy_that_runs_beside_the_original_has_both_held(office: Office) -> None:
    data = await office.enrol("pc")
    original = await office.start(data)
    await until(lambda: is_connected(original))
    copy = await office.start(office.copy(data, "copy"))
    await until(lambda: is_held(original) and is_held(copy))
    assert office.hub.agents() == []
    device = office.device()
    assert (device.state, device.reason) == ("suspended", CLONED)
    entries = [entry for entry in office.registry.audit.list() if entry.action == "device.quarantine"]
    assert len(entries) == 1
    assert "connected at once" in entries[0].detail["evidence"]


@HELD
async def test_a_copy_that_runs_when_the_original_does_not_has_both_held_when_it_does(office: Office) -> None:
    data = await office.enrol("pc")
    copied = office.copy(data, "copy")
    original = await office.start(data)
    await until(lambda: bool(office.confirmed_mark()))
    await office.stop(original)
    copy = await office.start(copied)
    await until(lambda: is_held(copy))
    again = await office.start(data)
    await until(lambda: is_held(again))
    assert office.device().state == "suspended"


@HELD
async def test_an_administrator_lets_the_original_back_in_and_the_copy_enrols_anew(office: Office) -> None:
    data = await office.enrol("pc")
    original = await office.start(data)
    await until(lambda: is_connected(original))
    copied = office.copy(data, "copy")
    copy = await office.start(copied)
    await until(lambda: is_held(original) and is_held(copy))
    await office.stop(copy)
    office.registry.devices.resume(office.device().device_id)
    await until(lambda: is_connected(original))
    assert office.device().state == "active"


async def open_control(office: Office, data: Path, hello: Hello) -> tuple[object, Welcome]:
    from websockets.asyncio.client import connect

    identity = load_identity(data / "identity", KEYS)
    link = await connect(
        f"{office.url}{CONTROL_PATH}",
        ssl=client_context(identity),
        server_hostname=identity.server_hostname,
        compression=None,
        proxy=None,
    )
    await link.send(encode_message(hello))
    welcome = decode_from_console(await link.recv(decode=False))
    assert isinstance(welcome, Welcome)
    return link, welcome


async def test_a_program_that_answers_no_more_makes_room_for_its_restart(tmp_path: Path) -> None:
    async with open_office(tmp_path, pong_wait_s=0.05) as office:
        data = await office.enrol("pc")
        hung, welcome = await open_control(office, data, make_hello())
        hung.transport.pause_reading()  # type: ignore[attr-defined]  # as a PC that went to sleep
        keep_mark(load_identity(data / "identity", KEYS).mark_path, welcome.mark)
        agent = await office.start(data)
        await until(lambda: is_connected(agent))
        assert office.device().state == "active"
        hung.transport.abort()  # type: ignore[attr-defined]  # a websocket


async def test_a_mark_that_was_not_confirmed_may_be_shown_or_not(office: Office) -> None:
    data = await office.enrol("pc")
    link, first = await open_control(office, data, make_hello())
    await link.close()  # type: ignore[attr-defined]  # a websocket
    link, second = await open_control(office, data, make_hello())
    await link.close()  # type: ignore[attr-defined]  # a websocket
    assert first.mark != second.mark
    link, _ = await open_control(office, data, make_hello(mark=second.mark))
    await link.send(encode_message(MarkKept("0-of-another-session")))  # type: ignore[attr-defined]  # a websocket
    await link.close()  # type: ignore[attr-defined]  # a websocket
    link, _ = await open_control(office, data, make_hello(mark=second.mark))
    await link.close()  # type: ignore[attr-defined]  # a websocket
    assert office.device().state == "active"
