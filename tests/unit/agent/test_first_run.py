"""A PC joins by itself with the invite an installer left, tries until it worked, and keeps no secret afterwards."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.control.errors import OrderRefused
from agent.first_run import FIRST_WAIT_S, LONGEST_WAIT_S, join_with_file
from agent.joining import MAX_INVITE_BYTES
from tests.conftest import ExpectLogs


class Played:
    """Enrolling that fails as often as told, and a sleep that only counts."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.invites: list[str] = []
        self.waits: list[float] = []

    async def enrol(self, invite: str, name: str, tell: Callable[[str, str], None]) -> str:
        assert name
        self.invites.append(invite)
        tell("pending", "ABCD-EFGH")
        if self.failures:
            raise self.failures.pop(0)
        return "Enrolled."

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def test_the_invite_is_used_and_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "agent.first_run")
    path = tmp_path / "invite.txt"
    path.write_bytes(b"\xef\xbb\xbfcfl1.secret\n")
    played = Played()
    await join_with_file(path, played.enrol, sleep=played.sleep)
    assert played.invites == ["cfl1.secret\n"]
    assert not path.exists()
    assert "ABCD-EFGH" in caplog.text
    assert "secret" not in caplog.text


async def test_it_is_tried_again_with_longer_and_longer_waits(tmp_path: Path, expected_logs: ExpectLogs) -> None:
    expected_logs("agent.first_run", "tried again in 30 s: no network")
    expected_logs("agent.first_run", "tried again")
    path = tmp_path / "invite.txt"
    path.write_text("cfl1.x", encoding="utf-8")
    played = Played(*[OrderRefused("no network", "failed")] * 7, OSError("disk"))
    await join_with_file(path, played.enrol, sleep=played.sleep)
    assert played.waits == [FIRST_WAIT_S, 60.0, 120.0, 240.0, 480.0, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert len(played.invites) == 9
    assert not path.exists()


async def test_a_file_that_is_no_invite_is_not_even_sent(tmp_path: Path, expected_logs: ExpectLogs) -> None:
    expected_logs("agent.first_run", "too long to be an invite")
    path = tmp_path / "invite.txt"
    path.write_bytes(b"x" * (MAX_INVITE_BYTES + 1))
    played = Played()

    async def somebody_removes_it(_: float) -> None:
        path.unlink()

    await join_with_file(path, played.enrol, sleep=somebody_removes_it)
    assert played.invites == []


async def test_a_file_that_may_not_be_read_is_said_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("agent.first_run", "You may not read .*invite.txt")
    path, played = tmp_path / "invite.txt", Played()
    path.write_text("cfl1.x", encoding="utf-8")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    async def somebody_corrects_it(_: float) -> None:
        rights.undo()

    with pytest.MonkeyPatch.context() as rights:
        rights.setattr(Path, "exists", refuse)
        rights.setattr(Path, "open", refuse)
        await join_with_file(path, played.enrol, sleep=somebody_corrects_it)
    assert played.invites == ["cfl1.x"]


@pytest.mark.parametrize("named", [True, False])
async def test_without_a_file_nothing_happens(tmp_path: Path, *, named: bool) -> None:
    played = Played()
    await join_with_file(tmp_path / "none.txt" if named else None, played.enrol, sleep=played.sleep)
    assert played.invites == []


async def test_what_was_denied_is_not_asked_again_and_the_invite_is_gone(
    tmp_path: Path, expected_logs: ExpectLogs
) -> None:
    expected_logs("agent.first_run", "is over: Not a company PC")
    path = tmp_path / "invite.txt"
    path.write_text("cfl1.x", encoding="utf-8")
    played = Played(OrderRefused("Not a company PC.", "denied"))
    await join_with_file(path, played.enrol, sleep=played.sleep)
    assert (len(played.invites), played.waits, path.exists()) == (1, [], False)


async def test_a_pc_that_waits_already_leaves_the_file_alone_until_that_is_over(tmp_path: Path) -> None:
    path, played, asked = tmp_path / "invite.txt", Played(), list[str]()
    path.write_text("cfl1.x", encoding="utf-8")

    async def ready() -> None:
        asked.append("ready")
        path.unlink()  # the wait was for this invite

    await join_with_file(path, played.enrol, ready, played.sleep)
    assert (asked, played.invites) == (["ready"], [])
