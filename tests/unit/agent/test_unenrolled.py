"""A PC in no fleet joins one at a time, and says what went wrong."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from agent.control.errors import OrderRefused
from agent.link.approval import EnrolState
from agent.link.errors import InviteExpired
from agent.link.keystore import Keystore
from agent.unenrolled import Unenrolled

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
