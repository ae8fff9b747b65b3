"""agent.cli_enrol: with which identity `run` begins, and whom `enrol` finds in its way."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import cli_enrol
from agent.cli import main
from agent.cli_enrol import identity_for_run
from agent.link.errors import IdentityCopied, IdentityMissing, IdentityUnreadable, KeyLocked
from agent.settings import DataFolderBusy, lock_folder

IDENTITY: Any = object()
DAMAGED, COPIED = IdentityUnreadable("It is damaged; enrol again."), IdentityCopied("It was copied; enrol again.")


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception | None], None]:
    """Let an identity be found, or what goes wrong instead."""

    def meet(failure: Exception | None) -> None:
        def load(*_: object) -> object:
            if failure is not None and not isinstance(failure, IdentityCopied):
                raise failure
            return IDENTITY

        def check(_: object) -> None:
            if isinstance(failure, IdentityCopied):
                raise failure

        monkeypatch.setattr(cli_enrol, "load_identity", load)
        monkeypatch.setattr(cli_enrol, "ensure_made_here", check)

    return meet


def test_a_usable_identity_needs_no_invite(tmp_path: Path, meet: Callable[[Exception | None], None]) -> None:
    meet(None)
    assert identity_for_run(tmp_path, tmp_path / "no invite", wait=False) == (IDENTITY, "")


@pytest.mark.parametrize("failure", [DAMAGED, COPIED], ids=["damaged", "copied"])
def test_who_waits_for_an_identity_waits_instead_of_one_that_is_lost_and_knows_why(
    tmp_path: Path, meet: Callable[[Exception | None], None], failure: Exception, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.cli_enrol", "enrol again")
    meet(failure)
    assert identity_for_run(tmp_path, None, wait=True) == (None, str(failure))
    with pytest.raises(type(failure)):
        identity_for_run(tmp_path, None, wait=False)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    "failure", [KeyLocked("Unlock the keyring."), PermissionError(errno.EACCES, "Permission denied")]
)
def test_one_that_is_locked_or_out_of_reach_is_no_reason_to_wait_for_another(
    tmp_path: Path, meet: Callable[[Exception | None], None], failure: Exception, wait: bool
) -> None:
    meet(failure)
    with pytest.raises(type(failure)):
        identity_for_run(tmp_path, None, wait=wait)


def test_without_one_who_waits_has_no_reason_to_tell(tmp_path: Path, meet: Callable[[Exception | None], None]) -> None:
    meet(IdentityMissing("This PC is not enrolled."))
    assert identity_for_run(tmp_path, None, wait=True) == (None, "")
    with pytest.raises(IdentityMissing):
        identity_for_run(tmp_path, None, wait=False)


@pytest.mark.parametrize("words", [["--cancel"], ["--invite-file", "invite.txt"]])
def test_an_agent_that_hears_no_orders_yet_is_named_and_not_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agent.cli_enrol.invites.decode", lambda text: text)
    (tmp_path / "invite.txt").write_text("fallow1.abc.defghijk")
    with lock_folder(tmp_path):
        code = main(["enrol", "--data", str(tmp_path), *words])
    said = capsys.readouterr().err
    assert code == DataFolderBusy.exit_code
    assert "end it with Ctrl-C" in said
    assert "not running" not in said
