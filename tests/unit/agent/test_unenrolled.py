"""A PC in no fleet joins one at a time, and says what went wrong."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.control.errors import OrderRefused
from agent.link.approval import EnrolState
from agent.link.errors import EnrolmentDenied, InviteExpired
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.link.waiting import Waiting
from agent.unenrolled import Unenrolled
from tests.support.patience import PATIENCE_S, until

IDENTITY: Any = object()


def unenrolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join: Any) -> Unenrolled:
    monkeypatch.setattr("agent.unenrolled.join", join)
    monkeypatch.setattr("agent.unenrolled.invites.decode", lambda text: text)
    return Unenrolled(tmp_path, Keystore.files_only("agent"), lambda: None)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (InviteExpired("The invite has expired; ask for a new one."), "ask for a new one"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device.*free some space.*same invite"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/identity"), "/data/identity.*correct the rights"),
    ],
    ids=["expired", "full", "read-only"],
)
async def test_what_goes_wrong_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    async def join(*_: object, on_state: Any, **__: object) -> None:
        on_state(EnrolState("pending", "ABCD-EFGH-K"))
        raise failure

    heard = list[tuple[str, str]]()
    pc = unenrolled(tmp_path, monkeypatch, join)
    with pytest.raises(OrderRefused, match=said):
        await pc.join("an invite", "", lambda phase, code: heard.append((phase, code)))
    assert heard == [("pending", "ABCD-EFGH-K")]
    assert (pc.device_code, pc.link_phase) == ("", "unenrolled")


async def test_one_program_enrols_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ends = asyncio.Event(), asyncio.Event()

    async def join(*_: object, **__: object) -> object:
        begun.set()
        await ends.wait()
        return IDENTITY

    pc = unenrolled(tmp_path, monkeypatch, join)
    first = asyncio.create_task(pc.join("an invite", "", lambda phase, code: None))
    await begun.wait()
    with pytest.raises(OrderRefused, match="wait for it"):
        await pc.join("an invite", "", lambda phase, code: None)
    ends.set()
    assert await first is IDENTITY


WAITING = Waiting("ab" * 8, "key-00000001", "fleet", "Fleet", device_code="ABCD-EFGH-K", waits=True)


@dataclass
class Desk:
    """A PC that waits for what is kept in `kept`; `answers` ends the wait."""

    pc: Unenrolled
    kept: list[Waiting]
    begun: list[str]
    looking: threading.Event
    answer: asyncio.Future[Identity]
    members: list[Identity]


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    made = Desk(
        Unenrolled(tmp_path, Keystore.files_only("agent"), lambda: None), [WAITING], [], threading.Event(),
        asyncio.get_running_loop().create_future(), [],
    )  # fmt: skip
    made.looking.set()

    def look(_: Path) -> Waiting | None:
        kept = made.kept[0] if made.kept else None
        made.looking.wait()
        return kept

    async def wait(*_: object, on_state: Any, **__: object) -> Identity:
        made.begun.append("wait")
        on_state(EnrolState("pending", "ABCD-EFGH-K"))
        return await asyncio.shield(made.answer)

    async def join(*_: object, on_state: Any, **__: object) -> Identity:
        made.begun.append("join")
        on_state(EnrolState("connecting", "ABCD-EFGH-K"))
        for state in [EnrolState("pending", "ABCD-EFGH-K")] * 3:
            on_state(state)
        return IDENTITY  # type: ignore[no-any-return]

    async def withdraw(*_: object, **__: object) -> bool:
        made.kept.clear()
        return True

    def be(identity: Identity) -> str:
        made.members.append(identity)
        return "Enrolled."

    for name, played in (("awaited", look), ("await_approval", wait), ("join", join), ("withdraw", withdraw)):
        monkeypatch.setattr(f"agent.unenrolled.{name}", played)
    monkeypatch.setattr("agent.unenrolled.invites.decode", lambda text: text)
    by_itself = asyncio.create_task(made.pc.join_by_itself(be))
    yield made
    made.looking.set()
    by_itself.cancel()
    await asyncio.gather(by_itself, return_exceptions=True)


async def test_what_an_earlier_life_asked_for_is_waited_for(desk: Desk) -> None:
    await until(lambda: desk.pc.link_phase == "pending")
    assert desk.pc.device_code == "ABCD-EFGH-K"
    desk.answer.set_result(IDENTITY)
    await until(lambda: desk.members == [IDENTITY])


@pytest.mark.parametrize("moment", ["while it looks what there is to wait for", "while it waits"])
@pytest.mark.parametrize("order", ["join", "cancel"])
async def test_an_order_never_stands_behind_a_wait_without_end(desk: Desk, moment: str, order: str) -> None:
    if moment == "while it waits":
        await until(lambda: desk.begun == ["wait"])
    else:
        desk.looking.clear()
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, desk.looking.set)
    async with asyncio.timeout(PATIENCE_S):
        if order == "join":
            assert await desk.pc.join("an invite", "", lambda phase, code: None) is IDENTITY
        else:
            assert "no longer waits" in await desk.pc.cancel()


async def test_who_ordered_it_hears_of_each_step_once(desk: Desk) -> None:
    heard: list[str] = []
    assert await desk.pc.join("an invite", "", lambda phase, code: heard.append(phase)) is IDENTITY
    assert heard == ["connecting", "pending"]


async def test_a_wait_that_comes_to_nothing_says_why_until_the_next_try(
    desk: Desk, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.unenrolled", "Not a company PC")
    await until(lambda: desk.begun == ["wait"])
    desk.kept.clear()
    desk.answer.set_exception(EnrolmentDenied("Not a company PC.", "evicted"))
    await until(lambda: desk.pc.why_none == "Not a company PC.")
    assert (desk.pc.link_phase, desk.pc.device_code) == ("unenrolled", "")


async def test_nothing_to_end_is_said(desk: Desk) -> None:
    desk.kept.clear()
    await until(lambda: desk.begun == ["wait"])
    await desk.pc.cancel()
    with pytest.raises(OrderRefused, match="does not wait"):
        await desk.pc.cancel()


async def test_who_is_let_in_while_the_owner_ends_the_wait_is_a_member(desk: Desk) -> None:
    await until(lambda: desk.begun == ["wait"])
    running = desk.pc._running
    assert running is not None
    desk.answer.set_result(IDENTITY)
    await asyncio.wait({running})
    with pytest.raises(OrderRefused, match="just been let in; leave the fleet"):
        await desk.pc.cancel()
    await until(lambda: desk.members == [IDENTITY])
