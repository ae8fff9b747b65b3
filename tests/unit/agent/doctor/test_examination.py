"""What the doctor says of an identity that cannot be used."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent.doctor import examination
from agent.link.errors import IdentityMissing, IdentityUnreadable, KeyLocked
from agent.link.keystore import Keystore
from agent.link.waiting import Waiting, keep_waiting


@pytest.mark.parametrize(
    ("failure", "enrols"),
    [
        (IdentityUnreadable("It is damaged."), True),
        (KeyLocked("The keyring is locked; unlock it."), False),
        (PermissionError(errno.EACCES, "Permission denied", "/data/identity/identity.json"), False),
    ],
    ids=["damaged", "locked", "out of reach"],
)
async def test_only_a_lost_identity_asks_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, enrols: bool
) -> None:
    def load(*_: object) -> None:
        raise failure

    async def examine(_: object) -> list[object]:
        return []

    monkeypatch.setattr(examination, "load_identity", load)
    monkeypatch.setattr(examination, "examine", examine)
    (found,) = await examination.examine_agent(tmp_path, Keystore.files_only("agent"))
    assert (found.check, found.verdict) == ("identity", "problem")
    assert ("fallow-agent enrol" in found.advice) == enrols


def test_a_pc_that_waits_for_approval_is_not_told_to_enrol_again(tmp_path: Path) -> None:
    missing = IdentityMissing("This PC is not enrolled.")
    assert "enrol" in examination._unusable(missing, tmp_path).advice
    (tmp_path / "identity").mkdir()
    keep_waiting(tmp_path / "identity", Waiting("ab" * 8, "key-00000001", device_code="ABCD-EFGH-K", waits=True))
    found = examination._unusable(missing, tmp_path)
    assert "its code is ABCD-EFGH-K" in found.said
    assert "enrol" not in found.advice
